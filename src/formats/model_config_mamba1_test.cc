// What config.json says of models all of whose layers are recurrent: Mamba, Falcon Mamba and
// Mamba 2.
#include <utility>
#include <vector>

#include "formats/family_config_test_support.h"
#include "formats/lora_config.h"
#include "formats/test_support.h"

namespace jige::formats {
namespace {

Json scanned_json(const char* type, const Json& members = Json::object()) {
  return changed(
      {{"model_type", type}, {"vocab_size", 96}, {"hidden_size", 40}, {"num_hidden_layers", 3}},
      members);
}

TEST(Mamba1Config, DefaultsAreThoseOfTransformers) {
  const ModelConfig falcon = config_of(scanned_json("falcon_mamba"));
  EXPECT_EQ(falcon.mamba1, (Mamba1Config{.columns = 80,
                                         .state_dim = 16,
                                         .kernel = 4,
                                         .step_rank = 3,  // a sixteenth of the width, rounded up
                                         .conv_bias = true,
                                         .norms = StepNorms::kPlain,
                                         .norm_eps = 1e-6}));
  EXPECT_EQ(falcon.norm_eps, 1e-5);
  EXPECT_EQ(falcon.context_max, 1 << 20);
  EXPECT_TRUE(falcon.tied_embeddings);
  EXPECT_EQ(falcon.bos_id, 0);
  EXPECT_EQ(falcon.eos_ids, (std::vector<int32_t>{0}));
  EXPECT_EQ(recurrent_layer_count(falcon), 3);
  EXPECT_EQ(attention_layer_count(falcon), 0);
  EXPECT_EQ(feed_forward_count(falcon), 0);
  EXPECT_EQ(inner_columns(falcon), 80);
  EXPECT_FALSE(turns(falcon, 0));
  EXPECT_EQ(lora_linear_modules(falcon), (std::vector<std::string>{"in_proj", "x_proj"}));
  EXPECT_FALSE(adapts_recurrent_output(falcon.family));
  EXPECT_EQ(config_of(scanned_json("mamba")).mamba1.norms, StepNorms::kNone);

  const Json of_mamba2 = {{"hidden_size", 4096}};
  const ModelConfig mamba2 = config_of(scanned_json("mamba2", of_mamba2));
  EXPECT_EQ(mamba2.mamba2, (Mamba2Config{.heads = 128,
                                         .head_dim = 64,
                                         .groups = 8,
                                         .state_dim = 128,
                                         .kernel = 4,
                                         .conv_bias = true}));
  EXPECT_EQ(inner_columns(mamba2), 8192);
  EXPECT_FALSE(mamba2.tied_embeddings);
  EXPECT_EQ(mamba2.pad_id, 1);
  EXPECT_EQ(lora_linear_modules(mamba2), (std::vector<std::string>{"in_proj"}));
}

TEST(Mamba1Config, CountsTheParametersOfPublishedModels) {
  const Json falcon = {{"vocab_size", 65024},
                       {"hidden_size", 4096},
                       {"num_hidden_layers", 64},
                       {"tie_word_embeddings", false}};
  EXPECT_EQ(parameter_count(config_of(scanned_json("falcon_mamba", falcon))), 7272665088);
  const Json small = {{"vocab_size", 50280}, {"hidden_size", 768}, {"num_hidden_layers", 24}};
  EXPECT_EQ(parameter_count(config_of(scanned_json("mamba", small))), 129135360);
  const Json codestral = {{"vocab_size", 32768}, {"hidden_size", 4096}, {"num_hidden_layers", 64}};
  EXPECT_EQ(parameter_count(config_of(scanned_json("mamba2", codestral))), 7285403648);
}

TEST(Mamba1Config, ReadsBackWhatItWrites) {
  for (const char* type : {"mamba", "falcon_mamba", "mamba2"}) {
    for (const Json& members :
         {Json{{"expand", 3}}, Json{{"state_size", 7}, {"conv_kernel", 2}},
          Json{{"use_bias", true}, {"use_conv_bias", false}, {"tie_word_embeddings", true}},
          Json{{"max_position_embeddings", 300}, {"layer_norm_epsilon", 1e-3}}}) {
      Json json = scanned_json(type, members);
      if (json["model_type"] == "mamba2") {
        const int64_t expand = json.value("expand", 2);
        json = changed(json, {{"num_heads", 4 * expand}, {"head_dim", 10}, {"n_groups", 2}});
      }
      const ModelConfig config = config_of(json);
      EXPECT_EQ(config_of(to_hf_config(config)), config) << type << members;
    }
  }
  EXPECT_EQ(config_of(scanned_json("mamba", {{"time_step_rank", 9}})).mamba1.step_rank, 9);
  EXPECT_EQ(config_of(scanned_json("mamba", {{"time_step_rank", "auto"}})).mamba1.step_rank, 3);
  EXPECT_EQ(config_of(scanned_json("mamba", {{"intermediate_size", 80}})).mamba1.columns, 80);
}

TEST(Mamba1Config, IsRefusedWhereItCannotBe) {
  for (const auto& [field, wrong] : {std::pair<const char*, Json>{"expand", 0},
                                     {"expand", 65},
                                     {"expand", int64_t{1} << 62},
                                     {"state_size", 0},
                                     {"state_size", 257},
                                     {"conv_kernel", 9},
                                     {"time_step_rank", 0},
                                     {"time_step_rank", int64_t{1} << 62},
                                     {"intermediate_size", 79},
                                     {"intermediate_size", 120},
                                     {"num_hidden_layers", 0},
                                     {"num_hidden_layers", int64_t{1} << 62},
                                     {"hidden_size", int64_t{1} << 62},
                                     {"mixer_rms_eps", 0}}) {
    EXPECT_FAILS_WITH(parsed(scanned_json("falcon_mamba", {{field, wrong}})), Code::kCorrupt,
                      field);
  }
  EXPECT_FALSE(parsed(scanned_json("mamba", {{"expand", 1.5}})));
  EXPECT_FALSE(parsed(scanned_json("mamba", {{"time_step_rank", "some"}})));
  EXPECT_FAILS_WITH(parsed(scanned_json("mamba", {{"hidden_act", "gelu"}})), Code::kUnsupported,
                    "hidden_act");
  const Json heads = {{"num_heads", 8}, {"head_dim", 10}, {"n_groups", 2}};
  EXPECT_TRUE(parsed(scanned_json("mamba2", heads)));
  for (const auto& [field, wrong] :
       {std::pair{"head_dim", 12}, {"expand", 3}, {"n_groups", 3}, {"num_heads", 0}}) {
    EXPECT_FAILS_WITH(parsed(changed(scanned_json("mamba2", heads), {{field, wrong}})),
                      Code::kCorrupt, field);
  }
  const Json limits = {{"time_step_limit", {0.0, 0.1}}};
  EXPECT_FAILS_WITH(parsed(changed(scanned_json("mamba2", heads), limits)), Code::kUnsupported,
                    "time_step_limit");
}

TEST(Mamba1Config, ChecksWhatNoFileSays) {
  const ModelConfig falcon = config_of(scanned_json("falcon_mamba"));
  ModelConfig config = falcon;
  config.layer_is_recurrent = {1, 0, 1};
  EXPECT_FAILS_WITH(check_model_config(config, "x"), Code::kInvalidArgument, "every layer");
  config = falcon;
  config.layer_parts[1] = LayerParts::kBoth;
  EXPECT_FAILS_WITH(check_model_config(config, "x"), Code::kInvalidArgument, "feed-forward");
  config = falcon;
  config.mamba1.norms = StepNorms::kNone;
  EXPECT_FAILS_WITH(check_model_config(config, "x"), Code::kInvalidArgument, "norms");
  config = falcon;
  config.mamba1.columns = 79;
  EXPECT_FAILS_WITH(check_model_config(config, "x"), Code::kInvalidArgument, "79 channels");
  config = config_of(family_json("llama"));
  config.mamba1 = falcon.mamba1;
  EXPECT_FAILS_WITH(check_model_config(config, "x"), Code::kInvalidArgument, "no such layers");
}

}  // namespace
}  // namespace jige::formats
