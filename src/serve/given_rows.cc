#include "serve/given_rows.h"

#include <algorithm>
#include <utility>

#include "model/batch_limits.h"

namespace jige::serve {

GivenTable::GivenTable(std::vector<GivenRowsRef> rows) : rows_(std::move(rows)) {
  std::erase(rows_, nullptr);
  std::ranges::sort(rows_, {}, &GivenRows::first_id);
  // A prompt may have an image several times.
  const auto twice = std::ranges::unique(rows_);
  rows_.erase(twice.begin(), twice.end());
}

Status GivenTable::check(int64_t vocab_size, int64_t width) const {
  int64_t least = vocab_size;
  for (const GivenRowsRef& rows : rows_) {
    JIGE_DO(model::check_range("the first id of given rows", rows->first_id, least, INT32_MAX));
    JIGE_DO(model::check_range("the token of given rows", rows->token, 0, vocab_size - 1));
    if (rows->count < 1 || std::ssize(rows->values) != rows->count * width) {
      return fail(Code::kInvalidArgument, "{} given rows of {} numbers have {} in all", rows->count,
                  width, rows->values.size());
    }
    least = rows->id_end();
  }
  return {};
}

const GivenRows* GivenTable::find(int32_t id) const {
  const auto behind = std::ranges::upper_bound(rows_, id, {}, &GivenRows::first_id);
  if (behind == rows_.begin()) return nullptr;
  const GivenRows& rows = **std::prev(behind);
  return id < rows.id_end() ? &rows : nullptr;
}

std::vector<int32_t> GivenTable::tokens(std::span<const int32_t> ids) const {
  std::vector<int32_t> tokens(ids.begin(), ids.end());
  for (int32_t& token : tokens) {
    if (const GivenRows* const rows = find(token)) token = rows->token;
  }
  return tokens;
}

void GivenTable::place(std::span<int32_t> tokens, int32_t first_row,
                       std::vector<model::GivenRow>& given) const {
  if (empty()) return;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const GivenRows* const rows = find(tokens[i]);
    if (!rows) continue;
    const auto width = static_cast<int64_t>(rows->values.size()) / rows->count;
    given.push_back({.row = first_row + static_cast<int32_t>(i),
                     .values = rows->values.data() + (tokens[i] - rows->first_id) * width});
    tokens[i] = rows->token;
  }
}

}  // namespace jige::serve
