#include "plan/kv_block_pool.h"

#include <algorithm>

#include "base/check.h"
#include "base/rng.h"

namespace jige::plan {

PrefixHash prefix_seed(uint64_t salt, int32_t adapter) {
  return {derive_key(salt, "prefix", static_cast<uint64_t>(int64_t{adapter} + 1)), salt};
}

PrefixHash extend_prefix(const PrefixHash& prefix, std::span<const int32_t> block_tokens) {
  // Philox as a keyed mixing function: every pair of tokens is absorbed under the running state.
  PrefixHash hash = prefix;
  for (size_t i = 0; i < block_tokens.size(); i += 2) {
    const auto first = static_cast<uint32_t>(block_tokens[i]);
    const auto second =
        i + 1 < block_tokens.size() ? static_cast<uint32_t>(block_tokens[i + 1]) : 0xffffffffu;
    const uint64_t pair = (static_cast<uint64_t>(first) << 32) | second;
    const auto mixed = philox(hash.high, hash.low, pair);
    hash.high = (static_cast<uint64_t>(mixed[0]) << 32) | mixed[1];
    hash.low = (static_cast<uint64_t>(mixed[2]) << 32) | mixed[3];
  }
  return hash;
}

KvBlockPool::KvBlockPool(KvBlockPoolOptions options)
    : options_(options), blocks_(static_cast<size_t>(options.block_count)) {
  JIGE_CHECK(options.block_count > 0 && options.block_tokens > 0, "{} blocks of {} tokens",
             options.block_count, options.block_tokens);
  free_.reserve(blocks_.size());
  for (int32_t id = options.block_count - 1; id >= 0; --id) free_.push_back(id);
}

KvBlockPool::Block& KvBlockPool::at(BlockId id) {
  JIGE_CHECK(id >= 0 && id < capacity(), "block {} of {}", id, capacity());
  return blocks_[static_cast<size_t>(id)];
}

Result<BlockId> KvBlockPool::acquire() {
  BlockId id = -1;
  if (!free_.empty()) {
    id = free_.back();
    free_.pop_back();
  } else if (!lru_.empty()) {
    id = lru_.front();
    lru_.pop_front();
    unpublish(at(id));
    ++eviction_count_;
  } else {
    return fail(Code::kExhausted, "all {} key/value blocks are in use", capacity());
  }
  Block& block = at(id);
  JIGE_CHECK(block.ref_count == 0, "block {} handed out with {} users", id, block.ref_count);
  block.ref_count = 1;
  ++live_count_;
  return id;
}

void KvBlockPool::retain(BlockId id) {
  Block& block = at(id);
  JIGE_CHECK(block.ref_count > 0, "block {} retained while not live", id);
  ++block.ref_count;
}

void KvBlockPool::release(BlockId id) {
  Block& block = at(id);
  JIGE_CHECK(block.ref_count > 0, "block {} released while not live", id);
  if (--block.ref_count > 0) return;
  --live_count_;
  if (block.published) {
    block.lru_position = lru_.insert(lru_.end(), id);
  } else {
    free_.push_back(id);
  }
}

void KvBlockPool::publish(BlockId id, const PrefixHash& before, std::span<const int32_t> tokens) {
  if (!options_.prefix_cache) return;
  Block& block = at(id);
  JIGE_CHECK(block.ref_count > 0 && static_cast<int32_t>(tokens.size()) == options_.block_tokens,
             "block {} published with {} users and {} tokens", id, block.ref_count, tokens.size());
  if (block.published) return;
  const PrefixHash hash = extend_prefix(before, tokens);
  if (!by_hash_.emplace(hash, id).second) return;
  block.published = true;
  block.before = before;
  block.hash = hash;
  block.tokens.assign(tokens.begin(), tokens.end());
}

void KvBlockPool::forget(BlockId id) {
  Block& block = at(id);
  JIGE_CHECK(block.ref_count > 0, "block {} forgotten while not live", id);
  if (block.published) unpublish(block);
}

void KvBlockPool::forget_all() {
  JIGE_CHECK(live_count_ == 0, "{} blocks are live", live_count_);
  for (const BlockId id : lru_) {
    unpublish(at(id));
    free_.push_back(id);
  }
  lru_.clear();
}

std::optional<BlockId> KvBlockPool::find(const PrefixHash& before,
                                         std::span<const int32_t> tokens) {
  const auto found = by_hash_.find(extend_prefix(before, tokens));
  if (found == by_hash_.end()) return std::nullopt;
  Block& block = at(found->second);
  if (!(block.before == before) || !std::ranges::equal(block.tokens, tokens)) return std::nullopt;
  if (block.ref_count++ == 0) {
    lru_.erase(block.lru_position);
    ++live_count_;
  }
  return found->second;
}

void KvBlockPool::unpublish(Block& block) {
  by_hash_.erase(block.hash);
  block.published = false;
  block.tokens.clear();
}

void KvBlockPool::check_invariants() const {
  int32_t live = 0;
  int32_t cached = 0;
  int32_t published = 0;
  for (size_t id = 0; id < blocks_.size(); ++id) {
    const Block& block = blocks_[id];
    JIGE_CHECK(block.ref_count >= 0, "block {} has {} users", id, block.ref_count);
    live += block.ref_count > 0;
    cached += block.ref_count == 0 && block.published;
    published += block.published;
  }
  JIGE_CHECK(live == live_count_ && cached == cached_count() &&
                 published == static_cast<int32_t>(by_hash_.size()) &&
                 live + cached + static_cast<int32_t>(free_.size()) == capacity(),
             "{} live, {} cached, {} free, {} published of {}", live, cached, free_.size(),
             published, capacity());
}

}  // namespace jige::plan
