#include "formats/model_config_llama4.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "formats/model_config_expert_fields.h"
#include "formats/model_config_fields.h"
#include "formats/model_families.h"

namespace jige::formats {
namespace {

constexpr int64_t kChunkDefault = 8192;
constexpr int64_t kChunkStep = 16;  // tokens of a block of the key/value cache
constexpr int64_t kGrowthContextDefault = 8192;
constexpr double kGrowthDefault = 0.1;
constexpr double kGrowthMax = 1e3;
constexpr const char* kChunk = "attention_chunk_size";
constexpr const char* kGrows = "attn_temperature_tuning";
constexpr const char* kGrowth = "attn_scale";
constexpr const char* kGrowthContext = "floor_scale";
constexpr const char* kKinds = "layer_types";
constexpr const char* kExpertLayers = "moe_layers";
constexpr const char* kExpertStep = "interleave_moe_layer_step";

const char* kind_of(const ModelConfig& config, int64_t layer) {
  return config.attention_chunk > 0 && turns(config, layer) ? "chunked_attention"
                                                            : "full_attention";
}

// First folders have a number there, which means true unless it is 0.
Result<bool> parse_switch(const Json& config, std::string_view where) {
  const Json* value = find_field(config, kGrows);
  if (value && value->is_number_integer()) return *value != 0;
  return get_bool_or(config, kGrows, true, where);
}

Status check_kinds(const Json& config, const ModelConfig& out, std::string_view where) {
  const Json* kinds = find_field(config, kKinds);
  if (!kinds) return {};
  if (!kinds->is_array() || kinds->size() != static_cast<size_t>(out.layer_count)) {
    return fail(Code::kCorrupt, "{}: field \"{}\" must be a list of {} names, one per layer", where,
                kKinds, out.layer_count);
  }
  for (int64_t i = 0; i < out.layer_count; ++i) {
    if ((*kinds)[static_cast<size_t>(i)] == kind_of(out, i)) continue;
    return fail(Code::kUnsupported,
                "{}: field \"{}\" says {} of layer {}; supported is \"{}\", as layers that turn "
                "have chunks, and others none",
                where, kKinds, dump_json((*kinds)[static_cast<size_t>(i)]).substr(0, 80), i,
                kind_of(out, i));
  }
  return {};
}

}  // namespace

Status parse_llama4_layers(const Json& config, ModelConfig& out, std::string_view where) {
  const bool whole = present(config, kChunk) && !find_field(config, kChunk);
  if (!whole) {
    JIGE_TRY(out.attention_chunk, get_size_or(config, kChunk, kChunkDefault, where));
  }
  JIGE_DO(check_kinds(config, out, where));
  JIGE_TRY(const bool grows, parse_switch(config, where));
  if (!grows) return {};
  JIGE_TRY(out.query_growth.rate, get_number_or(config, kGrowth, kGrowthDefault, where));
  JIGE_TRY(out.query_growth.context,
           get_size_or(config, kGrowthContext, kGrowthContextDefault, where));
  if (out.query_growth.rate == 0) out.query_growth = {};
  return {};
}

void emit_llama4_layers(const ModelConfig& config, Json& out) {
  Json turned = Json::array();
  Json kinds = Json::array();
  for (int64_t i = 0; i < config.layer_count; ++i) {
    turned.push_back(turns(config, i) ? 1 : 0);
    kinds.push_back(kind_of(config, i));
  }
  out["no_rope_layers"] = std::move(turned);
  out[kKinds] = std::move(kinds);
  out[kChunk] = config.attention_chunk > 0 ? Json(config.attention_chunk) : Json();
  const QueryGrowthConfig& growth = config.query_growth;
  out[kGrows] = growth.rate > 0;
  if (growth.rate == 0) return;
  out[kGrowth] = growth.rate;
  out[kGrowthContext] = growth.context;
}

Status check_llama4_layers(const ModelConfig& config, std::string_view where) {
  const QueryGrowthConfig& growth = config.query_growth;
  if (!family_info(config.family).chunks) {
    if (config.attention_chunk == 0 && growth == QueryGrowthConfig()) return {};
    return fail(Code::kInvalidArgument,
                "{}: {} models have attention without chunks, and queries that do not grow", where,
                family_name(config.family));
  }
  const int64_t chunk = config.attention_chunk;
  if (chunk < 0 || chunk > kContextMax || chunk % kChunkStep != 0) {
    return fail(Code::kUnsupported,
                "{}: field \"{}\" is {}; supported are multiples of {} up to {}, or null", where,
                kChunk, chunk, kChunkStep, kContextMax);
  }
  if (!(growth.rate >= 0 && growth.rate <= kGrowthMax)) {
    return fail(Code::kInvalidArgument, "{}: field \"{}\" is {}; it must lie in [0, {}]", where,
                kGrowth, growth.rate, kGrowthMax);
  }
  if (growth.rate > 0 && (growth.context < 1 || growth.context > kContextMax)) {
    return fail(Code::kInvalidArgument, "{}: field \"{}\" is {}; it must lie in [1, {}]", where,
                kGrowthContext, growth.context, kContextMax);
  }
  return {};
}

Status parse_llama4_experts(const Json& config, ModelConfig& out, std::string_view where) {
  ExpertConfig& experts = out.experts;
  experts.sigmoid_scores = experts.weighs_inputs = true;
  experts.shared_ffn_size = experts.ffn_size;
  JIGE_TRY(const int64_t step, get_size_or(config, kExpertStep, 1, where));
  if (out.layer_count < 1 || out.layer_count > kLayersMax) return {};  // refused by the checks
  std::vector<uint8_t> dense;
  const Json* list = find_field(config, kExpertLayers);
  for (int64_t i = 1; i <= out.layer_count; ++i) dense.push_back(list || i % step != 0);
  if (list && !list->is_array()) {
    return fail(Code::kCorrupt, "{}: field \"{}\" must be a list", where, kExpertLayers);
  }
  for (size_t i = 0; list && i < list->size(); ++i) {
    JIGE_TRY(const int64_t layer, get_int(Json{{kExpertLayers, (*list)[i]}}, kExpertLayers, where));
    if (layer < 0 || layer >= out.layer_count) {
      return fail(Code::kCorrupt, "{}: field \"{}\" names layer {} of {}", where, kExpertLayers,
                  layer, out.layer_count);
    }
    dense[static_cast<size_t>(layer)] = 0;
  }
  const auto count = std::count(dense.begin(), dense.end(), uint8_t{1});
  if (count == out.layer_count) {
    return fail(Code::kUnsupported,
                "{}: fields \"{}\" and \"{}\" leave no layer with experts, which is not supported "
                "for {}",
                where, kExpertLayers, kExpertStep, family_name(out.family));
  }
  if (count > 0) out.layer_is_dense = std::move(dense);
  return {};
}

void emit_llama4_experts(const ModelConfig& config, Json& out) {
  Json layers = Json::array();
  for (int64_t i = 0; i < config.layer_count; ++i) {
    if (has_experts(config, i)) layers.push_back(i);
  }
  out[kExpertLayers] = std::move(layers);
}

Status check_llama4_experts(const ModelConfig& config, std::string_view where) {
  const ExpertConfig& experts = config.experts;
  ExpertConfig known;
  known.count = experts.count;
  known.chosen = experts.chosen;
  known.ffn_size = known.shared_ffn_size = experts.ffn_size;
  known.sigmoid_scores = known.weighs_inputs = true;
  if (experts != known) {
    return fail(Code::kInvalidArgument, "{}: {} models do not choose or weigh experts so", where,
                family_name(config.family));
  }
  if (config.layer_is_dense.empty() ||
      config.layer_is_dense.size() == static_cast<size_t>(config.layer_count)) {
    return {};
  }
  return fail(Code::kInvalidArgument, "{}: {} are flags of {} layers for {}", where, kExpertLayers,
              config.layer_is_dense.size(), config.layer_count);
}

}  // namespace jige::formats
