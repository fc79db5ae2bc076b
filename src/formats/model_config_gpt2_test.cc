#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "formats/model_config.h"

namespace jige::formats {
namespace {

Json gpt2_with(const Json& fields) {
  Json config = {{"model_type", "gpt2"}, {"vocab_size", 96}, {"n_embd", 32},
                 {"n_layer", 2},         {"n_head", 4},      {"n_positions", 64}};
  config.update(fields);
  return config;
}

Result<ModelConfig> read_gpt2(const Json& config) {
  return parse_model_config(config, "config.json");
}

TEST(ModelConfig, OfGpt2HasItsActivationsAndScales) {
  const std::pair<const char*, ActivationKind> names[] = {
      {"gelu_new", ActivationKind::kGeluTanh}, {"gelu_python_tanh", ActivationKind::kGeluTanh},
      {"gelu", ActivationKind::kGeluErf},      {"gelu_python", ActivationKind::kGeluErf},
      {"relu", ActivationKind::kRelu},         {"relu2", ActivationKind::kReluSquared},
      {"silu", ActivationKind::kSilu},         {"swish", ActivationKind::kSilu}};
  for (const auto& [name, kind] : names) {
    const auto config = read_gpt2(gpt2_with({{"activation_function", name}}));
    ASSERT_TRUE(config) << name;
    EXPECT_EQ(config->activation, kind) << name;
    EXPECT_EQ(*read_gpt2(to_hf_config(*config)), *config) << name;
  }
  EXPECT_TRUE(read_gpt2(gpt2_with(Json::object()))->scores_by_head_dim);
  EXPECT_FALSE(read_gpt2(gpt2_with(Json::object()))->scores_by_layer);
  const auto other = read_gpt2(
      gpt2_with({{"scale_attn_weights", false}, {"scale_attn_by_inverse_layer_idx", true}}));
  ASSERT_TRUE(other);
  EXPECT_FALSE(other->scores_by_head_dim);
  EXPECT_TRUE(other->scores_by_layer);
  EXPECT_EQ(*read_gpt2(to_hf_config(*other)), *other);
}

}  // namespace
}  // namespace jige::formats
