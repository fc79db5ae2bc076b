// What transformers takes for fields that a config.json leaves out, and the sizes of published
// models.
#include <cmath>
#include <utility>
#include <vector>

#include "formats/family_config_test_support.h"
#include "formats/test_support.h"

namespace jige::formats {
namespace {

TEST(FamilyDefaults, DefaultsAreThoseOfTheFamily) {
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
  Json nano = family_json("nanochat");
  nano.erase("num_key_value_heads");
  const ModelConfig nanochat = config_of(nano);
  EXPECT_EQ(nanochat.kv_head_count, nanochat.head_count);
  EXPECT_EQ(nanochat.logits_cap, 15);
  EXPECT_EQ(nanochat.activation, ActivationKind::kReluSquared);
  EXPECT_TRUE(nanochat.embedding_norm && nanochat.turns_backwards && nanochat.qk_norm_plain);
  EXPECT_FALSE(nanochat.norm_weights || nanochat.qkv_bias || nanochat.tied_embeddings);
  EXPECT_EQ(config_of(changed(nano, {{"final_logit_softcapping", nullptr}})).logits_cap, 0);
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
  const ModelConfig cwm = config_of(family_json("cwm"));
  EXPECT_EQ(cwm.layer_is_sliding, (std::vector<uint8_t>{0, 1, 1, 1}));
  EXPECT_EQ(cwm.sliding_window, 8192);
  EXPECT_EQ(cwm.head_dim, 128);
  EXPECT_EQ(
      cwm.rope,
      (RopeConfig{
          .theta = 1e6, .scaling = RopeScaling::kLlama3, .factor = 16, .original_context = 8192}));
  const ModelConfig flex = config_of(family_json("flex_olmo"));
  EXPECT_EQ(flex.norm_place, NormPlace::kAfter);
  EXPECT_EQ(flex.rope.theta, 5e5);
  EXPECT_EQ(flex.experts,
            (ExpertConfig{.count = 7, .chosen = 5, .ffn_size = 48, .balance_weight = 0.01}));
  const ModelConfig solar =
      config_of(changed(family_json("solar_open"), {{"moe_intermediate_size", 20}}));
  EXPECT_EQ(solar.experts.count, 128);
  EXPECT_EQ(solar.experts.shared_ffn_size, 20);
  EXPECT_TRUE(solar.experts.normalised && solar.experts.sigmoid_scores && !solar.qk_norm);
  EXPECT_EQ(expert_layer_count(solar), 4);
  EXPECT_EQ(solar.rope.theta, 1e6);
  const ModelConfig hy = config_of(family_json("hy_v3"));
  EXPECT_EQ(hy.experts.count, 192);
  EXPECT_EQ(hy.experts.ffn_size, 1536);
  EXPECT_EQ(hy.experts.weight_scale, 2.826);
  EXPECT_TRUE(hy.qk_norm && hy.experts.normalised && !hy.qkv_bias && !hy.output_bias);
  EXPECT_EQ(hy.rope.theta, 11158840.0);
  EXPECT_EQ(expert_layer_count(hy), 3);
  const ModelConfig jais = config_of(family_json("jais2"));
  EXPECT_EQ(jais.norm, NormKind::kLayer);
  EXPECT_EQ(jais.activation, ActivationKind::kReluSquared);
  EXPECT_TRUE(jais.qkv_bias && jais.output_bias && jais.mlp_bias);
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

TEST(FamilyDefaults, DefaultsOfGlmExaoneAndErnieAreThoseOfTheFamily) {
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

TEST(FamilyDefaults, ArceeAndNemotronSquareWhatReluLeaves) {
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

TEST(FamilyDefaults, QwenWithDeltaNetsHasAttentionInEveryFourthLayer) {
  Json json = family_json("qwen3_5_text");
  json.erase("num_key_value_heads");
  const ModelConfig qwen = config_of(json);
  EXPECT_EQ(qwen.layer_is_recurrent, (std::vector<uint8_t>{1, 1, 1, 0}));
  EXPECT_EQ(
      qwen.delta,
      (DeltaConfig{
          .key_heads = 16, .value_heads = 32, .key_dim = 128, .value_dim = 128, .kernel = 4}));
  EXPECT_EQ(qwen.kv_head_count, 4);
  EXPECT_EQ(qwen.head_dim, 256);
  EXPECT_EQ(qwen.rotary_dim, 64);  // a quarter
  EXPECT_EQ(qwen.norm_eps, 1e-6);
  EXPECT_TRUE(qwen.norm_adds_one && qwen.qk_norm && qwen.attention_gate);
  EXPECT_FALSE(qwen.qkv_bias || qwen.output_bias || qwen.mlp_bias || qwen.tied_embeddings);
  EXPECT_TRUE(qwen.eos_ids.empty());
  json = changed(family_json("qwen3_5_moe_text"), {{"moe_intermediate_size", 24}});
  json.erase("num_key_value_heads");
  const ModelConfig moe = config_of(json);
  EXPECT_EQ(moe.delta, qwen.delta);
  EXPECT_EQ(moe.kv_head_count, 2);
  EXPECT_EQ(moe.head_dim, 256);
  EXPECT_EQ(moe.experts, (ExpertConfig{.count = 256,
                                       .chosen = 8,
                                       .ffn_size = 24,
                                       .shared_ffn_size = 512,
                                       .shared_gate = true,
                                       .normalised = true}));
}

TEST(FamilyDefaults, DefaultsOfQwen3NextAreThoseOf80BA3B) {
  Json json = {
      {"model_type", "qwen3_next"},       {"vocab_size", 151936},    {"hidden_size", 2048},
      {"intermediate_size", 5632},        {"num_hidden_layers", 48}, {"num_attention_heads", 16},
      {"max_position_embeddings", 262144}};
  const ModelConfig config = config_of(json);
  EXPECT_EQ(config.kv_head_count, 2);
  EXPECT_EQ(config.head_dim, 256);
  EXPECT_EQ(config.rotary_dim, 64);
  EXPECT_EQ(recurrent_layer_count(config), 36);
  EXPECT_EQ(config.experts, (ExpertConfig{.count = 512,
                                          .chosen = 10,
                                          .ffn_size = 512,
                                          .shared_ffn_size = 512,
                                          .shared_gate = true,
                                          .normalised = true}));
  EXPECT_EQ(parameter_count(config), 79674391296);
}

TEST(FamilyDefaults, FamiliesOfLlamasClassAreTold) {
  const Json json = changed(family_json("iquestcoder"), {{"architectures", {"LlamaForCausalLM"}}});
  EXPECT_EQ(config_of(json).family, Family::kIQuestCoder);
  EXPECT_EQ(config_of(json).head_dim, 128);
  EXPECT_FAILS_WITH(parsed(changed(json, {{"architectures", {"Qwen3ForCausalLM"}}})),
                    Code::kCorrupt, "contradicts");
  EXPECT_FAILS_WITH(parsed(changed(json, {{"model_type", "qwen3"}})), Code::kCorrupt,
                    "contradicts");
  EXPECT_FAILS_WITH(parsed(changed(json, {{"clip_qkv", 8}})), Code::kUnsupported, "clip_qkv");
  EXPECT_FAILS_WITH(parsed(changed(json, {{"use_sliding_window", true}})), Code::kUnsupported,
                    "use_sliding_window");
}

TEST(FamilyDefaults, CountsTheParametersOfPublishedModels) {
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
  EXPECT_EQ(count(family_json("flex_olmo"), sizes(100352, 4096, 32, 32, 32, 11008)), 33270665216);
  EXPECT_EQ(count(changed(family_json("solar_open"), {{"moe_intermediate_size", 1280}}),
                  sizes(196608, 4096, 48, 64, 8, 0)),
            102651799552);
  EXPECT_EQ(count(family_json("iquestcoder"), sizes(76800, 5120, 80, 40, 8, 27648)), 39794283520);
  EXPECT_EQ(count(family_json("jais2"), sizes(150272, 3328, 32, 26, 26, 26624)), 8090401280);
  EXPECT_EQ(count(family_json("cwm"), sizes(128256, 6144, 64, 48, 8, 21504)), 32581097472);
  EXPECT_EQ(count(family_json("cohere2"), sizes(256000, 4096, 32, 32, 8, 14336)), 8028033024);
  EXPECT_EQ(count(changed(family_json("exaone4"), tied), sizes(102400, 2048, 30, 32, 8, 4096)),
            1279391488);
  EXPECT_EQ(count(family_json("exaone4"), sizes(102400, 5120, 64, 40, 8, 27392)), 32003216384);
  EXPECT_EQ(count(family_json("ernie4_5"), sizes(103424, 1024, 18, 16, 2, 3072)), 360748032);
  EXPECT_EQ(count(family_json("nemotron"), sizes(256000, 3072, 32, 24, 8, 9216)), 4190509056);
  EXPECT_EQ(count(changed(family_json("qwen3_5_text"), {{"linear_num_value_heads", 48}}),
                  sizes(248320, 5120, 64, 24, 4, 17408)),
            26895998464);
  EXPECT_EQ(count(family_json("olmoe"), sizes(50304, 2048, 16, 16, 16, 1024)), 6919161856);
}

}  // namespace
}  // namespace jige::formats
