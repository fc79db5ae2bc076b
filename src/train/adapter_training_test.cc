// Options of adapters in training: dropout, strength by the root of the rank, a rate of its own for
// B. Against PEFT (tests/tools/record_training.py), and the bits that may not change.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "formats/tensor_folder.h"
#include "model/weights_save.h"
#include "tensor/cpu_device.h"
#include "train/executor.h"
#include "train/optimizer.h"
#include "train/recording_test_support.h"
#include "train/stopped_run_test_support.h"
#include "train/test_support.h"
#include "train/trainer.h"

namespace jige::train {
namespace {

using ::testing::HasSubstr;

// Documents of one step behind one another, as the recording cuts them.
HostBatch recorded_batch(const Json& tokens, const Json& lengths) {
  HostBatch batch;
  size_t begin = 0;
  for (const size_t length : lengths) {
    for (size_t i = 0; i + 1 < length; ++i) {
      batch.tokens.push_back(tokens[begin + i]);
      batch.positions.push_back(static_cast<int32_t>(i));
      batch.targets.push_back(tokens[begin + i + 1]);
    }
    batch.counts.push_back(static_cast<int32_t>(length) - 1);
    begin += length;
  }
  return batch;
}

struct RecordedTraining {
  const char* adapter;
  const char* base;
  double b_rate;
};

class AdapterTraining : public ::testing::TestWithParam<RecordedTraining> {};

TEST_P(AdapterTraining, TenStepsMatchPeft) {
  const auto [name, base_name, b_rate] = GetParam();
  const std::string base = kFixtures + "model/" + base_name;
  const std::string adapter = kFixtures + "adapters/" + name;
  const Json record = *parse_json(*read_file(kFixtures + "model/llama2/training.json"), "record");
  const Json& options = record["optimizer"];
  const double learning_rate = 1e-3;
  const auto expected =
      formats::open_safetensors(kFixtures + "train/adapter-" + name + ".safetensors");
  ASSERT_TRUE(expected) << expected.error().message;

  CpuDevice device({.thread_count = 2});
  Arena arena(device, "test");
  const auto stream = *device.make_stream();
  auto lora = formats::load_lora_config(adapter);
  ASSERT_TRUE(lora) << lora.error().message;
  lora->target_modules.clear();  // all
  const auto architecture = *model::Architecture::create(*formats::load_model_config(base), *lora);
  auto weights = *model::ModelWeights::create(
      arena, *architecture, {.use = model::PackFor::kTraining, .position_count = 64});
  ASSERT_TRUE(model::load_weights(weights, *stream, *formats::TensorFolder::open(base)));
  ASSERT_TRUE(model::load_adapter(weights, *stream, adapter));
  auto optimizer = *Optimizer::create(arena, weights.trainable(),
                                      {.beta1 = options["betas"][0],
                                       .beta2 = options["betas"][1],
                                       .epsilon = options["eps"],
                                       .weight_decay = options["weight_decay"],
                                       .clip_norm = 0,
                                       .lora_b_rate = b_rate});
  auto executor = *Executor::create(arena, weights, 64);
  const auto tasks = one_device_tasks(architecture->node_count(), 1);
  for (size_t step = 0; step < record["tokens"].size(); ++step) {
    const HostBatch batch = recorded_batch(record["tokens"][step], record["lengths"]);
    const auto count = static_cast<double>(batch.tokens.size());
    ExactSum loss;
    weights.zero_gradients(*stream);
    executor.load(*stream, batch, {.loss_weight = static_cast<float>(1 / count)});
    executor.run(*stream, tasks);
    executor.add_losses(*stream, loss);
    EXPECT_NEAR(loss.value() / count, expected->view("losses")->as<float>()[step], 2e-5) << step;
    const auto report = optimizer.step(*stream, {.learning_rate = learning_rate});
    weights.pack(*stream);
    EXPECT_NEAR(report.grad_norm, expected->view("norms")->as<float>()[step], 5e-4) << step;
  }
  double worst = 0;
  for (const model::NamedParam& param : weights.trainable()) {
    const auto stored = expected->view(param.spec->name);
    ASSERT_TRUE(stored) << param.spec->name;
    ASSERT_EQ(stored->shape, param.value.shape);
    for (int64_t i = 0; i < stored->count(); ++i) {
      const double difference = param.value.as<float>()[i] - stored->as<float>()[i];
      worst = std::max(worst, std::abs(difference));
    }
  }
  EXPECT_LT(worst, 5e-4);
  RecordProperty("worst_weight_difference", std::to_string(worst));
}

INSTANTIATE_TEST_SUITE_P(Recorded, AdapterTraining,
                         ::testing::Values(RecordedTraining{"llama2_all", "llama2", 4},
                                           RecordedTraining{"qwen2_dora", "qwen2", 1}),
                         [](const auto& of) { return std::string(of.param.adapter); });

// A model to adapt, and a run that does.
class AdapterRun : public ::testing::Test {
 protected:
  AdapterRun() {
    base_ = tiny_options(folder_, {folder_.write("a.jsonl", small_corpus(60))});
    base_.out_folder = folder_.file("base");
    base_.config->layer_count = 3;
    base_.steps = 4;
    base_.data.eval_fraction = 0.1;
    base_.eval_every_steps = 3;
    const auto trained = train_until(base_);
    EXPECT_TRUE(trained) << trained.error().message;
  }
  TrainOptions options(const std::string& out) const {
    TrainOptions made = tuning_options(base_, folder_.file("base/model"), folder_.file(out));
    made.lora = formats::LoraConfig{.rank = 4, .alpha = 8, .dropout = 0.3, .use_rslora = true};
    made.optimizer.lora_b_rate = 3;
    return made;
  }
  static std::string adapter_of(const TrainOptions& options) {
    return *read_file(options.out_folder + "/adapter/adapter_model.safetensors");
  }
  const TestFolder folder_;
  TrainOptions base_;
};

TEST_F(AdapterRun, GivesTheSameBitsHoweverItIsRunAndStopped) {
  const std::vector<std::optional<PipelineOptions>> ways = {
      std::nullopt,
      PipelineOptions{.devices = 2, .kinds = {plan::ScheduleKind::k1F1B}, .recompute = {true}},
      PipelineOptions{.devices = 3,
                      .kinds = {plan::ScheduleKind::kGPipe},
                      .optimizers = {plan::OptimizerMode::kDevice}}};
  expect_bits_however_run([&](const std::string& out) { return options(out); }, ways,
                          "/adapter/adapter_model.safetensors");
  const auto config = formats::load_lora_config(options("whole").out_folder + "/adapter");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_TRUE(config->use_rslora);
  EXPECT_EQ(config->dropout, 0.3);
}

TEST_F(AdapterRun, OfDoraGivesTheSameBitsHoweverItIsCutAndStopped) {
  const auto dora = [&](const std::string& out) {
    TrainOptions made = options(out);
    made.lora->use_dora = true;
    made.lora->dropout = 0;
    return made;
  };
  const TrainOptions whole = dora("whole");
  const auto expected = train_until(whole);
  ASSERT_TRUE(expected) << expected.error().message;
  TrainOptions plain = dora("plain");
  plain.lora->use_dora = false;
  const auto without = train_until(plain);
  ASSERT_TRUE(without) << without.error().message;
  // Lengths begin as those of the base.
  EXPECT_NEAR(expected->losses[0], without->losses[0], 1e-5);
  EXPECT_NE(expected->losses.back(), without->losses.back());
  TrainOptions part = dora("part");
  part.micro_batch_tokens = 32;
  part.thread_count = 2;
  const auto first = train_until(part, 2);
  ASSERT_TRUE(first) << first.error().message;
  const auto second = train_until(part);
  ASSERT_TRUE(second) << second.error().message;
  std::vector<double> losses = first->losses;
  losses.insert(losses.end(), second->losses.begin(), second->losses.end());
  EXPECT_EQ(losses, expected->losses);
  EXPECT_EQ(adapter_of(part), adapter_of(whole));
  for (const auto format : {ops::WeightFormat::kQ8, ops::WeightFormat::kQ4}) {
    TrainOptions refused = dora("refused");
    refused.base_format = format;
    const auto run = train_until(refused);
    ASSERT_FALSE(run);
    EXPECT_THAT(run.error().message, HasSubstr("--dora with --quantize is not supported yet"));
  }
}

TEST_F(AdapterRun, DropsInTrainingOnlyAndAnewInEachStep) {
  TrainOptions with = options("with");
  folder_.write("a.jsonl", small_corpus(15));
  with.step_tokens = 1024;  // every step learns from everything
  with.eval_every_steps = 1;
  with.steps = 3;
  with.schedule.peak = 0.1;  // B begins as zeros: the first step drops what is multiplied with them
  const auto dropped = train_until(with);
  ASSERT_TRUE(dropped) << dropped.error().message;
  TrainOptions without = with;
  without.out_folder = folder_.file("without");
  without.lora->dropout = 0;
  const auto whole = train_until(without);
  ASSERT_TRUE(whole) << whole.error().message;
  EXPECT_EQ(dropped->losses[0], whole->losses[0]);
  EXPECT_NE(dropped->losses[1], whole->losses[1]);
  EXPECT_NE(adapter_of(with), adapter_of(without));
  TrainOptions slow = without;
  slow.out_folder = folder_.file("slow");
  slow.optimizer.lora_b_rate = 1;
  const auto one_rate = train_until(slow);
  ASSERT_TRUE(one_rate) << one_rate.error().message;
  EXPECT_EQ(one_rate->losses[0], whole->losses[0]);
  EXPECT_NE(one_rate->losses[1], whole->losses[1]);
}

TEST_F(AdapterRun, GoesOnUnderItsOwnOptionsOnly) {
  ASSERT_TRUE(train_until(options("out"), 2));
  const auto refused = [&](const auto& change) {
    TrainOptions other = options("out");
    change(other);
    const auto run = train_until(other);
    return run ? std::string("accepted") : run.error().message;
  };
  EXPECT_THAT(refused([](auto& o) { o.lora->dropout = 0.2; }),
              HasSubstr("lora.dropout = 0.3, this run has 0.2; continue with the old value of "
                        "--lora-dropout"));
  EXPECT_THAT(refused([](auto& o) { o.lora->use_rslora = false; }), HasSubstr("--lora-rs"));
  EXPECT_THAT(refused([](auto& o) { o.optimizer.lora_b_rate = 1; }), HasSubstr("--lora-plus"));
  EXPECT_THAT(refused([](auto& o) { o.lora->dropout = 1; }), HasSubstr("--lora-dropout is 1"));
  EXPECT_THAT(refused([](auto& o) { o.optimizer.lora_b_rate = 0; }), HasSubstr("--lora-plus is 0"));
}

}  // namespace
}  // namespace jige::train
