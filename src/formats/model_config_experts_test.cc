// Fields of experts in config.json: what is read, written and refused.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "formats/model_config.h"
#include "formats/test_support.h"

namespace jige::formats {
namespace {

Json mixtral_json() {
  return {{"architectures", {"MixtralForCausalLM"}},
          {"model_type", "mixtral"},
          {"vocab_size", 96},
          {"hidden_size", 32},
          {"intermediate_size", 48},
          {"num_hidden_layers", 4},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"num_local_experts", 6},
          {"num_experts_per_tok", 3},
          {"max_position_embeddings", 256}};
}

Json qwen3_moe_json() {
  Json json = mixtral_json();
  json["architectures"] = {"Qwen3MoeForCausalLM"};
  json["model_type"] = "qwen3_moe";
  json.erase("num_local_experts");
  json["num_experts"] = 16;
  json["moe_intermediate_size"] = 20;
  json["norm_topk_prob"] = true;
  return json;
}

Json qwen2_moe_json() {
  Json json = qwen3_moe_json();
  json["architectures"] = {"Qwen2MoeForCausalLM"};
  json["model_type"] = "qwen2_moe";
  json["norm_topk_prob"] = false;
  json["shared_expert_intermediate_size"] = 28;
  return json;
}

Json with_field(Json json, const std::string& field, Json value) {
  json[field] = std::move(value);
  return json;
}

ModelConfig config_in(const Json& json) {
  auto config = parse_model_config(json, "config.json");
  EXPECT_TRUE(config) << config.error().message;
  return config.value_or(ModelConfig{});
}

std::string refusal(const Json& json) {
  const auto config = parse_model_config(json, "config.json");
  EXPECT_FALSE(config);
  return config ? std::string() : config.error().message;
}

TEST(ModelConfigExperts, ReadsMixtral) {
  const ModelConfig config = config_in(mixtral_json());
  EXPECT_EQ(config.family, Family::kMixtral);
  EXPECT_EQ(config.experts,
            (ExpertConfig{.count = 6, .chosen = 3, .ffn_size = 48, .normalised = true}));
  EXPECT_EQ(config.rope.theta, 1e6);
  EXPECT_EQ(config.norm_eps, 1e-5);
  EXPECT_EQ(config.sliding_window, 0);
  EXPECT_EQ(config.eos_ids, std::vector<int32_t>{2});
  EXPECT_EQ(config_in(with_field(mixtral_json(), "sliding_window", 9)).sliding_window, 9);
}

TEST(ModelConfigExperts, ReadsQwen3MoeUnderEitherNameOfTheCount) {
  const ModelConfig config = config_in(qwen3_moe_json());
  EXPECT_EQ(config.family, Family::kQwen3Moe);
  EXPECT_EQ(config.experts,
            (ExpertConfig{.count = 16, .chosen = 3, .ffn_size = 20, .normalised = true}));
  EXPECT_TRUE(config.qk_norm);
  EXPECT_EQ(config.head_dim, 8);
  EXPECT_TRUE(config.eos_ids.empty());
  Json renamed = qwen3_moe_json();
  renamed.erase("num_experts");
  renamed["num_local_experts"] = 16;
  EXPECT_EQ(config_in(renamed), config);
  renamed["num_experts"] = 8;
  EXPECT_NE(refusal(renamed).find("num_experts (8) contradicts num_local_experts (16)"),
            std::string::npos);
}

TEST(ModelConfigExperts, ReadsQwen2MoeWithItsSharedExpert) {
  const ModelConfig config = config_in(qwen2_moe_json());
  EXPECT_EQ(config.family, Family::kQwen2Moe);
  EXPECT_EQ(
      config.experts,
      (ExpertConfig{
          .count = 16, .chosen = 3, .ffn_size = 20, .shared_ffn_size = 28, .shared_gate = true}));
  EXPECT_TRUE(config.qkv_bias && !config.output_bias && !config.mlp_bias && !config.qk_norm);
  EXPECT_FALSE(config_in(with_field(qwen2_moe_json(), "qkv_bias", false)).qkv_bias);
  Json bare = qwen2_moe_json();
  for (const char* field : {"num_experts", "num_experts_per_tok", "moe_intermediate_size",
                            "shared_expert_intermediate_size", "norm_topk_prob"}) {
    bare.erase(field);
  }
  EXPECT_EQ(config_in(bare).experts, (ExpertConfig{.count = 60,
                                                   .chosen = 4,
                                                   .ffn_size = 1408,
                                                   .shared_ffn_size = 5632,
                                                   .shared_gate = true}));
  const Json sliding =
      with_field(with_field(qwen2_moe_json(), "use_sliding_window", true), "sliding_window", 7);
  EXPECT_NE(refusal(sliding).find("layer_types"), std::string::npos);
  const Json types = {"full_attention", "sliding_attention", "full_attention", "full_attention"};
  const ModelConfig listed = config_in(with_field(sliding, "layer_types", types));
  EXPECT_EQ(listed.layer_is_sliding, (std::vector<uint8_t>{0, 1, 0, 0}));
  EXPECT_EQ(config_in(to_hf_config(listed)), listed);
}

TEST(ModelConfigExperts, LayersWithoutExpertsAreThoseThatTheFieldsName) {
  for (const Json& json : {qwen2_moe_json(), qwen3_moe_json()}) {
    EXPECT_TRUE(config_in(json).layer_is_dense.empty());
    EXPECT_EQ(config_in(with_field(json, "decoder_sparse_step", 2)).layer_is_dense,
              (std::vector<uint8_t>{1, 0, 1, 0}));
    const ModelConfig config =
        config_in(with_field(with_field(json, "decoder_sparse_step", 2), "mlp_only_layers", {1}));
    EXPECT_EQ(config.layer_is_dense, (std::vector<uint8_t>{1, 1, 1, 0}));
    EXPECT_EQ(expert_layer_count(config), 1);
    EXPECT_EQ(config_in(to_hf_config(config)), config);
    const int64_t expert = 3 * 32 * 20;
    EXPECT_EQ(parameter_count(config) - active_parameter_count(config), (16 - 3) * expert);
    const int64_t shared = (3 * config.experts.shared_ffn_size + 1) * 32;
    const int64_t sparse =
        32 * 16 + 16 * expert + (config.family == Family::kQwen2Moe ? shared : 0);
    EXPECT_EQ(parameter_count(config_in(json)) - parameter_count(config),
              3 * (sparse - 3 * 32 * 48));
  }
}

TEST(ModelConfigExperts, CountsTheParametersOfQwen15Moe) {
  Json json = qwen2_moe_json();
  for (const auto& [field, value] : {std::pair{"vocab_size", 151936},
                                     {"hidden_size", 2048},
                                     {"intermediate_size", 5632},
                                     {"num_hidden_layers", 24},
                                     {"num_attention_heads", 16},
                                     {"num_key_value_heads", 16},
                                     {"num_experts", 60},
                                     {"num_experts_per_tok", 4},
                                     {"moe_intermediate_size", 1408},
                                     {"shared_expert_intermediate_size", 5632}}) {
    json[field] = value;
  }
  EXPECT_EQ(parameter_count(config_in(json)), 14315784192);
}

TEST(ModelConfigExperts, TakesTheDefaultsOfTransformers) {
  Json mixtral = mixtral_json();
  for (const char* field : {"num_local_experts", "num_experts_per_tok"}) mixtral.erase(field);
  EXPECT_EQ(config_in(mixtral).experts.count, 8);
  EXPECT_EQ(config_in(mixtral).experts.chosen, 2);
  Json qwen = qwen3_moe_json();
  for (const char* field : {"num_experts", "num_experts_per_tok", "moe_intermediate_size",
                            "norm_topk_prob", "num_key_value_heads"}) {
    qwen.erase(field);
  }
  EXPECT_EQ(config_in(qwen).experts, (ExpertConfig{.count = 128, .chosen = 8, .ffn_size = 768}));
  EXPECT_EQ(config_in(qwen).kv_head_count, 4);
}

TEST(ModelConfigExperts, ReadsBackWhatItWrites) {
  for (const Json& json :
       {mixtral_json(), qwen2_moe_json(), qwen3_moe_json(),
        with_field(qwen3_moe_json(), "norm_topk_prob", false),
        with_field(mixtral_json(), "router_jitter_noise", 0.25),
        with_field(mixtral_json(), "sliding_window", 7),
        with_field(with_field(qwen3_moe_json(), "use_sliding_window", true), "sliding_window", 7),
        with_field(with_field(qwen3_moe_json(), "output_router_logits", true),
                   "router_aux_loss_coef", 0.5)}) {
    const ModelConfig config = config_in(json);
    EXPECT_EQ(config_in(to_hf_config(config)), config) << json;
  }
}

TEST(ModelConfigExperts, RefusesByFieldWhatCannotBe) {
  Json respelt = with_field(qwen3_moe_json(), "num_local_experts", -2);
  respelt.erase("num_experts");
  const struct {
    Json json;
    const char* said;
  } cases[] = {
      {with_field(mixtral_json(), "num_local_experts", 0), "\"num_local_experts\" is 0"},
      {with_field(mixtral_json(), "num_local_experts", -3), "\"num_local_experts\" is -3"},
      {respelt, "\"num_local_experts\" is -2"},
      {with_field(mixtral_json(), "num_local_experts", 1'000'000),
       "\"num_local_experts\" is 1000000"},
      {with_field(mixtral_json(), "num_experts_per_tok", 7),
       "\"num_experts_per_tok\" is 7; it must lie in [1, 6]"},
      {with_field(mixtral_json(), "num_experts_per_tok", 0), "\"num_experts_per_tok\" is 0"},
      {with_field(mixtral_json(), "num_experts_per_tok", "two"), "num_experts_per_tok"},
      {with_field(qwen3_moe_json(), "num_experts", 0), "\"num_experts\" is 0"},
      {with_field(qwen3_moe_json(), "moe_intermediate_size", 0), "\"moe_intermediate_size\" is 0"},
      {with_field(qwen3_moe_json(), "moe_intermediate_size", 1 << 20),
       "num_experts (16) times moe_intermediate_size (1048576) is over the limit"},
      {with_field(with_field(qwen3_moe_json(), "num_experts", 1024), "num_hidden_layers", 4096),
       "num_experts (1024) times num_hidden_layers (4096) is over the limit"},
      {with_field(qwen3_moe_json(), "decoder_sparse_step", 0), "\"decoder_sparse_step\" is 0"},
      {with_field(qwen2_moe_json(), "decoder_sparse_step", 5), "leave no layer with experts"},
      {with_field(qwen2_moe_json(), "mlp_only_layers", {0, 4}),
       "\"mlp_only_layers\" names layer 4 of 4"},
      {with_field(qwen2_moe_json(), "mlp_only_layers", {-1}), "names layer -1 of 4"},
      {with_field(qwen2_moe_json(), "mlp_only_layers", {0, 1, 2, 3}),
       "leave no layer with experts"},
      {with_field(qwen2_moe_json(), "shared_expert_intermediate_size", 0),
       "\"shared_expert_intermediate_size\" is 0"},
      {with_field(qwen3_moe_json(), "mlp_only_layers", 1), "\"mlp_only_layers\" must be a list"},
  };
  for (const auto& one : cases) {
    EXPECT_NE(refusal(one.json).find(one.said), std::string::npos) << refusal(one.json);
  }
  EXPECT_EQ(config_in(with_field(qwen3_moe_json(), "mlp_only_layers", nullptr)),
            config_in(with_field(qwen3_moe_json(), "mlp_only_layers", Json::array())));
}

TEST(ModelConfigExperts, CountsAllParametersAndThoseOfAToken) {
  const ModelConfig config = config_in(qwen3_moe_json());
  const int64_t expert = 3 * 32 * 20;
  EXPECT_EQ(parameter_count(config) - active_parameter_count(config), 4 * (16 - 3) * expert);
  const int64_t attention = 32 * (32 + 2 * 16) + 32 * 32 + 2 * 8;
  EXPECT_EQ(parameter_count(config),
            4 * (attention + 2 * 32 + 32 * 16 + 16 * expert) + 32 + 2 * 96 * 32);
}

}  // namespace
}  // namespace jige::formats
