// Preference runs from pairs to a model: what they learn, keep, resume with, and refuse.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "train/preference_run_test_support.h"

namespace jige::train {
namespace {

using testing::HasSubstr;

std::vector<PreferenceMeans> preference_of(const TrainOptions& options, TrainCallbacks callbacks,
                                           std::vector<PreferenceMeans>& held_out) {
  std::vector<PreferenceMeans> steps;
  callbacks.on_step = [&](const StepInfo& info) { steps.push_back(*info.preference); };
  callbacks.on_eval = [&](const EvalInfo& info) { held_out.push_back(*info.preference); };
  const auto trainer = Trainer::create(options, callbacks);
  EXPECT_TRUE(trainer) << trainer.error().message;
  if (!trainer) return steps;
  const auto run = (*trainer)->run();
  EXPECT_TRUE(run) << run.error().message;
  EXPECT_EQ(run->memory.arena_peak_bytes, run->memory.arena_predicted_bytes);
  return steps;
}

TEST(PreferenceTrainer, LearnsToPreferTheChosenAnswersAndSaysSo) {
  const TestFolder folder;
  first_model(folder);
  TrainOptions options = preference_options(folder, "tuned");
  options.data.eval_fraction = 0.2;
  options.eval_every_steps = 10;
  options.steps = 40;
  std::vector<PreferenceMeans> held_out;
  int64_t done = 0, total = 0;
  const auto steps = preference_of(options,
                                   {.on_reference =
                                        [&](int64_t so_far, int64_t all) {
                                          EXPECT_GT(so_far, done);
                                          done = so_far;
                                          total = all;
                                          return true;
                                        }},
                                   held_out);
  EXPECT_GT(total, 0);
  EXPECT_EQ(done, total);
  ASSERT_EQ(steps.size(), 40u);
  EXPECT_EQ(steps[0].margin, 0);
  EXPECT_NEAR(steps[0].loss, std::log(2.0), 1e-12);
  EXPECT_EQ(steps.back().accuracy, 1);
  EXPECT_LT(steps.back().loss, 0.5);
  ASSERT_EQ(held_out.size(), 4u);
  EXPECT_EQ(held_out.back().accuracy, 1);
  const auto logged = log_records(options, "step");
  ASSERT_EQ(logged.size(), 40u);
  EXPECT_EQ(logged.back()["loss"].get<double>(), steps.back().loss);
  EXPECT_EQ(logged.back()["margin"].get<double>(), steps.back().margin);
  EXPECT_EQ(logged.back()["accuracy"], 1.0);
  EXPECT_EQ(logged.back()["chosen_logprob"].get<double>(), steps.back().chosen_logprob);
  EXPECT_EQ(logged.back()["rejected_logprob"].get<double>(), steps.back().rejected_logprob);
  EXPECT_EQ(logged.back()["pairs"], steps.back().pair_count);
  const auto evals = log_records(options, "eval");
  EXPECT_FALSE(evals.back().contains("perplexity"));
  EXPECT_EQ(evals.back()["margin"].get<double>(), held_out.back().margin);
}

TEST(PreferenceTrainer, GivesTheSameBitsForAnyMicroBatchSizeAndThreadCount) {
  const TestFolder folder;
  first_model(folder);
  std::vector<double> losses;
  std::string model;
  for (const auto& [tokens, threads] : {std::pair{64, 1}, {64, 2}, {96, 1}, {128, 2}}) {
    TrainOptions options = preference_options(folder, fmt::format("run{}-{}", tokens, threads));
    options.dpo = {.beta = 0.2, .label_smoothing = 0.1, .sft_weight = 0.3};
    options.micro_batch_tokens = tokens;
    options.thread_count = threads;
    options.steps = 4;
    const auto run = train(options);
    ASSERT_TRUE(run) << run.error().message;
    if (losses.empty()) {
      losses = run->losses;
      model = model_bytes(options);
    }
    EXPECT_EQ(run->losses, losses) << tokens << " tokens, " << threads << " threads";
    EXPECT_EQ(model_bytes(options), model) << tokens << " tokens, " << threads << " threads";
  }
}

// Stops after some steps, does something to the run, and goes on; all kinds of it.
TEST(PreferenceTrainer, TakesAnswersAsLongAsAMicroBatchHoldsTwice) {
  const TestFolder folder;
  first_model(folder);
  for (const auto& [micro_batch_tokens, context] : {std::pair{80, 40}, {400, 64}}) {
    TrainOptions options = preference_options(folder, "c" + std::to_string(context));
    options.context = 0;
    options.micro_batch_tokens = micro_batch_tokens;
    options.steps = 1;
    const auto trainer = Trainer::create(options, {});
    ASSERT_TRUE(trainer) << trainer.error().message;
    EXPECT_EQ((*trainer)->plan().context, context);
  }
}

TEST(PreferenceTrainer, GoesOnWithTheSameBitsAndComputesNoReferenceAgain) {
  const TestFolder folder;
  first_model(folder);
  const struct {
    const char* name;
    bool lora;
    ops::WeightFormat format;
    DType compute;
  } kinds[] = {{"all", false, ops::WeightFormat::kCompute, DType::kF32},
               {"bf16", false, ops::WeightFormat::kCompute, DType::kBF16},
               {"lora", true, ops::WeightFormat::kCompute, DType::kF32},
               {"q8", true, ops::WeightFormat::kQ8, DType::kF32}};
  for (const auto& kind : kinds) {
    SCOPED_TRACE(kind.name);
    const auto options_for = [&](const std::string& out) {
      TrainOptions options = preference_options(folder, out + kind.name);
      if (kind.lora) options.lora = {.rank = 4, .alpha = 8};
      options.base_format = kind.format;
      options.compute = kind.compute;
      options.data.eval_fraction = 0.2;
      options.steps = 6;
      options.eval_every_steps = 3;
      return options;
    };
    const auto whole = train(options_for("whole"));
    ASSERT_TRUE(whole) << whole.error().message;
    EXPECT_EQ(whole->result.memory.arena_peak_bytes, whole->result.memory.arena_predicted_bytes);
    for (const bool lose_reference : {false, true}) {
      const TrainOptions options = options_for(lose_reference ? "lost" : "parts");
      int steps = 0, computed = 0;
      const TrainCallbacks callbacks{.on_reference =
                                         [&](int64_t, int64_t) {
                                           ++computed;
                                           return true;
                                         },
                                     .should_stop = [&] { return ++steps == 4; }};
      const auto first = train(options, callbacks);
      ASSERT_TRUE(first) << first.error().message;
      EXPECT_TRUE(first->result.stopped);
      EXPECT_GT(computed, 0);
      computed = 0;
      ASSERT_NE(reference_file(options), "");
      if (lose_reference) std::filesystem::remove(reference_file(options));
      const auto second = train(options, callbacks);
      ASSERT_TRUE(second) << second.error().message;
      EXPECT_EQ(computed > 0, lose_reference);
      std::vector<double> losses = first->losses;
      losses.insert(losses.end(), second->losses.begin(), second->losses.end());
      EXPECT_EQ(losses, whole->losses);
      EXPECT_EQ(model_bytes(options), model_bytes(options_for("whole")));
      ASSERT_EQ(second->evals.size(), whole->evals.size() - first->evals.size());
      EXPECT_EQ(second->evals.back().loss, whole->evals.back().loss);
    }
  }
}

// Runs with one cache take a reference from it where theirs has the same numbers.
TEST(PreferenceTrainer, KeepsAReferenceForEachFormatOfTheBaseAndTypeOfNumbers) {
  const TestFolder folder;
  first_model(folder);
  const struct {
    ops::WeightFormat format;
    DType compute;
    bool is_there;
  } runs[] = {{ops::WeightFormat::kCompute, DType::kF32, false},
              {ops::WeightFormat::kQ8, DType::kF32, false},
              {ops::WeightFormat::kQ8, DType::kBF16, false},
              {ops::WeightFormat::kQ8, DType::kF32, true}};
  for (size_t i = 0; i < std::size(runs); ++i) {
    TrainOptions options = preference_options(folder, "run" + std::to_string(i));
    options.data.cache_folder = folder.file("cache");
    options.lora = {.rank = 1, .alpha = 1};
    options.base_format = runs[i].format;
    options.compute = runs[i].compute;
    options.steps = 1;
    bool computed = false;
    const auto run =
        train(options, {.on_reference = [&](int64_t, int64_t) { return computed = true; }});
    ASSERT_TRUE(run) << run.error().message;
    EXPECT_EQ(computed, !runs[i].is_there) << "run " << i;
  }
}

TEST(PreferenceTrainer, DoesNotMakeALostReferenceAnewFromOtherWeights) {
  const TestFolder folder;
  first_model(folder);
  TrainOptions options = preference_options(folder, "tuned");
  int steps = 0;
  ASSERT_TRUE(train(options, {.should_stop = [&] { return ++steps == 3; }}));
  const std::string weights = options.init_folder + "/model.safetensors";
  std::string bytes = *read_file(weights);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  ASSERT_TRUE(write_file_atomic(weights, bytes));
  std::filesystem::remove(reference_file(options));
  const auto again = train(options);
  ASSERT_FALSE(again);
  EXPECT_THAT(again.error().message, HasSubstr("are not those that the run began with"));
}

TEST(PreferenceTrainer, StopsWhereItIsToldToWhileTheReferenceIsComputed) {
  const TestFolder folder;
  first_model(folder);
  const TrainOptions options = preference_options(folder, "tuned");
  const auto run = train(options, {.on_reference = [](int64_t, int64_t) { return false; }});
  ASSERT_FALSE(run);
  EXPECT_EQ(run.error().code, Code::kCancelled) << run.error().message;
  EXPECT_EQ(reference_file(options), "");
}

TEST(PreferenceTrainer, LeavesBadPairsOutWhereAsked) {
  const TestFolder folder;
  first_model(folder);
  TrainOptions options = preference_options(folder, "tuned");
  options.data.files = {folder.write(
      "some.jsonl",
      small_pairs(12) + "{\"prompt\": \"a\", \"chosen\": \"b\"}\n" +
          dump_json(Json{{"prompt", "a"}, {"chosen", std::string(40, 'b')}, {"rejected", "c"}}) +
          "\n")};
  options.steps = 2;
  const auto refused = train(options);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("some.jsonl:13: field \"rejected\" is missing"));
  options.data.skip_bad = true;
  TrainPlan plan;
  const auto run = train(options, {.on_plan = [&](const TrainPlan& made) { plan = made; }});
  ASSERT_TRUE(run) << run.error().message;
  EXPECT_EQ(plan.skipped_count, 2);
  EXPECT_EQ(plan.sequence_count, 12);
}

TEST(PreferenceTrainer, RefusesWhatItCannotDoBeforeItStarts) {
  const TestFolder folder;
  first_model(folder);
  const auto refusal = [&](const auto& change) {
    TrainOptions options = preference_options(folder, "refused");
    change(options);
    const auto run = train(options);
    return run ? "none" : run.error().message;
  };
  EXPECT_THAT(refusal([](TrainOptions& options) { options.pipeline.emplace(); }),
              HasSubstr("--dpo with a pipeline of devices is not supported"));
  EXPECT_THAT(refusal([](TrainOptions& options) { options.dpo->beta = 0; }),
              HasSubstr("--dpo-beta is 0, but must be above 0"));
  EXPECT_THAT(refusal([](TrainOptions& options) { options.dpo->label_smoothing = 0.5; }),
              HasSubstr("--dpo-label-smoothing is 0.5"));
  EXPECT_THAT(refusal([](TrainOptions& options) { options.dpo->sft_weight = -1; }),
              HasSubstr("--dpo-sft-weight is -1"));
  EXPECT_THAT(refusal([](TrainOptions& options) { options.data.packing = Packing::kStream; }),
              HasSubstr("--packing stream would part the answers"));
  EXPECT_THAT(refusal([](TrainOptions& options) { options.micro_batch_tokens = 63; }),
              HasSubstr("raise --micro-batch-tokens to 64"));
  EXPECT_THAT(
      refusal([&](TrainOptions& options) { options.data.files = {folder.write("a.txt", "text")}; }),
      HasSubstr("a.txt: preference tuning reads pairs of answers from JSONL files"));
  EXPECT_THAT(refusal([&](TrainOptions& options) {
                options.init_folder.clear();
                options.config = tiny_config();
                options.tokenizer_folder = folder.file("tokenizer");
              }),
              HasSubstr("name its folder with --from"));
}

}  // namespace
}  // namespace jige::train
