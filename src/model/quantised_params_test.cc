// Folders in few bits: the numbers and logits that tests/tools/record_quantised.py recorded of
// every form, and what damaged folders are refused with.
#include "model/quantised_params.h"

#include <gtest/gtest.h>

#include <cctype>
#include <cstring>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/test_fuzz_rounds.h"
#include "model/inference.h"
#include "model/init.h"
#include "model/logits_distance_test_support.h"
#include "model/model_test_support.h"
#include "model/weights_save.h"

namespace jige::model {
namespace {

using testing::succeed;
using testing::TempFolder;
using testing::value_of;

constexpr const char* kForms[] = {"fp8_blocks",      "fp8_experts",
                                  "float8_tensor",   "float8_channel",
                                  "int8_channel",    "int8_zeros",
                                  "packed4_group",   "packed4_zeros",
                                  "packed4_ordered", "packed8_channel",
                                  "gptq4",           "gptq4_ordered",
                                  "gptq8_v2",        "awq4",
                                  "gptq4_glm4",      "int8_neox",
                                  "packed4_channel", "gptq4_symmetric"};

std::string form_folder(const std::string& name) {
  return testing::fixture("../quantised/" + name);
}

formats::TensorFile recorded_of(const std::string& name) {
  return value_of(formats::open_safetensors(form_folder(name) + "/expected.safetensors"));
}

// The largest distance of logits from the recorded ones.
double logits_distance(const std::string& name, DType compute, ops::WeightFormat format) {
  const std::string folder = form_folder(name);
  return testing::distance_from_recorded(folder, folder, compute, format).largest;
}

class QuantisedForms : public ::testing::TestWithParam<const char*> {};

TEST_P(QuantisedForms, AreDecodedToTheBit) {
  const std::string folder = form_folder(GetParam());
  const auto config = value_of(formats::load_model_config(folder));
  const auto files = value_of(formats::TensorFolder::open(folder));
  const auto expected = recorded_of(GetParam());
  ASSERT_TRUE(config.quantised);
  ThreadTeam team(2);
  LoadBuffer buffer;
  int compared = 0;
  for (const formats::StoredTensor& tensor : expected.tensors()) {
    if (!tensor.name.ends_with(".weight")) continue;
    const TensorView wanted = value_of(expected.view(tensor.name));
    const auto matrix =
        value_of(find_quantised(config, files, {.name = tensor.name, .shape = wanted.shape}));
    ASSERT_TRUE(matrix) << tensor.name;
    const TensorView found = value_of(read_quantised(*matrix, folder, DType::kF32, team, buffer));
    EXPECT_EQ(std::memcmp(found.data, wanted.data, tensor.bytes), 0) << tensor.name;
    ++compared;
  }
  EXPECT_GE(compared, 1);
}

TEST_P(QuantisedForms, GiveTheLogitsOfTransformers) {
  EXPECT_LT(logits_distance(GetParam(), DType::kF32, ops::WeightFormat::kCompute), 1e-4);
}

TEST_P(QuantisedForms, RunInFewerBitsAndInBf16) {
  const bool has_experts = std::string_view(GetParam()).ends_with("experts");
  const double most = has_experts ? 3 : 1;  // of logits around 3; some tokens choose other experts
  for (const auto format : {ops::WeightFormat::kCompute, ops::WeightFormat::kQ8}) {
    const double distance = logits_distance(GetParam(), DType::kBF16, format);
    EXPECT_LT(distance, most);
    RecordProperty(std::string(ops::weight_format_name(format)), std::to_string(distance));
  }
}

INSTANTIATE_TEST_SUITE_P(Recorded, QuantisedForms, ::testing::ValuesIn(kForms),
                         [](const auto& form) { return std::string(form.param); });

// A folder with the form's files, of which some were changed.
struct Damage {
  std::string file = "model.safetensors";
  std::string from;  // every place of it
  std::string to;    // of the same length in model.safetensors, whose header knows its own
};

Status load_damaged(const std::string& form, const std::vector<Damage>& damages) {
  const TempFolder temp;
  succeed(make_folders(temp / "changed"));
  for (const char* name : {"model.safetensors", "config.json"}) {
    std::string bytes = value_of(read_file(form_folder(form) + "/" + name));
    for (const Damage& damage : damages) {
      if (damage.file != name) continue;
      size_t at = bytes.find(damage.from);
      EXPECT_NE(at, std::string::npos) << damage.from;
      for (; at != std::string::npos; at = bytes.find(damage.from, at + damage.to.size())) {
        bytes.replace(at, damage.from.size(), damage.to);
      }
    }
    succeed(write_file_atomic(temp / "changed/" + name, bytes));
  }
  CpuDevice device({.thread_count = 1});
  return InferenceModel::load(temp / "changed", device, {.context_max = 16}).map([](const auto&) {
  });
}

std::string quantised_refusal(const std::string& form, const std::vector<Damage>& damages) {
  const Status status = load_damaged(form, damages);
  return status ? "loaded" : status.error().message;
}

void expect_says(const std::string& said, const std::string& words) {
  EXPECT_NE(said.find(words), std::string::npos) << said << "\ndoes not hold: " << words;
}

TEST(QuantisedParams, AreRefusedByNameWhereAPartIsMissing) {
  expect_says(quantised_refusal("fp8_blocks", {{.from = "k_proj.weight_scale_inv",
                                                .to = "k_proj.weight_scale_old"}}),
              "k_proj.weight_scale_inv\" is missing");
  expect_says(quantised_refusal("packed4_group",
                                {{.from = "k_proj.weight_shape", .to = "k_proj.weight_shapo"}}),
              "k_proj.weight_shape\" is missing");
  expect_says(quantised_refusal("gptq4_ordered", {{.from = "k_proj.g_idx", .to = "k_proj.g_odx"}}),
              "k_proj.g_idx\" is missing");
  expect_says(quantised_refusal("awq4", {{.from = "k_proj.qzeros", .to = "k_proj.qzerox"}}),
              "k_proj.qzeros\" is missing");
  expect_says(quantised_refusal("awq4", {{.from = "k_proj.qweight", .to = "k_proj.qweighs"}}),
              "k_proj.qweight\" is missing");
}

TEST(QuantisedParams, WholeNumbersThatAreStillToBeRoundedAreRefused) {
  const auto config = value_of(formats::load_model_config(form_folder("float8_channel")));
  const std::string module = "model.layers.0.self_attn.k_proj";
  std::vector<float> numbers(4);
  const TensorView view = TensorView::of(numbers.data(), DType::kF32, Shape{2, 2});
  for (const std::string scale : {"", ".weight_scale", ".weight_scale_inv"}) {
    const TempFolder temp;
    std::vector sources = {formats::TensorSource::of(module + ".weight", view)};
    if (!scale.empty()) sources.push_back(formats::TensorSource::of(module + scale, view));
    succeed(make_folders(temp / "plain"));
    ASSERT_TRUE(formats::write_tensor_folder(temp / "plain", sources, {}));
    const auto files = value_of(formats::TensorFolder::open(temp / "plain"));
    const auto matrix = open_quantised(config, files, module);
    ASSERT_EQ(matrix.has_value(), scale.empty());
    if (matrix) {
      EXPECT_FALSE(*matrix) << "no matrix in few bits";
    } else {
      expect_says(matrix.error().message, module + scale + "\" beside it");
    }
  }
}

TEST(QuantisedParams, AreRefusedByNameWhereTypesOrShapesAreWrong) {
  expect_says(quantised_refusal("fp8_blocks", {{.from = "F8_E4M3", .to = "F8_E5M2"}}),
              "is stored as F8_E5M2");
  expect_says(quantised_refusal("int8_zeros", {{.from = "\"I8\"", .to = "\"U8\""}}),
              "is stored as U8");
  expect_says(quantised_refusal("gptq4", {{.from = "\"I32\"", .to = "\"U32\""}}),
              "is stored as U32");
  expect_says(quantised_refusal("awq4", {{.from = "[32,8]", .to = "[8,32]"}}), "but a matrix [");
  expect_says(quantised_refusal("float8_channel", {{.from = "[64,1]", .to = "[1,64]"}}),
              "makes it [64, 1]");
}

TEST(QuantisedParams, AreRefusedWhereConfigSaysOtherwise) {
  expect_says(
      quantised_refusal(
          "int8_channel",
          {{.file = "config.json", .from = "re:.*self_attn.q_p.*", .to = "re:.*self_attn.*"}}),
      "k_proj\" are quantised, but quantization_config");
  expect_says(
      quantised_refusal(
          "gptq4",
          {{.file = "config.json", .from = "\"group_size\": 16", .to = "\"group_size\": 32"}}),
      "has shape [2, ");
  expect_says(quantised_refusal("gptq4", {{.file = "config.json",
                                           .from = "\"intermediate_size\": 64",
                                           .to = "\"intermediate_size\": 48"}}),
              "are a matrix [64, 32], but config.json makes it [48, 32]");
}

TEST(QuantisedParams, NeverAbortWhateverTheHeaderSays) {
  set_log_level(LogLevel::kError);
  for (const char* form : kForms) {
    for (uint64_t seed = 0; seed < fuzz_rounds(12); ++seed) {
      SCOPED_TRACE(fmt::format("{} seed {}", form, seed));
      Rng rng(derive_key(seed, form));
      std::string bytes = value_of(read_file(form_folder(form) + "/model.safetensors"));
      uint64_t header_bytes = 0;
      std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
      // Digits of shapes and ranges, and names, change; so does what indices are made of.
      for (int i = 0; i < 3; ++i) {
        char& at = bytes[8 + rng.below(header_bytes)];
        if (std::isdigit(static_cast<unsigned char>(at)) != 0) {
          at = static_cast<char>('0' + rng.below(10));
        } else if (std::isalpha(static_cast<unsigned char>(at)) != 0) {
          at = static_cast<char>('a' + rng.below(26));
        }
        bytes[8 + header_bytes + rng.below(bytes.size() - 8 - header_bytes)] =
            static_cast<char>(rng.below(256));
      }
      const TempFolder temp;
      succeed(make_folders(temp / "changed"));
      succeed(write_file_atomic(temp / "changed/model.safetensors", bytes));
      succeed(write_file_atomic(temp / "changed/config.json",
                                value_of(read_file(form_folder(form) + "/config.json"))));
      CpuDevice device({.thread_count = 1});
      const auto model = InferenceModel::load(temp / "changed", device, {.context_max = 16});
      if (!model) {
        EXPECT_LT(model.error().message.size(), 2000u);
      }
    }
  }
  set_log_level(LogLevel::kInfo);
}

TEST(QuantisedParams, AreDecodedWhereAnAdapterIsMerged) {
  for (const char* form : {"fp8_blocks", "packed4_zeros", "gptq4_ordered"}) {
    SCOPED_TRACE(form);
    const TempFolder temp;
    const auto config = value_of(formats::load_model_config(form_folder(form)));
    testing::Trainee trainee(config, {}, formats::LoraConfig{.rank = 2, .target_modules = {}});
    initialise_weights(trainee.weights(), trainee.stream(), 1);  // an adapter that changes nothing
    succeed(save_adapter(temp / "adapter", Masters::of(trainee.weights()), trainee.stream(), ""));
    succeed(merge_adapter(form_folder(form), temp / "adapter", temp / "merged",
                          {.dtype = DType::kF32}));
    EXPECT_FALSE(value_of(formats::load_model_config(temp / "merged")).quantised);
    const auto merged = value_of(formats::TensorFolder::open(temp / "merged"));
    const auto recorded = recorded_of(form);
    const std::string name = "model.layers.0.mlp.down_proj.weight";
    const TensorView found = value_of(merged.view(name));
    const TensorView wanted = value_of(recorded.view(name));
    ASSERT_TRUE(found.shape == wanted.shape);
    EXPECT_EQ(std::memcmp(found.data, wanted.data, static_cast<size_t>(wanted.count()) * 4), 0);
    for (const formats::StoredTensor* tensor : merged.tensors()) {
      EXPECT_TRUE(tensor->name.ends_with(".weight")) << tensor->name;
    }
  }
}

}  // namespace
}  // namespace jige::model
