// The loss for unequal use of experts, with the bits of the CPU (kernels/cpu/expert_balance.h,
// whose arguments this takes). Threads: asynchronous on the stream.
#pragma once

#include "kernels/cpu/expert_balance.h"
#include "kernels/cuda/launch.h"

namespace jige::cuda {

struct BalanceLaunch {
  int64_t tokens;
  int64_t sequences;
};
void balance_experts(const LaunchStream& stream, const cpu::BalanceArgs& args,
                     const BalanceLaunch& launch);

}  // namespace jige::cuda
