// Adapters for tests: folders as PEFT writes them, with random matrices.
//
// Threads: one test at a time.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/rng.h"
#include "base/rough_normal.h"
#include "formats/lora_config.h"
#include "formats/tensor_folder.h"
#include "model/adapter.h"

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
  std::vector<std::vector<float>> values;
  std::vector<formats::TensorSource> sources;
  const auto add = [&](const std::string& module, formats::LoraPart part, const Shape& shape) {
    std::vector<float>& numbers = values.emplace_back();
    for (int64_t i = 0; i < shape.count(); ++i) numbers.push_back(size * rough_normal(rng));
    sources.push_back(
        formats::TensorSource::of(formats::lora_tensor_name(module, part),
                                  TensorView::of(numbers.data(), DType::kF32, shape)));
  };
  for (const auto& layer : architecture.value()->layers()) {
    for (const Projection* projection : layer->projections()) {
      for (const ProjectionOptions::Part& part : projection->parts()) {
        if (!adapts(config, part.name)) continue;
        add(part.name, formats::LoraPart::kA, Shape{config.rank, projection->inputs()});
        add(part.name, formats::LoraPart::kB, Shape{part.outputs, config.rank});
      }
    }
  }
  std::filesystem::create_directories(folder);
  EXPECT_TRUE(formats::write_tensor_folder(folder, sources, {.stem = kAdapterStem}));
  EXPECT_TRUE(write_file_atomic(folder + "/adapter_config.json",
                                dump_json(formats::to_peft_config(config))));
  return folder;
}

// Three adapters of different ranks, scales and targets.
inline std::vector<AdapterSource> write_three_adapters(const std::string& folder,
                                                       const std::string& base_folder) {
  // Every family has some of these modules.
  const formats::LoraConfig all{.rank = 3, .alpha = 4};
  const formats::LoraConfig some{.rank = 8,
                                 .alpha = 5,
                                 .use_rslora = true,
                                 .target_modules = {"c_attn", "in_proj", "kv_b_proj", "q_proj",
                                                    "qkv_proj", "query_key_value", "v_proj"}};
  const formats::LoraConfig other{
      .rank = 1,
      .alpha = 1,
      .target_modules = {"c_proj", "dense", "in_proj", "o_proj", "out_proj"}};
  return {{"all", write_adapter(folder + "/all", base_folder, all, 1)},
          {"some", write_adapter(folder + "/some", base_folder, some, 2)},
          {"other", write_adapter(folder + "/other", base_folder, other, 3)}};
}

}  // namespace jige::model::testing
