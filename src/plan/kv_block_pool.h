// Fixed pool of key/value cache blocks with reference counts, a prefix cache and LRU reuse.
//
// A block is *free* (holds nothing), *live* (ref_count > 0) or *cached* (ref_count 0, contents
// known by their hash, taken back when a prompt starts with them or when room is needed). The hash
// of a block covers its tokens and the hash of the block before it, so it names a whole prefix; the
// first is seeded with a tenant's salt, so tenants cannot probe each other's prompts, and with the
// adapter that the keys and values were computed with. A match compares the tokens too.
//
// Invariants: (1) free + live + cached == capacity.
//             (2) a live block is never handed out; a cached one only when no free one is left,
//                 the least recently used first.
//             (3) contents of a published block never change: writers need ref_count 1 and
//             unpublished.
// Threads: none; owned by the scheduler. Memory: fixed after construction but for the hash table,
// which is bounded by the capacity.
#pragma once

#include <compare>
#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/result.h"

namespace jige::plan {

using BlockId = int32_t;

// 128 bits that name a prefix of whole blocks.
struct PrefixHash {
  uint64_t high = 0;
  uint64_t low = 0;
  auto operator<=>(const PrefixHash&) const = default;
};

// The hash before the first block of a tenant's prompts; `adapter` is -1 for the base.
PrefixHash prefix_seed(uint64_t salt, int32_t adapter = -1);
// The hash of a prefix one block longer.
PrefixHash extend_prefix(const PrefixHash& prefix, std::span<const int32_t> block_tokens);

struct KvBlockPoolOptions {
  int32_t block_count = 0;
  int32_t block_tokens = 16;
  bool prefix_cache = true;
};

class KvBlockPool {
 public:
  explicit KvBlockPool(KvBlockPoolOptions options);

  int32_t capacity() const { return static_cast<int32_t>(blocks_.size()); }
  int32_t block_tokens() const { return options_.block_tokens; }
  // Blocks that acquire() can hand out: free and cached ones.
  int32_t available_count() const { return capacity() - live_count_; }
  int32_t live_count() const { return live_count_; }
  int32_t cached_count() const { return static_cast<int32_t>(lru_.size()); }
  int64_t eviction_count() const { return eviction_count_; }

  // Takes a block with ref_count 1. Fails with kExhausted when every block is live.
  Result<BlockId> acquire();
  // One more user of a live block.
  void retain(BlockId id);
  // One user less; at zero a published block becomes cached, another free.
  void release(BlockId id);
  int32_t ref_count(BlockId id) const { return blocks_[static_cast<size_t>(id)].ref_count; }

  // Says that a live, full block holds `tokens` behind `before`. A second block with the same
  // prefix stays unpublished. No effect without the prefix cache.
  void publish(BlockId id, const PrefixHash& before, std::span<const int32_t> tokens);
  // Takes back the publication of a live block, if there was one: nobody finds it any more.
  void forget(BlockId id);
  // Nobody finds any block any more; cached ones are free. REQUIRES: no block is live.
  void forget_all();
  // A block that holds `tokens` behind `before`, retained for the caller.
  std::optional<BlockId> find(const PrefixHash& before, std::span<const int32_t> tokens);

  // Checks the invariants over the whole pool, in O(capacity); for tests and simulations.
  void check_invariants() const;

 private:
  struct Block {
    int32_t ref_count = 0;
    bool published = false;
    PrefixHash before;
    PrefixHash hash;
    std::vector<int32_t> tokens;
    std::list<BlockId>::iterator lru_position;
  };
  struct HashOf {
    size_t operator()(const PrefixHash& hash) const { return static_cast<size_t>(hash.low); }
  };

  Block& at(BlockId id);
  void unpublish(Block& block);

  KvBlockPoolOptions options_;
  std::vector<Block> blocks_;
  std::vector<BlockId> free_;
  std::list<BlockId> lru_;  // cached blocks, least recently used first
  std::unordered_map<PrefixHash, BlockId, HashOf> by_hash_;
  int32_t live_count_ = 0;
  int64_t eviction_count_ = 0;
};

}  // namespace jige::plan
