// ToyEngine: a stand-in for the model in tests of the serving scheduler.
//
// Threads: one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "plan/serve_scheduler.h"

namespace jige::plan {

inline constexpr int32_t kBlockTokens = 4;
inline constexpr int32_t kEmpty = -1;

// A stand-in for the model: the next token is a hash of all tokens before it, read from the cache
// blocks, so every mistake in blocks, copies or bookkeeping changes what is generated. A state is
// the tokens that were fed to its slot.
class ToyEngine {
 public:
  explicit ToyEngine(int32_t block_count, int32_t state_count = 0)
      : cells_(static_cast<size_t>(block_count * kBlockTokens), kEmpty),
        states_(static_cast<size_t>(state_count), {kEmpty}) {}

  static int32_t next_token(std::span<const int32_t> tokens, uint64_t sample) {
    uint64_t hash = sample + 1;  // each token's place and value count; a multiply is cheap
    for (const int32_t token : tokens) {
      hash = (hash ^ static_cast<uint64_t>(token)) * 0x9E3779B97F4A7C15ull;
      hash ^= hash >> 32;
    }
    return static_cast<int32_t>(hash % 1000);
  }

  // What comes before the items run.
  void copy(const Batch& batch) {
    for (const StateCopy& copy : batch.state_copies) state(copy.dst) = state(copy.src);
    for (const WorkItem& item : batch.items) {
      if (item.state != kNoState && item.context_count == 0) state(item.state).clear();
    }
    for (const BlockCopy& copy : batch.copies) {
      for (int32_t i = 0; i < kBlockTokens; ++i) cell(copy.dst, i) = cell(copy.src, i);
    }
  }

  // REQUIRES: copy(batch).
  void run(const Batch& batch) {
    for (const WorkItem& item : batch.items) {
      if (item.state != kNoState) {
        std::vector<int32_t>& fed = state(item.state);
        const auto drafts = item.tokens.end() - item.draft_count;
        fed.insert(fed.end(), item.tokens.begin(), drafts);
        if (item.spare != kNoState) state(item.spare) = fed;
        fed.insert(fed.end(), drafts, item.tokens.end());
      }
      for (size_t i = 0; i < item.tokens.size(); ++i) {
        const int32_t position = item.context_count + static_cast<int32_t>(i);
        cell(item.blocks[static_cast<size_t>(position / kBlockTokens)], position % kBlockTokens) =
            item.tokens[i];
      }
    }
  }

  // Whatever a lost batch has touched cannot be used.
  void spoil_states(const Batch& batch) {
    for (const StateCopy& copy : batch.state_copies) state(copy.dst) = {kEmpty};
    for (const WorkItem& item : batch.items) {
      if (item.state != kNoState) state(item.state) = {kEmpty};
      if (item.spare != kNoState) state(item.spare) = {kEmpty};
    }
  }

  void lose_all() {
    std::ranges::fill(cells_, kEmpty);
    for (std::vector<int32_t>& state : states_) state = {kEmpty};
  }

  std::vector<int32_t>& state(int32_t slot) { return states_.at(static_cast<size_t>(slot)); }

  // Up to the first `count` tokens of the item.
  std::vector<int32_t> context(const WorkItem& item, size_t count) const {
    std::vector<int32_t> tokens;
    const int32_t end = item.context_count + static_cast<int32_t>(count);
    for (int32_t position = 0; position < end; ++position) {
      tokens.push_back(cells_[static_cast<size_t>(
          item.blocks[static_cast<size_t>(position / kBlockTokens)] * kBlockTokens +
          position % kBlockTokens)]);
    }
    return tokens;
  }

 private:
  int32_t& cell(BlockId block, int32_t slot) {
    return cells_[static_cast<size_t>(block * kBlockTokens + slot)];
  }
  std::vector<int32_t> cells_;
  std::vector<std::vector<int32_t>> states_;
};

}  // namespace jige::plan
