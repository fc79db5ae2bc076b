// Experts in stacked tensors: those of gpt-oss in MXFP4 as transformers decodes them, and what
// files must hold.
#include "model/stacked_tensors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "base/file.h"
#include "formats/image_model_names.h"
#include "model/inference.h"
#include "model/init.h"
#include "model/logits_distance_test_support.h"
#include "model/model_test_support.h"
#include "model/weights_save.h"

namespace jige::model {
namespace {

using testing::fixture;
using testing::succeed;
using testing::TempFolder;
using testing::value_of;

constexpr const char* kMxfp4 = "gpt_oss_mxfp4";

testing::LogitsDistance distance_from_transformers(ops::WeightFormat format,
                                                   const std::string& folder = fixture(kMxfp4)) {
  return testing::distance_from_recorded(fixture(kMxfp4), folder, DType::kF32, format);
}

TEST(StackedTensors, ExpertsInMxfp4AreWhatTransformersDecodes) {
  EXPECT_LE(distance_from_transformers(ops::WeightFormat::kCompute).largest, 1e-4);
}

TEST(StackedTensors, ExpertsInMxfp4AreQuantisedAnewInFewerBits) {
  const double q8 = distance_from_transformers(ops::WeightFormat::kQ8).mean;
  const double q4 = distance_from_transformers(ops::WeightFormat::kQ4).mean;
  EXPECT_LT(q8, 0.15);
  EXPECT_LT(q4, 1.5);
  EXPECT_LT(q8, q4);
}

// What remains is that of the matrices beside them and of the rows, both in 8 bits.
TEST(StackedTensors, ExpertsInMxfp4CanStayInIt) {
  const double q4 = distance_from_transformers(ops::WeightFormat::kQ4).mean;
  const double mxfp4 = distance_from_transformers(ops::WeightFormat::kMxfp4).mean;
  EXPECT_LT(mxfp4, 0.15);
  EXPECT_LT(3 * mxfp4, q4);
}

TEST(StackedTensors, HalfAByteIsANumber) {
  const float magnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  for (uint8_t half = 0; half < 8; ++half) {
    EXPECT_EQ(mxfp4_value(half), magnitudes[half]);
    EXPECT_EQ(mxfp4_value(half + 8), -magnitudes[half]);
  }
  EXPECT_TRUE(std::signbit(mxfp4_value(8)));
}

// What loading a copy of the fixture says whose tensors were changed.
std::string refusal_of(const std::function<void(std::vector<formats::TensorSource>&)>& change) {
  const TempFolder temp;
  const auto files = value_of(formats::TensorFolder::open(fixture(kMxfp4)));
  std::vector<formats::TensorSource> sources;
  for (const formats::StoredTensor* tensor : files.tensors()) {
    sources.push_back(formats::TensorSource::of(tensor->name, value_of(files.view(tensor->name))));
  }
  change(sources);
  succeed(make_folders(temp / "changed"));
  succeed(formats::write_tensor_folder(temp / "changed", sources));
  succeed(write_file_atomic(temp / "changed/config.json",
                            value_of(read_file(fixture(kMxfp4) + "/config.json"))));
  CpuDevice device({.thread_count = 1});
  const auto model = InferenceModel::load(temp / "changed", device);
  return model ? "loaded" : model.error().message;
}

bool is_down_scales(const formats::TensorSource& source) {
  return source.name == "model.layers.1.mlp.experts.down_proj_scales";
}

TEST(StackedTensors, AreRefusedByNameWhereTypesShapesOrScalesAreWrong) {
  std::string said = refusal_of([](auto& sources) { std::erase_if(sources, is_down_scales); });
  EXPECT_NE(said.find("down_proj_scales\" is missing"), std::string::npos) << said;
  said = refusal_of([](auto& sources) {
    for (auto& source : sources) {
      if (is_down_scales(source)) source.shape = Shape{5, 64, 1};
    }
  });
  EXPECT_NE(said.find("has shape [5, 64, 1], but config.json makes it [5, 32, 2]"),
            std::string::npos)
      << said;
  said = refusal_of([](auto& sources) {
    std::erase_if(sources, [](const auto& source) {
      return source.name == "model.layers.0.mlp.experts.down_proj_bias";
    });
  });
  EXPECT_NE(said.find("experts.0.down_proj.bias\" is missing"), std::string::npos) << said;
}

const std::string kTurned =
    std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/image_towers/qwen3_vl_moe";

std::vector<float> logits_of_text(const std::string& folder) {
  CpuDevice device({.thread_count = 2});
  const auto model = value_of(InferenceModel::load(folder, device, {.compute = DType::kF32}));
  const std::vector<int32_t> tokens = {1, 5, 17, 60, 8, 33, 2, 90};
  const std::vector<int32_t> blocks = {0};
  const ops::SequenceSpan sequence{.row_count = 8, .blocks = blocks.data()};
  const std::vector<int32_t> rows = {7};
  const auto logits = value_of(
      model->forward({.tokens = tokens, .sequences = std::span(&sequence, 1), .logit_rows = rows}));
  return {logits.begin(), logits.end()};
}

// Folders of Qwen3-VL have [experts, inputs, outputs] as published, transformers writes the others.
TEST(StackedTensors, MayBeTurned) {
  const TempFolder temp;
  const auto files = value_of(formats::TensorFolder::open(kTurned));
  std::vector<formats::TensorSource> sources;
  std::vector<std::vector<float>> turned;
  for (const formats::StoredTensor* tensor : files.tensors()) {
    const TensorView stored = value_of(files.view(tensor->name));
    sources.push_back(formats::TensorSource::of(tensor->name, stored));
    if (tensor->name.find(".experts.") == std::string::npos) continue;
    const auto inputs = static_cast<size_t>(stored.shape[1]);
    const auto outputs = static_cast<size_t>(stored.shape[2]);
    std::vector<float>& numbers = turned.emplace_back();
    for (size_t i = 0; i < static_cast<size_t>(stored.count()); ++i) {
      const size_t expert = i / (inputs * outputs);
      const size_t output = i / inputs % outputs;
      numbers.push_back(stored.as<float>()[(expert * inputs + i % inputs) * outputs + output]);
    }
    sources.back() = formats::TensorSource::of(
        tensor->name, TensorView::of(numbers.data(), DType::kF32,
                                     Shape{stored.shape[0], stored.shape[2], stored.shape[1]}));
  }
  ASSERT_EQ(turned.size(), 4u);
  succeed(make_folders(temp / "plain"));
  succeed(formats::write_tensor_folder(temp / "plain", sources));
  succeed(
      write_file_atomic(temp / "plain/config.json", value_of(read_file(kTurned + "/config.json"))));
  EXPECT_EQ(logits_of_text(temp / "plain"), logits_of_text(kTurned));
}

// A merge is a folder of the same class, with what reads images as it was.
TEST(StackedTensors, ThatAreTurnedStaySoInAMerge) {
  const TempFolder temp;
  const auto config = value_of(formats::load_model_config(kTurned));
  testing::Trainee trainee(config, {}, formats::LoraConfig{.rank = 2, .target_modules = {}});
  initialise_weights(trainee.weights(), trainee.stream(), 1);  // an adapter that changes nothing
  succeed(save_adapter(temp / "adapter", Masters::of(trainee.weights()), trainee.stream(), ""));
  succeed(merge_adapter(kTurned, temp / "adapter", temp / "merged", {.dtype = DType::kF32}));
  const auto files = value_of(formats::TensorFolder::open(temp / "merged"));
  const auto base = value_of(formats::TensorFolder::open(kTurned));
  EXPECT_EQ(files.tensors().size(), base.tensors().size());
  for (const formats::StoredTensor* tensor : base.tensors()) {
    const auto bytes = value_of(base.bytes_of(tensor->name));
    const auto merged = value_of(files.bytes_of(tensor->name));
    EXPECT_TRUE(std::ranges::equal(bytes, merged)) << tensor->name;
  }
  EXPECT_EQ(logits_of_text(temp / "merged"), logits_of_text(kTurned));
}

// Of all weights that were trained, the language model alone is written where the folder has
// experts the other way round.
TEST(StackedTensors, ThatAreTurnedAreWrittenWithoutWhatReadsImages) {
  const TempFolder temp;
  const auto config = value_of(formats::load_model_config(kTurned));
  testing::Trainee trainee(config, {});
  initialise_weights(trainee.weights(), trainee.stream(), 1);
  succeed(save_model(temp / "all", Masters::of(trainee.weights()), trainee.stream(),
                     {.image_folder = kTurned}));
  const auto files = value_of(formats::TensorFolder::open(temp / "all"));
  EXPECT_NE(files.find("model.embed_tokens.weight"), nullptr);
  EXPECT_FALSE(value_of(formats::has_images(temp / "all")));
  EXPECT_TRUE(formats::load_model_config(temp / "all"));
}

TEST(StackedTensors, InMxfp4AreDecodedWhereAnAdapterIsMerged) {
  const TempFolder temp;
  const auto config = value_of(formats::load_model_config(fixture(kMxfp4)));
  testing::Trainee trainee(config, {}, formats::LoraConfig{.rank = 2, .target_modules = {}});
  initialise_weights(trainee.weights(), trainee.stream(), 1);  // an adapter that changes nothing
  succeed(save_adapter(temp / "adapter", Masters::of(trainee.weights()), trainee.stream(), ""));
  succeed(
      merge_adapter(fixture(kMxfp4), temp / "adapter", temp / "merged", {.dtype = DType::kBF16}));
  const auto files = value_of(formats::TensorFolder::open(temp / "merged"));
  EXPECT_FALSE(files.find("model.layers.0.mlp.experts.down_proj_blocks"));
  EXPECT_TRUE(files.find("model.layers.0.mlp.experts.down_proj"));
  EXPECT_LE(distance_from_transformers(ops::WeightFormat::kCompute, temp / "merged").largest, 1e-4);
}

}  // namespace
}  // namespace jige::model
