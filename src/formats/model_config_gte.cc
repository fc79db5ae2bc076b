#include "formats/model_config_gte.h"

#include <nlohmann/json.hpp>
#include <string>

#include "formats/model_config_fields.h"
#include "formats/model_families.h"

namespace jige::formats {
namespace {

constexpr const char* kScaling = "rope_scaling";
constexpr const char* kPacked = "pack_qkv";

// Of a field with names of kinds, of which one is computed.
Status require_kind(const Json& config, const char* field, const char* known,
                    std::string_view where) {
  JIGE_TRY(const std::string kind, get_string_or(config, field, known, where));
  if (kind == known) return {};
  return fail(Code::kUnsupported,
              "{}: field \"{}\" is \"{}\", which Jige does not support for this family; it "
              "computes \"{}\"",
              where, field, kind.substr(0, 80), known);
}

}  // namespace

Status parse_gte(const Json& config, ModelConfig& out, std::string_view where) {
  JIGE_DO(require_kind(config, "position_embedding_type", "rope", where));
  JIGE_DO(require_kind(config, "layer_norm_type", "layer_norm", where));
  JIGE_TRY(out.fused_projections, get_bool_or(config, kPacked, true, where));
  return {};
}

Status parse_ntk_rope(const Json& config, ModelConfig& out, std::string_view where) {
  JIGE_TRY(out.rope.theta,
           get_number_or(config, "rope_theta", family_info(out.family).theta, where));
  const Json* scaling = find_field(config, kScaling);
  if (!scaling) return {};
  if (!scaling->is_object()) {
    return fail(Code::kCorrupt, "{}: field \"{}\" must be an object or null", where, kScaling);
  }
  JIGE_DO(require_kind(*scaling, "type", "ntk", where));
  if (find_field(*scaling, "mixed_b")) {
    return fail(
        Code::kUnsupported,
        "{}: field \"mixed_b\" of {} is there, which Jige does not support; it computes ntk "
        "with one factor for all pairs",
        where, kScaling);
  }
  JIGE_TRY(out.rope.factor, get_number(*scaling, "factor", where));
  out.rope.scaling = RopeScaling::kNtk;
  return {};
}

void emit_gte(const ModelConfig& config, Json& out) {
  out["position_embedding_type"] = "rope";
  out["layer_norm_type"] = "layer_norm";
  out[kPacked] = config.fused_projections;
  out["rope_theta"] = config.rope.theta;
  out[kScaling] = nullptr;
  if (config.rope.scaling == RopeScaling::kNtk) {
    out[kScaling] = {{"type", "ntk"}, {"factor", config.rope.factor}};
  }
}

}  // namespace jige::formats
