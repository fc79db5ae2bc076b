// DeBERTa v2 and v3: what their config.json says of rows by distance, and what is refused.
#include "formats/family_config_test_support.h"
#include "formats/test_support.h"

namespace jige::formats {
namespace {

// As folders of v3 are published.
Json deberta_json() {
  Json json = changed(family_json("deberta-v2"), {{"relative_attention", true},
                                                  {"position_buckets", 16},
                                                  {"max_relative_positions", -1},
                                                  {"pos_att_type", "p2c|c2p"},
                                                  {"share_att_key", true},
                                                  {"norm_rel_ebd", "layer_norm"},
                                                  {"position_biased_input", false},
                                                  {"type_vocab_size", 0}});
  json.erase("num_key_value_heads");
  return json;
}

TEST(ModelConfigDeberta, IsReadAsPublished) {
  const ModelConfig config = config_of(deberta_json());
  EXPECT_TRUE(is_encoder(config.family) && config.looks_ahead && config.embedding_norm);
  EXPECT_EQ(config.position, PositionKind::kNone);
  EXPECT_EQ(config.token_types, 0);
  EXPECT_EQ(config.norm_place, NormPlace::kSum);
  EXPECT_EQ(config.norm_eps, 1e-7);
  EXPECT_EQ(config.activation, ActivationKind::kGeluErf);
  EXPECT_EQ(config.distance_rows, (DistanceRowsConfig{.side = 16,
                                                      .widens = true,
                                                      .reach = 256,
                                                      .for_queries = true,
                                                      .for_keys = true,
                                                      .norm = true}));
}

TEST(ModelConfigDeberta, DefaultsAreThoseOfTransformers) {
  Json json = changed(family_json("deberta-v2"),
                      {{"relative_attention", true}, {"pos_att_type", Json::array({"c2p"})}});
  json.erase("num_key_value_heads");
  const ModelConfig config = config_of(json);
  EXPECT_EQ(config.position, PositionKind::kLearned);
  EXPECT_EQ(config.token_types, 0);
  EXPECT_EQ(config.distance_rows,
            (DistanceRowsConfig{
                .side = 256, .reach = 256, .for_queries = true, .own_projections = true}));
  json["max_relative_positions"] = 40;
  EXPECT_EQ(config_of(json).distance_rows.side, 40);
}

TEST(ModelConfigDeberta, IsReadBackAsItWasWritten) {
  for (const Json& fields :
       {Json::object(), Json{{"position_buckets", -1}, {"max_relative_positions", 30}},
        Json{{"pos_att_type", {"p2c"}}, {"share_att_key", false}, {"norm_rel_ebd", "none"}},
        Json{{"pos_att_type", "C2P | p2c"}, {"position_biased_input", true}},
        Json{{"type_vocab_size", 2}, {"max_relative_positions", 100}, {"hidden_act", "relu"}}}) {
    const ModelConfig config = config_of(changed(deberta_json(), fields));
    EXPECT_EQ(config_of(to_hf_config(config)), config) << fields;
  }
}

TEST(ModelConfigDeberta, RefusesWhatItDoesNotCompute) {
  const auto expect_refused = [](const Json& fields, const char* name) {
    EXPECT_FAILS_WITH(parsed(changed(deberta_json(), fields)), Code::kUnsupported, name);
  };
  expect_refused({{"relative_attention", false}}, "relative_attention");
  expect_refused({{"conv_kernel_size", 3}}, "conv_kernel_size");
  expect_refused({{"embedding_size", 16}}, "embedding_size");
  expect_refused({{"attention_head_size", 16}}, "attention_head_size");
  expect_refused({{"pos_att_type", "p2p"}}, "p2p");
  expect_refused({{"pos_att_type", nullptr}}, "pos_att_type");
  expect_refused({{"norm_rel_ebd", "rms"}}, "rms");
  expect_refused({{"hidden_act", "mish"}}, "mish");
  Json json = deberta_json();
  json.erase("relative_attention");
  EXPECT_FAILS_WITH(parsed(json), Code::kUnsupported, "relative_attention");
}

TEST(ModelConfigDeberta, RefusesTablesThatContradictThemselves) {
  const auto expect_corrupt = [](const Json& fields, const char* name) {
    EXPECT_FAILS_WITH(parsed(changed(deberta_json(), fields)), Code::kCorrupt, name);
  };
  expect_corrupt({{"position_buckets", 3}}, "position_buckets");
  expect_corrupt({{"position_buckets", (1 << 20) + 1}, {"max_relative_positions", 1 << 25}},
                 "position_buckets");
  expect_corrupt({{"max_relative_positions", 9}}, "max_relative_positions");
  EXPECT_EQ(
      config_of(changed(deberta_json(), {{"max_relative_positions", 10}})).distance_rows.reach, 10);
  expect_corrupt({{"position_buckets", int64_t{1} << 40}}, "rows by distance");
  expect_corrupt({{"pos_att_type", 7}}, "pos_att_type");
  expect_corrupt({{"pos_att_type", {"c2p", 7}}}, "pos_att_type");
  expect_corrupt({{"type_vocab_size", -1}}, "type_vocab_size");
  expect_corrupt({{"num_attention_heads", 5}}, "does not divide");
  ModelConfig broken = config_of(deberta_json());
  broken.distance_rows = {};
  EXPECT_FAILS_WITH(check_model_config(broken, "x"), Code::kInvalidArgument, "deberta-v2");
  broken = config_of(deberta_json());
  broken.distance_rows.for_keys = broken.distance_rows.for_queries = false;
  EXPECT_FAILS_WITH(check_model_config(broken, "x"), Code::kInvalidArgument, "rows by distance");
  Json bert = family_json("bert");
  bert.erase("num_key_value_heads");
  broken = config_of(bert);
  broken.distance_rows.side = 8;
  EXPECT_FAILS_WITH(check_model_config(broken, "x"), Code::kInvalidArgument, "bert");
  broken = config_of(bert);
  broken.position = PositionKind::kNone;
  EXPECT_FAILS_WITH(check_model_config(broken, "x"), Code::kInvalidArgument, "learned positions");
}

// Those of transformers' DebertaV2Model.
TEST(ModelConfigDeberta, CountsTheParametersOfTransformers) {
  const Json base = changed(deberta_json(), {{"vocab_size", 128100},
                                             {"hidden_size", 768},
                                             {"intermediate_size", 3072},
                                             {"num_hidden_layers", 12},
                                             {"num_attention_heads", 12},
                                             {"position_buckets", 256},
                                             {"max_position_embeddings", 512}});
  EXPECT_EQ(parameter_count(config_of(base)), 183831552);
  Json own = changed(family_json("deberta-v2"), {{"vocab_size", 100},
                                                 {"relative_attention", true},
                                                 {"pos_att_type", "c2p"},
                                                 {"type_vocab_size", 2}});
  own.erase("num_key_value_heads");
  EXPECT_EQ(parameter_count(config_of(own)), 62144);
}

}  // namespace
}  // namespace jige::formats
