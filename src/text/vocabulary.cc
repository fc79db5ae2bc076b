#include "text/vocabulary.h"

#include <algorithm>
#include <bit>

namespace jige::text {
namespace {

// Honest texts end up some tens of slots away from where they belong, at the very most.
constexpr size_t kProbesMax = 1024;

}  // namespace

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
  vocabulary.slots_.resize(std::bit_ceil(2 * vocabulary.entries_->size() + 1));
  vocabulary.mask_ = vocabulary.slots_.size() - 1;
  uint32_t index = 0;
  for (const auto& [token, id] : *vocabulary.entries_) {
    const uint64_t hash = hash_bytes(token);
    const size_t at = vocabulary.position(token);
    if (((at - hash) & vocabulary.mask_) > kProbesMax) {
      return fail(Code::kCorrupt, "{}: token \"{}\" is one of too many with like hashes", where,
                  token);
    }
    vocabulary.slots_[at] = {static_cast<uint32_t>(hash >> 32), index++, static_cast<int32_t>(id)};
    vocabulary.tokens_[static_cast<size_t>(id)] = &token;
  }
  return vocabulary;
}

void Vocabulary::find_all(std::span<const std::string_view> tokens, std::span<int32_t> ids) const {
  for (const std::string_view token : tokens) {
    __builtin_prefetch(&slots_[hash_bytes(token) & mask_]);
  }
  for (const std::string_view token : tokens) {
    const Slot& slot = slots_[hash_bytes(token) & mask_];
    if (slot.id >= 0) __builtin_prefetch(&(*entries_)[slot.entry]);
  }
  for (size_t i = 0; i < tokens.size(); ++i) ids[i] = find(tokens[i]);
}

}  // namespace jige::text
