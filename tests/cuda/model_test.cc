// Whole models on a GPU, beside the same on the CPU: every family's fixture in inference, training
// runs and what they write.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <tuple>

#include "cuda/test_device.h"
#include "cuda/two_sequences.h"
#include "formats/tensor_folder.h"
#include "model/device_support.h"
#include "model/inference.h"
#include "serve/engine_memory.h"
#include "train/preference_run_test_support.h"
#include "train/test_support.h"
#include "train/trainer.h"

namespace jige {
namespace {

namespace fs = std::filesystem;

using model::InferenceModel;

std::string fixtures() { return std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/model"; }

// Folders of fixtures that hold a language model.
std::vector<std::string> fixture_names() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(fixtures())) {
    const auto config = formats::load_model_config(entry.path().string());
    if (config) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Largest difference of logits over the largest logit.
double distance(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double most = 0;
  double size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i], a[i]) << "element " << i;
    most = std::max(most, std::abs(double{a[i]} - double{b[i]}));
    size = std::max(size, std::abs(double{b[i]}));
  }
  return most / size;
}

class CudaModel : public CudaTest {};

TEST_F(CudaModel, EveryFamilyGivesTheLogitsOfTheCpuOrSaysThatItCannot) {
  int ran = 0;
  for (const std::string& name : fixture_names()) {
    const std::string folder = fixtures() + "/" + name;
    model::InferenceOptions options{.compute = DType::kF32, .context_max = 32};
    options.kv_block_count = 4;
    auto on_cpu = InferenceModel::load(folder, cpu_, options);
    if (!on_cpu) continue;
    auto on_gpu = InferenceModel::load(folder, *gpu_, options);
    if (!on_gpu) {
      EXPECT_EQ(on_gpu.error().code, Code::kUnsupported) << name << on_gpu.error().message;
      continue;
    }
    const auto expected = TwoSequences(**on_cpu).run();
    const auto got = TwoSequences(**on_gpu).run();
    EXPECT_LT(distance(got, expected), 2e-5) << name;
    ++ran;
  }
  EXPECT_GE(ran, 80);
}

TEST_F(CudaModel, Bf16GivesLogitsNearThoseOfTheCpu) {
  for (const std::string name :
       {"llama3", "qwen3", "gemma3", "mixtral", "gpt_oss", "qwen2_moe", "deepseek_v3", "youtu",
        "qwen3_5", "granite_hybrid", "lfm2", "falcon_h1_norm"}) {
    const std::string folder = fixtures() + "/" + name;
    model::InferenceOptions options{.compute = DType::kBF16, .context_max = 32};
    options.kv_block_count = 4;
    auto on_cpu = InferenceModel::load(folder, cpu_, options);
    auto on_gpu = InferenceModel::load(folder, *gpu_, options);
    ASSERT_TRUE(on_cpu && on_gpu) << name;
    const auto expected = TwoSequences(**on_cpu).run();
    const auto got = TwoSequences(**on_gpu).run();
    EXPECT_LT(distance(got, expected), 0.03) << name;
  }
}

// Few rows in bf16 are another kernel than those in f32; and the CPU rounds what it multiplies with
// such matrices to eight bits, which is more.
TEST_F(CudaModel, MatricesOfFewBitsGiveLogitsNearThoseOfTheCpu) {
  std::string folder;
  const auto logits = [&](Device& device, DType compute, ops::WeightFormat format) {
    model::InferenceOptions options{.compute = compute, .context_max = 32};
    options.kv_block_count = 4;
    options.format = format;
    auto loaded = InferenceModel::load(folder, device, options);
    EXPECT_TRUE(loaded) << loaded.error().message;
    return loaded ? TwoSequences(**loaded).run() : std::vector<float>();
  };
  // The CPU's rounding alone puts latents of 16 columns further apart, in q8 as well. Where a
  // rounding turns the choice of an expert logits are far apart, on one CPU in two types as well;
  // in these models none does.
  for (const auto& [name, format, limit] :
       {std::tuple{"llama3", ops::WeightFormat::kQ8, 0.05},
        {"llama3", ops::WeightFormat::kQ4, 0.05},
        {"qwen3_5", ops::WeightFormat::kQ4, 0.05},
        {"granite_hybrid_dense", ops::WeightFormat::kQ8, 0.05},
        {"youtu", ops::WeightFormat::kQ4, 0.08},
        {"mixtral", ops::WeightFormat::kQ8, 0.05},
        {"qwen2_moe", ops::WeightFormat::kQ4, 0.05},
        {"qwen3_moe_unnormalised", ops::WeightFormat::kMxfp4, 0.05},
        {"gpt_oss_mxfp4", ops::WeightFormat::kMxfp4, 0.05},
        {"deepseek_v2", ops::WeightFormat::kQ4, 0.06}}) {
    SCOPED_TRACE(name);
    folder = fixtures() + "/" + name;
    const auto whole = logits(*gpu_, DType::kF32, ops::WeightFormat::kCompute);
    const auto got = logits(*gpu_, DType::kF32, format);
    EXPECT_LT(distance(logits(*gpu_, DType::kBF16, format), got), 0.03);
    EXPECT_LT(distance(logits(cpu_, DType::kF32, format), got), limit);
    EXPECT_GT(distance(whole, got), 0.02);
  }
}

TEST_F(CudaModel, ContextsIn8BitsGiveLogitsNearThoseOfTheCpu) {
  for (const auto& [name, compute] :
       {std::pair{"llama3", DType::kF32}, {"llama3", DType::kBF16}, {"youtu", DType::kF32}}) {
    const std::string folder = fixtures() + "/" + name;
    model::InferenceOptions options{.compute = compute, .context_max = 32};
    options.kv_block_count = 4;
    const auto logits = [&](Device& device) {
      auto loaded = InferenceModel::load(folder, device, options);
      EXPECT_TRUE(loaded) << loaded.error().message;
      return loaded ? TwoSequences(**loaded).run() : std::vector<float>();
    };
    const auto whole = logits(*gpu_);
    options.kv_dtype = DType::kI8;
    const auto got = logits(*gpu_);
    EXPECT_LT(distance(got, logits(cpu_)), compute == DType::kF32 ? 2e-5 : 0.03);
    EXPECT_GT(distance(got, whole), 2e-3);
  }
}

TEST_F(CudaModel, TakesTheMemoryThatIsPlannedForMatricesOfFewBits) {
  for (const auto& [name, format] :
       {std::pair<std::string, ops::WeightFormat>{"llama3", ops::WeightFormat::kQ4},
        {"youtu", ops::WeightFormat::kQ4},
        {"qwen2_moe", ops::WeightFormat::kQ8},
        {"gpt_oss_mxfp4", ops::WeightFormat::kMxfp4}}) {
    const std::string folder = fixtures() + "/" + name;
    model::InferenceOptions options{.compute = DType::kBF16, .context_max = 32};
    options.format = format;
    const auto planned =
        serve::plan_engine_memory(folder, options, int64_t{3} << 20, {}, DeviceKind::kCuda);
    ASSERT_TRUE(planned) << planned.error().message;
    options.kv_block_count = planned->kv_block_count;
    options.memory_bytes_max = planned->total_bytes();
    const auto loaded = InferenceModel::load(folder, *gpu_, options);
    ASSERT_TRUE(loaded) << loaded.error().message;
    EXPECT_EQ((*loaded)->peak_bytes(), planned->total_bytes());
  }
}

TEST_F(CudaModel, TheLikeliestTokensAreThoseOfTheLogits) {
  model::InferenceOptions options{.compute = DType::kBF16, .context_max = 32};
  auto gpu = InferenceModel::load(fixtures() + "/llama3", *gpu_, options);
  ASSERT_TRUE(gpu) << gpu.error().message;
  const std::vector<int32_t> tokens = {1, 5, 9, 2, 7, 3};
  const std::vector<int32_t> blocks = {1, 0};
  const ops::SequenceSpan span{.row_count = 6, .blocks = blocks.data()};
  const int32_t rows[] = {0, 3, 5};
  const model::InferenceBatch batch{.tokens = tokens, .sequences = {&span, 1}, .logit_rows = rows};
  const auto logits = (*gpu)->forward(batch);
  ASSERT_TRUE(logits);
  const auto width = static_cast<std::ptrdiff_t>(logits->size() / 3);
  std::vector<int32_t> expected;
  for (auto at = logits->begin(); at != logits->end(); at += width) {
    expected.push_back(static_cast<int32_t>(std::max_element(at, at + width) - at));
  }
  const std::vector<ops::RowDraw> draws(3, {.kind = ops::RowDraw::kLikeliest});
  const auto likeliest = (*gpu)->forward_drawn(batch, draws);
  ASSERT_TRUE(likeliest);
  EXPECT_TRUE(likeliest->logits.empty());
  EXPECT_TRUE(std::ranges::equal(likeliest->tokens, expected));
}

TEST_F(CudaModel, LossesAreThoseOfTheCpu) {
  const std::string folder = fixtures() + "/llama3";
  model::InferenceOptions options{.compute = DType::kF32, .context_max = 32, .scores = true};
  auto on_cpu = InferenceModel::load(folder, cpu_, options);
  auto on_gpu = InferenceModel::load(folder, *gpu_, options);
  ASSERT_TRUE(on_cpu && on_gpu);
  const std::vector<int32_t> tokens = {1, 5, 9, 2, 7, 3};
  const std::vector<model::TargetRow> targets = {{5, 4}, {0, 5}, {1, 9}, {1, 8}, {2, 2}, {3, 7}};
  const std::vector<int32_t> blocks = {1, 0};
  const ops::SequenceSpan span{.row_count = 6, .blocks = blocks.data()};
  const model::InferenceBatch batch{.tokens = tokens, .sequences = {&span, 1}};
  const auto expected = (*on_cpu)->losses(batch, targets);
  const auto got = (*on_gpu)->losses(batch, targets);
  ASSERT_TRUE(expected && got);
  for (size_t i = 0; i < targets.size(); ++i) EXPECT_NEAR((*got)[i], (*expected)[i], 1e-5);
}

TEST_F(CudaModel, VectorsOfTextsAreThoseOfTheCpu) {
  const std::string folder = fixtures() + "/qwen3";
  model::InferenceOptions options{.compute = DType::kF32, .context_max = 32, .embeds = true};
  auto on_cpu = InferenceModel::load(folder, cpu_, options);
  auto on_gpu = InferenceModel::load(folder, *gpu_, options);
  ASSERT_TRUE(on_cpu && on_gpu);
  const std::vector<int32_t> tokens = {1, 5, 9, 2, 7, 3};
  const std::vector<int32_t> blocks = {1, 0};
  const ops::SequenceSpan span{.row_count = 6, .blocks = blocks.data()};
  const auto rows_of = [&](InferenceModel& model) {
    EXPECT_TRUE(model.forward({.tokens = tokens, .sequences = {&span, 1}}));
    const int32_t wanted[] = {5, 2, 3};
    const auto rows = model.hidden_of(wanted);
    EXPECT_TRUE(rows) << rows.error().message;
    return std::vector<float>(rows->begin(), rows->end());
  };
  EXPECT_LT(distance(rows_of(**on_gpu), rows_of(**on_cpu)), 2e-5);
}

// A run from nothing: its result's tensors by name.
std::map<std::string, std::vector<float>> weights_of(const train::TrainOptions& options) {
  std::map<std::string, std::vector<float>> weights;
  const auto trainer = train::Trainer::create(options, {});
  EXPECT_TRUE(trainer) << trainer.error().message;
  if (!trainer) return weights;
  const auto result = (*trainer)->run();
  EXPECT_TRUE(result) << result.error().message;
  const auto files = formats::TensorFolder::open(options.out_folder + "/model");
  EXPECT_TRUE(files);
  if (!files) return weights;
  for (const formats::StoredTensor* tensor : files->tensors()) {
    const TensorView view = *files->view(tensor->name);
    const auto* values = view.as<float>();
    weights[tensor->name].assign(values, values + view.count());
  }
  return weights;
}

void expect_near_weights(const std::map<std::string, std::vector<float>>& got,
                         const std::map<std::string, std::vector<float>>& expected, double limit) {
  ASSERT_FALSE(expected.empty());
  ASSERT_EQ(got.size(), expected.size());
  for (const auto& [name, values] : expected) {
    double most = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      most = std::max(most, std::abs(double{got.at(name)[i]} - double{values[i]}));
    }
    EXPECT_LT(most, limit) << name;
  }
}

class CudaTrainer : public CudaTest {
 protected:
  // The adapter that a run of this name has written.
  model::InferenceOptions with_adapter(const std::string& name) {
    model::InferenceOptions options{.compute = DType::kF32, .context_max = 32};
    options.kv_block_count = 4;
    options.adapters.push_back({.name = "a", .folder = folder_.file(name) + "/adapter"});
    return options;
  }
  // The CPU's logits of a model with the first adapter, which are not those without it.
  std::vector<float> expect_logits_of_the_cpu(const std::string& folder,
                                              const model::InferenceOptions& options) {
    auto on_cpu = InferenceModel::load(folder, cpu_, options);
    auto on_gpu = InferenceModel::load(folder, *gpu_, options);
    EXPECT_TRUE(on_cpu && on_gpu);
    if (!on_cpu || !on_gpu) return {};
    const auto without = TwoSequences(**on_cpu).run();
    const auto expected = TwoSequences(**on_cpu, 0).run();
    EXPECT_LT(distance(TwoSequences(**on_gpu, 0).run(), expected), 2e-5);
    EXPECT_GT(distance(without, expected), 1e-3);
    return expected;
  }
  train::TrainOptions options(const std::string& name) {
    const std::string data = folder_.file("corpus.jsonl");
    std::ofstream(data) << train::small_corpus(40);
    train::TrainOptions made = train::tiny_options(folder_, {data});
    made.out_folder = folder_.file(name);
    made.export_dtype = DType::kF32;
    made.context = 16;
    made.micro_batch_tokens = 32;
    made.step_tokens = 64;
    made.steps = 4;
    return made;
  }
  train::TestFolder folder_;
};

TEST_F(CudaTrainer, TrainsAsTheCpuDoes) {
  train::TrainOptions on_cpu = options("cpu");
  train::TrainOptions on_gpu = options("gpu");
  on_gpu.gpus = {0};
  // AdamW moves weights by the rate whatever the gradient's size: a small one differs by its sign.
  expect_near_weights(weights_of(on_gpu), weights_of(on_cpu), 3e-3);
}

TEST_F(CudaTrainer, TrainsLayersOfEveryKindAsTheCpuDoes) {
  for (const std::string name : {"mixtral", "qwen2_moe", "gpt_oss", "glm4_moe", "gemma4_moe",
                                 "deepseek_v2", "deepseek_v3_dense", "minicpm3", "qwen3_next",
                                 "nemotron_h_moe", "lfm2", "falcon_h1_norm_first", "olmo_hybrid",
                                 "gemma3n", "llama4", "mistral4", "lfm3", "granite_swa_turned"}) {
    train::TrainOptions on_cpu = options(name + "_cpu");
    const auto config = formats::load_model_config(fixtures() + "/" + name);
    ASSERT_TRUE(config) << config.error().message;
    const int32_t vocabulary = on_cpu.config->vocab_size;
    on_cpu.config = *config;
    on_cpu.config->vocab_size = vocabulary;
    on_cpu.steps = 2;
    if (config->experts.count > 0) on_cpu.expert_balance = 0.2;
    train::TrainOptions on_gpu = on_cpu;
    on_gpu.out_folder = folder_.file(name + "_gpu");
    on_gpu.gpus = {0};
    SCOPED_TRACE(name);
    expect_near_weights(weights_of(on_gpu), weights_of(on_cpu), 1e-4);
  }
}

TEST_F(CudaTrainer, FineTunesAdaptersBesideExpertsAsTheCpuDoes) {
  train::TrainOptions base = options("base");
  base.config = train::tiny_expert_config();
  base.steps = 1;
  weights_of(base);
  const auto tune = [&](const std::string& name, std::vector<int> gpus, ops::WeightFormat format) {
    train::TrainOptions tuning =
        train::tuning_options(options(name), base.out_folder + "/model", folder_.file(name));
    tuning.lora = formats::LoraConfig{.rank = 4, .alpha = 8};
    tuning.base_format = format;
    tuning.steps = 2;
    tuning.gpus = std::move(gpus);
    return weights_of(tuning);
  };
  constexpr auto kWhole = ops::WeightFormat::kCompute;
  constexpr auto kMxfp4 = ops::WeightFormat::kMxfp4;
  expect_near_weights(tune("gpu", {0}, kWhole), tune("cpu", {}, kWhole), 1e-4);
  expect_near_weights(tune("gpu_mxfp4", {0}, kMxfp4), tune("cpu_mxfp4", {}, kMxfp4), 3e-3);
}

TEST_F(CudaTrainer, TrainsWithMomentsOf8BitsAsTheCpuDoes) {
  train::TrainOptions on_cpu = options("cpu");
  on_cpu.optimizer.moments = ops::MomentFormat::kQ8;
  train::TrainOptions on_gpu = on_cpu;
  on_gpu.out_folder = folder_.file("gpu");
  on_gpu.gpus = {0};
  expect_near_weights(weights_of(on_gpu), weights_of(on_cpu), 3e-3);
}

TEST_F(CudaTrainer, LearnsPreferencesAsTheCpuDoes) {
  train::first_model(folder_);
  const auto tune = [&](const std::string& name, std::vector<int> gpus) {
    train::TrainOptions tuning = train::preference_options(folder_, name);
    tuning.export_dtype = DType::kF32;
    tuning.steps = 2;
    tuning.gpus = std::move(gpus);
    const auto run = train::train(tuning);
    EXPECT_TRUE(run) << run.error().message;
    return run->losses;
  };
  const std::vector<double> expected = tune("dpo_cpu", {});
  const std::vector<double> got = tune("dpo_gpu", {0});
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-4) << "step " << i;
}

TEST_F(CudaTrainer, GoesOnFromACheckpointWithTheSameBits) {
  train::TrainOptions whole = options("whole");
  whole.gpus = {0};
  train::TrainOptions stopped = options("stopped");
  stopped.gpus = {0};
  stopped.checkpoint_every_steps = 2;
  int steps = 0;
  train::TrainCallbacks callbacks;
  callbacks.should_stop = [&] { return ++steps == 2; };
  {
    const auto trainer = train::Trainer::create(stopped, callbacks);
    ASSERT_TRUE(trainer) << trainer.error().message;
    const auto result = (*trainer)->run();
    ASSERT_TRUE(result) << result.error().message;
    EXPECT_TRUE(result->stopped);
  }
  expect_near_weights(weights_of(stopped), weights_of(whole), 1e-30);
}

TEST_F(CudaTrainer, FineTunesAdaptersAsTheCpuDoes) {
  train::TrainOptions base = options("base");
  weights_of(base);
  const auto tune = [&](const std::string& name, std::vector<int> gpus,
                        ops::WeightFormat format = ops::WeightFormat::kCompute) {
    train::TrainOptions tuning =
        train::tuning_options(options(name), base.out_folder + "/model", folder_.file(name));
    tuning.lora = formats::LoraConfig{.rank = 4, .alpha = 8};
    tuning.base_format = format;
    if (format != ops::WeightFormat::kCompute) tuning.steps = 2;
    tuning.gpus = std::move(gpus);
    return weights_of(tuning);
  };
  expect_near_weights(tune("lora_gpu", {0}), tune("lora_cpu", {}), 3e-3);
  constexpr auto kQ4 = ops::WeightFormat::kQ4;
  expect_near_weights(tune("q4_gpu", {0}, kQ4), tune("q4_cpu", {}, kQ4), 3e-3);

  // The adapter beside its base.
  const std::string folder = base.out_folder + "/model";
  model::InferenceOptions options = with_adapter("lora_gpu");
  const std::vector<float> expected = expect_logits_of_the_cpu(folder, options);

  // The same, loaded later into a room.
  const model::AdapterSource source = options.adapters.front();
  options.adapters.clear();
  options.adapter_rooms = 1;
  options.adapter_rank_max = 4;
  auto later = InferenceModel::load(folder, *gpu_, options);
  ASSERT_TRUE(later) << later.error().message;
  const auto lease = (*later)->adapter_rooms().load(source, (*later)->architecture(), *gpu_stream_);
  ASSERT_TRUE(lease) << lease.error().message;
  EXPECT_LT(distance(TwoSequences(**later, (*lease)->number).run(), expected), 2e-5);
}

TEST_F(CudaTrainer, FineTunesAdaptersOfLatentAttentionAsTheCpuDoes) {
  train::TrainOptions base = options("base");
  const auto config = formats::load_model_config(fixtures() + "/deepseek_v3_dense");
  ASSERT_TRUE(config) << config.error().message;
  const int32_t vocabulary = base.config->vocab_size;
  base.config = *config;
  base.config->vocab_size = vocabulary;
  base.steps = 1;
  weights_of(base);
  const std::string folder = base.out_folder + "/model";
  const auto tune = [&](const std::string& name, std::vector<int> gpus) {
    train::TrainOptions tuning = train::tuning_options(options(name), folder, folder_.file(name));
    tuning.lora = formats::LoraConfig{.rank = 4, .alpha = 8};
    tuning.steps = 2;
    tuning.gpus = std::move(gpus);
    return weights_of(tuning);
  };
  expect_near_weights(tune("lora_gpu", {0}), tune("lora_cpu", {}), 3e-3);
  expect_logits_of_the_cpu(folder, with_adapter("lora_gpu"));
}

TEST_F(CudaTrainer, LeavesOutTheNumbersThatTheCpuDoes) {
  train::TrainOptions base = options("base");
  base.steps = 2;
  base.dropout = 0.2;
  base.dropout_pool = 6;
  base.dropout_at_once = 3;
  train::TrainOptions on_gpu = base;
  on_gpu.out_folder = folder_.file("gpu");
  on_gpu.gpus = {0};
  expect_near_weights(weights_of(on_gpu), weights_of(base), 1e-4);

  const auto tune = [&](const std::string& name, std::vector<int> gpus) {
    train::TrainOptions tuning =
        train::tuning_options(options(name), base.out_folder + "/model", folder_.file(name));
    tuning.lora = formats::LoraConfig{.rank = 4, .alpha = 8, .dropout = 0.3};
    tuning.steps = 2;
    tuning.gpus = std::move(gpus);
    return weights_of(tuning);
  };
  expect_near_weights(tune("lora_gpu", {0}), tune("lora_cpu", {}), 3e-3);
}

// Those of the fixtures are narrower than tensor cores take them.
TEST_F(CudaTrainer, LatentsOnTensorCoresGiveLogitsNearThoseOfTheCpu) {
  train::TrainOptions base = options("base");
  const auto config = formats::load_model_config(fixtures() + "/deepseek_v3_dense");
  ASSERT_TRUE(config) << config.error().message;
  const int32_t vocabulary = base.config->vocab_size;
  base.config = *config;
  base.config->vocab_size = vocabulary;
  base.config->head_dim = 48;
  base.config->rotary_dim = 32;
  base.config->latent.rank = 256;
  base.config->latent.value_dim = 24;
  base.steps = 1;
  weights_of(base);
  model::InferenceOptions options{.compute = DType::kBF16, .context_max = 32};
  options.kv_block_count = 4;
  auto on_cpu = InferenceModel::load(base.out_folder + "/model", cpu_, options);
  auto on_gpu = InferenceModel::load(base.out_folder + "/model", *gpu_, options);
  ASSERT_TRUE(on_cpu && on_gpu);
  EXPECT_LT(distance(TwoSequences(**on_gpu).run(), TwoSequences(**on_cpu).run()), 0.03);
}

}  // namespace
}  // namespace jige
