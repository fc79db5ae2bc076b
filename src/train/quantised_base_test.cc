// Whole runs that train an adapter on a base held in 8.5 or 4.5 bits a weight.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "formats/tensor_folder.h"
#include "train/test_support.h"
#include "train/trainer.h"
#include "train/trainer_test_support.h"

namespace jige::train {
namespace {

using ::testing::HasSubstr;

using TuningRun = Run;  // a name that fixtures leave free

constexpr ops::WeightFormat kBaseFormats[] = {ops::WeightFormat::kQ8, ops::WeightFormat::kQ4};

// A small model, and the options that tune it.
class QuantisedBase : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto path = folder_.write("a.jsonl", small_corpus(60));
    TrainOptions options = tiny_options(folder_, {path});
    options.steps = 20;
    base_ = options.out_folder + "/model";
    static FolderFiles made;  // by the first test
    if (made.empty()) {
      const auto base = train(options);
      ASSERT_TRUE(base) << base.error().message;
      ASSERT_EQ(base->result.model_folder, base_);
      made = read_folder(base_);
    } else {
      write_folder(base_, made);
    }
    tuning_ = tuning_options(options, base_, folder_.file("tuned"));
    tuning_.lora =
        formats::LoraConfig{.rank = 4, .alpha = 8, .target_modules = {"q_proj", "v_proj"}};
    tuning_.steps = 12;
    tuning_.schedule.peak = 1e-2;
    tuning_.data.eval_files = {folder_.write("held.jsonl", small_corpus(12))};
    tuning_.eval_every_steps = 1;
  }

  TrainOptions tuning(ops::WeightFormat format, const std::string& out) const {
    TrainOptions options = tuning_;
    options.base_format = format;
    options.out_folder = folder_.file(out);
    return options;
  }

  TuningRun trained(const TrainOptions& options) const {
    auto run = train(options);
    EXPECT_TRUE(run) << run.error().message;
    return run ? *run : TuningRun();
  }

  TestFolder folder_;
  std::string base_;
  TrainOptions tuning_;
};

TEST_F(QuantisedBase, LearnsAsOnTheWholeBase) {
  tuning_.lora->target_modules.clear();  // all
  tuning_.steps = 40;
  tuning_.schedule.peak = 0.1;
  const TuningRun whole = trained(tuning(ops::WeightFormat::kCompute, "whole"));
  const double fall = whole.evals.front().loss - whole.evals.back().loss;
  EXPECT_GT(fall, 0.5) << whole.evals.back().loss;
  for (const auto format : kBaseFormats) {
    SCOPED_TRACE(std::string(ops::weight_format_name(format)));
    const TuningRun run = trained(tuning(format, std::string(ops::weight_format_name(format))));
    ASSERT_EQ(run.evals.size(), whole.evals.size());
    EXPECT_NE(run.losses, whole.losses);
    EXPECT_NEAR(run.evals.front().loss - run.evals.back().loss, fall, 0.2 * fall);
    EXPECT_NEAR(run.evals.back().loss, whole.evals.back().loss, 0.02);
    const MemoryReport& memory = run.result.memory;
    EXPECT_EQ(memory.arena_peak_bytes, memory.arena_predicted_bytes);
  }
}

TEST_F(QuantisedBase, GivesTheSameLossesForAnyThreadsAndMicroBatches) {
  const TuningRun one = trained(tuning(ops::WeightFormat::kQ8, "one"));
  TrainOptions two = tuning(ops::WeightFormat::kQ8, "two");
  two.thread_count = 2;
  two.micro_batch_tokens = 32;
  const TuningRun other = trained(two);
  EXPECT_EQ(one.losses, other.losses);
  EXPECT_EQ(bytes_of(one.result.adapter_folder + "/adapter_model.safetensors"),
            bytes_of(other.result.adapter_folder + "/adapter_model.safetensors"));
}

// So what is merged is not what was trained on, by the error of quantising.
TEST_F(QuantisedBase, MergesIntoTheWeightsOfTheFolder) {
  const TuningRun run = trained(tuning(ops::WeightFormat::kQ4, "merged"));
  const auto base = formats::TensorFolder::open(base_);
  const auto merged = formats::TensorFolder::open(run.result.model_folder);
  const auto adapter = formats::TensorFolder::open(run.result.adapter_folder, "adapter_model");
  ASSERT_TRUE(base && merged && adapter);
  const auto floats = [](const formats::TensorFolder& files, const std::string& name) {
    const auto view = files.view(name);
    EXPECT_TRUE(view) << name;
    const float* data = view->as<float>();
    return std::vector<float>(data, data + view->count());
  };
  const std::string layer = "model.layers.0.";
  for (const std::string name : {"mlp.up_proj.weight", "self_attn.o_proj.weight"}) {
    EXPECT_EQ(floats(*merged, layer + name), floats(*base, layer + name)) << name;
  }
  const std::string query = layer + "self_attn.q_proj";
  const auto a = floats(*adapter, "base_model.model." + query + ".lora_A.weight");
  const auto b = floats(*adapter, "base_model.model." + query + ".lora_B.weight");
  const auto before = floats(*base, query + ".weight"), after = floats(*merged, query + ".weight");
  const size_t rank = 4, inputs = a.size() / rank, outputs = b.size() / rank;
  ASSERT_EQ(before.size(), inputs * outputs);
  double moved = 0;
  for (size_t i = 0; i < outputs; ++i) {
    for (size_t j = 0; j < inputs; ++j) {
      double delta = 0;  // alpha / rank is 2
      for (size_t r = 0; r < rank; ++r) delta += 2.0 * b[i * rank + r] * a[r * inputs + j];
      EXPECT_NEAR(after[i * inputs + j], before[i * inputs + j] + delta, 1e-6);
      moved += std::fabs(delta);
    }
  }
  EXPECT_GT(moved, 0);
}

TEST_F(QuantisedBase, ARunGoesOnWithItsOwnFormatOnly) {
  TrainOptions options = tuning(ops::WeightFormat::kQ8, "parts");
  TrainCallbacks stop;
  stop.should_stop = [] { return true; };
  ASSERT_TRUE(train(options, stop));
  const auto refusal = [&](ops::WeightFormat format) {
    options.base_format = format;
    const auto run = train(options);
    EXPECT_FALSE(run);
    return run ? "" : run.error().message;
  };
  EXPECT_THAT(refusal(ops::WeightFormat::kQ4),
              ::testing::AllOf(HasSubstr("was made with quantize = \"q8\", this run has \"q4\""),
                               HasSubstr("the old value of --quantize")));
  EXPECT_THAT(refusal(ops::WeightFormat::kCompute),
              HasSubstr("was made with quantize = \"q8\", this run has none"));
  options.base_format = ops::WeightFormat::kQ8;
  EXPECT_EQ(trained(options).losses.back(),
            trained(tuning(ops::WeightFormat::kQ8, "whole")).losses.back());
  EXPECT_EQ(log_records(options, "start").at(0)["options"]["quantize"], "q8");

  TrainOptions whole = tuning(ops::WeightFormat::kCompute, "whole_parts");
  ASSERT_TRUE(train(whole, stop));
  whole.base_format = ops::WeightFormat::kQ8;
  const auto refused = train(whole);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("continue without --quantize"));
}

TEST_F(QuantisedBase, IsRefusedBeforeTheRunWhereItDoesNotFit) {
  TrainOptions options = tuning(ops::WeightFormat::kCompute, "small");
  const auto needs = [&](ops::WeightFormat format) {
    options.base_format = format;
    options.memory_limit_bytes = int64_t{1} << 40;
    ThreadTeam team(1);
    const auto setup = prepare_run(options, {}, team);
    EXPECT_TRUE(setup) << setup.error().message;
    return setup ? setup->plan.memory_predicted_bytes : 0;
  };
  const int64_t whole = needs(ops::WeightFormat::kCompute), q4 = needs(ops::WeightFormat::kQ4);
  EXPECT_LT(q4, whole);
  options.memory_limit_bytes = q4;
  EXPECT_TRUE(train(options));
  options.memory_limit_bytes = q4 - 1;
  options.out_folder = folder_.file("refused");
  auto run = train(options);
  ASSERT_FALSE(run);
  EXPECT_EQ(run.error().code, Code::kExhausted);
  EXPECT_THAT(run.error().message, ::testing::Not(HasSubstr("--quantize")));  // there is no smaller
  options.base_format = ops::WeightFormat::kCompute;
  run = train(options);
  ASSERT_FALSE(run);
  EXPECT_THAT(run.error().message, HasSubstr("or --quantize q4"));
}

TEST_F(QuantisedBase, IsNotForPipelinesYet) {
  TrainOptions options = tuning(ops::WeightFormat::kQ8, "pipeline");
  options.pipeline = PipelineOptions{.devices = 2};
  const auto run = train(options);
  ASSERT_FALSE(run);
  EXPECT_EQ(run.error().code, Code::kUnsupported);
  EXPECT_THAT(run.error().message, HasSubstr("--quantize q8 with a pipeline"));
}

}  // namespace
}  // namespace jige::train
