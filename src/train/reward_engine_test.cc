// Steps that learn from rewards: their loss by hand and their gradient by finite differences, on
// answers that are given.

#include "train/reward_engine.h"

#include <gtest/gtest.h>

#include <cmath>

#include "formats/tensor_folder.h"
#include "train/recording_test_support.h"
#include "train/reward_test_support.h"
#include "train/slopes_test_support.h"

namespace jige::train {
namespace {

// Gives what it was given, whatever the weights.
class GivenAnswers final : public PlainSource {
 public:
  explicit GivenAnswers(std::vector<AnswerGroup> groups) : groups_(std::move(groups)) {}
  Result<std::vector<AnswerGroup>> draw(std::span<const DrawRequest> requests,
                                        const GoOn& /*go_on*/) override {
    EXPECT_EQ(requests.size(), groups_.size());
    return groups_;
  }
  std::vector<AnswerGroup>& groups() { return groups_; }

 private:
  std::vector<AnswerGroup> groups_;
};

// Two groups of answers to two prompts, of which the second teaches nothing.
std::vector<AnswerGroup> given_groups() {
  const auto answer = [](std::vector<int32_t> tokens, const char* text) {
    DrawnAnswer made{.tokens = std::move(tokens), .text = text};
    made.logprobs.resize(made.tokens.size());
    return made;
  };
  return {{answer({5, 9, 40, 2}, "right"), answer({11}, "wrong"), answer({7, 8}, "wrong")},
          {answer({1, 2, 3}, "wrong"), answer({4}, "wrong"), answer({3, 3}, "wrong")}};
}

class RewardRig {
 public:
  explicit RewardRig(GrpoOptions grpo, int64_t micro_batch_tokens = 64)
      : source_(std::make_shared<GivenAnswers>(given_groups())), device_({.thread_count = 1}) {
    const std::string folder = kFixtures + "model/llama2";
    options_.init_folder = folder;
    options_.context = 32;
    options_.micro_batch_tokens = micro_batch_tokens;
    options_.optimizer.clip_norm = 0;
    grpo.reward.rule = RewardRule::kExact;
    grpo.group = 3;
    grpo.source = source_;
    options_.grpo = std::move(grpo);
    for (std::vector<int32_t> ids : {std::vector<int32_t>{20, 21, 22}, {30}}) {
      data_.prompts.prompts.push_back({.ids = std::move(ids), .record = "{}", .answer = "right"});
    }
    architecture_ = *model::Architecture::create(*formats::load_model_config(folder));
    const model::WeightsOptions weights{
        .compute = DType::kF32, .use = model::PackFor::kTraining, .position_count = 32};
    const auto memory = model::training_memory(*architecture_, weights, micro_batch_tokens);
    engine_ = *RewardEngine::create(device_, *architecture_, weights, memory, options_);
    EXPECT_TRUE(model::load_weights(engine_->weights(), engine_->stream(),
                                    *formats::TensorFolder::open(folder)));
    EXPECT_TRUE(
        engine_->rewards()->start({.device = device_, .dataset = data_, .tokenizer_folder = ""}));
  }

  StepOutcome step(double rate) {
    StepPlan plan;
    plan.micro_batches.push_back(
        {.sequences = {{.begin = 0, .count = 1}, {.begin = 1, .count = 1}}});
    const auto outcome = engine_->run({}, plan, {.step = 1, .learning_rate = rate});
    EXPECT_TRUE(outcome) << outcome.error().message;
    return *outcome;
  }
  // What the model as it is says of the answers' tokens becomes what they were drawn with, but for
  // `shift` of the k-th token of each.
  void draw_again(const std::function<double(size_t)>& shift) {
    auto reference = ReferenceModel::load(options_, device_);
    ASSERT_TRUE(reference) << reference.error().message;
    for (size_t i = 0; i < source_->groups().size(); ++i) {
      for (DrawnAnswer& answer : source_->groups()[i]) {
        std::vector<int32_t> text = data_.prompts.prompts[i].ids;
        text.insert(text.end(), answer.tokens.begin(), answer.tokens.end());
        answer.logprobs = *reference->logprobs(text, std::ssize(answer.tokens));
        for (size_t k = 0; k < answer.logprobs.size(); ++k) {
          answer.logprobs[k] += static_cast<float>(shift(k));
        }
      }
    }
  }
  std::vector<AnswerGroup>& groups() { return source_->groups(); }
  RewardEngine& engine() { return *engine_; }
  std::span<const model::NamedParam> params() { return engine_->optimizer().params(); }

 private:
  std::shared_ptr<GivenAnswers> source_;
  CpuDevice device_;
  TrainOptions options_;
  Dataset data_;
  std::unique_ptr<const model::Architecture> architecture_;
  std::unique_ptr<RewardEngine> engine_;
};

TEST(RewardEngine, TakesTheMeanOverAllTokensOfGroupsThatTeach) {
  RewardRig rig({.loss = {.advantage = AdvantageKind::kMean, .kl = 0.1}});
  rig.draw_again([](size_t) { return 0.0; });
  const StepOutcome outcome = rig.step(0);
  const RewardStep& info = *outcome.rewards;
  // Advantages 2/3, -1/3, -1/3 of 4, 1 and 2 tokens, each with a ratio of 1.
  EXPECT_NEAR(info.loss, -(4 * 2. / 3 - 1 * 1. / 3 - 2 * 1. / 3) / 7, 1e-12);
  EXPECT_EQ(info.logprob_gap, 0);
  EXPECT_EQ(info.kl, 0);
  EXPECT_EQ(info.clipped_share, 0);
  EXPECT_EQ(info.silent_share, 0.5);
  EXPECT_EQ(info.group_count, 2);
  EXPECT_EQ(info.means.answer_count, 6);
  EXPECT_DOUBLE_EQ(info.means.reward, 1. / 6);
  EXPECT_DOUBLE_EQ(info.means.full_share, 1. / 6);
  EXPECT_DOUBLE_EQ(info.means.spread, std::sqrt(5.) / 6);
  EXPECT_DOUBLE_EQ(info.means.length, 13. / 6);
  EXPECT_EQ(outcome.learned->learned_count, 7);
  EXPECT_EQ(outcome.learned->input_count, 3 * 2 + 7);
  EXPECT_GT(outcome.optimizer.grad_norm, 0);
}

TEST(RewardEngine, LearnsNothingOfCutAnswersThatAreMasked) {
  RewardRig rig({.loss = {.advantage = AdvantageKind::kMean}, .overlong = {.masks = true}});
  rig.draw_again([](size_t) { return 0.0; });
  rig.groups()[0][0].cut = true;
  const StepOutcome outcome = rig.step(0);
  // It counts in the mean of its group: advantages -1/3 of 1 and 2 tokens are left.
  EXPECT_NEAR(outcome.rewards->loss, 1. / 3, 1e-12);
  EXPECT_EQ(outcome.learned->learned_count, 3);
  EXPECT_EQ(outcome.rewards->silent_share, 0.5);
  EXPECT_DOUBLE_EQ(outcome.rewards->means.cut_share, 1. / 6);
  EXPECT_DOUBLE_EQ(outcome.rewards->means.reward, 1. / 6);
  for (DrawnAnswer& answer : rig.groups()[0]) answer.cut = true;
  EXPECT_EQ(rig.step(0).rewards->silent_share, 1);
}

TEST(RewardEngine, TakesFromTheRewardsOfLongAnswers) {
  RewardRig rig({.draw = {.tokens_max = 4},
                 .loss = {.advantage = AdvantageKind::kMean},
                 .overlong = {.penalty = 0.5, .margin = 2}});
  rig.draw_again([](size_t) { return 0.0; });
  const StepOutcome outcome = rig.step(0);
  // Worths 0.5, 0, 0 of 4, 1 and 2 tokens, and -0.25, 0, 0 of 3, 1 and 2.
  const double first = 4 * 1. / 3 - 1 * 1. / 6 - 2 * 1. / 6;
  const double second = -3 * 1. / 6 + 1 * 1. / 12 + 2 * 1. / 12;
  EXPECT_NEAR(outcome.rewards->loss, -(first + second) / 13, 1e-12);
  EXPECT_EQ(outcome.rewards->silent_share, 0);
  // Said are the rewards without it.
  EXPECT_DOUBLE_EQ(outcome.rewards->means.reward, 1. / 6);
  EXPECT_DOUBLE_EQ(*outcome.rewards->length_reward, -0.75 / 6);
}

TEST(RewardEngine, ChangesNothingWhereNoRewardsDiffer) {
  RewardRig rig({});
  rig.groups()[0][0].text = "wrong";
  const model::NamedParam& param = rig.params()[0];
  const std::vector<float> before(param.value.as<float>(),
                                  param.value.as<float>() + param.value.count());
  const StepOutcome outcome = rig.step(1e-2);
  EXPECT_TRUE(outcome.optimizer.applied);  // nothing was wrong
  EXPECT_EQ(outcome.optimizer.grad_norm, 0);
  EXPECT_EQ(outcome.rewards->silent_share, 1);
  EXPECT_EQ(outcome.rewards->logprob_gap, std::nullopt);
  EXPECT_EQ(outcome.learned->learned_count, 0);
  EXPECT_EQ(rig.engine().optimizer().update_count(), 0);
  EXPECT_EQ(
      std::vector<float>(param.value.as<float>(), param.value.as<float>() + param.value.count()),
      before);
}

// Moves each parameter along its gradient and looks at the loss, with tokens on both sides of the
// clip range and a reference that the weights have left.
TEST(RewardEngine, HasTheGradientOfItsLossByFiniteDifferences) {
  for (const double kl : {0.0, 0.3}) {
    RewardRig rig({.loss = {.kl = kl}});
    rig.draw_again([](size_t k) { return k % 2 == 0 ? 0.05 : k % 4 == 1 ? -0.6 : 0.5; });
    rig.step(2e-4);  // away from the reference
    const StepOutcome outcome = rig.step(0);
    EXPECT_GT(outcome.rewards->clipped_share, 0);
    EXPECT_LT(outcome.rewards->clipped_share, 0.5);
    EXPECT_EQ(outcome.rewards->kl.value_or(0) > 0, kl > 0);
    expect_slopes(rig, 2e-3, " kl " + std::to_string(kl),
                  [&] { return rig.step(0).rewards->loss; });
  }
}

TEST(RewardEngine, HasTheSameBitsForAnyMicroBatchSize) {
  std::vector<std::vector<float>> gradients;
  for (const int64_t tokens : {64, 7}) {
    RewardRig rig({}, tokens);
    rig.draw_again([](size_t k) { return 0.1 * static_cast<double>(k); });
    rig.step(0);
    std::vector<float> all;
    for (const model::NamedParam& param : rig.params()) {
      all.insert(all.end(), param.grad.as<float>(), param.grad.as<float>() + param.grad.count());
    }
    gradients.push_back(std::move(all));
  }
  EXPECT_EQ(gradients[0], gradients[1]);
}

}  // namespace
}  // namespace jige::train
