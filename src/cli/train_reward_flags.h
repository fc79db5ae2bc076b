// The flags of `jige train --grpo`.
//
// Threads: one thread.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "train/grpo_options.h"

namespace jige::cli {

class Flags;

// Learning rates where none is given: of all weights, and of an adapter.
inline constexpr double kGrpoRateDefault = 1e-6;
inline constexpr double kGrpoLoraRateDefault = 1e-5;

struct TrainRewardFlags {
  bool grpo = false;
  std::string reward, advantage = "std", overlong = "none";
  double overlong_penalty = 1;
  int64_t overlong_margin = 0;  // 0: a part of the tokens of an answer
  train::GrpoOptions options;   // targets of the remaining flags

  void declare(Flags& flags);
  // What is asked for, with the engine that draws; nothing without --grpo. Fails with
  // kInvalidArgument naming flags that would do nothing.
  Result<std::optional<train::GrpoOptions>> to_options(const Flags& flags) const;

 private:
  Result<train::OverlongOptions> read_overlong(const Flags& flags) const;
};

}  // namespace jige::cli
