// GTE of the kind that calls itself "new": what its config.json says, and what is refused.
#include "formats/family_config_test_support.h"
#include "formats/test_support.h"

namespace jige::formats {
namespace {

Json gte_json() {
  Json json = changed(family_json("new"), {{"rope_theta", 20000},
                                           {"rope_scaling", {{"type", "ntk"}, {"factor", 8.0}}},
                                           {"pack_qkv", true},
                                           {"layer_norm_type", "layer_norm"},
                                           {"logn_attention_scale", false},
                                           {"type_vocab_size", 1}});
  json.erase("num_key_value_heads");
  return json;
}

TEST(ModelConfigGte, IsReadAsPublished) {
  const ModelConfig config = config_of(gte_json());
  EXPECT_TRUE(is_encoder(config.family) && config.looks_ahead && config.embedding_norm);
  EXPECT_EQ(config.norm_place, NormPlace::kSum);
  EXPECT_EQ(config.activation, ActivationKind::kGeGluErf);
  EXPECT_EQ(config.position, PositionKind::kRotary);
  EXPECT_EQ(config.rope, (RopeConfig{.theta = 20000, .scaling = RopeScaling::kNtk, .factor = 8}));
  EXPECT_TRUE(config.fused_projections && config.qkv_bias && config.output_bias);
  EXPECT_TRUE(config.mlp_bias && !config.mlp_input_bias);
  EXPECT_EQ(config.token_types, 1);
  EXPECT_EQ(config.norm_eps, 1e-12);
  EXPECT_EQ(config.kv_head_count, 4);
  // What the first published code takes where nothing is said.
  Json bare = family_json("new");
  bare.erase("num_key_value_heads");
  ModelConfig usual = config;
  usual.rope = {.theta = 10000};
  EXPECT_EQ(config_of(bare), usual);
}

TEST(ModelConfigGte, IsCalledGteInOtherFolders) {
  Json json =
      changed(gte_json(), {{"model_type", "gte"}, {"architectures", Json::array({"GteModel"})}});
  EXPECT_EQ(config_of(json), config_of(gte_json()));
  json["architectures"] = Json::array({"BertModel"});
  EXPECT_FAILS_WITH(parsed(json), Code::kCorrupt, "contradicts");
  json["architectures"] = Json::array({3});
  EXPECT_FAILS_WITH(parsed(json), Code::kCorrupt, "architectures");
}

TEST(ModelConfigGte, IsReadBackAsItWasWritten) {
  for (const Json& fields :
       {Json::object(), Json{{"rope_scaling", nullptr}}, Json{{"pack_qkv", false}},
        Json{{"type_vocab_size", 0}}, Json{{"rope_theta", 160000}, {"type_vocab_size", 2}}}) {
    const ModelConfig config = config_of(changed(gte_json(), fields));
    EXPECT_EQ(config_of(to_hf_config(config)), config) << fields;
  }
}

TEST(ModelConfigGte, RefusesWhatItDoesNotCompute) {
  const auto expect_refused = [](const Json& fields, const char* name) {
    EXPECT_FAILS_WITH(parsed(changed(gte_json(), fields)), Code::kUnsupported, name);
  };
  expect_refused({{"logn_attention_scale", true}}, "logn_attention_scale");
  expect_refused({{"position_embedding_type", "absolute"}}, "position_embedding_type");
  expect_refused({{"layer_norm_type", "rms_norm"}}, "layer_norm_type");
  expect_refused({{"hidden_act", "silu"}}, "silu");
  expect_refused({{"rope_scaling", {{"type", "linear"}, {"factor", 2}}}}, "linear");
  expect_refused({{"rope_scaling", {{"type", "ntk"}, {"factor", 2}, {"mixed_b", 0.6}}}}, "mixed_b");
  const auto expect_corrupt = [](const Json& fields, const char* name) {
    EXPECT_FAILS_WITH(parsed(changed(gte_json(), fields)), Code::kCorrupt, name);
  };
  expect_corrupt({{"rope_scaling", {{"type", "ntk"}, {"factor", 0.5}}}}, "factor");
  expect_corrupt({{"rope_scaling", 3}}, "rope_scaling");
  EXPECT_FAILS_WITH(parsed(changed(gte_json(), {{"pack_qkv", 3}})), Code::kInvalidArgument,
                    "pack_qkv");
  EXPECT_FAILS_WITH(parsed(changed(gte_json(), {{"rope_scaling", {{"type", "ntk"}}}})),
                    Code::kNotFound, "factor");
  Json llama = family_json("llama");
  llama["rope_scaling"] = {{"rope_type", "ntk"}, {"factor", 8.0}};
  EXPECT_FAILS_WITH(parsed(llama), Code::kUnsupported, "ntk");
  ModelConfig broken = config_of(family_json("llama"));
  broken.rope = {.scaling = RopeScaling::kNtk, .factor = 2};
  EXPECT_FAILS_WITH(check_model_config(broken, "x"), Code::kInvalidArgument, "no ntk");
  broken = config_of(gte_json());
  broken.mlp_input_bias = true;
  EXPECT_FAILS_WITH(check_model_config(broken, "x"), Code::kInvalidArgument, "biases");
  broken = config_of(family_json("gpt_neox"));
  broken.mlp_input_bias = false;
  EXPECT_FAILS_WITH(check_model_config(broken, "x"), Code::kInvalidArgument, "biases");
}

// Of the model that tests/tools/gte_model.py makes with the sizes of gte-multilingual-base.
TEST(ModelConfigGte, CountsTheParametersOfThePublishedSizes) {
  const Json base = changed(gte_json(), {{"vocab_size", 250048},
                                         {"hidden_size", 768},
                                         {"intermediate_size", 3072},
                                         {"num_hidden_layers", 12},
                                         {"num_attention_heads", 12},
                                         {"max_position_embeddings", 8192}});
  EXPECT_EQ(parameter_count(config_of(base)), 305368320);
}

}  // namespace
}  // namespace jige::formats
