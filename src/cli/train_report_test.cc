#include "cli/train_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace jige::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// What a run says on standard error that `body` makes of its callbacks.
template <typename Body>
std::string said(const train::TrainResult& result, const Body& body, train::TrainPlan plan = {}) {
  TrainReport report({.json = false, .quiet = false});
  const train::TrainCallbacks callbacks = report.callbacks();
  testing::internal::CaptureStderr();
  plan.steps_total = 4;
  callbacks.on_plan(plan);
  body(callbacks);
  report.finish(result);
  return testing::internal::GetCapturedStderr();
}

TEST(TrainReport, ShowsHowFarAMeasurementIs) {
  const std::string text = said({}, [](const train::TrainCallbacks& callbacks) {
    EXPECT_TRUE(callbacks.on_held_out(128, 512));
  });
  EXPECT_THAT(text, HasSubstr("measuring held-out data, 25 %"));
}

TEST(TrainReport, ARunThatHadButToBeMeasuredHasNoLossOfItsOwn) {
  train::TrainResult result;
  result.eval = train::EvalInfo{.step = 4, .loss = 2, .perplexity = 7.389};
  const auto nothing = [](const train::TrainCallbacks&) {};
  EXPECT_THAT(said(result, nothing), HasSubstr("  held-out 2.000 (perplexity 7.39)\n"));
  result.loss = 3;
  result.tokens_per_s = 1500;
  EXPECT_THAT(said(result, nothing),
              HasSubstr("  loss 3.000, held-out 2.000 (perplexity 7.39), 1.50 k tokens/s\n"));
}

TEST(TrainReport, TellsWhoseWeightsTheModelHas) {
  const auto nothing = [](const train::TrainCallbacks&) {};
  train::TrainResult result{.steps_done = 40, .steps_total = 40, .model_step = 40};
  result.eval = train::EvalInfo{.step = 40, .loss = 2.5};
  result.best = train::BestMeasurement{.cost = 2.25, .step = 20, .since = 2};
  EXPECT_THAT(
      said(result, nothing),
      HasSubstr("held-out loss 2.250 was best behind step 20, now 2.500; with --keep-best"));
  result.eval->loss = 2.26;
  EXPECT_THAT(said(result, nothing), Not(HasSubstr("best")));
  result.model_step = 20;
  EXPECT_THAT(said(result, nothing),
              HasSubstr("best: held-out loss 2.250 behind step 20; the model has these weights\n"));
  result.steps_total = 100;
  EXPECT_THAT(said(result, nothing), HasSubstr("and the run ended behind step 40 of 100, as none"));
  result.eval->rewards.emplace();
  result.best->cost = -0.75;
  EXPECT_THAT(said(result, nothing), HasSubstr("best: held-out reward 0.750 behind step 20"));
  result.stopped = true;
  EXPECT_THAT(said(result, nothing), Not(HasSubstr("best")));
}

TEST(TrainReport, SaysWhyAStepHasNoLoss) {
  const auto end_of = [](const train::StepInfo& step) {
    return said({.loss = step.loss},
                [&](const train::TrainCallbacks& callbacks) { callbacks.on_step(step); });
  };
  train::StepInfo step{.step = 4, .steps_total = 4, .loss = NAN, .learned_count = 9};
  EXPECT_THAT(end_of(step), HasSubstr("  no loss (it was not finite)\n"));
  step.skipped = true;
  EXPECT_THAT(end_of(step), HasSubstr("  no loss (gradients were not finite)\n"));
  step.skipped = false;
  step.learned_count = 0;
  EXPECT_THAT(end_of(step), HasSubstr("  no loss (nothing was learned)\n"));
  EXPECT_THAT(end_of(step), Not(HasSubstr("nan")));
}

TEST(TrainReport, WarnsOfARankThatIsWiderThanWhatItAdapts) {
  const auto nothing = [](const train::TrainCallbacks&) {};
  train::TrainPlan plan;
  plan.adapter_rank = plan.adapter_rank_useful = 64;
  EXPECT_THAT(said({}, nothing, plan), Not(HasSubstr("rank")));
  EXPECT_THAT(plan_text(plan, 1), Not(HasSubstr("rank")));
  plan.adapter_rank = 65;
  EXPECT_THAT(said({}, nothing, plan), HasSubstr("adapters of rank 65 learn no more than those of "
                                                 "rank 64"));
  EXPECT_THAT(plan_text(plan, 1), HasSubstr("--lora-rank 64 does"));
}

}  // namespace
}  // namespace jige::cli
