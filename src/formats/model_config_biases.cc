#include "formats/model_config_biases.h"

#include <nlohmann/json.hpp>
#include <string>

#include "formats/model_config_feature.h"
#include "formats/model_config_fields.h"
#include "formats/model_families.h"

namespace jige::formats {

Status parse_biases(const Json& config, ModelConfig& out, std::string_view where) {
  const FamilyInfo& family = family_info(out.family);
  const auto flag = [&](std::string_view field, bool usual) {
    return get_bool_or(config, field, usual, where);
  };
  switch (family.biases) {
    case BiasRule::kNone:
      return {};
    case BiasRule::kEverywhere:
      out.qkv_bias = out.output_bias = out.mlp_bias = true;
      return {};
    case BiasRule::kNotMlpInput:
      out.qkv_bias = out.output_bias = out.mlp_bias = true;
      out.mlp_input_bias = false;
      return {};
    case BiasRule::kNotQkv:
      out.output_bias = out.mlp_bias = true;
      return {};
    case BiasRule::kMlpAlways:
      out.mlp_bias = true;
      return {};
    case BiasRule::kQkv:
      out.qkv_bias = true;
      return {};
    case BiasRule::kMlp: {
      JIGE_TRY(out.mlp_bias, flag("mlp_bias", false));
      return {};
    }
    case BiasRule::kUseBias: {
      JIGE_TRY(out.qkv_bias, flag(family.bias_field, family.attention_bias));
      out.output_bias = out.mlp_bias = out.qkv_bias;
      return {};
    }
    case BiasRule::kAttentionQkv:
    case BiasRule::kQkvBias:
    case BiasRule::kUseQkvBias: {
      const char* field = family.biases == BiasRule::kAttentionQkv ? "attention_bias"
                          : family.biases == BiasRule::kQkvBias    ? "qkv_bias"
                                                                   : "use_qkv_bias";
      JIGE_TRY(out.qkv_bias, flag(field, family.attention_bias));
      return {};
    }
    case BiasRule::kAttention:
    case BiasRule::kAttentionAndMlp:
    case BiasRule::kAttentionByMlp:
    case BiasRule::kOutputApart:
      break;
  }
  JIGE_TRY(out.qkv_bias, flag("attention_bias", family.attention_bias));
  out.output_bias = out.qkv_bias;
  if (family.biases == BiasRule::kOutputApart) {
    JIGE_TRY(out.output_bias, flag("attention_out_bias", false));
  }
  out.mlp_bias = family.biases == BiasRule::kAttentionByMlp;
  if (family.biases == BiasRule::kAttentionAndMlp || family.biases == BiasRule::kOutputApart) {
    JIGE_TRY(out.mlp_bias, flag("mlp_bias", family.mlp_bias));
  }
  return {};
}

void emit_biases(const ModelConfig& config, Json& out) {
  const FamilyInfo& family = family_info(config.family);
  switch (family.biases) {
    case BiasRule::kNone:
    case BiasRule::kEverywhere:
    case BiasRule::kNotMlpInput:
    case BiasRule::kNotQkv:
    case BiasRule::kMlpAlways:
    case BiasRule::kQkv:
      return;
    case BiasRule::kUseBias:
      out[std::string(family.bias_field)] = config.qkv_bias;
      return;
    case BiasRule::kQkvBias:
      out["qkv_bias"] = config.qkv_bias;
      return;
    case BiasRule::kUseQkvBias:
      out["use_qkv_bias"] = config.qkv_bias;
      return;
    case BiasRule::kMlp:
      out["mlp_bias"] = config.mlp_bias;
      return;
    case BiasRule::kOutputApart:
      out["attention_out_bias"] = config.output_bias;
      [[fallthrough]];
    case BiasRule::kAttentionAndMlp:
      out["mlp_bias"] = config.mlp_bias;
      [[fallthrough]];
    case BiasRule::kAttention:
    case BiasRule::kAttentionQkv:
    case BiasRule::kAttentionByMlp:
      out["attention_bias"] = config.qkv_bias;
  }
}

Status check_bias_rule(const ModelConfig& config, std::string_view where) {
  const FamilyInfo& family = family_info(config.family);
  const auto require = [&](bool holds, std::string_view feature) {
    return require_feature(holds, config.family, feature, where);
  };
  JIGE_DO(require(config.head_bias == family.head_bias,
                  family.head_bias ? "a bias on the head" : "no bias on the head"));
  JIGE_DO(require(!config.head_bias || !config.tied_embeddings,
                  "a head of their own, with its bias: \"tie_word_embeddings\" must be false"));
  const bool inputs = family.biases != BiasRule::kNotMlpInput;
  JIGE_DO(require(config.mlp_input_bias == inputs, inputs
                                                       ? "biases on all products of the MLP or none"
                                                       : "no biases on the MLP's first products"));
  switch (family.biases) {
    case BiasRule::kNone:
      JIGE_DO(require(!config.qkv_bias && !config.output_bias, "no attention biases"));
      return require(!config.mlp_bias, "no MLP biases");
    case BiasRule::kNotQkv:
      return require(!config.qkv_bias && config.output_bias && config.mlp_bias,
                     "biases everywhere but on queries, keys and values");
    case BiasRule::kMlpAlways:
      return require(!config.qkv_bias && !config.output_bias && config.mlp_bias,
                     "biases on the MLP only");
    case BiasRule::kNotMlpInput:
    case BiasRule::kEverywhere:
      return require(config.qkv_bias && config.output_bias && config.mlp_bias, "biases everywhere");
    case BiasRule::kQkv:
      JIGE_DO(require(config.qkv_bias && !config.output_bias,
                      "biases on queries, keys and values only"));
      return require(!config.mlp_bias, "no MLP biases");
    case BiasRule::kAttentionQkv:
    case BiasRule::kQkvBias:
    case BiasRule::kUseQkvBias:
      return require(!config.output_bias && !config.mlp_bias,
                     "biases on queries, keys and values only");
    case BiasRule::kUseBias:
      return require(config.qkv_bias == config.output_bias && config.qkv_bias == config.mlp_bias,
                     fmt::format("one {} for all products", family.bias_field));
    case BiasRule::kMlp:
      return require(!config.qkv_bias && !config.output_bias, "no attention biases");
    case BiasRule::kOutputApart:
      return {};
    case BiasRule::kAttention:
    case BiasRule::kAttentionAndMlp:
    case BiasRule::kAttentionByMlp:
      break;
  }
  JIGE_DO(require(config.qkv_bias == config.output_bias,
                  "one attention_bias for all four projections"));
  if (family.biases == BiasRule::kAttentionByMlp) {
    return require(config.mlp_bias, "MLP biases");
  }
  JIGE_DO(require(config.family != Family::kInternLm3 || config.qkv_bias == config.mlp_bias,
                  "biases everywhere or nowhere"));
  return require(family.biases == BiasRule::kAttentionAndMlp || !config.mlp_bias, "no MLP biases");
}

}  // namespace jige::formats
