#include "serve/given_rows.h"

#include <algorithm>
#include <utility>

#include "model/batch_limits.h"

namespace jige::serve {

GivenTable::GivenTable(std::vector<GivenRowsRef> rows, std::span<const int32_t> prompt)
    : rows_(std::move(rows)) {
  std::erase(rows_, nullptr);
  std::ranges::sort(rows_, {}, &GivenRows::first_id);
  // A prompt may have an image several times.
  const auto twice = std::ranges::unique(rows_);
  rows_.erase(twice.begin(), twice.end());
  find_places(prompt);
}

void GivenTable::find_places(std::span<const int32_t> prompt) {
  if (std::ranges::none_of(rows_, [](const auto& rows) { return rows->columns > 0; })) return;
  std::vector<model::ImageGrid> grids;
  for (int64_t i = 0; i < std::ssize(prompt); ++i) {
    const GivenRows* const rows = find(prompt[static_cast<size_t>(i)]);
    if (!rows || rows->columns < 1) continue;
    const auto run = prompt.subspan(static_cast<size_t>(i));
    int64_t count = 0;
    while (count < std::min(rows->count, std::ssize(run)) &&
           run[static_cast<size_t>(count)] == rows->first_id + count) {
      ++count;
    }
    if (count < rows->count || count % rows->columns != 0) {
      cut_index_ = i;
      return;
    }
    grids.push_back({.begin = static_cast<int32_t>(i),
                     .rows = static_cast<int32_t>(count / rows->columns),
                     .columns = rows->columns});
    i += count - 1;
  }
  places_.emplace(grids);
}

Status GivenTable::check(const Bounds& bounds) const {
  const int64_t width = bounds.width;
  int64_t least = bounds.vocab_size;
  for (const GivenRowsRef& rows : rows_) {
    JIGE_DO(model::check_range("the first id of given rows", rows->first_id, least, INT32_MAX));
    JIGE_DO(model::check_range("the token of given rows", rows->token, 0, bounds.vocab_size - 1));
    JIGE_DO(model::check_range("the levels of given rows", rows->levels, 1,
                               bounds.turns_by_places ? 1 + bounds.layer_count : 1));
    if (rows->count < 1 || std::ssize(rows->values) != rows->levels * rows->count * width) {
      return fail(Code::kInvalidArgument, "{} given rows of {} numbers have {} in all",
                  rows->levels * rows->count, width, rows->values.size());
    }
    if (rows->columns > 0 && !bounds.turns_by_places) {
      return fail(Code::kInvalidArgument,
                  "given rows have {} columns, and the model turns by no places of images",
                  rows->columns);
    }
    least = rows->id_end();
  }
  if (cut_index_ < 0) return {};
  return fail(Code::kInvalidArgument,
              "the prompt has a part of an image at {}; its rows stand whole or not at all",
              cut_index_);
}

bool GivenTable::any_mutual() const {
  return std::ranges::any_of(rows_, [](const GivenRowsRef& rows) { return rows->mutual; });
}

Status GivenTable::check_mutual(std::span<const int32_t> prompt, int64_t forward_rows_max) const {
  if (!any_mutual()) return {};
  for (size_t i = 0; i < prompt.size(); ++i) {
    const GivenRows* const rows = find(prompt[i]);
    if (!rows || !rows->mutual) continue;
    for (int64_t row = 0; row < rows->count; ++row, ++i) {
      if (i < prompt.size() && prompt[i] == rows->first_id + row) continue;
      return fail(Code::kInvalidArgument,
                  "the prompt has {} of {} rows that see one another; it must have all, one behind "
                  "the other",
                  row, rows->count);
    }
    --i;
    if (rows->count <= forward_rows_max) continue;
    return fail(
        Code::kInvalidArgument,
        "the prompt has {} rows that see one another, and the model was loaded for {} tokens "
        "at once",
        rows->count, forward_rows_max);
  }
  return {};
}

std::vector<plan::TokenRun> GivenTable::mutual_runs(std::span<const int32_t> prompt) const {
  std::vector<plan::TokenRun> runs;
  if (!any_mutual()) return runs;
  for (size_t i = 0; i < prompt.size(); ++i) {
    const GivenRows* const rows = find(prompt[i]);
    if (!rows || !rows->mutual || prompt[i] != rows->first_id) continue;
    const auto begin = static_cast<int32_t>(i);
    runs.push_back({begin, begin + static_cast<int32_t>(rows->count)});
  }
  return runs;
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

void GivenTable::place(std::span<int32_t> tokens, int32_t first_row, PlacedRows& placed) const {
  if (empty()) return;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const GivenRows* const rows = find(tokens[i]);
    if (!rows) continue;
    const int64_t level = std::ssize(rows->values) / rows->levels;  // numbers of one
    const int32_t row = first_row + static_cast<int32_t>(i);
    const float* const values =
        rows->values.data() + (tokens[i] - rows->first_id) * (level / rows->count);
    placed.given.push_back({.row = row, .values = values});
    if (rows->levels > 1) {
      placed.given.back().deep = values + level;
      placed.given.back().deep_stride = level;
      placed.given.back().deep_count = rows->levels - 1;
    }
    if (rows->mutual) {
      // A sequence may begin inside of them, where those before are in its cache.
      if (i == 0 || tokens[i] == rows->first_id)
        placed.mutual.push_back({.begin = row, .end = row});
      placed.mutual.back().end = row + 1;
    }
    tokens[i] = rows->token;
  }
}

}  // namespace jige::serve
