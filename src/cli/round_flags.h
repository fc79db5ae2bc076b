// The flags of the policy `rounds`: how many prompts begin together, and how many iterations of
// next tokens follow them.
//
// Threads: one thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace jige::cli {

class Flags;

struct RoundFlags {
  int64_t prompts = 8;
  int64_t steps = 16;

  // --round-prompts, --round-steps.
  void declare(Flags& flags);
  // Fails with kInvalidArgument where they are given though no policy has rounds; `flag` is the one
  // that says which there are.
  static Status check_use(const Flags& flags, bool with_rounds, std::string_view flag);
  // For `ServeSchedulerOptions` and `EngineOptions`, which call them alike.
  template <typename Options>
  void set(Options& options) const {
    options.round_prompts = static_cast<int32_t>(prompts);
    options.round_steps = static_cast<int32_t>(steps);
  }
};

}  // namespace jige::cli
