// Families before Llama: GPT-BigCode, OPT, GPT-Neo, GPT-J and Falcon.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "formats/family_config_test_support.h"
#include "formats/model_config.h"
#include "formats/test_support.h"

namespace jige::formats {
namespace {

// As published, without what a reader must know by itself.
Json opt_6_7b() {
  return {{"model_type", "opt"},         {"vocab_size", 50272},
          {"hidden_size", 4096},         {"num_hidden_layers", 32},
          {"num_attention_heads", 32},   {"ffn_dim", 16384},
          {"word_embed_proj_dim", 4096}, {"max_position_embeddings", 2048}};
}

Json gpt_neo_125m() {
  return {{"model_type", "gpt_neo"},
          {"vocab_size", 50257},
          {"hidden_size", 768},
          {"num_layers", 12},
          {"num_heads", 12},
          {"max_position_embeddings", 2048},
          {"intermediate_size", nullptr},
          {"attention_types", {{{"global", "local"}, 6}}}};
}

Json gptj_6b() {
  return {{"model_type", "gptj"}, {"vocab_size", 50400}, {"n_embd", 4096},     {"n_layer", 28},
          {"n_head", 16},         {"n_positions", 2048}, {"n_inner", nullptr}, {"rotary_dim", 64}};
}

Json starcoder() {
  return {{"model_type", "gpt_bigcode"},
          {"vocab_size", 49152},
          {"n_embd", 6144},
          {"n_layer", 40},
          {"n_head", 48},
          {"n_positions", 8192},
          {"n_inner", 24576}};
}

Json falcon_7b() {
  return {{"model_type", "falcon"},    {"vocab_size", 65024},
          {"hidden_size", 4544},       {"num_hidden_layers", 32},
          {"num_attention_heads", 71}, {"alibi", false},
          {"multi_query", true},       {"new_decoder_architecture", false},
          {"parallel_attn", true},     {"bias", false}};
}

Json falcon_40b() {
  return changed(falcon_7b(), {{"hidden_size", 8192},
                               {"num_hidden_layers", 60},
                               {"num_attention_heads", 128},
                               {"num_kv_heads", 8},
                               {"new_decoder_architecture", true}});
}

TEST(ModelConfigEarly, HasTheParametersOfPublishedModels) {
  EXPECT_EQ(parameter_count(config_of(opt_6_7b())), 6658473984);
  EXPECT_EQ(parameter_count(config_of(gpt_neo_125m())), 125198592);
  EXPECT_EQ(parameter_count(config_of(gptj_6b())), 6050882784);
  EXPECT_EQ(parameter_count(config_of(starcoder())), 15517456384);
  EXPECT_EQ(parameter_count(config_of(falcon_7b())), 6921720704);
  EXPECT_EQ(parameter_count(config_of(falcon_40b())), 41303293952);
  const Json falcon_11b = changed(falcon_40b(), {{"hidden_size", 4096},
                                                 {"num_attention_heads", 32},
                                                 {"num_ln_in_parallel_attn", 1},
                                                 {"ffn_hidden_size", 16384},
                                                 {"tie_word_embeddings", false}});
  EXPECT_EQ(parameter_count(config_of(falcon_11b)), 11102822400);
  const Json galactica = changed(opt_6_7b(), {{"vocab_size", 50000},
                                              {"hidden_size", 2048},
                                              {"num_hidden_layers", 24},
                                              {"ffn_dim", 8192},
                                              {"word_embed_proj_dim", 2048},
                                              {"enable_bias", false},
                                              {"layer_norm_elementwise_affine", false},
                                              {"activation_function", "gelu"}});
  EXPECT_EQ(parameter_count(config_of(galactica)), 1314557952);
}

TEST(ModelConfigEarly, TakesWhatIsLeftOutAsTransformersDoes) {
  const ModelConfig falcon = config_of(falcon_7b());
  EXPECT_EQ(falcon.context_max, 2048);
  EXPECT_EQ(falcon.ffn_size, 4 * 4544);
  EXPECT_EQ(falcon.kv_head_count, 1);
  EXPECT_EQ(falcon.residual, ResidualForm::kParallelOneNorm);
  EXPECT_EQ(config_of(falcon_40b()).residual, ResidualForm::kParallel);
  EXPECT_EQ(config_of(falcon_40b()).kv_head_count, 8);
  EXPECT_EQ(config_of(starcoder()).kv_head_count, 1);
  const ModelConfig opt = config_of(opt_6_7b());
  EXPECT_EQ(opt.position_offset, 2);
  EXPECT_TRUE(opt.qkv_bias && opt.output_bias && opt.mlp_bias && opt.norm_bias);
  EXPECT_EQ(opt.activation, ActivationKind::kRelu);
  const ModelConfig neo = config_of(gpt_neo_125m());
  EXPECT_EQ(neo.sliding_window, 256);
  EXPECT_EQ(neo.layer_is_sliding, (std::vector<uint8_t>{0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1}));
  EXPECT_FALSE(neo.scores_by_head_dim);
  Json unsaid = gpt_neo_125m();
  unsaid.erase("attention_types");
  EXPECT_EQ(config_of(unsaid), neo);
  const ModelConfig gptj = config_of(gptj_6b());
  EXPECT_EQ(gptj.rotary_dim, 64);
  EXPECT_EQ(gptj.ffn_size, 16384);
  EXPECT_TRUE(gptj.head_bias && gptj.turns_neighbours);
}

// Sizes by the names that most families have, as transformers reads them, too.
TEST(ModelConfigEarly, ReadsSizesByEitherName) {
  Json common = gptj_6b();
  for (const auto& [own, name] :
       {std::pair("n_embd", "hidden_size"), std::pair("n_layer", "num_hidden_layers"),
        std::pair("n_head", "num_attention_heads"),
        std::pair("n_positions", "max_position_embeddings")}) {
    common[name] = common.at(own);
    EXPECT_EQ(config_of(common), config_of(gptj_6b())) << name;
    Json other = common;
    other[name] = 2 * common.at(own).get<int64_t>();
    EXPECT_FAILS_WITH(parsed(other), Code::kCorrupt, std::string("contradicts ") + name);
    common.erase(own);
    EXPECT_EQ(config_of(common), config_of(gptj_6b())) << name;
  }
}

TEST(ModelConfigEarly, RefusesWhatItDoesNotCompute) {
  struct Case {
    Json config;
    Json members;
    Code code;
    const char* text;
  };
  for (const Case& one : {
           Case{opt_6_7b(), {{"do_layer_norm_before", false}}, Code::kUnsupported, "OPT 350M"},
           Case{opt_6_7b(), {{"_remove_final_layer_norm", true}}, Code::kUnsupported, "_final_"},
           Case{opt_6_7b(), {{"word_embed_proj_dim", 512}}, Code::kUnsupported, "512"},
           Case{gptj_6b(), {{"rotary_dim", nullptr}}, Code::kNotFound, "\"rotary_dim\""},
           Case{gptj_6b(), {{"rotary_dim", 512}}, Code::kCorrupt, "\"rotary_dim\" is 512"},
           Case{gptj_6b(), {{"rope_theta", 5e4}}, Code::kCorrupt, "theta 10000"},
           Case{gptj_6b(), {{"tie_word_embeddings", true}}, Code::kCorrupt, "with its bias"},
           Case{
               starcoder(), {{"add_cross_attention", true}}, Code::kUnsupported, "cross_attention"},
           Case{falcon_7b(), {{"alibi", true}}, Code::kUnsupported, "\"alibi\" is true"},
           Case{falcon_7b(), {{"num_ln_in_parallel_attn", 2}}, Code::kUnsupported, "together"},
           Case{falcon_40b(), {{"num_ln_in_parallel_attn", 3}}, Code::kUnsupported, "together"},
           Case{falcon_40b(), {{"parallel_attn", false}}, Code::kUnsupported, "together"},
           Case{falcon_40b(), {{"num_kv_heads", 7}}, Code::kCorrupt, "7"},
           Case{falcon_40b(), {{"num_kv_heads", 0}}, Code::kCorrupt, "\"num_kv_heads\" is 0"},
           Case{gpt_neo_125m(), {{"window_size", 0}}, Code::kCorrupt, "\"window_size\" is 0"},
       }) {
    EXPECT_FAILS_WITH(parsed(changed(one.config, one.members)), one.code, one.text);
  }
  ModelConfig grouped = config_of(falcon_40b());
  grouped.residual = ResidualForm::kSequential;
  EXPECT_FAILS_WITH(check_model_config(grouped, "config.json"), Code::kInvalidArgument,
                    "one key/value head or as many as heads, not 8");
  ModelConfig shared = config_of(starcoder());
  shared.kv_head_count = 2;
  EXPECT_FAILS_WITH(check_model_config(shared, "config.json"), Code::kInvalidArgument,
                    "as many key/value heads as heads");
}

TEST(ModelConfigEarly, KindsOfLayersMustFit) {
  const auto read = [](Json kinds) {
    return parsed(changed(gpt_neo_125m(), {{"attention_types", std::move(kinds)}}));
  };
  EXPECT_EQ(read({{{"local"}, 4}, {{"global"}, 8}})->layer_is_sliding,
            (std::vector<uint8_t>{1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(read({{{"global"}, 12}})->sliding_window, 0);
  EXPECT_TRUE(read({{{"local"}, 12}})->layer_is_sliding.empty());
  for (const Json& kinds :
       {Json("local"), Json::array({{{"global"}, 11}}), Json::array({{{"global"}, 13}}),
        Json::array({{{"global"}, INT64_MAX}}), Json::array({{{"global"}, -1}}),
        Json::array({{{"global"}, UINT64_MAX}}), Json::array({{{"global"}, "12"}}),
        Json::array({"global", 12}), Json::array({{Json::array(), 12}}),
        Json::array({{{"global"}}}), Json::array({{{"global"}, 12, 1}})}) {
    const auto config = read(kinds);
    ASSERT_FALSE(config) << kinds;
    EXPECT_NE(config.error().message.find("\"attention_types\""), std::string::npos)
        << config.error().message;
  }
  EXPECT_FAILS_WITH(read({{{"global", "dilated"}, 6}}), Code::kUnsupported, "\"dilated\"");
}

// That what is written says the same where fields of several families go together.
TEST(ModelConfigEarly, FormsOfFalconComeBack) {
  for (const Json& json :
       {falcon_7b(), falcon_40b(), changed(falcon_7b(), {{"multi_query", false}}),
        changed(falcon_7b(), {{"parallel_attn", false}}),
        changed(falcon_7b(), {{"parallel_attn", false}, {"multi_query", false}, {"bias", true}}),
        changed(falcon_40b(), {{"num_kv_heads", 1}, {"num_ln_in_parallel_attn", 1}}),
        changed(falcon_40b(), {{"num_kv_heads", 1}}),
        changed(falcon_40b(), {{"num_kv_heads", 128}}),
        changed(falcon_40b(), {{"num_kv_heads", 16}, {"num_ln_in_parallel_attn", 1}})}) {
    EXPECT_EQ(config_of(to_hf_config(config_of(json))), config_of(json)) << json;
  }
}

}  // namespace
}  // namespace jige::formats
