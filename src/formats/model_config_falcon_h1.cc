#include "formats/model_config_falcon_h1.h"

#include <array>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

#include "base/json.h"
#include "formats/model_config_fields.h"
#include "formats/model_families.h"

namespace jige::formats {
namespace {

// A multiplier that is a field of its own.
struct ScaleField {
  const char* name;
  double* (*place)(ModelConfig&);
};

constexpr ScaleField kScaleFields[] = {
    {"embedding_multiplier", [](ModelConfig& c) { return &c.embedding_scale; }},
    {"lm_head_multiplier", [](ModelConfig& c) { return &c.logits_scale; }},
    {"attention_in_multiplier", [](ModelConfig& c) { return &c.attention_in_scale; }},
    {"attention_out_multiplier", [](ModelConfig& c) { return &c.attention_out_scale; }},
    {"key_multiplier", [](ModelConfig& c) { return &c.key_scale; }},
    {"ssm_in_multiplier", [](ModelConfig& c) { return &c.mamba2.in_scale; }},
    {"ssm_out_multiplier", [](ModelConfig& c) { return &c.mamba2.out_scale; }},
};
// Those that are lists.
constexpr const char* kMlpField = "mlp_multipliers";  // of the gate, and of what the MLP gives
constexpr const char* kPartsField = "ssm_multipliers";

constexpr const char* kNormField = "mamba_rms_norm";
constexpr const char* kNormFirstField = "mamba_norm_before_gate";
constexpr const char* kOutputBiasField = "projectors_bias";
constexpr double kFalconScaleMin = 1e-6;
constexpr double kFalconScaleMax = 1e6;

// Null means ones.
template <size_t kCount>
Result<std::array<double, kCount>> parse_scale_list(const Json& config, const char* field,
                                                    std::string_view where) {
  std::array<double, kCount> scales;
  scales.fill(1.0);
  const Json* list = find_field(config, field);
  if (!list) return scales;
  if (!list->is_array() || list->size() != kCount) {
    return fail(Code::kCorrupt, "{}: field \"{}\" must be a list of {} numbers", where, field,
                kCount);
  }
  for (size_t i = 0; i < kCount; ++i) {
    const Json wrapped = {{field, (*list)[i]}};
    JIGE_TRY(scales[i], get_number(wrapped, field, where));
  }
  return scales;
}

std::array<double, 2> mlp_scales(const ModelConfig& config) {
  return {config.mlp_gate_scale, config.mlp_out_scale};
}

// Whether nothing is multiplied with any of those that only this family has.
bool unscaled(const ModelConfig& config) {
  const ModelConfig plain;
  return config.attention_in_scale == 1 && config.attention_out_scale == 1 &&
         config.key_scale == 1 && mlp_scales(config) == mlp_scales(plain) &&
         config.mamba2.in_scale == 1 && config.mamba2.out_scale == 1 &&
         config.mamba2.part_scales == plain.mamba2.part_scales;
}

}  // namespace

Status parse_falcon_h1(const Json& config, ModelConfig& out, std::string_view where) {
  for (const ScaleField& field : kScaleFields) {
    JIGE_TRY(*field.place(out), get_number_or(config, field.name, 1.0, where));
  }
  JIGE_TRY(const auto mlp, parse_scale_list<2>(config, kMlpField, where));
  out.mlp_gate_scale = mlp[0];
  out.mlp_out_scale = mlp[1];
  Mamba2Config& mamba = out.mamba2;
  JIGE_TRY(mamba.part_scales, parse_scale_list<5>(config, kPartsField, where));
  JIGE_TRY(mamba.output_bias, get_bool_or(config, kOutputBiasField, false, where));
  JIGE_TRY(const bool norm, get_bool_or(config, kNormField, false, where));
  JIGE_TRY(const bool norm_first, get_bool_or(config, kNormFirstField, true, where));
  mamba.norm = !norm        ? GatedNorm::kNone
               : norm_first ? GatedNorm::kNormFirst
                            : GatedNorm::kGateFirst;
  return {};
}

void emit_falcon_h1(const ModelConfig& config, Json& out) {
  ModelConfig scaled = config;
  for (const ScaleField& field : kScaleFields) out[field.name] = *field.place(scaled);
  out[kMlpField] = mlp_scales(config);
  out[kPartsField] = config.mamba2.part_scales;
  out[kOutputBiasField] = config.mamba2.output_bias;
  out[kNormField] = config.mamba2.norm != GatedNorm::kNone;
  out[kNormFirstField] = config.mamba2.norm == GatedNorm::kNormFirst;
}

Status check_falcon_h1(const ModelConfig& config, std::string_view where) {
  const FamilyInfo& family = family_info(config.family);
  if (config.attention_beside != family.attention_beside) {
    return fail(Code::kInvalidArgument, "{}: {} models have {}attention beside recurrent states",
                where, family_name(config.family), family.attention_beside ? "" : "no ");
  }
  if (!family.falcon_scales) {
    const Mamba2Config& mamba = config.mamba2;
    const bool usual = mamba.norm == GatedNorm::kGateFirst && mamba.bias == mamba.output_bias;
    if (unscaled(config) && usual) return {};
    return fail(Code::kInvalidArgument,
                "{}: {} models have no multipliers of Falcon-H1 and one "
                "form of Mamba 2",
                where, family_name(config.family));
  }
  const auto check = [&](const char* field, double value) -> Status {
    if (value >= kFalconScaleMin && value <= kFalconScaleMax) return {};  // false for NaN
    return fail(Code::kInvalidArgument, "{}: field \"{}\" has {}; it must lie in [{}, {}]", where,
                field, value, kFalconScaleMin, kFalconScaleMax);
  };
  ModelConfig scaled = config;
  for (const ScaleField& field : kScaleFields) JIGE_DO(check(field.name, *field.place(scaled)));
  for (const double value : mlp_scales(config)) JIGE_DO(check(kMlpField, value));
  for (const double value : config.mamba2.part_scales) JIGE_DO(check(kPartsField, value));
  return {};
}

}  // namespace jige::formats
