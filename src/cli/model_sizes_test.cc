#include "cli/model_sizes.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace jige::cli {
namespace {

int64_t count_of(const std::string& size) {
  const auto config = make_llama_config({.size = size}, 32000);
  EXPECT_TRUE(config) << config.error().message;
  return config ? formats::parameter_count(*config) : 0;
}

TEST(ModelSizes, HaveTheParametersTheirNamesSay) {
  EXPECT_NEAR(static_cast<double>(count_of("15m")), 15e6, 0.5e6);
  EXPECT_NEAR(static_cast<double>(count_of("42m")), 42e6, 1e6);
  EXPECT_NEAR(static_cast<double>(count_of("110m")), 110e6, 1e6);
}

TEST(ModelSizes, AreValidConfigurations) {
  for (const std::string& name : model_size_names()) {
    const auto config = make_llama_config({.size = name}, 300);
    ASSERT_TRUE(config) << name;
    const auto again = formats::parse_model_config(formats::to_hf_config(*config), name);
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(again->hidden_size, config->hidden_size);
    EXPECT_EQ(again->head_dim, config->head_dim);
  }
}

TEST(ModelSizes, FlagsChangeTheShape) {
  const auto config =
      make_llama_config({.size = "tiny", .width = 96, .layers = 2, .heads = 6, .kv_heads = 2}, 300);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->layer_count, 2);
  EXPECT_EQ(config->head_dim, 16);
  EXPECT_EQ(config->kv_head_count, 2);
  EXPECT_EQ(config->ffn_size, 256);
}

TEST(ModelSizes, RefusesShapesThatDoNotFit) {
  const auto width = make_llama_config({.size = "tiny", .width = 100, .heads = 3}, 300);
  ASSERT_FALSE(width);
  EXPECT_NE(width.error().message.find("--width 100"), std::string::npos);
  const auto heads = make_llama_config({.size = "tiny", .heads = 4, .kv_heads = 3}, 300);
  ASSERT_FALSE(heads);
  EXPECT_NE(heads.error().message.find("--kv-heads 3"), std::string::npos);
}

}  // namespace
}  // namespace jige::cli
