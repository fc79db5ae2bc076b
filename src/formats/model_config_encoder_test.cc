// Encoders as BERT and RoBERTa are: what their config.json says, and what is refused.
#include <string>
#include <vector>

#include "formats/family_config_test_support.h"
#include "formats/test_support.h"

namespace jige::formats {
namespace {

Json encoder_json(const std::string& type) {
  Json json = family_json(type);
  json.erase("num_key_value_heads");
  return json;
}

TEST(ModelConfigEncoder, DefaultsAreThoseOfTransformers) {
  const ModelConfig bert = config_of(encoder_json("bert"));
  EXPECT_TRUE(is_encoder(bert.family) && bert.looks_ahead && bert.embedding_norm);
  EXPECT_EQ(bert.norm_place, NormPlace::kSum);
  EXPECT_EQ(bert.norm_eps, 1e-12);
  EXPECT_EQ(bert.activation, ActivationKind::kGeluErf);
  EXPECT_EQ(bert.position, PositionKind::kLearned);
  EXPECT_EQ(bert.position_offset, 0);
  EXPECT_EQ(bert.context_max, 256);
  EXPECT_EQ(bert.token_types, 2);
  EXPECT_TRUE(bert.qkv_bias && bert.output_bias && bert.mlp_bias);
  EXPECT_EQ(bert.kv_head_count, 4);
  EXPECT_EQ(bert.head_dim, 8);
  for (const char* type : {"roberta", "xlm-roberta"}) {
    const ModelConfig roberta = config_of(encoder_json(type));
    EXPECT_EQ(roberta.position_offset, 2) << "behind the row of padding";
    EXPECT_EQ(roberta.context_max, 254);
    EXPECT_EQ(roberta.pad_id, 1);
  }
  const ModelConfig padded = config_of(changed(encoder_json("roberta"), {{"pad_token_id", 5}}));
  EXPECT_EQ(padded.position_offset, 6);
  EXPECT_EQ(padded.context_max, 250);
}

TEST(ModelConfigEncoder, IsReadBackAsItWasWritten) {
  for (const char* type : {"bert", "roberta", "xlm-roberta"}) {
    const ModelConfig config = config_of(
        changed(encoder_json(type),
                {{"hidden_act", "gelu_new"}, {"layer_norm_eps", 1e-5}, {"type_vocab_size", 1}}));
    EXPECT_EQ(config.activation, ActivationKind::kGeluTanh);
    EXPECT_EQ(config_of(to_hf_config(config)), config) << type;
  }
}

TEST(ModelConfigEncoder, AnyClassWithTheEncoderIsRead) {
  for (const auto& [type, name] : std::vector<std::pair<const char*, const char*>>{
           {"bert", "BertModel"},
           {"bert", "BertForMaskedLM"},
           {"xlm-roberta", "XLMRobertaForSequenceClassification"},
           {"roberta", "RobertaForMaskedLM"}}) {
    const Json json = changed(encoder_json(type), {{"architectures", Json::array({name})}});
    EXPECT_EQ(family_name(config_of(json).family), type);
  }
  EXPECT_FAILS_WITH(
      parsed(changed(encoder_json("bert"), {{"architectures", Json::array({"RobertaModel"})}})),
      Code::kCorrupt, "contradicts");
}

TEST(ModelConfigEncoder, RefusesWhatItDoesNotCompute) {
  const Json bert = encoder_json("bert");
  EXPECT_FAILS_WITH(parsed(changed(bert, {{"position_embedding_type", "relative_key"}})),
                    Code::kUnsupported, "position_embedding_type");
  EXPECT_FAILS_WITH(parsed(changed(bert, {{"is_decoder", true}})), Code::kUnsupported,
                    "is_decoder");
  EXPECT_FAILS_WITH(parsed(changed(bert, {{"hidden_act", "mish"}})), Code::kUnsupported, "mish");
  EXPECT_FAILS_WITH(parsed(changed(bert, {{"num_attention_heads", 5}})), Code::kCorrupt,
                    "does not divide");
  EXPECT_FAILS_WITH(parsed(changed(bert, {{"num_attention_heads", 0}})), Code::kCorrupt,
                    "num_attention_heads");
  EXPECT_FAILS_WITH(parsed(changed(bert, {{"type_vocab_size", 0}})), Code::kCorrupt,
                    "type_vocab_size");
  const Json roberta = encoder_json("roberta");
  EXPECT_FAILS_WITH(parsed(changed(roberta, {{"max_position_embeddings", 2}})), Code::kCorrupt,
                    "max_position_embeddings");
  EXPECT_FAILS_WITH(parsed(changed(roberta, {{"pad_token_id", -1}})), Code::kCorrupt,
                    "pad_token_id");
  ModelConfig broken = config_of(bert);
  broken.position_offset = 2;
  EXPECT_FAILS_WITH(check_model_config(broken, "x"), Code::kInvalidArgument, "from row 2");
  broken = config_of(bert);
  broken.looks_ahead = false;
  EXPECT_FAILS_WITH(check_model_config(broken, "x"), Code::kInvalidArgument, "bert");
  ModelConfig llama = config_of(family_json("llama"));
  llama.token_types = 2;
  EXPECT_FAILS_WITH(check_model_config(llama, "x"), Code::kInvalidArgument, "llama");
}

Json modern_json() { return encoder_json("modernbert"); }

TEST(ModelConfigEncoder, ModernBertHasTheDefaultsOfTransformers) {
  const ModelConfig modern = config_of(modern_json());
  EXPECT_TRUE(is_encoder(modern.family) && modern.looks_ahead && modern.embedding_norm);
  EXPECT_EQ(modern.norm_place, NormPlace::kBefore);
  EXPECT_TRUE(modern.bare_entry && modern.fused_projections && !modern.norm_bias);
  EXPECT_EQ(modern.activation, ActivationKind::kGeGluErf);
  EXPECT_EQ(modern.position, PositionKind::kRotary);
  EXPECT_EQ(modern.rope.theta, 160000);
  ASSERT_TRUE(modern.sliding_rope.has_value());
  EXPECT_EQ(modern.sliding_rope->theta, 10000);
  EXPECT_EQ(modern.sliding_window, 65) << "64 tokens to each side";
  EXPECT_EQ(modern.layer_is_sliding, (std::vector<uint8_t>{0, 1, 1, 0}));
  EXPECT_FALSE(modern.qkv_bias || modern.output_bias || modern.mlp_bias);
  EXPECT_EQ(modern.token_types, 0);
  EXPECT_EQ(modern.kv_head_count, 4);
}

TEST(ModelConfigEncoder, ModernBertIsReadInBothSpellings) {
  const Json old = changed(modern_json(), {{"global_attn_every_n_layers", 2},
                                           {"local_attention", 33},
                                           {"global_rope_theta", 5000.0},
                                           {"local_rope_theta", 700.0}});
  const ModelConfig config = config_of(old);
  EXPECT_EQ(config.layer_is_sliding, (std::vector<uint8_t>{0, 1, 0, 1}));
  EXPECT_EQ(config.sliding_window, 17);
  EXPECT_EQ(config.rope.theta, 5000);
  EXPECT_EQ(config.sliding_rope->theta, 700);
  Json latest =
      changed(modern_json(),
              {{"local_attention", 33},
               {"layer_types",
                {"full_attention", "sliding_attention", "full_attention", "sliding_attention"}},
               {"rope_parameters",
                {{"full_attention", {{"rope_type", "default"}, {"rope_theta", 5000.0}}},
                 {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 700.0}}}}}});
  EXPECT_EQ(config_of(latest), config);
  latest["rope_parameters"].erase("sliding_attention");
  EXPECT_EQ(config_of(latest).sliding_rope->theta, 10000);
  Json alike = changed(old, {{"local_rope_theta", nullptr}});
  EXPECT_FALSE(config_of(alike).sliding_rope.has_value()) << "null: that of the others";
}

TEST(ModelConfigEncoder, ModernBertIsReadBackAsItWasWritten) {
  for (const Json& fields :
       {Json::object(), Json{{"norm_bias", true}, {"attention_bias", true}, {"mlp_bias", true}},
        Json{{"global_attn_every_n_layers", 1}}, Json{{"local_rope_theta", nullptr}},
        Json{{"layer_types", Json::array_t(4, "sliding_attention")}},
        Json{{"layer_types",
              {"sliding_attention", "full_attention", "full_attention", "sliding_attention"}}}}) {
    const ModelConfig config = config_of(changed(modern_json(), fields));
    EXPECT_EQ(config_of(to_hf_config(config)), config) << fields;
  }
}

TEST(ModelConfigEncoder, ModernBertRefusesWhatItDoesNotCompute) {
  const Json modern = modern_json();
  EXPECT_FAILS_WITH(parsed(changed(modern, {{"hidden_activation", "silu"}})), Code::kUnsupported,
                    "hidden_activation");
  EXPECT_FAILS_WITH(parsed(changed(modern, {{"local_attention", 1}})), Code::kCorrupt,
                    "local_attention");
  EXPECT_FAILS_WITH(
      parsed(changed(modern, {{"rope_parameters",
                               {{"full_attention", {{"rope_type", "yarn"}, {"factor", 2}}}}}})),
      Code::kUnsupported, "yarn");
  EXPECT_FAILS_WITH(parsed(changed(modern, {{"rope_scaling", {{"type", "linear"}}}})),
                    Code::kUnsupported, "linear");
  EXPECT_FAILS_WITH(parsed(changed(modern, {{"rope_parameters", 3}})), Code::kCorrupt,
                    "rope_parameters");
  EXPECT_FAILS_WITH(parsed(changed(modern, {{"rope_parameters", {{"full_attention", 3}}}})),
                    Code::kCorrupt, "full_attention");
  EXPECT_FAILS_WITH(parsed(changed(modern, {{"layer_types", Json::array_t(4, "other")}})),
                    Code::kUnsupported, "other");
  EXPECT_FAILS_WITH(parsed(changed(modern, {{"num_attention_heads", 5}})), Code::kCorrupt,
                    "does not divide");
  ModelConfig broken = config_of(modern);
  broken.bare_entry = false;
  EXPECT_FAILS_WITH(check_model_config(broken, "x"), Code::kInvalidArgument, "first layer");
  broken = config_of(modern);
  broken.token_types = 1;
  EXPECT_FAILS_WITH(check_model_config(broken, "x"), Code::kInvalidArgument, "modernbert");
}

Json distil_json() {
  return {{"model_type", "distilbert"},
          {"vocab_size", 96},
          {"dim", 32},
          {"hidden_dim", 48},
          {"n_layers", 4},
          {"n_heads", 4},
          {"max_position_embeddings", 256}};
}

TEST(ModelConfigEncoder, DistilBertIsBertWithNamesOfItsOwn) {
  const ModelConfig config = config_of(distil_json());
  Json json = encoder_json("bert");
  ModelConfig bert = config_of(json);
  bert.family = config.family;
  bert.token_types = 0;
  EXPECT_EQ(config, bert);
  const ModelConfig other =
      config_of(changed(distil_json(), {{"activation", "relu"}, {"layer_norm_eps", 1e-3}}));
  EXPECT_EQ(other.activation, ActivationKind::kRelu);
  EXPECT_EQ(other.norm_eps, 1e-12) << "in all models";
  EXPECT_EQ(config_of(to_hf_config(other)), other);
  EXPECT_FAILS_WITH(parsed(changed(distil_json(), {{"n_heads", 5}})), Code::kCorrupt,
                    "n_heads (5) does not divide dim (32)");
  EXPECT_FAILS_WITH(parsed(changed(distil_json(), {{"activation", "mish"}})), Code::kUnsupported,
                    "activation \"mish\"");
  ModelConfig broken = config;
  broken.token_types = 2;
  EXPECT_FAILS_WITH(check_model_config(broken, "x"), Code::kInvalidArgument, "distilbert");
}

TEST(ModelConfigEncoder, MpNetAddsScoresByDistance) {
  const ModelConfig config = config_of(encoder_json("mpnet"));
  ModelConfig roberta = config_of(encoder_json("roberta"));
  roberta.family = config.family;
  roberta.token_types = 0;
  roberta.distance_buckets = 32;
  EXPECT_EQ(config, roberta);
  const ModelConfig padded = config_of(changed(encoder_json("mpnet"), {{"pad_token_id", 7}}));
  EXPECT_EQ(padded.position_offset, 2) << "whatever the id of padding is";
  EXPECT_EQ(config_of(to_hf_config(padded)), padded);
  EXPECT_FAILS_WITH(
      parsed(changed(encoder_json("mpnet"), {{"relative_attention_num_buckets", 64}})),
      Code::kUnsupported, "relative_attention_num_buckets");
  ModelConfig broken = config;
  broken.distance_buckets = 0;
  EXPECT_FAILS_WITH(check_model_config(broken, "x"), Code::kInvalidArgument, "mpnet");
  broken = config_of(encoder_json("bert"));
  broken.distance_buckets = 32;
  EXPECT_FAILS_WITH(check_model_config(broken, "x"), Code::kInvalidArgument, "bert");
}

TEST(ModelConfigEncoder, NomicBertIsReadInBothSpellings) {
  const ModelConfig nomic = config_of(encoder_json("nomic_bert"));
  EXPECT_TRUE(is_encoder(nomic.family) && nomic.looks_ahead && nomic.embedding_norm);
  EXPECT_EQ(nomic.norm_place, NormPlace::kSum);
  EXPECT_EQ(nomic.activation, ActivationKind::kSwiGlu);
  EXPECT_EQ(nomic.position, PositionKind::kRotary);
  EXPECT_EQ(nomic.rope.theta, 1000);
  EXPECT_EQ(nomic.norm_eps, 1e-12);
  EXPECT_EQ(nomic.token_types, 2);
  EXPECT_FALSE(nomic.qkv_bias || nomic.output_bias || nomic.mlp_bias);
  // As published.
  const Json old = {{"model_type", "nomic_bert"},
                    {"vocab_size", 96},
                    {"n_embd", 32},
                    {"n_inner", 48},
                    {"n_layer", 4},
                    {"n_head", 4},
                    {"n_positions", 256},
                    {"layer_norm_epsilon", 1e-12},
                    {"activation_function", "swiglu"},
                    {"rotary_emb_base", 1000},
                    {"rotary_emb_fraction", 1.0},
                    {"rotary_emb_scale_base", nullptr},
                    {"rotary_scaling_factor", nullptr},
                    {"qkv_proj_bias", false},
                    {"prenorm", false}};
  EXPECT_EQ(config_of(old), nomic);
  const Json scaled = changed(old, {{"rotary_scaling_factor", 2}, {"max_trained_positions", 100}});
  EXPECT_EQ(config_of(scaled).context_max, 100) << "longer texts would turn by other angles";
  for (const Json& fields :
       {Json::object(), Json{{"rotary_emb_base", 5000}, {"rotary_emb_fraction", 0.5}}}) {
    const ModelConfig config = config_of(changed(old, fields));
    EXPECT_EQ(config_of(to_hf_config(config)), config) << fields;
  }
  for (const char* field : {"prenorm", "qkv_proj_bias", "mlp_fc1_bias", "causal",
                            "rotary_emb_interleaved", "parallel_block"}) {
    EXPECT_FAILS_WITH(parsed(changed(old, {{field, true}})), Code::kUnsupported, field);
  }
  EXPECT_FAILS_WITH(parsed(changed(old, {{"num_experts", 8}})), Code::kUnsupported, "num_experts");
  EXPECT_FAILS_WITH(parsed(changed(old, {{"activation_function", "gelu"}})), Code::kUnsupported,
                    "gelu");
  ModelConfig broken = nomic;
  broken.token_types = 0;
  EXPECT_FAILS_WITH(check_model_config(broken, "x"), Code::kInvalidArgument, "nomic_bert");
}

TEST(ModelConfigEncoder, EuroBertIsALlamaThatSeesBothSides) {
  const Json json = changed(family_json("eurobert"), {{"rope_theta", 250000}});
  const ModelConfig config = config_of(json);
  EXPECT_TRUE(is_encoder(config.family) && config.looks_ahead && config.tied_embeddings);
  ModelConfig llama = config_of(changed(
      json, {{"model_type", "llama"}, {"tie_word_embeddings", true}, {"rms_norm_eps", 1e-5}}));
  llama.family = config.family;
  llama.looks_ahead = true;
  llama.bos_id = config.bos_id;
  llama.eos_ids = config.eos_ids;
  llama.pad_id = config.pad_id;
  EXPECT_EQ(config, llama);
  EXPECT_EQ(config.kv_head_count, 2);
  for (const Json& fields : {Json::object(), Json{{"attention_bias", true}, {"mlp_bias", true}}}) {
    const ModelConfig made = config_of(changed(json, fields));
    EXPECT_EQ(config_of(to_hf_config(made)), made) << fields;
  }
  EXPECT_FAILS_WITH(parsed(changed(json, {{"hidden_act", "gelu"}})), Code::kUnsupported, "gelu");
  ModelConfig broken = config;
  broken.token_types = 2;
  EXPECT_FAILS_WITH(check_model_config(broken, "x"), Code::kInvalidArgument, "eurobert");
}

// Published sizes, without the layer that pools in training.
TEST(ModelConfigEncoder, CountsTheParametersOfPublishedModels) {
  Json base = changed(encoder_json("bert"), {{"vocab_size", 30522},
                                             {"hidden_size", 768},
                                             {"intermediate_size", 3072},
                                             {"num_hidden_layers", 12},
                                             {"num_attention_heads", 12},
                                             {"max_position_embeddings", 512}});
  EXPECT_EQ(parameter_count(config_of(base)), 108891648);
  base = changed(base, {{"model_type", "xlm-roberta"},
                        {"vocab_size", 250002},
                        {"max_position_embeddings", 514},
                        {"type_vocab_size", 1}});
  EXPECT_EQ(parameter_count(config_of(base)), 277453056);
  base = changed(base, {{"model_type", "mpnet"}, {"vocab_size", 30527}});
  EXPECT_EQ(parameter_count(config_of(base)), 108895872);
  base = changed(distil_json(), {{"vocab_size", 30522},
                                 {"dim", 768},
                                 {"hidden_dim", 3072},
                                 {"n_layers", 6},
                                 {"n_heads", 12},
                                 {"max_position_embeddings", 512}});
  EXPECT_EQ(parameter_count(config_of(base)), 66362880);
  base = changed(encoder_json("nomic_bert"), {{"vocab_size", 30528},
                                              {"hidden_size", 768},
                                              {"intermediate_size", 3072},
                                              {"num_hidden_layers", 12},
                                              {"num_attention_heads", 12},
                                              {"max_position_embeddings", 2048}});
  EXPECT_EQ(parameter_count(config_of(base)), 136731648);
  base = changed(modern_json(), {{"vocab_size", 50368},
                                 {"hidden_size", 768},
                                 {"intermediate_size", 1152},
                                 {"num_hidden_layers", 22},
                                 {"num_attention_heads", 12},
                                 {"max_position_embeddings", 8192}});
  EXPECT_EQ(parameter_count(config_of(base)), 149014272);
}

}  // namespace
}  // namespace jige::formats
