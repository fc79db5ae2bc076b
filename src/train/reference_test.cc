// Ten training steps against PyTorch (tests/tools/record_training.py), and the bits that may not
// change with packing, accumulation or threads.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "base/rng.h"
#include "formats/tensor_folder.h"
#include "model/weights.h"
#include "tensor/cpu_device.h"
#include "train/executor.h"
#include "train/optimizer.h"
#include "train/recording_test_support.h"
#include "train/test_support.h"

namespace jige::train {
namespace {

// The documents of one step, as token ids.
using Documents = std::vector<std::vector<int32_t>>;

struct Recording {
  std::vector<Documents> steps;
  OptimizerOptions optimizer;
  double learning_rate = 0;
};

Recording read_recording(const std::string& model, bool clipped) {
  const std::string path = kFixtures + "model/" + model + "/training.json";
  const auto text = read_file(path);
  EXPECT_TRUE(text) << path;
  const Json json = *parse_json(*text, path);
  const Json& options = json["optimizer"];
  Recording recording;
  recording.learning_rate = options["lr"];
  recording.optimizer = {.beta1 = options["betas"][0],
                         .beta2 = options["betas"][1],
                         .epsilon = options["eps"],
                         .weight_decay = options["weight_decay"],
                         .clip_norm = json["runs"][clipped ? 1 : 0]["clip_norm"]};
  for (const Json& batch : json["tokens"]) {
    Documents documents;
    size_t begin = 0;
    for (const size_t length : json["lengths"]) {
      documents.emplace_back();
      for (size_t i = begin; i < begin + length; ++i) documents.back().push_back(batch[i]);
      begin += length;
    }
    recording.steps.push_back(std::move(documents));
  }
  return recording;
}

HostBatch batch_of(const Documents& documents) {
  HostBatch batch;
  for (const auto& document : documents) {
    const auto count = static_cast<int32_t>(document.size()) - 1;
    for (int32_t i = 0; i < count; ++i) {
      batch.tokens.push_back(document[static_cast<size_t>(i)]);
      batch.positions.push_back(i);
      batch.targets.push_back(document[static_cast<size_t>(i) + 1]);
    }
    batch.counts.push_back(count);
  }
  return batch;
}

int64_t target_count(const Documents& documents) {
  int64_t count = 0;
  for (const auto& document : documents) count += static_cast<int64_t>(document.size()) - 1;
  return count;
}

// A model of the fixtures with everything a step needs, without a Trainer around it.
class Bench {
 public:
  Bench(const std::string& model, const OptimizerOptions& options, DType compute = DType::kF32,
        int threads = 1)
      : device_({.thread_count = threads}), arena_(device_, "test") {
    const std::string folder = kFixtures + "model/" + model;
    stream_ = *device_.make_stream();
    architecture_ = *model::Architecture::create(*formats::load_model_config(folder));
    weights_.emplace(*model::ModelWeights::create(
        arena_, *architecture_,
        {.compute = compute, .use = model::PackFor::kTraining, .position_count = 64}));
    const auto files = formats::TensorFolder::open(folder);
    EXPECT_TRUE(model::load_weights(*weights_, *stream_, *files));
    optimizer_.emplace(*Optimizer::create(arena_, weights_->trainable(), options));
    executor_.emplace(*Executor::create(arena_, *weights_, 64));
  }

  // Accumulates the gradient of the mean loss over all documents of the micro-batches.
  double gradients(const std::vector<Documents>& micro_batches) {
    int64_t count = 0;
    for (const Documents& documents : micro_batches) count += target_count(documents);
    const auto tasks = one_device_tasks(architecture_->node_count(), 1);
    ExactSum loss;
    weights_->zero_gradients(*stream_);
    for (const Documents& documents : micro_batches) {
      executor_->load(*stream_, batch_of(documents),
                      {.loss_weight = static_cast<float>(1.0 / static_cast<double>(count))});
      executor_->run(*stream_, tasks);
      executor_->add_losses(*stream_, loss);
    }
    weights_->finish_gradients(*stream_);
    return loss.value() / static_cast<double>(count);
  }

  OptimizerReport update(double learning_rate) {
    const auto report = optimizer_->step(*stream_, {.learning_rate = learning_rate});
    weights_->pack(*stream_);
    return report;
  }

  double evaluate(const std::vector<Documents>& micro_batches) {
    ExactSum loss;
    int64_t count = 0;
    for (const Documents& documents : micro_batches) {
      executor_->load(*stream_, batch_of(documents), {});
      executor_->evaluate(*stream_);
      executor_->add_losses(*stream_, loss);
      count += target_count(documents);
    }
    return loss.value() / static_cast<double>(count);
  }

  std::span<const model::NamedParam> params() const { return weights_->trainable(); }
  Optimizer& optimizer() { return *optimizer_; }
  const model::Architecture& architecture() const { return *architecture_; }

 private:
  CpuDevice device_;
  Arena arena_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<const model::Architecture> architecture_;
  std::optional<model::ModelWeights> weights_;
  std::optional<Optimizer> optimizer_;
  std::optional<Executor> executor_;
};

std::vector<float> values_of(const TensorView& view) {
  const auto* data = view.as<float>();
  return {data, data + view.count()};
}

struct ReferenceCase {
  const char* model;
  const char* run;
  bool accumulate;  // one document a micro-batch
};

class Reference : public testing::TestWithParam<ReferenceCase> {};

TEST_P(Reference, TenStepsMatchPyTorch) {
  const auto [model, run, accumulate] = GetParam();
  const Recording recording = read_recording(model, std::string(run) == "clipped");
  const auto expected =
      formats::open_safetensors(kFixtures + "train/" + model + "-" + run + ".safetensors");
  ASSERT_TRUE(expected) << expected.error().message;
  const TensorView losses = *expected->view("losses");
  const TensorView norms = *expected->view("norms");
  Bench bench(model, recording.optimizer);
  for (size_t step = 0; step < recording.steps.size(); ++step) {
    std::vector<Documents> micro_batches = {recording.steps[step]};
    if (accumulate) {
      micro_batches.clear();
      for (const auto& document : recording.steps[step]) micro_batches.push_back({document});
    }
    EXPECT_NEAR(bench.gradients(micro_batches), losses.as<float>()[step], 2e-5) << step;
    const auto report = bench.update(recording.learning_rate);
    EXPECT_TRUE(report.applied);
    EXPECT_NEAR(report.grad_norm, norms.as<float>()[step], 2e-4) << step;
  }
  double worst = 0;
  for (const model::NamedParam& param : bench.params()) {
    // A key's bias shifts all scores of a row alike, so its gradient is rounding noise, which Adam
    // turns into steps of full size; its values say nothing.
    const bool fused = param.spec->name.ends_with("c_attn.bias");
    const int64_t third = param.value.rows() / 3;
    const auto stored = expected->view(param.spec->name);
    ASSERT_TRUE(stored) << param.spec->name;
    ASSERT_EQ(stored->count(), param.value.count());
    for (int64_t row = 0; row < param.value.rows(); ++row) {
      if (fused && row >= third && row < 2 * third) continue;
      for (int64_t column = 0; column < param.value.columns(); ++column) {
        const float value = param.value.as<float>()[row * param.value.columns() + column];
        worst =
            std::max<double>(worst, std::abs(value - stored_value(param, *stored, row, column)));
      }
    }
  }
  // Ten steps of 0.01: one sign of a vanishing gradient read differently would be 0.02.
  EXPECT_LT(worst, 5e-4);
  RecordProperty("worst_weight_difference", std::to_string(worst));
}

INSTANTIATE_TEST_SUITE_P(Recorded, Reference,
                         testing::Values(ReferenceCase{"llama2", "plain", false},
                                         ReferenceCase{"llama2", "clipped", false},
                                         ReferenceCase{"llama2", "plain", true},
                                         ReferenceCase{"llama2", "clipped", true},
                                         ReferenceCase{"gpt2", "clipped", false},
                                         ReferenceCase{"gpt2", "clipped", true}),
                         [](const auto& param_info) {
                           return std::string(param_info.param.model) + "_" + param_info.param.run +
                                  (param_info.param.accumulate ? "_accumulated" : "");
                         });

const std::vector<std::string> kBitModels = {"llama2",
                                             "gpt2",
                                             "qwen2",
                                             "qwen3",
                                             "mistral",
                                             "phi3",
                                             "gemma2",
                                             "gemma3",
                                             "granite",
                                             "gpt_neox",
                                             "phi",
                                             "cohere",
                                             "qwen2_moe",
                                             "deepseek_v3",
                                             "qwen3_5",
                                             "lfm2",
                                             "qwen3_next",
                                             "granite_hybrid",
                                             "nemotron_h_moe",
                                             "falcon_h1",
                                             "falcon_h1_norm",
                                             "gemma4",
                                             "gemma4_moe",
                                             "gemma4_layer_inputs",
                                             "olmo_hybrid",
                                             "gemma3n",
                                             "llama4",
                                             "mellum",
                                             "granite_swa_turned",
                                             "mistral4",
                                             "lfm3",
                                             "falcon_mamba",
                                             "mamba2",
                                             "jamba",
                                             "kimi_linear"};

Documents random_documents(uint64_t seed, int count) {
  Rng rng(seed);
  Documents documents(static_cast<size_t>(count));
  for (auto& document : documents) {
    document.resize(2 + rng.below(13));
    for (int32_t& id : document) id = static_cast<int32_t>(rng.below(96));
  }
  return documents;
}

std::vector<Documents> one_each(const Documents& documents) {
  std::vector<Documents> micro_batches;
  for (const auto& document : documents) micro_batches.push_back({document});
  return micro_batches;
}

std::vector<std::vector<float>> gradients_of(const Bench& bench) {
  std::vector<std::vector<float>> gradients;
  for (const auto& param : bench.params()) gradients.push_back(values_of(param.grad));
  return gradients;
}

TEST(Bits, LossAndGradientAreTheSameForAnySplitIntoMicroBatches) {
  const Documents documents = random_documents(3, 4);
  for (const std::string& model : kBitModels) {
    Bench bench(model, {});
    const double loss = bench.gradients({documents});
    const auto together = gradients_of(bench);
    EXPECT_EQ(bench.gradients(one_each(documents)), loss) << model;
    EXPECT_EQ(gradients_of(bench), together) << model;
    EXPECT_EQ(bench.gradients({{documents[0], documents[1], documents[2]}, {documents[3]}}), loss)
        << model;
    EXPECT_EQ(gradients_of(bench), together) << model;
  }
}

TEST(Bits, LossIsTheSameForAnyPackingOrder) {
  const Documents documents = random_documents(4, 4);
  for (const std::string& model : kBitModels) {
    for (const DType compute : {DType::kF32, DType::kBF16}) {
      Bench bench(model, {}, compute);
      const double loss = bench.evaluate({documents});
      EXPECT_EQ(bench.evaluate({{documents[2], documents[0], documents[3], documents[1]}}), loss);
      EXPECT_EQ(bench.evaluate({{documents[3]}, {documents[1], documents[0]}, {documents[2]}}),
                loss)
          << model;
      EXPECT_EQ(bench.gradients({{documents[1]}, {documents[3], documents[2], documents[0]}}), loss)
          << model;
    }
  }
}

TEST(Bits, AreTheSameWithOneAndTwoThreads) {
  const Documents documents = random_documents(5, 4);
  for (const std::string& model : kBitModels) {
    for (const DType compute : {DType::kF32, DType::kBF16}) {
      Bench one(model, {}, compute, 1);
      Bench two(model, {}, compute, 2);
      // The second step has weights that threads have updated and packed.
      for (int step = 0; step < (compute == DType::kF32 ? 2 : 1); ++step) {
        EXPECT_EQ(one.gradients({documents}), two.gradients({documents})) << model;
        EXPECT_EQ(gradients_of(one), gradients_of(two)) << model;
        EXPECT_EQ(one.update(0.01).grad_norm, two.update(0.01).grad_norm) << model;
      }
    }
  }
}

// A change in one document may not reach the losses or the gradient paths of another.
TEST(Bits, NothingCrossesTheBordersOfDocuments) {
  Documents documents = random_documents(6, 3);
  for (const std::string& model : kBitModels) {
    Bench bench(model, {});
    const double first = bench.evaluate({{documents[0]}});
    const double last = bench.evaluate({{documents[2]}});
    const auto sum_of = [&](const Documents& packed) {
      return bench.evaluate({packed}) * static_cast<double>(target_count(packed));
    };
    Documents changed = documents;
    for (int32_t& id : changed[1]) id = (id + 17) % 96;
    const double others = first * static_cast<double>(target_count({documents[0]})) +
                          last * static_cast<double>(target_count({documents[2]}));
    EXPECT_NEAR(sum_of(documents) - sum_of({documents[1]}), others, 1e-9) << model;
    EXPECT_NEAR(sum_of(changed) - sum_of({changed[1]}), others, 1e-9) << model;
  }
}

TEST(Optimizer, LeavesEverythingAsItIsWhenAGradientIsNotFinite) {
  const Documents documents = random_documents(7, 3);
  Bench bench("llama2", {});
  bench.gradients({documents});
  bench.update(0.01);
  bench.gradients({documents});
  std::vector<std::vector<float>> before;
  for (size_t i = 0; i < bench.params().size(); ++i) {
    before.push_back(values_of(bench.params()[i].value));
    before.push_back(values_of(bench.optimizer().moment1(i)));
    before.push_back(values_of(bench.optimizer().moment2(i)));
  }
  for (const float bad : {INFINITY, -INFINITY, NAN}) {
    bench.gradients({documents});
    bench.params()[2].grad.as<float>()[5] = bad;
    const auto report = bench.update(0.01);
    EXPECT_FALSE(report.applied);
    EXPECT_FALSE(std::isfinite(report.grad_norm));
    EXPECT_EQ(bench.optimizer().update_count(), 1);
  }
  std::vector<std::vector<float>> after;
  for (size_t i = 0; i < bench.params().size(); ++i) {
    after.push_back(values_of(bench.params()[i].value));
    after.push_back(values_of(bench.optimizer().moment1(i)));
    after.push_back(values_of(bench.optimizer().moment2(i)));
  }
  EXPECT_EQ(before, after);
}

TEST(Optimizer, DecaysMatricesOnly) {
  Bench bench("llama2", {.weight_decay = 0.5, .clip_norm = 0});
  std::vector<std::vector<float>> before;
  for (const auto& param : bench.params()) before.push_back(values_of(param.value));
  bench.update(0.1);  // gradients are zero
  for (size_t i = 0; i < bench.params().size(); ++i) {
    const auto& param = bench.params()[i];
    const double factor = param.spec->shape.rank() == 2 ? 1 - 0.1 * 0.5 : 1;
    EXPECT_NEAR(param.value.as<float>()[3], before[i][3] * factor, 1e-6) << param.spec->name;
  }
}

TEST(Executor, UsesTheMemoryThatThePlanSays) {
  for (const char* model : {"llama2",
                            "gpt2",
                            "qwen3",
                            "phi3",
                            "phi4_mini",
                            "gemma2",
                            "gemma3",
                            "olmo2",
                            "granite",
                            "smollm3",
                            "olmo3",
                            "starcoder2",
                            "stablelm",
                            "seed_oss",
                            "mixtral",
                            "qwen3_moe_unnormalised",
                            "olmoe",
                            "qwen2_moe",
                            "gpt_neox",
                            "phi",
                            "cohere_qk_norm",
                            "stablelm_parallel",
                            "deepseek_v3",
                            "glm4_moe",
                            "gemma4",
                            "gemma4_moe",
                            "gemma4_layer_inputs",
                            "gemma3n",
                            "llama4",
                            "falcon_h1_norm_first",
                            "olmo_hybrid",
                            "falcon_mamba"}) {
    for (const DType compute : {DType::kF32, DType::kBF16}) {
      CpuDevice device({.thread_count = 1});
      Arena arena(device, "test");
      const std::string folder = kFixtures + "model/" + model;
      const auto architecture = *model::Architecture::create(*formats::load_model_config(folder));
      const model::WeightsOptions options{
          .compute = compute, .use = model::PackFor::kTraining, .position_count = 64};
      // Either format of moments with one of the types.
      const auto moments =
          compute == DType::kF32 ? ops::MomentFormat::kQ8 : ops::MomentFormat::kF32;
      const auto plan = model::training_memory(*architecture, options, 100, moments);
      const auto weights = model::ModelWeights::create(arena, *architecture, options);
      ASSERT_TRUE(weights);
      EXPECT_EQ(arena.peak_bytes(), plan.weights.total_bytes());
      const auto optimizer = Optimizer::create(arena, weights->trainable(), {.moments = moments});
      ASSERT_TRUE(optimizer);
      const auto executor = Executor::create(arena, *weights, 100);
      ASSERT_TRUE(executor);
      EXPECT_EQ(arena.peak_bytes(), plan.total_bytes()) << model;
    }
  }
}

TEST(OneDeviceTasks, KeepTheRulesOfTheFile) {
  const auto tasks = one_device_tasks(4, 3);
  const auto place = [&](StepTaskKind kind, int32_t node, int32_t batch) {
    return std::find(tasks.begin(), tasks.end(), Task{kind, node, batch}) - tasks.begin();
  };
  EXPECT_EQ(tasks.size(), 3u * (3 + 1 + 2 * 3));
  for (int32_t batch = 0; batch < 3; ++batch) {
    for (int32_t node = 0; node < 3; ++node) {
      const auto behind = node == 2 ? place(StepTaskKind::kHeadPass, 3, batch)
                                    : place(StepTaskKind::kBackwardInput, node + 1, batch);
      EXPECT_LT(place(StepTaskKind::kForward, node, batch),
                place(StepTaskKind::kHeadPass, 3, batch));
      EXPECT_LT(behind, place(StepTaskKind::kBackwardInput, node, batch));
      EXPECT_LT(place(StepTaskKind::kBackwardInput, node, batch),
                place(StepTaskKind::kBackwardWeight, node, batch));
      if (batch > 0) {
        EXPECT_LT(place(StepTaskKind::kBackwardWeight, node, batch - 1),
                  place(StepTaskKind::kBackwardWeight, node, batch));
      }
    }
  }
}

}  // namespace
}  // namespace jige::train
