// Fields of config.json that some families alone have.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "formats/json_file.h"
#include "formats/lora_config.h"
#include "formats/model_config.h"
#include "formats/test_support.h"

namespace jige::formats {
namespace {

Json family_json(const std::string& type) {
  return {{"model_type", type},       {"vocab_size", 96},
          {"hidden_size", 32},        {"intermediate_size", 48},
          {"num_hidden_layers", 4},   {"num_attention_heads", 4},
          {"num_key_value_heads", 2}, {"max_position_embeddings", 256}};
}

Json changed(Json json, const Json& members) {
  for (const auto& [name, value] : members.items()) json[name] = value;
  return json;
}

Result<ModelConfig> parsed(const Json& json) { return parse_model_config(json, "config.json"); }

ModelConfig config_of(const Json& json) {
  const auto config = parsed(json);
  EXPECT_TRUE(config) << config.error().message;
  return config ? *config : ModelConfig();
}

Json longrope() {
  return {{"type", "longrope"},
          {"short_factor", {1.0, 1.1, 1.2, 1.3}},
          {"long_factor", {1.0, 2.0, 4.0, 8.0}}};
}

Json phi3_long() {
  return changed(family_json("phi3"),
                 {{"original_max_position_embeddings", 64}, {"rope_scaling", longrope()}});
}

TEST(ModelConfigFamilies, DefaultsAreThoseOfTheFamily) {
  EXPECT_EQ(config_of(family_json("phi3")).norm_eps, 1e-5);
  EXPECT_EQ(config_of(family_json("phi3")).sliding_window, 0);
  EXPECT_TRUE(config_of(family_json("phi3")).fused_projections);
  const ModelConfig gemma = config_of(family_json("gemma3_text"));
  EXPECT_EQ(gemma.head_dim, 256);
  EXPECT_EQ(gemma.score_dim, 256);
  EXPECT_EQ(gemma.embedding_scale, std::sqrt(32.0));
  EXPECT_EQ(gemma.rope.theta, 1e6);
  EXPECT_EQ(gemma.sliding_rope->theta, 1e4);
  EXPECT_EQ(gemma.sliding_window, 4096);
  EXPECT_TRUE(gemma.layer_is_sliding.empty());  // four layers of a pattern of six
  EXPECT_TRUE(gemma.tied_embeddings && gemma.norm_adds_one && gemma.qk_norm);
  EXPECT_EQ(gemma.pad_id, 0);
  const ModelConfig gemma2 = config_of(family_json("gemma2"));
  EXPECT_EQ(gemma2.score_cap, 50);
  EXPECT_EQ(gemma2.logits_cap, 30);
  EXPECT_EQ(gemma2.score_dim, 256);
  EXPECT_EQ(gemma2.rope.theta, 1e4);
  EXPECT_FALSE(gemma2.sliding_rope || gemma2.qk_norm);
  EXPECT_EQ(gemma2.layer_is_sliding, (std::vector<uint8_t>{1, 0, 1, 0}));
  EXPECT_TRUE(gemma2.tied_embeddings && gemma2.norm_adds_one);
  EXPECT_EQ(gemma2.norm_place, NormPlace::kAround);
  EXPECT_EQ(config_of(family_json("olmo2")).norm_place, NormPlace::kAfter);
  EXPECT_EQ(config_of(family_json("granite")).score_scale, 1.0);
  const ModelConfig olmo3 = config_of(family_json("olmo3"));
  EXPECT_EQ(olmo3.layer_is_sliding, (std::vector<uint8_t>{1, 1, 1, 0}));
  EXPECT_EQ(olmo3.sliding_window, 4096);
  EXPECT_EQ(olmo3.rope.theta, 5e5);
  EXPECT_FALSE(olmo3.sliding_rope);  // the same angles
  const ModelConfig star = config_of(family_json("starcoder2"));
  EXPECT_TRUE(star.qkv_bias && star.output_bias && star.mlp_bias && star.tied_embeddings);
  EXPECT_EQ(star.norm, NormKind::kLayer);
  EXPECT_EQ(star.activation, ActivationKind::kGeluTanh);
  EXPECT_EQ(star.sliding_window, 0);
  const ModelConfig stable = config_of(changed(family_json("stablelm"), {{"hidden_size", 64}}));
  EXPECT_EQ(stable.rotary_dim, 4);  // a quarter of 16
  EXPECT_FALSE(stable.qkv_bias || stable.output_bias || stable.mlp_bias);
  const ModelConfig seed = config_of(family_json("seed_oss"));
  EXPECT_TRUE(seed.qkv_bias && !seed.output_bias && !seed.mlp_bias);
  EXPECT_EQ(seed.head_dim, 128);
  const ModelConfig olmoe = config_of(family_json("olmoe"));
  EXPECT_EQ(olmoe.experts.count, 64);
  EXPECT_EQ(olmoe.experts.chosen, 8);
  EXPECT_EQ(olmoe.experts.ffn_size, 48);
  EXPECT_FALSE(olmoe.experts.normalised);
  const ModelConfig neox = config_of(changed(family_json("gpt_neox"), {{"hidden_size", 64}}));
  EXPECT_EQ(neox.residual, ResidualForm::kParallel);
  EXPECT_EQ(neox.activation, ActivationKind::kGeluErf);
  EXPECT_EQ(neox.kv_head_count, 4);  // whatever num_key_value_heads says
  EXPECT_EQ(neox.rotary_dim, 4);     // a quarter of 16
  EXPECT_TRUE(neox.qkv_by_head && neox.qkv_bias && neox.output_bias && neox.mlp_bias);
  EXPECT_FALSE(neox.tied_embeddings || neox.head_bias);
  const ModelConfig phi = config_of(family_json("phi"));
  EXPECT_EQ(phi.residual, ResidualForm::kParallelOneNorm);
  EXPECT_EQ(phi.activation, ActivationKind::kGeluTanh);
  EXPECT_EQ(phi.rotary_dim, 4);  // half of 8
  EXPECT_TRUE(phi.qkv_bias && phi.output_bias && phi.mlp_bias && phi.head_bias);
  const ModelConfig cohere = config_of(family_json("cohere"));
  EXPECT_EQ(cohere.residual, ResidualForm::kParallelOneNorm);
  EXPECT_EQ(cohere.logits_scale, 0.0625);
  EXPECT_EQ(cohere.rope.theta, 5e5);
  EXPECT_TRUE(cohere.turns_neighbours && cohere.tied_embeddings);
  EXPECT_FALSE(cohere.norm_bias || cohere.qk_norm_apart || cohere.qkv_bias || cohere.mlp_bias);
  const ModelConfig smol = config_of(family_json("smollm3"));
  EXPECT_EQ(smol.layer_is_unturned, (std::vector<uint8_t>{0, 0, 0, 1}));
  EXPECT_EQ(smol.rope.theta, 2e6);
  EXPECT_TRUE(smol.tied_embeddings);
  for (const auto& [type, count] : {std::pair{"phi3", 4}, std::pair{"gemma3_text", 4},
                                    std::pair{"olmo2", 4}, std::pair{"smollm3", 4}}) {
    Json json = changed(family_json(type), {{"head_dim", 8}});
    json.erase("num_key_value_heads");
    EXPECT_EQ(config_of(json).kv_head_count, count) << type;
  }
}

TEST(ModelConfigFamilies, DefaultsOfGlmExaoneAndErnieAreThoseOfTheFamily) {
  for (const char* type : {"glm", "glm4"}) {
    SCOPED_TRACE(type);
    Json json = changed(family_json(type), {{"vocab_size", 151552}});
    json.erase("num_key_value_heads");
    const ModelConfig glm = config_of(json);
    EXPECT_EQ(glm.eos_ids, (std::vector<int32_t>{151329, 151336, 151338}));
    EXPECT_EQ(glm.pad_id, 151329);
    EXPECT_EQ(glm.kv_head_count, 2);
    EXPECT_EQ(glm.head_dim, 128);
    EXPECT_EQ(glm.rotary_dim, 64);
    EXPECT_EQ(glm.norm_eps, 1.5625e-7);
    EXPECT_TRUE(glm.turns_neighbours && glm.qkv_bias);
    EXPECT_FALSE(glm.output_bias || glm.mlp_bias || glm.fused_projections);
    EXPECT_TRUE(config_of(changed(json, {{"eos_token_id", nullptr}})).eos_ids.empty());
  }
  EXPECT_EQ(config_of(family_json("glm")).norm_place, NormPlace::kBefore);
  EXPECT_EQ(config_of(family_json("glm4")).norm_place, NormPlace::kAround);
  const ModelConfig exaone = config_of(family_json("exaone4"));
  EXPECT_EQ(exaone.norm_place, NormPlace::kAfter);
  EXPECT_EQ(exaone.sliding_window, 4096);
  EXPECT_TRUE(exaone.qk_norm);
  const ModelConfig ernie = config_of(family_json("ernie4_5"));
  EXPECT_EQ(ernie.rope.theta, 5e5);
  EXPECT_EQ(ernie.head_dim, 128);
  EXPECT_TRUE(ernie.turns_neighbours && ernie.tied_embeddings);
  EXPECT_FALSE(ernie.qkv_bias || ernie.mlp_bias);
  const ModelConfig biased = config_of(changed(family_json("ernie4_5"), {{"use_bias", true}}));
  EXPECT_TRUE(biased.qkv_bias && biased.output_bias && biased.mlp_bias);
  const ModelConfig gemma = config_of(family_json("gemma"));
  EXPECT_EQ(gemma.embedding_scale, std::sqrt(32.0));
  EXPECT_EQ(gemma.activation, ActivationKind::kGeGlu);
  EXPECT_EQ(gemma.head_dim, 256);
  EXPECT_TRUE(gemma.tied_embeddings && gemma.norm_adds_one);
  EXPECT_EQ(gemma.score_dim, 0);
}

TEST(ModelConfigFamilies, ArceeAndNemotronSquareWhatReluLeaves) {
  const ModelConfig arcee = config_of(family_json("arcee"));
  EXPECT_EQ(arcee.activation, ActivationKind::kReluSquared);
  EXPECT_EQ(arcee.norm, NormKind::kRms);
  EXPECT_FALSE(arcee.qkv_bias || arcee.output_bias || arcee.mlp_bias || arcee.norm_adds_one);
  const ModelConfig nemotron = config_of(family_json("nemotron"));
  EXPECT_EQ(nemotron.activation, ActivationKind::kReluSquared);
  EXPECT_EQ(nemotron.norm, NormKind::kLayer);
  EXPECT_TRUE(nemotron.norm_adds_one && nemotron.norm_bias);
  EXPECT_EQ(nemotron.rotary_dim, 4);  // half of 8
  EXPECT_EQ(nemotron.norm_eps, 1e-5);
  EXPECT_EQ(config_of(changed(family_json("nemotron"), {{"norm_eps", 1e-3}})).norm_eps, 1e-3);
  for (const char* type : {"arcee", "nemotron"}) {
    SCOPED_TRACE(type);
    const ModelConfig other =
        config_of(changed(family_json(type), {{"attention_bias", true},
                                              {"mlp_bias", true},
                                              {"hidden_act", "relu"},
                                              {"tie_word_embeddings", true}}));
    EXPECT_TRUE(other.qkv_bias && other.output_bias && other.mlp_bias && other.tied_embeddings);
    EXPECT_EQ(other.activation, ActivationKind::kRelu);
    for (const ModelConfig& config : {config_of(family_json(type)), other}) {
      EXPECT_EQ(config_of(to_hf_config(config)), config);
    }
  }
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

TEST(ModelConfigFamilies, CountsTheParametersOfPublishedModels) {
  const auto count = [](Json json, const Json& members) {
    return parameter_count(config_of(changed(std::move(json), members)));
  };
  const auto sizes = [](int64_t vocab, int64_t hidden, int64_t layers, int64_t heads, int64_t kv,
                        int64_t ffn) {
    return Json{{"vocab_size", vocab},
                {"hidden_size", hidden},
                {"num_hidden_layers", layers},
                {"num_attention_heads", heads},
                {"num_key_value_heads", kv},
                {"intermediate_size", ffn},
                {"max_position_embeddings", 8192}};
  };
  const Json tied = {{"tie_word_embeddings", true}};
  EXPECT_EQ(count(family_json("phi3"), sizes(32064, 3072, 32, 32, 32, 8192)), 3821079552);
  EXPECT_EQ(count(changed(family_json("phi3"), tied), sizes(200064, 3072, 32, 24, 8, 8192)),
            3836021760);
  EXPECT_EQ(count(family_json("gemma2"), sizes(256000, 2304, 26, 8, 4, 9216)), 2614341888);
  EXPECT_EQ(count(family_json("gemma2"), sizes(256000, 3584, 42, 16, 8, 14336)), 9241705984);
  EXPECT_EQ(count(family_json("gemma3_text"), sizes(262144, 640, 18, 4, 1, 2048)), 268098176);
  EXPECT_EQ(count(family_json("gemma3_text"), sizes(262144, 1152, 26, 4, 1, 6912)), 999885952);
  EXPECT_EQ(count(family_json("olmo2"), sizes(100352, 2048, 16, 16, 16, 8192)), 1484916736);
  EXPECT_EQ(count(changed(family_json("granite"), tied), sizes(49155, 2048, 40, 32, 8, 8192)),
            2533531648);
  EXPECT_EQ(count(family_json("smollm3"), sizes(128256, 2048, 36, 16, 4, 11008)), 3075098624);
  EXPECT_EQ(count(family_json("olmo3"), sizes(100278, 4096, 32, 32, 32, 11008)), 7298011136);
  EXPECT_EQ(count(family_json("starcoder2"), sizes(49152, 3072, 30, 24, 2, 12288)), 3030371328);
  EXPECT_EQ(count(family_json("stablelm"), sizes(50304, 2560, 32, 32, 32, 6912)), 2795443200);
  EXPECT_EQ(count(changed(family_json("stablelm"), {{"use_qkv_bias", true}}),
                  sizes(100352, 2048, 24, 32, 32, 5632)),
            1644515328);
  EXPECT_EQ(count(family_json("seed_oss"), sizes(155136, 5120, 64, 80, 8, 27648)), 36151104512);
  EXPECT_EQ(count(family_json("gpt_neox"), sizes(50304, 512, 6, 8, 8, 2048)), 70426624);
  EXPECT_EQ(count(family_json("gpt_neox"), sizes(50432, 6144, 44, 64, 64, 24576)), 20554567680);
  EXPECT_EQ(count(family_json("phi"), sizes(51200, 2560, 32, 32, 32, 10240)), 2779683840);
  EXPECT_EQ(count(family_json("cohere"), sizes(256000, 8192, 40, 64, 64, 22528)), 34980831232);
  EXPECT_EQ(count(changed(family_json("cohere"), {{"use_qk_norm", true}}),
                  sizes(256000, 12288, 64, 96, 8, 33792)),
            103810674688);
  EXPECT_EQ(count(changed(family_json("stablelm"),
                          {{"use_parallel_residual", true}, {"qk_layernorm", true}}),
                  sizes(100352, 5120, 40, 32, 8, 13824)),
            12143185920);
  EXPECT_EQ(count(family_json("gemma"), sizes(256000, 2048, 18, 8, 1, 16384)), 2506172416);
  EXPECT_EQ(count(family_json("gemma"), sizes(256000, 3072, 28, 16, 16, 24576)), 8537680896);
  EXPECT_EQ(count(family_json("glm"), sizes(151552, 4096, 40, 32, 2, 13696)), 9399951360);
  EXPECT_EQ(count(family_json("glm4"), sizes(151552, 4096, 40, 32, 2, 13696)), 9400279040);
  EXPECT_EQ(count(family_json("cohere2"), sizes(256000, 4096, 32, 32, 8, 14336)), 8028033024);
  EXPECT_EQ(count(changed(family_json("exaone4"), tied), sizes(102400, 2048, 30, 32, 8, 4096)),
            1279391488);
  EXPECT_EQ(count(family_json("exaone4"), sizes(102400, 5120, 64, 40, 8, 27392)), 32003216384);
  EXPECT_EQ(count(family_json("ernie4_5"), sizes(103424, 1024, 18, 16, 2, 3072)), 360748032);
  EXPECT_EQ(count(family_json("nemotron"), sizes(256000, 3072, 32, 24, 8, 9216)), 4190509056);
  EXPECT_EQ(count(family_json("olmoe"), sizes(50304, 2048, 16, 16, 16, 1024)), 6919161856);
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
      for (const Json& value : {Json(0), Json(-4), Json(1e9)}) {
        EXPECT_FAILS_WITH(parsed(changed(gemma, {{field, value}})), Code::kCorrupt, field);
      }
    }
  }
  EXPECT_EQ(config_of(family_json("gemma3_text")).score_cap, 0);
}

TEST(ModelConfigFamilies, RefusesWhatChangesGemma) {
  const Json gemma = family_json("gemma3_text");
  EXPECT_FAILS_WITH(parsed(changed(gemma, {{"use_bidirectional_attention", true}})),
                    Code::kUnsupported, "use_bidirectional_attention");
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
  EXPECT_FAILS_WITH(parsed(changed(family_json("olmoe"), {{"clip_qkv", 8.0}})), Code::kUnsupported,
                    "clip_qkv");
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
  EXPECT_EQ(lora_linear_modules(Family::kPhi3),
            (std::vector<std::string>{"down_proj", "gate_up_proj", "o_proj", "qkv_proj"}));
  EXPECT_EQ(
      lora_linear_modules(Family::kGptNeoX),
      (std::vector<std::string>{"dense", "dense_4h_to_h", "dense_h_to_4h", "query_key_value"}));
  for (const Family family : {Family::kGlm, Family::kGlm4}) {
    EXPECT_EQ(lora_linear_modules(family),
              (std::vector<std::string>{"down_proj", "gate_up_proj", "k_proj", "o_proj", "q_proj",
                                        "v_proj"}));
  }
  EXPECT_EQ(lora_linear_modules(Family::kGemma3), lora_linear_modules(Family::kLlama));
}

}  // namespace
}  // namespace jige::formats
