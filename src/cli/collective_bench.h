// Timing of collectives as nccl-tests do it: out of place and in place, algorithm and bus
// bandwidth, and a count of wrong elements against a result that is computed without the
// collective.
//
// algbw = bytes of the whole / time; busbw = algbw × 2(n-1)/n for all_reduce, (n-1)/n for
// all_gather, reduce_scatter and all_to_all, 1 for broadcast and reduce: what every link carries if
// the algorithm wastes nothing. GB/s are 10^9 bytes per second.
// Threads: one thread a rank.
#pragma once

#include <optional>
#include <vector>

#include "comm/communicator.h"

namespace jige::cli {

struct CollectiveBenchOptions {
  comm::Collective collective = comm::Collective::kAllReduce;
  DType dtype = DType::kF32;
  comm::RedOp redop = comm::RedOp::kSum;
  int root = 0;
  int64_t bytes_first = 32 << 10;
  int64_t bytes_last = 32 << 20;
  int64_t factor = 2;
  int iterations = 20;
  int warmup = 5;
  bool check = true;
};

// One placement at one size. Times in microseconds, per operation.
struct CollectiveTimes {
  double mean_us = 0;  // of all ranks
  double median_us = 0;
  double fastest_us = 0;
  double p99_us = 0;  // these three of rank 0
  double algbw = 0;
  double busbw = 0;
  std::optional<int64_t> wrong;  // on all ranks together
};

struct CollectiveRow {
  int64_t bytes = 0;
  int64_t count = 0;  // of the whole, or of a block
  CollectiveTimes out_of_place;
  CollectiveTimes in_place;
};

double bus_factor(comm::Collective collective, int ranks);

// Bytes that a rank takes for one size, beside the streams of its group.
int64_t bench_bytes(const CollectiveBenchOptions& options, int ranks, int64_t bytes);

// The sizes, each from the one before by the factor.
std::vector<int64_t> bench_sizes(const CollectiveBenchOptions& options);

// One row; the same numbers on all ranks but for the spread, which is rank 0's.
Result<CollectiveRow> bench_collective(comm::Communicator& group,
                                       const CollectiveBenchOptions& options, int64_t bytes);

}  // namespace jige::cli
