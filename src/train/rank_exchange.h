// What ranks tell one another besides gradients and state: who goes first, that all do the same,
// sums of losses.
//
// All ranks call the same functions in the same order. Threads: one thread at a time.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/exact_sum.h"
#include "base/result.h"
#include "comm/async_group.h"
#include "train/expert_use.h"

namespace jige::train {

// Runs `work` on rank 0, and when it is done there on the others: what rank 0 writes, they find.
// Fails as the own work, or with what rank 0 or another rank failed with.
Status after_rank_0(comm::AsyncGroup& group, const std::function<Status()>& work);

// Fails with kInvalidArgument naming the ranks whose text differs from rank 0's, with `what` it is.
Status check_same(comm::AsyncGroup& group, std::string_view text, std::string_view what);

// `own` of every rank, by rank; all have as many numbers.
Result<std::vector<int64_t>> gather(comm::AsyncGroup& group, std::span<const int64_t> own);
// The same where they may have different numbers. All are padded to the most on the way.
Result<std::vector<std::vector<int64_t>>> gather_uneven(comm::AsyncGroup& group,
                                                        std::span<const int64_t> own);

// Gives all ranks the root's bytes.
Status broadcast_bytes(comm::AsyncGroup& group, int root, std::span<std::byte> bytes);

// What a rank says at the end of a step's passes.
struct StepWord {
  ExactSum loss;
  bool stop = false;
  bool save = false;
  double wait_s = 0;
  ExpertUse experts;
};
// The sums of losses and of the use of experts, whether any rank stops or is due to write, the
// longest wait.
Result<StepWord> exchange(comm::AsyncGroup& group, const StepWord& own);

}  // namespace jige::train
