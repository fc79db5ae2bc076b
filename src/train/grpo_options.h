// What a run that learns from rewards is asked to do besides (options.h).
//
// Threads: values.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/json.h"
#include "base/result.h"
#include "train/policy_loss.h"
#include "train/reward_rules.h"
#include "train/rollout.h"

namespace jige::train {

inline constexpr int64_t kGroupMax = 256;

// Who scores answers: a rule, or a program (rewards.h).
struct RewardOptions {
  std::optional<RewardRule> rule;
  std::string command;       // of the program; empty: the rule
  double line_limit_s = 60;  // that the program may take for an answer
};

struct GrpoOptions {
  int64_t prompts_per_step = 8;
  int64_t group = 8;  // answers to each, at least 2
  DrawOptions draw;
  PolicyLossOptions loss;
  OverlongOptions overlong;
  int64_t updates = 1;  // of each step, on its answers
  RewardOptions reward;
  // Drawn at once on each rank, or a group if that is more; no bit depends on it.
  int64_t answers_max = 64;
  std::shared_ptr<AnswerSource> source;  // must be there
};

// Fails with kInvalidArgument naming the option, its value and what is allowed.
Status validate(const GrpoOptions& options);
// The part that decides results.
Json identity_json(const GrpoOptions& options);

}  // namespace jige::train
