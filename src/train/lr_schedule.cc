#include "train/lr_schedule.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "base/check.h"
#include "train/option_flags.h"

namespace jige::train {
namespace {

constexpr std::array kKinds = {ScheduleKind::kConstant, ScheduleKind::kCosine,
                               ScheduleKind::kLinear, ScheduleKind::kWsd};

// How far `step` is from `begin` to `end`, in [0, 1]; 1 where there is no distance.
double progress(double step, double begin, double end) {
  if (end <= begin) return 1.0;
  return std::clamp((step - begin) / (end - begin), 0.0, 1.0);
}

double falling(double progress_share, double min_ratio) {
  return 1.0 - (1.0 - min_ratio) * progress_share;
}

}  // namespace

std::string_view schedule_name(ScheduleKind kind) {
  switch (kind) {
    case ScheduleKind::kConstant:
      return "constant";
    case ScheduleKind::kCosine:
      return "cosine";
    case ScheduleKind::kLinear:
      return "linear";
    case ScheduleKind::kWsd:
      return "wsd";
  }
  return "constant";
}

Result<ScheduleKind> parse_schedule(std::string_view name) {
  for (const ScheduleKind kind : kKinds) {
    if (schedule_name(kind) == name) return kind;
  }
  return fail(Code::kInvalidArgument,
              "schedule \"{}\" is not known; choose constant, cosine, linear or wsd", name);
}

Status validate(const LrSchedule& schedule) {
  const auto refuse = [](std::string_view option, auto value, std::string_view range) {
    return fail(Code::kInvalidArgument, "{} is {}, but must be {}", flag_of(option), value, range);
  };
  // Written so that NaN fails each test.
  if (!(schedule.peak > 0 && std::isfinite(schedule.peak))) {
    return refuse("schedule.learning_rate", schedule.peak, "above 0 and finite");
  }
  if (!(schedule.min_ratio >= 0 && schedule.min_ratio <= 1)) {
    return refuse("schedule.min_lr_ratio", schedule.min_ratio, "between 0 and 1");
  }
  if (!(schedule.decay_share > 0 && schedule.decay_share <= 1)) {
    return refuse("schedule.decay_share", schedule.decay_share, "above 0 and at most 1");
  }
  if (schedule.steps_total < 1) return refuse("steps", schedule.steps_total, "at least 1");
  if (schedule.warmup_steps < 0) {
    return refuse("schedule.warmup_steps", schedule.warmup_steps, "0 or more");
  }
  if (schedule.warmup_steps > schedule.steps_total) {
    return fail(Code::kInvalidArgument, "{} is {}, more than all {} steps; choose less",
                flag_of("schedule.warmup_steps"), schedule.warmup_steps, schedule.steps_total);
  }
  return {};
}

double learning_rate(const LrSchedule& schedule, int64_t step) {
  JIGE_CHECK(step >= 1, "steps count from 1, not {}", step);
  const auto s = static_cast<double>(step);
  const auto warmup = static_cast<double>(schedule.warmup_steps);
  const auto total = static_cast<double>(schedule.steps_total);
  if (s <= warmup) return schedule.peak * s / warmup;
  const double r = schedule.min_ratio;
  switch (schedule.kind) {
    case ScheduleKind::kConstant:
      return schedule.peak;
    case ScheduleKind::kCosine: {
      const double wave = (1.0 + std::cos(std::numbers::pi * progress(s, warmup, total))) / 2.0;
      return schedule.peak * (r + (1.0 - r) * wave);
    }
    case ScheduleKind::kLinear:
      return schedule.peak * falling(progress(s, warmup, total), r);
    case ScheduleKind::kWsd: {
      const double decay_begin = total - schedule.decay_share * total;
      return s <= decay_begin ? schedule.peak
                              : schedule.peak * falling(progress(s, decay_begin, total), r);
    }
  }
  return schedule.peak;
}

}  // namespace jige::train
