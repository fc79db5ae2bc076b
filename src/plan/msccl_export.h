// Planned rings as an algorithm file of MSCCL, whose runtimes (MSCCL, RCCL) run it as an
// all-reduce.
//
//   JIGE_TRY(const MscclExport out, export_to_msccl(problem, mix, profiler));
//   out.xml, out.lost, out.rate
//
// Each channel is one ring with an equal part of the data; a ring of more weight gets more
// channels. A channel has n chunks, and on every rank one thread block, which sends to the next
// rank and receives from the one before:
//   s       chunk p of rank p goes off
//   rrs     n - 2 times: what comes is added to the own chunk and goes on
//   rrcs    the last addition: the sum is stored and goes on
//   rcs, r  n - 1 sums come, are stored, and all but the last go on
// Double trees are two channels of one chunk each. Of them a rank has a thread block for every
// neighbour: `rrc` adds what a child sends to the own chunk, one child after the other; `s` sends
// the sum up, `r` stores the result that comes down, `s` passes it on to each child. Blocks wait
// for one another by depid and deps.
//
// Ranks are places in the plan's devices. The file says who sends to whom in which order; how an
// edge is carried, and through which buffer, is the runtime's choice, so that what differs is
// measured again as a runtime carries it and listed as lost.
// Threads: one caller.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/double_tree.h"
#include "plan/ring_mix.h"
#include "profile/profiler.h"

namespace jige::plan {

inline constexpr int32_t kMscclChannelsMax = 16;
inline constexpr int32_t kMscclRanksMax =
    128;  // 2 n - 1 steps, of 256 that a thread block may have

// The message sizes, in bytes, for which a runtime takes a file.
struct MscclRange {
  int64_t bytes_min = 0;
  int64_t bytes_max = int64_t{1} << 40;
};

struct MscclExport {
  std::string xml;
  std::vector<int32_t> channels;  // of each ring
  std::vector<std::string> lost;  // one line for each edge or weight that the file cannot say
  double rate = 0;                // of the rings as a runtime would carry them
};

// How many channels each ring gets: the fewest altogether by which no ring's part is off by more
// than 2 % of the data, otherwise the best that kMscclChannelsMax allow. REQUIRES: weights that add
// up to 1.
std::vector<int32_t> share_channels(const std::vector<double>& weights);

// The file for orders of ranks 0 to n - 1. REQUIRES: permutations of the same two or more ranks, as
// many counts, each above 0.
std::string write_msccl(const std::vector<std::vector<int32_t>>& orders,
                        const std::vector<int32_t>& channels, const MscclRange& range = {});

// The file for double trees whose places are taken by ranks 0 to n - 1 in the order given.
// REQUIRES: a permutation of two or more ranks.
std::string write_msccl_trees(const std::vector<int32_t>& ranks, const MscclRange& range = {});

// Fails with kUnsupported for chains and for more ranks or rings than a file can hold, and as
// measuring does.
Result<MscclExport> export_to_msccl(const RingProblem& problem, const RingMix& mix,
                                    profile::Profiler& profiler, const MscclRange& range = {});

}  // namespace jige::plan
