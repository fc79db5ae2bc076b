// Fields of config.json that some families alone have.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "formats/family_config_test_support.h"
#include "formats/json_file.h"
#include "formats/lora_config.h"
#include "formats/model_config.h"
#include "formats/test_support.h"

namespace jige::formats {
namespace {

Json longrope() {
  return {{"type", "longrope"},
          {"short_factor", {1.0, 1.1, 1.2, 1.3}},
          {"long_factor", {1.0, 2.0, 4.0, 8.0}}};
}

Json phi3_long() {
  return changed(family_json("phi3"),
                 {{"original_max_position_embeddings", 64}, {"rope_scaling", longrope()}});
}

TEST(ModelConfigFamilies, WindowsOfMinistral3AreOfAllLayers) {
  EXPECT_EQ(config_of(family_json("ministral3")).sliding_window, 0);
  const ModelConfig config = config_of(changed(family_json("ministral3"), {{"sliding_window", 9}}));
  EXPECT_EQ(config.sliding_window, 9);
  EXPECT_TRUE(config.layer_is_sliding.empty());
  EXPECT_EQ(config_of(to_hf_config(config)), config);
}

TEST(ModelConfigFamilies, LayersWithoutWindowOfCohere2AndExaoneDoNotTurn) {
  const std::vector<uint8_t> sliding = {1, 1, 1, 0}, unturned = {0, 0, 0, 1};
  for (const char* type : {"cohere2", "exaone4"}) {
    SCOPED_TRACE(type);
    const Json json = family_json(type);
    const ModelConfig config = config_of(json);
    EXPECT_EQ(config.layer_is_sliding, sliding);
    EXPECT_EQ(config.layer_is_unturned, unturned);
    const ModelConfig other = config_of(changed(json, {{"sliding_window_pattern", 2}}));
    EXPECT_EQ(other.layer_is_unturned, (std::vector<uint8_t>{0, 1, 0, 1}));
    // What is listed counts, and not the pattern beside it, which may be one of letters.
    const Json types = {"full_attention", "sliding_attention", "sliding_attention",
                        "sliding_attention"};
    const ModelConfig listed =
        config_of(changed(json, {{"sliding_window_pattern", "LLLG"}, {"layer_types", types}}));
    EXPECT_EQ(listed.layer_is_unturned, (std::vector<uint8_t>{1, 0, 0, 0}));
    EXPECT_EQ(config_of(to_hf_config(listed)), listed);
    EXPECT_FAILS_WITH(parsed(changed(json, {{"sliding_window_pattern", "LLLG"}})),
                      Code::kInvalidArgument, "sliding_window_pattern");
    const Json full = {"full_attention", "full_attention", "full_attention", "full_attention"};
    EXPECT_FAILS_WITH(parsed(changed(json, {{"layer_types", full}})), Code::kUnsupported,
                      "sliding_attention");
    ModelConfig wrong = config;
    wrong.layer_is_unturned = {1, 0, 0, 0};
    const Status status = check_model_config(wrong, "test");
    ASSERT_FALSE(status);
    EXPECT_NE(status.error().message.find("sliding window alone"), std::string::npos);
  }
  const Json null = {{"sliding_window", nullptr}};
  const ModelConfig whole = config_of(changed(family_json("exaone4"), null));
  EXPECT_EQ(whole.sliding_window, 0);
  EXPECT_TRUE(whole.layer_is_unturned.empty());
  EXPECT_EQ(config_of(to_hf_config(whole)), whole);
  EXPECT_FALSE(parsed(changed(family_json("cohere2"), null)));
}

TEST(ModelConfigFamilies, TheFirstGemmaMeansTheTanhByBothNames) {
  for (const char* name : {"gelu", "gelu_pytorch_tanh"}) {
    EXPECT_EQ(config_of(changed(family_json("gemma"), {{"hidden_act", name}})).activation,
              ActivationKind::kGeGlu);
  }
  EXPECT_FAILS_WITH(parsed(changed(family_json("gemma"), {{"hidden_act", "silu"}})),
                    Code::kUnsupported, "hidden_act \"silu\"");
}

TEST(ModelConfigFamilies, BothSpellingsOfPositionsByLayerTypeAreRead) {
  const Json nested = {
      {"full_attention", {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 5e5}}},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 5e3}}}};
  const Json gemma = family_json("gemma3_text");
  const ModelConfig now = config_of(changed(gemma, {{"rope_parameters", nested}}));
  EXPECT_EQ(now.rope.theta, 5e5);
  EXPECT_EQ(now.rope.scaling, RopeScaling::kLinear);
  EXPECT_EQ(now.sliding_rope, RopeConfig{.theta = 5e3});
  const Json old = {{"rope_theta", 5e5},
                    {"rope_local_base_freq", 5e3},
                    {"rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}}}};
  EXPECT_EQ(config_of(changed(gemma, old)), now);
  EXPECT_EQ(config_of(changed(changed(gemma, old), {{"rope_parameters", nested}})), now);

  const auto both = [&](const Json& members) {
    return parsed(changed(changed(gemma, {{"rope_parameters", nested}}), members));
  };
  EXPECT_FAILS_WITH(both({{"rope_local_base_freq", 1e4}}), Code::kCorrupt, "rope_local_base_freq");
  EXPECT_FAILS_WITH(both({{"rope_theta", 1e4}}), Code::kCorrupt, "rope_theta");
  EXPECT_FAILS_WITH(both({{"rope_scaling", {{"rope_type", "linear"}, {"factor", 4.0}}}}),
                    Code::kCorrupt, "rope_scaling contradicts");
  EXPECT_FAILS_WITH(parsed(changed(gemma, {{"rope_parameters", {{"rope_type", "default"}}}})),
                    Code::kCorrupt, "\"full_attention\"");
  EXPECT_FAILS_WITH(parsed(changed(gemma, {{"rope_parameters", {{"full_attention", 7}}}})),
                    Code::kCorrupt, "full_attention");
  EXPECT_FAILS_WITH(
      parsed(changed(gemma, {{"rope_parameters",
                              {{"sliding_attention", {{"rope_type", "linear"}, {"factor", 2}}}}}})),
      Code::kUnsupported, "\"sliding_attention\" are scaled");
}

TEST(ModelConfigFamilies, WindowsOfGemmaFollowTypesOrPattern) {
  const Json gemma = changed(family_json("gemma3_text"), {{"sliding_window", 16}});
  const std::vector<uint8_t> every_second = {1, 0, 1, 0};
  EXPECT_EQ(config_of(changed(gemma, {{"sliding_window_pattern", 2}})).layer_is_sliding,
            every_second);
  const Json types = {"full_attention", "sliding_attention", "full_attention", "full_attention"};
  const ModelConfig listed = config_of(changed(gemma, {{"layer_types", types}}));
  EXPECT_EQ(listed.layer_is_sliding, (std::vector<uint8_t>{0, 1, 0, 0}));
  EXPECT_EQ(config_of(to_hf_config(listed)), listed);
  EXPECT_FALSE(to_hf_config(listed).contains("sliding_window_pattern"));
  EXPECT_FAILS_WITH(parsed(changed(gemma, {{"layer_types", types}, {"sliding_window_pattern", 2}})),
                    Code::kCorrupt, "sliding_window_pattern contradicts layer_types");
  EXPECT_FAILS_WITH(parsed(changed(gemma, {{"sliding_window_pattern", 0}})), Code::kCorrupt,
                    "sliding_window_pattern");
  EXPECT_FAILS_WITH(parsed(changed(gemma, {{"sliding_window", nullptr}})), Code::kCorrupt,
                    "\"sliding_window\" is null");
  const ModelConfig full = config_of(changed(gemma, {{"sliding_window_pattern", 1}}));
  EXPECT_EQ(full.sliding_window, 0);
  EXPECT_FALSE(full.sliding_rope);
  EXPECT_EQ(config_of(to_hf_config(full)), full);
}

TEST(ModelConfigFamilies, SoftCapsOfGemmaAreReadAndWritten) {
  for (const char* family : {"gemma2", "gemma3_text"}) {
    const Json gemma = family_json(family);
    const ModelConfig given = config_of(
        changed(gemma, {{"attn_logit_softcapping", 20.5}, {"final_logit_softcapping", nullptr}}));
    EXPECT_EQ(given.score_cap, 20.5);
    EXPECT_EQ(given.logits_cap, 0);
    EXPECT_EQ(config_of(to_hf_config(given)), given);
    EXPECT_TRUE(to_hf_config(given)["final_logit_softcapping"].is_null());
    for (const char* field : {"attn_logit_softcapping", "final_logit_softcapping"}) {
      for (const Json& value : {Json(0), Json(-4), Json(1e-300), Json(1e9)}) {
        EXPECT_FAILS_WITH(parsed(changed(gemma, {{field, value}})), Code::kCorrupt, field);
      }
    }
  }
  EXPECT_EQ(config_of(family_json("gemma3_text")).score_cap, 0);
}

TEST(ModelConfigFamilies, RefusesWhatChangesGemma) {
  const Json gemma = family_json("gemma3_text");
  EXPECT_FAILS_WITH(parsed(changed(gemma, {{"hidden_activation", "gelu"}})), Code::kUnsupported,
                    "hidden_activation \"gelu\"");
  for (const Json& value : {Json(0), Json(-4), Json(1e9)}) {
    EXPECT_FAILS_WITH(parsed(changed(gemma, {{"query_pre_attn_scalar", value}})), Code::kCorrupt,
                      "query_pre_attn_scalar");
  }
}

TEST(ModelConfigFamilies, LongRopeHasTheFactorsOfItsFolder) {
  const ModelConfig config = config_of(phi3_long());
  EXPECT_EQ(config.rope.scaling, RopeScaling::kLongRope);
  EXPECT_EQ(config.rope.original_context, 64);
  EXPECT_NEAR(config.rope.attention_factor, std::sqrt(1 + std::log(4.0) / std::log(64.0)), 1e-15);
  EXPECT_EQ(config_of(to_hf_config(config)), config);
  Json own = phi3_long();
  own["rope_scaling"]["attention_factor"] = 1.25;
  EXPECT_EQ(config_of(own).rope.attention_factor, 1.25);
  EXPECT_EQ(config_of(to_hf_config(config_of(own))), config_of(own));
  Json su = phi3_long();
  su["rope_scaling"]["type"] = "su";  // what the first folders called it
  EXPECT_EQ(config_of(su), config);

  const auto with_factor = [](const char* field, const Json& value) {
    Json json = phi3_long();
    json["rope_scaling"][field] = value;
    return parsed(json);
  };
  EXPECT_FAILS_WITH(with_factor("short_factor", {1.0, 1.0}), Code::kCorrupt, "list of 4 numbers");
  EXPECT_FAILS_WITH(with_factor("long_factor", nullptr), Code::kNotFound, "long_factor");
  EXPECT_FAILS_WITH(with_factor("long_factor", {1.0, "x", 1.0, 1.0}), Code::kCorrupt,
                    "long_factor");
  EXPECT_FAILS_WITH(with_factor("long_factor", {1.0, 0.0, 1.0, 1.0}), Code::kCorrupt,
                    "long_factor");
  EXPECT_FAILS_WITH(with_factor("attention_factor", -1.0), Code::kCorrupt, "attention_factor");
  EXPECT_FAILS_WITH(with_factor("original_max_position_embeddings", 32), Code::kCorrupt,
                    "original_max_position_embeddings is 64 at the top and 32");
  EXPECT_FAILS_WITH(with_factor("type", "llama3"), Code::kUnsupported, "default and longrope");
  EXPECT_FAILS_WITH(parsed(changed(phi3_long(), {{"original_max_position_embeddings", 1}})),
                    Code::kCorrupt, "original_max_position_embeddings");
}

TEST(ModelConfigFamilies, PhiTurnsPartsOfHeads) {
  const Json phi3 = family_json("phi3");
  EXPECT_EQ(config_of(changed(phi3, {{"partial_rotary_factor", 0.75}})).rotary_dim, 6);
  const ModelConfig odd = config_of(
      changed(phi3, {{"head_dim", 30}, {"rope_parameters", {{"partial_rotary_factor", 0.74}}}}));
  EXPECT_EQ(odd.rotary_dim, 22);
  EXPECT_EQ(config_of(to_hf_config(odd)), odd);
  for (const double factor : {0.0, -0.5, 1.5, 0.4}) {  // 0.4: three columns
    EXPECT_FAILS_WITH(parsed(changed(phi3, {{"partial_rotary_factor", factor}})), Code::kCorrupt,
                      "partial_rotary_factor");
  }
  EXPECT_FAILS_WITH(parsed(changed(phi3, {{"partial_rotary_factor", 0.5},
                                          {"rope_parameters", {{"partial_rotary_factor", 0.75}}}})),
                    Code::kCorrupt, "is 0.5 and 0.75");
}

TEST(ModelConfigFamilies, GraniteAndSmolLmChecksTheirFields) {
  for (const char* field :
       {"embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling"}) {
    for (const Json& value : {Json(0.0), Json(-1.0), Json(1e9)}) {
      EXPECT_FAILS_WITH(parsed(changed(family_json("granite"), {{field, value}})), Code::kCorrupt,
                        field);
    }
  }
  const Json smol = family_json("smollm3");
  for (const Json& list : {Json{1, 1, 1}, Json{1, 1, 1, 2}, Json{1, 1, 1, "0"}, Json(1)}) {
    EXPECT_FAILS_WITH(parsed(changed(smol, {{"no_rope_layers", list}})), Code::kCorrupt,
                      "no_rope_layers");
  }
  EXPECT_FAILS_WITH(parsed(changed(smol, {{"no_rope_layer_interval", -1}})), Code::kCorrupt,
                    "no_rope_layer_interval");
  EXPECT_TRUE(
      config_of(changed(smol, {{"no_rope_layers", {1, 1, 1, 1}}})).layer_is_unturned.empty());
}

TEST(ModelConfigFamilies, RefusesWhatChangesStableLmAndOlmoe) {
  const Json stable = changed(family_json("stablelm"), {{"hidden_size", 64}});
  const ModelConfig parallel =
      config_of(changed(stable, {{"use_parallel_residual", true}, {"qk_layernorm", true}}));
  EXPECT_EQ(parallel.residual, ResidualForm::kParallelOneNorm);
  EXPECT_TRUE(parallel.qk_norm_apart && parallel.norm_bias);
  EXPECT_EQ(config_of(to_hf_config(parallel)), parallel);
  EXPECT_EQ(config_of(stable).residual, ResidualForm::kSequential);
  EXPECT_FALSE(config_of(stable).qk_norm_apart);
  const Json scaled = {{"rope_scaling", {{"rope_type", "linear"}, {"factor", 2.0}}}};
  EXPECT_FAILS_WITH(parsed(changed(stable, scaled)), Code::kUnsupported, "default alone");
  for (const double clip : {8.0, 0.0}) {  // which bounds them to 0
    EXPECT_FAILS_WITH(parsed(changed(family_json("olmoe"), {{"clip_qkv", clip}})),
                      Code::kUnsupported, "clip_qkv");
  }
  EXPECT_FAILS_WITH(parsed(changed(family_json("starcoder2"), {{"hidden_act", "relu"}})),
                    Code::kUnsupported, "gelu_pytorch_tanh");
}

TEST(ModelConfigFamilies, PositionsOfNeoXAreReadInBothSpellings) {
  const Json neox = family_json("gpt_neox");
  const ModelConfig old =
      config_of(changed(neox, {{"rotary_pct", 0.5}, {"rotary_emb_base", 25000}}));
  EXPECT_EQ(old.rotary_dim, 4);
  EXPECT_EQ(old.rope.theta, 25000);
  const Json now = {
      {"rope_type", "default"}, {"rope_theta", 25000.0}, {"partial_rotary_factor", 0.5}};
  EXPECT_EQ(config_of(changed(neox, {{"rope_parameters", now}})), old);
  EXPECT_EQ(config_of(to_hf_config(old)), old);
  EXPECT_FAILS_WITH(parsed(changed(neox, {{"rope_parameters", now}, {"rotary_emb_base", 10000}})),
                    Code::kCorrupt, "rotary_emb_base is 10000 at the top and 25000");
  EXPECT_FAILS_WITH(parsed(changed(neox, {{"rotary_pct", 0.4}})), Code::kCorrupt, "\"rotary_pct\"");
}

TEST(ModelConfigFamilies, PartsStandSideBySideAsTheFamilySays) {
  const Json neox = changed(family_json("gpt_neox"), {{"hidden_size", 64}});
  const ModelConfig sequential = config_of(changed(
      neox, {{"use_parallel_residual", false}, {"attention_bias", false}, {"hidden_act", "relu"}}));
  EXPECT_EQ(sequential.residual, ResidualForm::kSequential);
  EXPECT_EQ(sequential.activation, ActivationKind::kRelu);
  EXPECT_TRUE(!sequential.qkv_bias && !sequential.output_bias && sequential.mlp_bias);
  EXPECT_EQ(config_of(to_hf_config(sequential)), sequential);
  EXPECT_FAILS_WITH(parsed(changed(neox, {{"hidden_act", "gelu_10"}})), Code::kUnsupported,
                    "hidden_act \"gelu_10\" is not supported; supported are gelu_new");
  EXPECT_FAILS_WITH(parsed(changed(neox, {{"head_dim", 8}})), Code::kCorrupt,
                    "num_attention_heads times head dimension equal to hidden_size");
  // Their codes would have to be turned.
  for (const char* type : {"gpt2", "gpt_oss"}) {
    EXPECT_FAILS_WITH(
        parsed(changed(family_json(type), {{"quantization_config", {{"quant_method", "gptq"}}}})),
        Code::kUnsupported, "take the unquantised model");
  }
  const Json phi = family_json("phi");
  EXPECT_FAILS_WITH(parsed(changed(phi, {{"qk_layernorm", true}})), Code::kUnsupported,
                    "qk_layernorm");
  EXPECT_FAILS_WITH(parsed(changed(phi, {{"tie_word_embeddings", true}})), Code::kCorrupt,
                    "\"tie_word_embeddings\" must be false");
}

TEST(ModelConfigFamilies, PositionsOfOlmo3AreReadInBothSpellings) {
  const Json yarn = {{"rope_type", "yarn"},
                     {"factor", 8.0},
                     {"original_max_position_embeddings", 32},
                     {"attention_factor", 1.25}};
  const ModelConfig old =
      config_of(changed(family_json("olmo3"), {{"rope_theta", 3e5}, {"rope_scaling", yarn}}));
  EXPECT_EQ(old.rope.scaling, RopeScaling::kYarn);
  EXPECT_EQ(old.rope.theta, 3e5);
  ASSERT_TRUE(old.sliding_rope);
  EXPECT_EQ(old.sliding_rope->scaling, RopeScaling::kNone);
  EXPECT_EQ(old.sliding_rope->theta, 3e5);
  const Json full = changed(yarn, {{"rope_theta", 3e5}});
  const Json local = {{"rope_type", "default"}, {"rope_theta", 3e5}};
  const Json both = {{"full_attention", full}, {"sliding_attention", local}};
  EXPECT_EQ(config_of(changed(family_json("olmo3"), {{"rope_parameters", both}})), old);
  EXPECT_EQ(config_of(to_hf_config(old)), old);
}

TEST(ModelConfigFamilies, FeaturesOfOtherFamiliesAreRefused) {
  const auto refused = [](ModelConfig config, const std::string& words) {
    const Status status = check_model_config(config, "test");
    ASSERT_FALSE(status) << words;
    EXPECT_NE(status.error().message.find(words), std::string::npos) << status.error().message;
  };
  const ModelConfig llama = config_of(family_json("llama"));
  ModelConfig config = llama;
  config.norm_place = NormPlace::kAfter;
  refused(config, "norms before");
  config = llama;
  config.norm_adds_one = true;
  refused(config, "norms that are their weight");
  config = llama;
  config.qk_norm_whole = true;
  refused(config, "no norm of all queries");
  config = llama;
  config.fused_projections = true;
  refused(config, "no fused projections");
  config = llama;
  config.rotary_dim = 4;
  refused(config, "turn as a whole");
  config = llama;
  config.layer_is_unturned = {0, 0, 1, 0};
  refused(config, "rotary positions in every layer");
  config.layer_is_unturned = {0};
  refused(config, "no_rope_layers");
  config = llama;
  config.logits_divisor = 2;
  refused(config, "logits_scaling");
  config = llama;
  config.embedding_scale = 2;
  refused(config, "embedding_multiplier");
  config = llama;
  config.score_cap = 50;
  refused(config, "no soft caps");
  config = llama;
  config.activation = ActivationKind::kGeGlu;
  refused(config, "gated SiLU");
  config = llama;
  config.residual = ResidualForm::kParallel;
  refused(config, "one after the other");
  config = llama;
  config.qkv_by_head = true;
  refused(config, "queries, keys and values one after the other");
  config = llama;
  config.head_bias = true;
  refused(config, "no bias on the head");
  config = llama;
  config.turns_neighbours = true;
  refused(config, "halves of heads that turn together");
  config = llama;
  config.qk_norm_apart = true;
  refused(config, "no norms of query and key heads with weights of their own");
  config = llama;
  config.logits_scale = 2;
  refused(config, "no logit_scale");
  config = config_of(family_json("cohere"));
  config.norm_bias = true;
  refused(config, "layer norms without biases");
  config = config_of(family_json("gemma3_text"));
  config.embedding_scale = 1;
  refused(config, "root of hidden_size");
}

TEST(ModelConfigFamilies, AdaptersOfFusedProjectionsNameThem) {
  EXPECT_EQ(lora_linear_modules({.family = Family::kPhi3}),
            (std::vector<std::string>{"down_proj", "gate_up_proj", "o_proj", "qkv_proj"}));
  EXPECT_EQ(
      lora_linear_modules({.family = Family::kGptNeoX}),
      (std::vector<std::string>{"dense", "dense_4h_to_h", "dense_h_to_4h", "query_key_value"}));
  for (const Family family : {Family::kGlm, Family::kGlm4}) {
    EXPECT_EQ(lora_linear_modules({.family = family}),
              (std::vector<std::string>{"down_proj", "gate_up_proj", "k_proj", "o_proj", "q_proj",
                                        "v_proj"}));
  }
  EXPECT_EQ(lora_linear_modules({.family = Family::kGemma3}),
            lora_linear_modules({.family = Family::kLlama}));
}

}  // namespace
}  // namespace jige::formats
