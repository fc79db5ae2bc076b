// Learning rate as a function of the step.
//
// Steps s count from 1 to N (steps_total), W warm-up steps, r = min_ratio, D = decay_share · N:
//   s <= W          peak · s / W
//   constant        peak
//   cosine          peak · (r + (1-r) · (1 + cos(π p)) / 2)   p = (s - W) / (N - W)
//   linear          peak · (1 - (1-r) · p)
//   wsd             peak until N - D, then peak · (1 - (1-r) · q)   q = (s - (N-D)) / D
// So the last step has the smallest rate, r · peak; steps beyond N keep it.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace jige::train {

enum class ScheduleKind { kConstant, kCosine, kLinear, kWsd };

struct LrSchedule {
  ScheduleKind kind = ScheduleKind::kCosine;
  double peak = 3e-4;
  double min_ratio = 0.1;
  double decay_share = 0.2;  // wsd: the part of all steps that decays
  int64_t warmup_steps = 0;
  int64_t steps_total = 0;
};

// "constant", "cosine", "linear" or "wsd".
std::string_view schedule_name(ScheduleKind kind);
// Fails with kInvalidArgument, listing the names.
Result<ScheduleKind> parse_schedule(std::string_view name);

// Fails with kInvalidArgument naming the field, its value and the range.
Status validate(const LrSchedule& schedule);

// The rate of a step. REQUIRES: step >= 1, a valid schedule.
double learning_rate(const LrSchedule& schedule, int64_t step);

}  // namespace jige::train
