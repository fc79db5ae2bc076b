// Runs that learn from rewards, from prompts to a model: what they learn, log, resume with and
// refuse.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <signal.h>

#include "train/reward_test_support.h"

namespace jige::train {
namespace {

using testing::HasSubstr;

std::vector<RewardStep> rewards_of(const TrainOptions& options, TrainCallbacks callbacks = {}) {
  std::vector<RewardStep> steps;
  callbacks.on_step = [&](const StepInfo& info) { steps.push_back(*info.rewards); };
  const auto run = train(options, callbacks);
  EXPECT_TRUE(run) << run.error().message;
  return steps;
}

TEST(RewardTrainer, LearnsWhatIsRewardedAndSaysSo) {
  const TestFolder folder;
  first_model(folder);
  TrainOptions options = reward_options(folder, "run");
  options.data.eval_files = {folder.write("eval.jsonl", reward_prompts(3))};
  options.steps = 40;
  options.eval_every_steps = 20;
  options.schedule.peak = 1e-2;
  options.schedule.kind = ScheduleKind::kConstant;
  std::vector<RewardStep> steps;
  std::vector<EvalInfo> evals;
  const auto trainer = Trainer::create(
      options, {.on_step = [&](const StepInfo& info) { steps.push_back(*info.rewards); },
                .on_eval = [&](const EvalInfo& info) { evals.push_back(info); }});
  ASSERT_TRUE(trainer) << trainer.error().message;
  EXPECT_GT((*trainer)->plan().drawing_bytes, 0);
  const auto run = (*trainer)->run();
  ASSERT_TRUE(run) << run.error().message;
  EXPECT_EQ(run->memory.arena_peak_bytes, run->memory.arena_predicted_bytes);
  double first = 0, last = 0;
  for (size_t i = 0; i < 5; ++i) {
    first += steps[i].means.reward / 5;
    last += steps[steps.size() - 1 - i].means.reward / 5;
  }
  EXPECT_LT(first, 0.8);
  EXPECT_GT(last, 0.95);
  for (const RewardStep& step : steps) EXPECT_EQ(step.logprob_gap.value_or(0), 0);
  ASSERT_EQ(evals.size(), 3u);
  EXPECT_EQ(evals[0].step, 0);
  EXPECT_EQ(evals[2].step, 40);
  EXPECT_EQ(evals[2].rewards->reward, 1);
  EXPECT_EQ(evals[2].rewards->answer_count, 3);
  const std::vector<Json> logged = log_records(options, "step");
  ASSERT_EQ(logged.size(), 40u);
  EXPECT_EQ(logged[3]["reward"].get<double>(), steps[3].means.reward);
  EXPECT_EQ(logged[3]["silent_share"].get<double>(), steps[3].silent_share);
  EXPECT_EQ(log_records(options, "eval")[2]["full_share"], 1.0);
  EXPECT_FALSE(log_records(options, "eval")[2].contains("loss"));
}

TEST(RewardTrainer, GoesOnWithTheSameBitsAfterAStop) {
  const TestFolder folder;
  first_model(folder);
  for (const bool lora : {false, true}) {
    SCOPED_TRACE(lora);
    const auto options_for = [&](const std::string& out) {
      TrainOptions options = reward_options(folder, out + (lora ? "-lora" : ""));
      if (lora) options.lora = {.rank = 4, .alpha = 8};
      options.grpo->updates = 2;
      options.grpo->loss.kl = 0.05;
      return options;
    };
    const TrainOptions whole = options_for("whole"), parts = options_for("parts");
    ASSERT_TRUE(train(whole));
    int steps = 0;
    const auto first = train(parts, {.should_stop = [&] { return ++steps == 3; }});
    ASSERT_TRUE(first) << first.error().message;
    EXPECT_TRUE(first->result.stopped);
    const auto second = train(parts);
    ASSERT_TRUE(second) << second.error().message;
    EXPECT_EQ(second->losses.size(), 3u);
    EXPECT_EQ(model_bytes(parts), model_bytes(whole));
    // Again: nothing is left to do.
    const auto third = train(parts);
    ASSERT_TRUE(third) << third.error().message;
    EXPECT_TRUE(third->result.was_complete);
  }
}

TEST(RewardTrainer, GivesTheSameBitsForAnyMicroBatchSizeAndThreadCount) {
  const TestFolder folder;
  first_model(folder);
  std::string model;
  for (const auto& [tokens, threads] : {std::pair{64, 1}, {32, 2}}) {
    TrainOptions options = reward_options(folder, std::to_string(tokens));
    options.micro_batch_tokens = tokens;
    options.thread_count = threads;
    options.steps = 3;
    ASSERT_TRUE(train(options));
    if (model.empty()) model = model_bytes(options);
    EXPECT_EQ(model_bytes(options), model);
  }
}

TEST(RewardTrainer, ClipsAndKeepsNearTheFirstWeightsWhereAsked) {
  const TestFolder folder;
  first_model(folder);
  TrainOptions options = reward_options(folder, "run");
  options.grpo->updates = 4;
  options.grpo->loss.kl = 0.1;
  options.schedule.peak = 2e-2;
  double clipped = 0, kl = 0;
  for (const RewardStep& step : rewards_of(options)) {
    clipped += step.clipped_share;
    kl += step.kl.value_or(0);
    EXPECT_EQ(step.logprob_gap.value_or(0), 0);
  }
  EXPECT_GT(clipped, 0);
  EXPECT_GT(kl, 0);
  // The reference is that of the run, also when it goes on.
  options.out_folder = folder.file("again");
  int steps = 0;
  ASSERT_TRUE(train(options, {.should_stop = [&] { return ++steps == 2; }}));
  const std::string weights = folder.file("first/model/model.safetensors");
  std::string bytes = bytes_of(weights);
  bytes[bytes.size() - 2] = static_cast<char>(bytes[bytes.size() - 2] ^ 1);
  ASSERT_TRUE(write_file_atomic(weights, bytes));
  const auto changed = train(options);
  ASSERT_FALSE(changed);
  EXPECT_THAT(changed.error().message, HasSubstr("is the reference of this run"));
}

TEST(RewardTrainer, EndsWithTheErrorOfAProgramBehindACheckpoint) {
  void (*const before)(int) = signal(SIGPIPE, SIG_IGN);
  const TestFolder folder;
  first_model(folder);
  TrainOptions options = reward_options(folder, "run");
  options.grpo->reward = {.command =
                              "for i in 1 2 3 4 5 6 7 8; do read -r x; echo $i; done; exit 5"};
  options.checkpoint_every_steps = 1;
  const auto run = train(options);
  signal(SIGPIPE, before);
  ASSERT_FALSE(run);
  EXPECT_THAT(run.error().message, HasSubstr("step 2 failed; the checkpoint of step 1 is whole"));
  EXPECT_THAT(run.error().message, HasSubstr("exit code 5"));
}

TEST(RewardTrainer, RefusesWhatDoesNotGoTogether) {
  const TestFolder folder;
  first_model(folder);
  const auto error_of = [&](const std::function<void(TrainOptions&)>& change) {
    TrainOptions options = reward_options(folder, "run");
    change(options);
    const auto trainer = Trainer::create(options, {});
    EXPECT_FALSE(trainer);
    return trainer ? std::string() : trainer.error().message;
  };
  EXPECT_THAT(error_of([](auto& o) { o.dpo.emplace(); }), HasSubstr("--dpo and --grpo"));
  EXPECT_THAT(error_of([](auto& o) { o.dropout = 0.1; }), HasSubstr("--dropout"));
  EXPECT_THAT(error_of([](auto& o) { o.gpus = {0}; }), HasSubstr("--device cuda"));
  EXPECT_THAT(error_of([](auto& o) { o.pipeline.emplace(); }), HasSubstr("--devices"));
  EXPECT_THAT(error_of([](auto& o) { o.grpo->group = 1; }), HasSubstr("--group"));
  EXPECT_THAT(error_of([](auto& o) { o.grpo->draw.temperature = 0; }), HasSubstr("--temperature"));
  EXPECT_THAT(error_of([](auto& o) { o.grpo->reward.command = "cat"; }),
              HasSubstr("one of --reward and --reward-command"));
  EXPECT_THAT(error_of([](auto& o) { o.grpo->loss.clip_low = 0; }), HasSubstr("--clip-low"));
  EXPECT_THAT(error_of([](auto& o) { o.grpo->draw.tokens_max = 32; }),
              HasSubstr("no room for a prompt"));
  EXPECT_THAT(error_of([](auto& o) { o.memory_limit_bytes = 1 << 20; }),
              HasSubstr("to draw answers"));
}

}  // namespace
}  // namespace jige::train
