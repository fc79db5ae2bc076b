// Adapters for tests: folders as PEFT writes them, with random matrices.
//
// Threads: one test at a time.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/rng.h"
#include "base/rough_normal.h"
#include "formats/lora_config.h"
#include "formats/lora_patterns.h"
#include "formats/tensor_folder.h"
#include "model/adapter.h"
#include "model/adapter_columns.h"
#include "model/model_test_support.h"

namespace jige::model::testing {

// Writes FOLDER for a base: the configuration's targets, or every linear layer where it has none,
// in all layers. `size` is the deviation of its numbers.
inline std::string write_adapter(const std::string& folder, const std::string& base_folder,
                                 formats::LoraConfig config, uint64_t seed, float size = 0.2f) {
  const auto base = formats::load_model_config(base_folder);
  const auto architecture = Architecture::create(base.value());
  if (config.target_modules.empty()) {
    config.target_modules = formats::lora_linear_modules(*base);
  }
  Rng rng(derive_key(seed, "test adapter"));
  const auto patterns = formats::LoraPatterns::create(config, folder);
  BaseNumbers numbers_of(architecture.value()->config(), base_folder, 1);
  std::vector<std::vector<float>> values;
  std::vector<formats::TensorSource> sources;
  const auto add = [&](const std::string& module, formats::LoraPart part, const Shape& shape) {
    std::vector<float>& numbers = values.emplace_back();
    for (int64_t i = 0; i < shape.count(); ++i) numbers.push_back(size * rough_normal(rng));
    sources.push_back(
        formats::TensorSource::of(formats::lora_tensor_name(module, part),
                                  TensorView::of(numbers.data(), DType::kF32, shape)));
  };
  // About the norm of each row.
  const auto add_magnitude = [&](const TransformerLayer& layer, const std::string& module) {
    const auto spec = std::ranges::find(layer.params(), module + ".weight", &ParamSpec::name);
    const std::vector<float> weight = numbers_of.read(*spec).value();
    const int64_t rows = spec->shape[0];
    add(module, formats::LoraPart::kMagnitude, Shape{rows});
    for (int64_t row = 0; row < rows; ++row) {
      double square = 0;
      for (int64_t k = 0; k < spec->shape[1]; ++k) {
        const double number = weight[static_cast<size_t>(row * spec->shape[1] + k)];
        square += number * number;
      }
      float& magnitude = values.back()[static_cast<size_t>(row)];
      magnitude = (1 + magnitude) * static_cast<float>(std::sqrt(square));
    }
  };
  for (const auto& layer : architecture.value()->layers()) {
    for (const Projection* projection : layer->projections()) {
      for (const ProjectionOptions::Part& part : projection->parts()) {
        if (!adapts(config, part.name)) continue;
        const int64_t rank = patterns.value().of(part.name).value().rank;
        add(part.name, formats::LoraPart::kA, Shape{rank, projection->inputs()});
        add(part.name, formats::LoraPart::kB, Shape{part.outputs, rank});
        if (config.use_dora) add_magnitude(*layer, part.name);
      }
    }
  }
  std::filesystem::create_directories(folder);
  EXPECT_TRUE(formats::write_tensor_folder(folder, sources, {.stem = kAdapterStem}));
  EXPECT_TRUE(write_file_atomic(folder + "/adapter_config.json",
                                dump_json(formats::to_peft_config(config))));
  return folder;
}

// Three adapters of different ranks, scales and targets; one has ranks and scales of single
// modules, one is DoRA.
inline std::vector<AdapterSource> write_three_adapters(const std::string& folder,
                                                       const std::string& base_folder) {
  // Every family has some of these modules.
  const formats::LoraConfig all{.rank = 3, .alpha = 4};
  const formats::LoraConfig some{
      .rank = 8,
      .alpha = 5,
      .use_rslora = true,
      .rank_pattern = {{"layers.[01].*v_proj", 5}, {"c_attn", 4}},
      .alpha_pattern = {{"q_proj", 7}, {"in_proj", 3}},
      .target_modules = {"c_attn", "in_proj", "kv_b_proj", "q_proj", "qkv_proj", "query_key_value",
                         "v_proj", "wqkv"}};
  const formats::LoraConfig other{
      .rank = 1,
      .alpha = 1,
      .use_dora = true,
      .target_modules = {"c_proj", "dense", "in_proj", "o_proj", "out_proj", "wo"}};
  return {{"all", write_adapter(folder + "/all", base_folder, all, 1)},
          {"some", write_adapter(folder + "/some", base_folder, some, 2)},
          {"other", write_adapter(folder + "/other", base_folder, other, 3)}};
}

// The same for a fixture, written when first asked for.
inline const std::vector<AdapterSource>& three_adapters(const std::string& fixture_name) {
  static const TempFolder folder;
  static std::map<std::string, std::vector<AdapterSource>> written;
  std::vector<AdapterSource>& sources = written[fixture_name];
  if (sources.empty()) {
    sources = write_three_adapters(folder / fixture_name, fixture(fixture_name));
  }
  return sources;
}

}  // namespace jige::model::testing
