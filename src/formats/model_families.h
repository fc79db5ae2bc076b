// The table of model families, put together from its rows by kind (model_family_dense.h, _early.h,
// _gemma.h, _experts.h, _latent.h, _hybrids.h and _encoders.h), and asked: the row of a family,
// names of activations and of size fields, and the features that all models of a family have.
//
// Internal to the model_config*.cc and gguf_config*.cc files. Threads: constants and free
// functions.
#pragma once

#include <array>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <vector>

#include "formats/model_config.h"
#include "formats/model_family_dense.h"
#include "formats/model_family_early.h"
#include "formats/model_family_encoders.h"
#include "formats/model_family_experts.h"
#include "formats/model_family_gemma.h"
#include "formats/model_family_hybrids.h"
#include "formats/model_family_info.h"
#include "formats/model_family_latent.h"

namespace jige::formats {

// By Family; the rows stand in any order.
inline constexpr auto kFamilies = [] {
  std::array<FamilyInfo, std::size(kDenseFamilies) + std::size(kEarlyFamilies) +
                             std::size(kGemmaFamilies) + std::size(kExpertFamilies) +
                             std::size(kLatentFamilies) + std::size(kHybridFamilies) +
                             std::size(kEncoderFamilies)>
      all{};
  const auto place = [&all](const auto& rows) {
    for (const FamilyInfo& row : rows) all.at(static_cast<size_t>(row.family)) = row;
  };
  place(kDenseFamilies);
  place(kEarlyFamilies);
  place(kGemmaFamilies);
  place(kExpertFamilies);
  place(kLatentFamilies);
  place(kHybridFamilies);
  place(kEncoderFamilies);
  return all;
}();
// Each has one row.
static_assert([] {
  for (size_t i = 0; i < kFamilies.size(); ++i) {
    if (kFamilies[i].family != static_cast<Family>(i) || kFamilies[i].model_type.empty())
      return false;
  }
  return kFamilies.size() == static_cast<size_t>(kLastFamily) + 1;
}());

inline constexpr const FamilyInfo& family_info(Family family) {
  return kFamilies[static_cast<size_t>(family)];
}

// OLMo with experts, with norms before its layers' parts or behind them.
inline constexpr bool is_olmo_moe(Family family) {
  return family == Family::kOlmoe || family == Family::kFlexOlmo;
}

// router_aux_loss_coef where it is left out.
inline double usual_balance_weight(Family family) {
  return is_olmo_moe(family) ? 0.01 : ExpertConfig().balance_weight;
}

// What they multiply with comes in the same fields.
inline constexpr bool is_minicpm(Family family) {
  return family == Family::kMiniCpm || family == Family::kMiniCpm3;
}

inline bool is_qwen(Family family) { return family == Family::kQwen2 || family == Family::kQwen3; }

// Granite with experts, of version 3 or 4.
inline constexpr bool is_granite_moe(Family family) {
  return family == Family::kGraniteMoe || family == Family::kGraniteMoeShared ||
         family == Family::kGraniteMoeSwa || family == Family::kGraniteHybrid;
}

inline constexpr bool is_lfm2(Family family) {
  return family == Family::kLfm2 || family == Family::kLfm2Moe;
}

// Activations without gate, by their names. The first name of a kind is the one that is written.
struct PlainActivation {
  std::string_view name;
  ActivationKind kind;
};

inline constexpr PlainActivation kPlainActivations[] = {
    {"gelu_new", ActivationKind::kGeluTanh},
    {"gelu_pytorch_tanh", ActivationKind::kGeluTanh},
    {"gelu_python_tanh", ActivationKind::kGeluTanh},
    {"gelu_fast", ActivationKind::kGeluTanh},
    {"gelu", ActivationKind::kGeluErf},
    {"gelu_python", ActivationKind::kGeluErf},
    {"relu", ActivationKind::kRelu},
    {"relu2", ActivationKind::kReluSquared},
    {"silu", ActivationKind::kSilu},
    {"swish", ActivationKind::kSilu},
};

// What hidden_act says in families that choose none.
inline constexpr const char* usual_activation(ActivationKind activation) {
  if (activation == ActivationKind::kXielu) return "xielu";
  if (activation == ActivationKind::kGeGluErf) return "gelu";
  return activation == ActivationKind::kSwiGlu ? "silu" : "gelu_pytorch_tanh";
}

// Whether the heads of its models are as wide as the model, together; encoders aside.
inline constexpr bool covers_width(Family family) {
  const FamilyInfo& info = family_info(family);
  return info.position_table || info.qkv_by_head || family == Family::kGptJ;
}

// The field that has the activation of families that choose one.
inline constexpr const char* activation_field(Family family) {
  if (family == Family::kDistilBert || family == Family::kFalcon) return "activation";
  if (family == Family::kGptJ || family_info(family).position_table) return "activation_function";
  return family == Family::kNemotronH ? "mlp_hidden_act" : "hidden_act";
}

// How config.json of the family spells the size fields.
struct SizeFields {
  std::string_view hidden;
  std::string_view layers;
  std::string_view heads;
  std::string_view ffn;
  std::string_view context;
  std::string_view norm_eps;
};

inline constexpr SizeFields size_fields(Family family) {
  if (family == Family::kGpt2 || family == Family::kGptBigCode || family == Family::kGptJ) {
    return {"n_embd", "n_layer", "n_head", "n_inner", "n_positions", "layer_norm_epsilon"};
  }
  if (family == Family::kGptNeo) {
    return {"hidden_size",
            "num_layers",
            "num_heads",
            "intermediate_size",
            "max_position_embeddings",
            "layer_norm_epsilon"};
  }
  if (family == Family::kDistilBert) {
    return {"dim", "n_layers", "n_heads", "hidden_dim", "max_position_embeddings", "none"};
  }
  SizeFields fields{"hidden_size",       "num_hidden_layers",       "num_attention_heads",
                    "intermediate_size", "max_position_embeddings", "rms_norm_eps"};
  if (family == Family::kQwen35Moe || family == Family::kSolarOpen) {
    fields.ffn = "moe_intermediate_size";
  }
  if (family == Family::kLlama4) fields.ffn = "intermediate_size_mlp";
  if (family == Family::kOpt) fields.ffn = "ffn_dim";
  if (family == Family::kFalcon) fields.ffn = "ffn_hidden_size";
  if (family == Family::kStarCoder2) fields.norm_eps = "norm_epsilon";
  if (family == Family::kNemotronH || family == Family::kFalcon ||
      family_info(family).recurrent_only) {
    fields.norm_eps = "layer_norm_epsilon";
  }
  if (family == Family::kNemotron || is_lfm2(family) || family == Family::kLfm3) {
    fields.norm_eps = "norm_eps";
  }
  if (family == Family::kStableLm || family == Family::kGptNeoX || family == Family::kPhi ||
      family == Family::kCohere || family == Family::kCohere2 || family == Family::kJais2 ||
      (family_info(family).encoder && family_info(family).norm == NormKind::kLayer)) {
    fields.norm_eps = "layer_norm_eps";
  }
  if (family == Family::kModernBert) fields.norm_eps = "norm_eps";
  return fields;
}

// Flags of the layers without the sliding window, as some families do not turn; empty where all
// layers are alike.
inline std::vector<uint8_t> layers_without_window(const ModelConfig& config) {
  std::vector<uint8_t> flags = config.layer_is_sliding;
  for (uint8_t& flag : flags) flag = !flag;
  return flags;
}

// Of families none of whose layers turns. Does nothing where the checks refuse the number of
// layers.
inline void leave_unturned(ModelConfig& out) {
  if (out.layer_count < 1 || out.layer_count > kLayersMax) return;
  out.layer_is_unturned.assign(static_cast<size_t>(out.layer_count), 1);
}

// Sets what all models of the family have, and of what a switch turns on what it may have.
inline void set_family_features(ModelConfig& out) {
  const FamilyInfo& family = family_info(out.family);
  out.norm = family.norm;
  out.norm_place = family.norm_place;
  out.recurrent_norms_before = family.recurrent_norms_before;
  out.norm_adds_one = family.norm_adds_one;
  out.norm_bias = family.norm_bias;
  out.norm_weights = family.norm_weights;
  out.bare_entry = family.bare_entry;
  out.activation = family.activation;
  out.qk_norm = family.head_norms == HeadNorms::kEach;
  out.qk_norm_turned = family.norms_turned;
  out.qk_norm_apart = family.head_norms == HeadNorms::kEachApart;
  out.qk_norm_plain = family.head_norms == HeadNorms::kEachPlain;
  out.qk_norm_whole = family.head_norms == HeadNorms::kWhole;
  out.residual = family.residual;
  out.fused_projections = family.fused_projections;
  out.qkv_by_head = family.qkv_by_head;
  out.turns_neighbours = family.turns_neighbours;
  out.turns_backwards = family.turns_backwards;
  out.embedding_norm = family.embedding_norm;
  out.looks_ahead = family.encoder;
  out.head_bias = family.head_bias;
  out.attention_sinks = family.attention_sinks;
  out.attention_gate = family.attention_gate;
  out.head_gates = !family.head_gate_field.empty();
  out.attention_beside = family.attention_beside;
  out.value_norm = family.value_norm;
  out.layer_scales = family.layer_scales;
  out.scores_by_head_dim = family.scores_by_head_dim;
}

}  // namespace jige::formats
