// Runs by a pipeline schedule: the same results as on one device, within the memory they are given.

#include <gtest/gtest.h>

#include "plan/pipeline_schedule_json.h"
#include "train/pipeline_record.h"
#include "train/test_support.h"
#include "train/trainer.h"

namespace jige::train {
namespace {

TrainOptions pipeline_options(const TestFolder& folder, const std::string& out) {
  TrainOptions options = tiny_options(folder, {folder.file("a.jsonl")});
  options.out_folder = folder.file(out);
  options.micro_batch_tokens = 32;
  options.data.eval_fraction = 0.1;
  options.steps = 4;
  options.eval_every_steps = 3;
  options.config->layer_count = 6;
  return options;
}

struct Outcome {
  Result<TrainResult> result = fail(Code::kInternal, "not run");
  std::vector<double> losses;
  std::optional<TrainPlan> plan;
};

Outcome train_pipeline(const TrainOptions& options) {
  Outcome run;
  TrainCallbacks callbacks;
  callbacks.on_plan = [&](const TrainPlan& plan) { run.plan = plan; };
  callbacks.on_step = [&](const StepInfo& info) {
    run.losses.push_back(info.loss);
    run.losses.push_back(info.grad_norm);
  };
  callbacks.on_eval = [&](const EvalInfo& info) { run.losses.push_back(info.loss); };
  auto trainer = Trainer::create(options, callbacks);
  if (trainer) {
    run.result = (*trainer)->run();
  } else {
    run.result = tl::unexpected(std::move(trainer.error()));
  }
  return run;
}

TEST(PipelineTrainer, GivesTheModelOfOneDevice) {
  const TestFolder folder;
  folder.write("a.jsonl", small_corpus(60));
  const TrainOptions alone = pipeline_options(folder, "alone");
  const Outcome expected = train_pipeline(alone);
  ASSERT_TRUE(expected.result) << expected.result.error().message;
  for (const int32_t devices : {1, 2, 4}) {
    TrainOptions options = pipeline_options(folder, "devices" + std::to_string(devices));
    options.pipeline = PipelineOptions{.devices = devices};
    const Outcome run = train_pipeline(options);
    ASSERT_TRUE(run.result) << run.result.error().message;
    EXPECT_EQ(run.losses, expected.losses);
    EXPECT_EQ(model_bytes(options), model_bytes(alone));
  }
}

TEST(PipelineTrainer, StaysWithinTheMemoryOfItsDevices) {
  const TestFolder folder;
  folder.write("a.jsonl", small_corpus(60));
  TrainOptions options = pipeline_options(folder, "small");
  options.config->layer_count = 24;
  options.steps = 2;
  options.eval_every_steps = 2;
  const TrainOptions alone = [&] {
    TrainOptions other = options;
    other.out_folder = folder.file("alone");
    return other;
  }();
  const Outcome expected = train_pipeline(alone);
  ASSERT_TRUE(expected.result) << expected.result.error().message;
  // Masters, moments and gradients, at least four times what a device has.
  const int64_t state = 16 * expected.plan->trainable_count;
  options.pipeline =
      PipelineOptions{.devices = 2,
                      .device_bytes = state / 4,
                      .kinds = {plan::ScheduleKind::k1F1B, plan::ScheduleKind::kSPipe,
                                plan::ScheduleKind::kMobius}};
  const Outcome run = train_pipeline(options);
  ASSERT_TRUE(run.result) << run.result.error().message;
  EXPECT_EQ(run.losses, expected.losses);
  EXPECT_TRUE(run.plan->pipeline->schedule.host_parameters);
  for (const int64_t peak : run.result->memory.device_peak_bytes) {
    EXPECT_GT(peak, 0);
    EXPECT_LE(peak, state / 4);
  }
  // Without the host the same budget is refused, and the reason says what would do.
  options.out_folder = folder.file("refused");
  options.pipeline->host_parameters = {false};
  options.pipeline->optimizers = {plan::OptimizerMode::kSync, plan::OptimizerMode::kAsync};
  const Outcome refused = train_pipeline(options);
  ASSERT_FALSE(refused.result);
  EXPECT_EQ(refused.result.error().code, Code::kExhausted);
  EXPECT_NE(refused.result.error().message.find("raise the device budget"), std::string::npos)
      << refused.result.error().message;
}

// Devices that have unequal memory hold unequal parts, each within its own, and measure held-out
// data there as well.
TEST(PipelineTrainer, FillsUnequalDevicesEachToItsOwnMemory) {
  const TestFolder folder;
  folder.write("a.jsonl", small_corpus(60));
  TrainOptions options = pipeline_options(folder, "alone");
  options.eval_every_steps = 2;
  const Outcome expected = train_pipeline(options);
  ASSERT_TRUE(expected.result) << expected.result.error().message;
  options.pipeline = PipelineOptions{.devices = 2,
                                     .kinds = {plan::ScheduleKind::k1F1B},
                                     .optimizers = {plan::OptimizerMode::kDevice},
                                     .recompute = {false}};
  options.out_folder = folder.file("even");
  const Outcome even = train_pipeline(options);
  ASSERT_TRUE(even.result) << even.result.error().message;
  const std::vector<int64_t> needed = even.plan->pipeline->device_bytes;
  const int64_t small = std::min(needed[0], needed[1]) * 3 / 5;
  for (const size_t d : {size_t{0}, size_t{1}}) {
    options.pipeline->own_bytes = {2 * needed[0], 2 * needed[1]};
    options.pipeline->own_bytes[d] = small;
    options.out_folder = folder.file(fmt::format("small_{}", d));
    const Outcome run = train_pipeline(options);
    ASSERT_TRUE(run.result) << run.result.error().message;
    EXPECT_EQ(run.losses, expected.losses);
    const std::vector<int64_t>& peaks = run.result->memory.device_peak_bytes;
    EXPECT_LE(peaks[d], small);
    EXPECT_GT(peaks[1 - d], small);  // the other has the rest, whichever it is
    EXPECT_TRUE(run.result->step_times);
  }
  options.pipeline->own_bytes = {small, small};
  options.out_folder = folder.file("neither");
  const Outcome refused = train_pipeline(options);
  ASSERT_FALSE(refused.result);
  EXPECT_EQ(refused.result.error().code, Code::kExhausted);
}

TEST(PipelineTrainer, TakesAPlanMadeBefore) {
  const TestFolder folder;
  folder.write("a.jsonl", small_corpus(60));
  TrainOptions options = pipeline_options(folder, "first");
  options.pipeline = PipelineOptions{.devices = 2};
  const Outcome first = train_pipeline(options);
  ASSERT_TRUE(first.result) << first.result.error().message;
  const auto record = read_pipeline_record(options.out_folder + "/pipeline.json");
  ASSERT_TRUE(record) << record.error().message;
  EXPECT_EQ(record->schedule, first.plan->pipeline->schedule);
  EXPECT_EQ(record->steps.back().step, 4);

  options.out_folder = folder.file("second");
  options.pipeline = PipelineOptions{.devices = record->schedule.device_count,
                                     .schedule = record->schedule,
                                     .source = "plan.json"};
  const Outcome second = train_pipeline(options);
  ASSERT_TRUE(second.result) << second.result.error().message;
  EXPECT_EQ(second.losses, first.losses);

  options.out_folder = folder.file("other");
  options.config->layer_count = 5;
  const Outcome other = train_pipeline(options);
  ASSERT_FALSE(other.result);
  EXPECT_NE(other.result.error().message.find("plan.json: is a plan for 8 blocks"),
            std::string::npos)
      << other.result.error().message;

  options.config->layer_count = 6;
  options.step_tokens = 1024;
  const Outcome longer = train_pipeline(options);
  ASSERT_FALSE(longer.result);
  EXPECT_NE(longer.result.error().message.find("micro-batches"), std::string::npos);
}

TEST(PipelineTrainer, RefusesDevicesThatWouldNeverWork) {
  const TestFolder folder;
  folder.write("a.jsonl", small_corpus(60));
  TrainOptions options = pipeline_options(folder, "out");
  options.pipeline = PipelineOptions{.devices = 50};
  const Outcome run = train_pipeline(options);
  ASSERT_FALSE(run.result);
  EXPECT_EQ(run.result.error().code, Code::kInvalidArgument);
  EXPECT_NE(run.result.error().message.find("for 50 devices"), std::string::npos)
      << run.result.error().message;
}

TEST(PipelineTrainer, TracesTheFirstSteps) {
  const TestFolder folder;
  folder.write("a.jsonl", small_corpus(60));
  TrainOptions options = pipeline_options(folder, "out");
  options.pipeline =
      PipelineOptions{.devices = 2, .trace_path = folder.file("trace.json"), .trace_steps = 2};
  const Outcome run = train_pipeline(options);
  ASSERT_TRUE(run.result) << run.result.error().message;
  const auto text = read_file(folder.file("trace.json"));
  ASSERT_TRUE(text);
  const auto trace = parse_json(*text, "trace");
  ASSERT_TRUE(trace) << trace.error().message;
  EXPECT_NE(text->find("\"step\":2"), std::string::npos);
  EXPECT_EQ(text->find("\"step\":3"), std::string::npos);
}

}  // namespace
}  // namespace jige::train
