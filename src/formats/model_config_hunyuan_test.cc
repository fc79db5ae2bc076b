// Fields of Hunyuan with experts in config.json: what is read, written and refused.
#include <string>
#include <vector>

#include "formats/family_config_test_support.h"
#include "formats/lora_config.h"
#include "formats/test_support.h"

namespace jige::formats {
namespace {

Json hunyuan_json() {
  return changed(family_json("hunyuan_v1_moe"), {{"num_experts", 6}, {"moe_topk", {3, 3, 3, 3}}});
}

TEST(HunyuanConfig, ExpertsAreAsWideAsWhatEveryTokenUses) {
  const ModelConfig config = config_of(hunyuan_json());
  EXPECT_EQ(config.family, Family::kHunYuanMoe);
  EXPECT_EQ(
      config.experts,
      (ExpertConfig{
          .count = 6, .chosen = 3, .ffn_size = 48, .shared_ffn_size = 48, .normalised = true}));
  EXPECT_TRUE(config.qk_norm && config.qk_norm_turned);
  EXPECT_EQ(parameter_count(config) - active_parameter_count(config), 4 * (6 - 3) * 3 * 32 * 48);
  EXPECT_EQ(lora_linear_modules(config),
            (std::vector<std::string>{"k_proj", "o_proj", "q_proj", "v_proj"}));
}

TEST(HunyuanConfig, ReadsBackWhatItWrites) {
  for (const Json& members :
       {Json::object(), Json{{"moe_topk", 2}}, Json{{"num_experts", {6, 6, 6, 6}}},
        Json{{"moe_intermediate_size", {48, 48, 48, 48}}, {"num_shared_expert", 1}},
        Json{{"attention_bias", true}}, Json{{"tie_word_embeddings", true}}}) {
    const ModelConfig config = config_of(changed(hunyuan_json(), members));
    EXPECT_EQ(config_of(to_hf_config(config)), config) << members;
  }
  const ModelConfig usual = config_of(family_json("hunyuan_v1_moe"));
  EXPECT_EQ(usual.experts.count, 1);
  EXPECT_EQ(usual.experts.chosen, 1);
}

TEST(HunyuanConfig, RefusesByFieldWhatCannotBe) {
  const auto with = [](const Json& members) { return parsed(changed(hunyuan_json(), members)); };
  EXPECT_FAILS_WITH(with({{"moe_topk", {3, 3, 2, 3}}}), Code::kUnsupported, "moe_topk");
  EXPECT_FAILS_WITH(with({{"moe_topk", {3, 3}}}), Code::kCorrupt, "moe_topk");
  EXPECT_FAILS_WITH(with({{"moe_topk", Json::array()}}), Code::kCorrupt, "moe_topk");
  EXPECT_FAILS_WITH(with({{"moe_topk", "3"}}), Code::kInvalidArgument, "moe_topk");
  EXPECT_FAILS_WITH(with({{"moe_topk", 7}}), Code::kCorrupt, "moe_topk");
  EXPECT_FAILS_WITH(with({{"moe_topk", 0}}), Code::kCorrupt, "moe_topk");
  EXPECT_FAILS_WITH(with({{"num_experts", 1 << 20}}), Code::kCorrupt, "num_experts");
  EXPECT_FAILS_WITH(with({{"num_shared_expert", {2, 2, 2, 2}}}), Code::kUnsupported,
                    "num_shared_expert");
  EXPECT_FAILS_WITH(with({{"moe_intermediate_size", 40}}), Code::kUnsupported,
                    "moe_intermediate_size");
  EXPECT_FAILS_WITH(with({{"moe_layer_num_skipped", 1}}), Code::kUnsupported,
                    "moe_layer_num_skipped");
  EXPECT_FAILS_WITH(with({{"use_cla", true}}), Code::kUnsupported, "use_cla");
  EXPECT_FAILS_WITH(with({{"use_qk_norm", false}}), Code::kUnsupported, "use_qk_norm");
  ModelConfig config = config_of(hunyuan_json());
  config.experts.shared_ffn_size = 0;
  EXPECT_FAILS_WITH(check_model_config(config, "x"), Code::kInvalidArgument, "a shared expert of");
}

// What the folder of Hunyuan-A13B-Instruct says.
TEST(HunyuanConfig, OfA13BIsThatOfItsFolder) {
  const auto of_all = [](int value) { return Json(std::vector<int>(32, value)); };
  const ModelConfig config = config_of({{"model_type", "hunyuan_v1_moe"},
                                        {"vocab_size", 128167},
                                        {"hidden_size", 4096},
                                        {"intermediate_size", 3072},
                                        {"moe_intermediate_size", of_all(3072)},
                                        {"num_hidden_layers", 32},
                                        {"num_attention_heads", 32},
                                        {"num_key_value_heads", 8},
                                        {"head_dim", 128},
                                        {"max_position_embeddings", 32768},
                                        {"num_experts", 64},
                                        {"moe_topk", of_all(8)},
                                        {"num_shared_expert", of_all(1)},
                                        {"tie_word_embeddings", true},
                                        {"rope_theta", 10000.0},
                                        {"rope_scaling",
                                         {{"type", "dynamic"},
                                          {"alpha", 1000.0},
                                          {"factor", 1.0},
                                          {"beta_fast", 32},
                                          {"beta_slow", 1},
                                          {"mscale", 1.0},
                                          {"mscale_all_dim", 1.0}}}});
  EXPECT_EQ(parameter_count(config), 80393183232);
  EXPECT_EQ(config_of(to_hf_config(config)), config);
}

}  // namespace
}  // namespace jige::formats
