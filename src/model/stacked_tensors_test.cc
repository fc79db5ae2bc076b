// Experts in stacked tensors: those of gpt-oss in MXFP4 as transformers decodes them, and what
// files must hold.
#include "model/stacked_tensors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "base/file.h"
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
