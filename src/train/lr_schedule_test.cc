#include "train/lr_schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace jige::train {
namespace {

constexpr double kPeak = 1e-3;

LrSchedule schedule_of(ScheduleKind kind) {
  return {.kind = kind,
          .peak = kPeak,
          .min_ratio = 0.1,
          .decay_share = 0.25,
          .warmup_steps = 4,
          .steps_total = 20};
}

// Values by hand from the formulas: step, then the rate over the peak.
struct HandValue {
  ScheduleKind kind;
  int64_t step;
  double ratio;
};
constexpr HandValue kHandValues[] = {
    {ScheduleKind::kConstant, 1, 0.25},
    {ScheduleKind::kConstant, 3, 0.75},
    {ScheduleKind::kConstant, 4, 1.0},
    {ScheduleKind::kConstant, 20, 1.0},
    {ScheduleKind::kCosine, 2, 0.5},
    {ScheduleKind::kCosine, 4, 1.0},
    {ScheduleKind::kCosine, 8, 0.1 + 0.9 * 0.85355339059327378},  // p = 1/4
    {ScheduleKind::kCosine, 12, 0.55},                            // p = 1/2
    {ScheduleKind::kCosine, 20, 0.1},
    {ScheduleKind::kCosine, 99, 0.1},
    {ScheduleKind::kLinear, 4, 1.0},
    {ScheduleKind::kLinear, 12, 0.55},
    {ScheduleKind::kLinear, 16, 0.325},
    {ScheduleKind::kLinear, 20, 0.1},
    {ScheduleKind::kWsd, 1, 0.25},
    {ScheduleKind::kWsd, 15, 1.0},
    {ScheduleKind::kWsd, 16, 0.82},
    {ScheduleKind::kWsd, 18, 0.46},
    {ScheduleKind::kWsd, 20, 0.1},
};

TEST(LrSchedule, HasTheValuesWorkedOutByHand) {
  for (const HandValue& item : kHandValues) {
    EXPECT_NEAR(learning_rate(schedule_of(item.kind), item.step), item.ratio * kPeak, 1e-15)
        << schedule_name(item.kind) << " step " << item.step;
  }
}

TEST(LrSchedule, StartsAtThePeakWithoutWarmUp) {
  LrSchedule schedule = schedule_of(ScheduleKind::kWsd);
  schedule.warmup_steps = 0;
  EXPECT_EQ(learning_rate(schedule, 1), kPeak);
}

TEST(LrSchedule, MayBeAllWarmUp) {
  LrSchedule schedule = schedule_of(ScheduleKind::kCosine);
  schedule.warmup_steps = schedule.steps_total = 5;
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 5), kPeak);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 6), 0.1 * kPeak);
}

TEST(LrSchedule, NamesReadBack) {
  for (const char* name : {"constant", "cosine", "linear", "wsd"}) {
    ASSERT_TRUE(parse_schedule(name));
    EXPECT_EQ(schedule_name(*parse_schedule(name)), name);
  }
  const auto unknown = parse_schedule("cosin");
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().message.find("cosine"), std::string::npos);
}

TEST(LrSchedule, RefusesWhatMakesNoSense) {
  const auto refused = [](auto change, const char* field) {
    LrSchedule schedule = schedule_of(ScheduleKind::kCosine);
    change(schedule);
    const Status status = validate(schedule);
    return !status && status.error().message.find(field) != std::string::npos;
  };
  EXPECT_TRUE(validate(schedule_of(ScheduleKind::kCosine)));
  EXPECT_TRUE(refused([](LrSchedule& s) { s.peak = 0; }, "--lr"));
  EXPECT_TRUE(refused([](LrSchedule& s) { s.peak = std::nan(""); }, "--lr"));
  EXPECT_TRUE(refused([](LrSchedule& s) { s.min_ratio = 1.5; }, "--min-lr-ratio"));
  EXPECT_TRUE(refused([](LrSchedule& s) { s.decay_share = 0; }, "--decay-share"));
  EXPECT_TRUE(refused([](LrSchedule& s) { s.steps_total = 0; }, "--steps"));
  EXPECT_TRUE(refused([](LrSchedule& s) { s.warmup_steps = -1; }, "--warmup"));
  EXPECT_TRUE(
      refused([](LrSchedule& s) { s.warmup_steps = 21; }, "--warmup is 21, more than all 20"));
}

}  // namespace
}  // namespace jige::train
