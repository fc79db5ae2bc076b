// Steps of preference tuning against PyTorch (tests/tools/record_preference.py) and against finite
// differences, and the bits that may not change.

#include "train/preference_engine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/rng.h"
#include "train/preference_test_support.h"
#include "train/slopes_test_support.h"

namespace jige::train {
namespace {

Json recorded_pairs() {
  const std::string path = kFixtures + "train/preference.json";
  return *parse_json(*read_file(path), path);
}

std::vector<IdPair> pairs_of(const Json& recording) {
  std::vector<IdPair> pairs;
  for (const Json& pair : recording["pairs"]) {
    pairs.push_back({pair["prompt"], pair["chosen"], pair["rejected"]});
  }
  return pairs;
}

std::vector<IdPair> random_pairs(uint64_t seed, int count) {
  Rng rng(seed);
  std::vector<IdPair> pairs(static_cast<size_t>(count));
  for (IdPair& pair : pairs) {
    for (auto* ids : {&pair.prompt, &pair.chosen, &pair.rejected}) {
      ids->resize(1 + rng.below(9));
      for (int32_t& id : *ids) id = static_cast<int32_t>(rng.below(96));
    }
  }
  return pairs;
}

class PreferenceReference : public testing::TestWithParam<const char*> {};

TEST_P(PreferenceReference, StepsMatchPyTorch) {
  const Json recording = recorded_pairs();
  const Json& run = recording["runs"][GetParam()];
  const Json& adam = recording["optimizer"];
  const auto expected =
      formats::open_safetensors(kFixtures + "train/preference-" + GetParam() + ".safetensors");
  ASSERT_TRUE(expected) << expected.error().message;
  const TestFolder folder;
  const PairCorpus data = write_pairs(folder.file("pairs.bin"), pairs_of(recording));
  PreferenceRig rig(data, {.model = run["model"],
                           .dpo = {.beta = run["beta"],
                                   .label_smoothing = run["label_smoothing"],
                                   .sft_weight = run["sft_weight"]},
                           .optimizer = {.beta1 = adam["betas"][0],
                                         .beta2 = adam["betas"][1],
                                         .epsilon = adam["eps"],
                                         .weight_decay = adam["weight_decay"],
                                         .clip_norm = 0}});
  const auto recorded = [&](const char* name, int64_t step) {
    return static_cast<double>((*expected->view(name)).as<float>()[step]);
  };
  const int64_t steps = (*expected->view("losses")).count();
  for (int64_t step = 0; step < steps; ++step) {
    const StepOutcome outcome = rig.step(adam["lr"]);
    const PreferenceMeans means = *outcome.preference;
    EXPECT_NEAR(means.loss, recorded("losses", step), 1e-4) << step;
    EXPECT_NEAR(means.margin, recorded("margins", step), 5e-4) << step;
    EXPECT_NEAR(means.chosen_logprob, recorded("chosen", step), 1e-3) << step;
    EXPECT_NEAR(means.rejected_logprob, recorded("rejected", step), 1e-3) << step;
    const double norm = recorded("norms", step);
    EXPECT_NEAR(outcome.optimizer.grad_norm, norm, 1e-3 * norm) << step;
  }
  // The gradients of the last step, in the place where the optimizer found them.
  const double norm = recorded("norms", steps - 1);
  for (const model::NamedParam& param : rig.params()) {
    const auto stored = expected->view(param.spec->name);
    ASSERT_TRUE(stored) << param.spec->name;
    double worst = 0;
    for (int64_t row = 0; row < param.grad.rows(); ++row) {
      for (int64_t column = 0; column < param.grad.columns(); ++column) {
        const float value = param.grad.as<float>()[row * param.grad.columns() + column];
        worst =
            std::max<double>(worst, std::abs(value - stored_value(param, *stored, row, column)));
      }
    }
    EXPECT_LT(worst, 1e-3 * norm) << param.spec->name;
  }
}

INSTANTIATE_TEST_SUITE_P(Recorded, PreferenceReference,
                         testing::Values("llama2", "llama2-smoothed", "gpt2-sft"),
                         [](const auto& param_info) {
                           std::string name = param_info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// Moves a parameter along its gradient and looks at the loss that `measure` computes forward only.
TEST(PreferenceEngine, HasTheGradientOfItsLossByFiniteDifferences) {
  const TestFolder folder;
  const PairCorpus data = write_pairs(folder.file("pairs.bin"), random_pairs(3, 6));
  PreferenceRig rig(data, {.dpo = {.beta = 0.4, .label_smoothing = 0.15, .sft_weight = 0.5}});
  rig.step(0.01);  // away from the reference
  rig.step(0);     // leaves the gradient behind
  expect_slopes(rig, 3e-3, "", [&] { return rig.measure().loss; });
}

// What a run of three steps leaves.
struct Trace {
  std::vector<double> values;
  std::vector<float> weights;
  ReferenceLogProbs reference;

  bool operator==(const Trace&) const = default;
};

Trace trace_of(const PairCorpus& data, const PreferenceRigOptions& options) {
  PreferenceRig rig(data, options);
  Trace trace{.reference = rig.reference()};
  for (int step = 0; step < 3; ++step) {
    const PreferenceMeans means = *rig.step(0.003).preference;
    for (const double value :
         {means.loss, means.margin, means.accuracy, means.chosen_logprob, means.rejected_logprob}) {
      trace.values.push_back(value);
    }
  }
  trace.values.push_back(rig.measure().loss);
  for (const model::NamedParam& param : rig.params()) {
    const float* data_begin = param.value.as<float>();
    trace.weights.insert(trace.weights.end(), data_begin, data_begin + param.value.count());
  }
  return trace;
}

TEST(PreferenceEngine, GivesTheSameBitsForAnyMicroBatchSizeAndThreadCount) {
  const TestFolder folder;
  const PairCorpus data = write_pairs(folder.file("pairs.bin"), random_pairs(5, 12));
  const DpoOptions dpo{.beta = 0.3, .label_smoothing = 0.05, .sft_weight = 0.2};
  for (const char* model : {"llama2", "gpt2", "qwen3"}) {
    const Trace expected = trace_of(data, {.model = model, .dpo = dpo});
    for (const auto& [tokens, threads] : {std::pair{40, 1}, {64, 2}, {512, 2}}) {
      EXPECT_TRUE(trace_of(data, {.model = model,
                                  .dpo = dpo,
                                  .micro_batch_tokens = tokens,
                                  .threads = threads}) == expected)
          << model << ", " << tokens << " tokens, " << threads << " threads";
    }
  }
}

TEST(PreferenceEngine, HasNoMarginBeforeTheFirstUpdate) {
  const TestFolder folder;
  const PairCorpus data = write_pairs(folder.file("pairs.bin"), random_pairs(7, 6));
  PreferenceRig rig(data, {});
  const PreferenceMeans first = *rig.step(0.003).preference;
  EXPECT_EQ(first.pair_count, 6);
  EXPECT_EQ(first.margin, 0);
  EXPECT_EQ(first.accuracy, 0);
  EXPECT_NEAR(first.loss, std::log(2.0), 1e-15);
  for (int step = 0; step < 15; ++step) rig.step(0.003);
  EXPECT_EQ(rig.measure().accuracy, 1);
  EXPECT_GT(rig.measure().margin, 1);
}

}  // namespace
}  // namespace jige::train
