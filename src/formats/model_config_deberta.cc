#include "formats/model_config_deberta.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/split.h"
#include "formats/model_config_fields.h"
#include "formats/model_families.h"

namespace jige::formats {
namespace {

constexpr const char* kBucketsField = "position_buckets";
constexpr const char* kReachField = "max_relative_positions";
constexpr const char* kProductsField = "pos_att_type";
constexpr const char* kRowNormField = "norm_rel_ebd";
constexpr int64_t kWideningSideMin = 4;
constexpr int64_t kWideningSideMax = int64_t{1} << 20;  // that f32 tells from one more

// "p2c|c2p", or a list of such names.
Result<std::vector<std::string>> names_of(const Json& config, const char* field,
                                          std::string_view where) {
  const Json* value = find_field(config, field);
  std::vector<std::string> names;
  if (!value) return names;
  if (value->is_string()) {
    for (const std::string_view part : split_at(value->get_ref<const std::string&>(), '|')) {
      std::string name;
      for (const char letter : part) {
        if (letter != ' ') name.push_back(static_cast<char>(std::tolower(letter)));
      }
      names.push_back(std::move(name));
    }
    return names;
  }
  const bool listed = value->is_array() &&
                      std::ranges::all_of(*value, [](const Json& one) { return one.is_string(); });
  if (!listed) {
    return fail(Code::kCorrupt, "{}: field \"{}\" must be a text or a list of texts", where, field);
  }
  for (const Json& one : *value) names.push_back(one.get<std::string>());
  return names;
}

tl::unexpected<Error> unsupported(std::string_view where, const char* field,
                                  const std::string& value, std::string_view known) {
  return fail(Code::kUnsupported,
              "{}: field \"{}\" is {}, which Jige does not support for deberta-v2; it computes {}",
              where, field, value.substr(0, 80), known);
}

Status refuse_deberta_variants(const Json& config, const ModelConfig& out, std::string_view where) {
  JIGE_TRY(const bool relative, get_bool_or(config, "relative_attention", false, where));
  if (!relative) return unsupported(where, "relative_attention", "false", "true alone");
  JIGE_TRY(const int64_t kernel, get_int_or(config, "conv_kernel_size", 0, where));
  if (kernel > 0) {
    return unsupported(where, "conv_kernel_size", std::to_string(kernel),
                       "models without a convolution, as those of v3");
  }
  JIGE_TRY(const int64_t columns, get_int_or(config, "embedding_size", out.hidden_size, where));
  if (columns != out.hidden_size) {
    return unsupported(where, "embedding_size", std::to_string(columns), "that of hidden_size");
  }
  JIGE_TRY(const int64_t head, get_int_or(config, "attention_head_size", out.head_dim, where));
  if (head != out.head_dim) {
    return unsupported(where, "attention_head_size", std::to_string(head),
                       "hidden_size by num_attention_heads");
  }
  return {};
}

Status parse_products(const Json& config, DistanceRowsConfig& rows, std::string_view where) {
  JIGE_TRY(const auto names, names_of(config, kProductsField, where));
  for (const std::string& name : names) {
    if (name != "c2p" && name != "p2c") {
      return unsupported(where, kProductsField, name, "c2p, p2c and both");
    }
    (name == "c2p" ? rows.for_queries : rows.for_keys) = true;
  }
  if (names.empty()) return unsupported(where, kProductsField, "empty", "c2p, p2c and both");
  return {};
}

Status parse_row_norm(const Json& config, DistanceRowsConfig& rows, std::string_view where) {
  JIGE_TRY(const auto names, names_of(config, kRowNormField, where));
  for (const std::string& name : names) {
    if (name != "none" && name != "layer_norm") {
      return unsupported(where, kRowNormField, name, "none and layer_norm");
    }
    rows.norm = rows.norm || name == "layer_norm";
  }
  return {};
}

}  // namespace

Status parse_deberta(const Json& config, ModelConfig& out, std::string_view where) {
  JIGE_DO(refuse_deberta_variants(config, out, where));
  DistanceRowsConfig& rows = out.distance_rows;
  JIGE_TRY(rows.reach, get_int_or(config, kReachField, -1, where));
  if (rows.reach < 1) rows.reach = out.context_max;
  JIGE_TRY(const int64_t buckets, get_int_or(config, kBucketsField, -1, where));
  rows.widens = buckets > 0;
  rows.side = rows.widens ? buckets : rows.reach;
  JIGE_DO(parse_products(config, rows, where));
  JIGE_DO(parse_row_norm(config, rows, where));
  JIGE_TRY(const bool shared, get_bool_or(config, "share_att_key", false, where));
  rows.own_projections = !shared;
  JIGE_TRY(const bool positions, get_bool_or(config, "position_biased_input", true, where));
  if (!positions) out.position = PositionKind::kNone;
  return {};
}

void emit_deberta(const ModelConfig& config, Json& out) {
  const DistanceRowsConfig& rows = config.distance_rows;
  out["relative_attention"] = true;
  out[kReachField] = rows.reach;
  out[kBucketsField] = rows.widens ? rows.side : -1;
  Json products = Json::array();
  if (rows.for_keys) products.push_back("p2c");
  if (rows.for_queries) products.push_back("c2p");
  out[kProductsField] = std::move(products);
  out[kRowNormField] = rows.norm ? "layer_norm" : "none";
  out["share_att_key"] = !rows.own_projections;
  out["position_biased_input"] = config.position == PositionKind::kLearned;
}

Status check_deberta(const ModelConfig& config, std::string_view where) {
  const DistanceRowsConfig& rows = config.distance_rows;
  const bool wanted = family_info(config.family).distance_rows;
  if (!wanted && rows == DistanceRowsConfig()) return {};
  const bool fits = wanted && (rows.for_queries || rows.for_keys) && rows.side >= 1 &&
                    rows.side <= kContextMax && rows.reach >= 1 && rows.reach <= kContextMax;
  if (!fits) {
    return fail(Code::kInvalidArgument,
                "{}: {} rows by distance for either direction, up to {}, do not belong to a {} "
                "model; each must lie in [1, {}]",
                where, rows.side, rows.reach, family_name(config.family), kContextMax);
  }
  // Of the formula of buckets (ops/distance_rows.h).
  const bool widens = rows.side >= kWideningSideMin && rows.side <= kWideningSideMax &&
                      rows.reach >= rows.side / 2 + 2;
  if (!rows.widens || widens) return {};
  return fail(
      Code::kInvalidArgument,
      "{}: field \"{}\" is {} for distances up to \"{}\" ({}); it must lie in [{}, {}], and "
      "they reach beyond its half and one more",
      where, kBucketsField, rows.side, kReachField, rows.reach, kWideningSideMin, kWideningSideMax);
}

int64_t distance_row_parameters(const ModelConfig& config) {
  const DistanceRowsConfig& rows = config.distance_rows;
  if (rows.side == 0) return 0;
  const int64_t width = config.hidden_size;
  const int64_t own =
      rows.own_projections ? (rows.for_queries ? 1 : 0) + (rows.for_keys ? 1 : 0) : 0;
  return 2 * rows.side * width + (rows.norm ? 2 * width : 0) +
         config.layer_count * own * (width * width + width);
}

}  // namespace jige::formats
