#include "text/vocabulary.h"

#include <algorithm>

namespace jige::text {

Result<Vocabulary> Vocabulary::create(std::vector<std::pair<std::string, int64_t>> entries,
                                      std::string_view where) {
  int64_t id_max = -1;
  for (const auto& [token, id] : entries) {
    if (id < 0 || id > kTokenIdMax) {
      return fail(Code::kCorrupt, "{}: token \"{}\" has the id {}, outside 0..{}", where, token, id,
                  kTokenIdMax);
    }
    id_max = std::max(id_max, id);
  }
  Vocabulary vocabulary;
  vocabulary.entries_ =
      std::make_shared<const std::vector<std::pair<std::string, int64_t>>>(std::move(entries));
  vocabulary.tokens_.resize(static_cast<size_t>(id_max + 1), nullptr);
  vocabulary.ids_.reserve(vocabulary.entries_->size());
  for (const auto& [token, id] : *vocabulary.entries_) {
    vocabulary.ids_[token] = static_cast<int32_t>(id);
    vocabulary.tokens_[static_cast<size_t>(id)] = &token;
  }
  return vocabulary;
}

}  // namespace jige::text
