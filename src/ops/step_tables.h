// StepTables: what kernels for attention over a cache have of the sequences of a step on a GPU, so
// that layers whose tables are the same make them once. Threads: one at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cuda/attention_cached.h"

namespace jige::ops {

struct StepTables {
  // What tables depend on beside the sequences.
  struct Kind {
    int32_t window = 0;
    int32_t heads = 0;  // query heads of a key
    int32_t tile_rows = 0;
    bool merges_few = false;  // in a launch of its own
    bool operator==(const Kind&) const = default;
  };
  struct Entry {
    Kind kind;
    cuda::CachedTables tables;
  };
  std::vector<Entry> entries;
};

}  // namespace jige::ops
