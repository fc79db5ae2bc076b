#include "formats/model_config_latent.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/json.h"
#include "formats/model_config_fields.h"
#include "formats/model_families.h"

namespace jige::formats {
namespace {

constexpr const char* kRankField = "kv_lora_rank";
constexpr const char* kQueryRankField = "q_lora_rank";
constexpr const char* kUnturnedField = "qk_nope_head_dim";
constexpr const char* kTurnedField = "qk_rope_head_dim";
constexpr const char* kValueField = "v_head_dim";
constexpr const char* kNeighboursField = "rope_interleave";

// What transformers takes for sizes that are left out.
struct LatentDefaults {
  int64_t rank = 512;
  int64_t query_rank = 1536;
  int64_t unturned = 128;
  int64_t turned = 64;
  int64_t value_dim = 128;
};

// Of MiniCPM3 values are as wide as the width allows heads to be.
LatentDefaults latent_defaults(const ModelConfig& config) {
  if (config.family == Family::kGlm4MoeLite) {
    return {.query_rank = 768, .unturned = 192, .value_dim = 256};
  }
  if (config.family == Family::kKimiLinear) return {.query_rank = 0};
  if (config.family == Family::kMistral4) return {.rank = 256, .query_rank = 1024, .unturned = 64};
  if (config.family != Family::kMiniCpm3) return {};
  return {.rank = 256,
          .query_rank = 768,
          .unturned = 64,
          .turned = 32,
          .value_dim = config.hidden_size / std::max<int64_t>(config.head_count, 1)};
}

Status latent_in_range(std::string_view where, const char* field, int64_t value, int64_t low,
                       int64_t high) {
  if (value >= low && value <= high) return {};
  return fail(Code::kInvalidArgument, "{}: field \"{}\" is {}; it must lie in [{}, {}]", where,
              field, value, low, high);
}

// Null means queries of their own.
Result<int64_t> parse_query_rank(const Json& config, int64_t usual, std::string_view where) {
  if (config.contains(kQueryRankField) && config[kQueryRankField].is_null()) return 0;
  if (usual == 0 && !config.contains(kQueryRankField)) return 0;
  JIGE_TRY(const int64_t rank, get_int_or(config, kQueryRankField, usual, where));
  if (rank >= 1) return rank;
  return fail(Code::kCorrupt, "{}: field \"{}\" is {}; it must be positive or null", where,
              kQueryRankField, rank);
}

}  // namespace

Status parse_latent(const Json& config, ModelConfig& out, std::string_view where) {
  const LatentDefaults usual = latent_defaults(out);
  JIGE_TRY(out.latent.rank, get_int_or(config, kRankField, usual.rank, where));
  JIGE_TRY(out.latent.query_rank, parse_query_rank(config, usual.query_rank, where));
  JIGE_TRY(out.latent.value_dim, get_int_or(config, kValueField, usual.value_dim, where));
  JIGE_TRY(const int64_t unturned, get_int_or(config, kUnturnedField, usual.unturned, where));
  JIGE_TRY(out.rotary_dim, get_int_or(config, kTurnedField, usual.turned, where));
  for (const auto& [field, value] :
       {std::pair(kUnturnedField, unturned), std::pair(kTurnedField, out.rotary_dim)}) {
    if (value >= 1 && value <= kHeadDimMax) continue;
    return fail(Code::kCorrupt, "{}: field \"{}\" is {}; it must lie in [1, {}]", where, field,
                value, kHeadDimMax);
  }
  out.head_dim = unturned + out.rotary_dim;
  if (family_info(out.family).chooses_neighbours) {
    JIGE_TRY(out.turns_neighbours, get_bool_or(config, kNeighboursField, true, where));
  }
  return {};
}

void emit_latent(const ModelConfig& config, Json& out) {
  out[kRankField] = config.latent.rank;
  out[kQueryRankField] = config.latent.query_rank > 0 ? Json(config.latent.query_rank) : Json();
  out[kUnturnedField] = config.head_dim - config.rotary_dim;
  out[kTurnedField] = config.rotary_dim;
  out[kValueField] = config.latent.value_dim;
  // What the rotary embeddings of transformers go by; of Mistral 4 they take a part of it.
  out["head_dim"] = config.family == Family::kMistral4 ? config.head_dim : config.rotary_dim;
  if (family_info(config.family).chooses_neighbours) {
    out[kNeighboursField] = config.turns_neighbours;
  }
}

Status check_latent(const ModelConfig& config, std::string_view where) {
  const LatentConfig& latent = config.latent;
  if (!family_info(config.family).latent_attention) {
    if (latent == LatentConfig()) return {};
    return fail(Code::kInvalidArgument, "{}: {} models have no latents, and one of {} is given",
                where, family_name(config.family), latent.rank);
  }
  JIGE_DO(latent_in_range(where, kRankField, latent.rank, 1, kHiddenMax));
  JIGE_DO(latent_in_range(where, kQueryRankField, latent.query_rank, 0, kHiddenMax));
  JIGE_DO(latent_in_range(where, kTurnedField, config.rotary_dim, 2, config.head_dim - 1));
  JIGE_DO(latent_in_range(where, kValueField, latent.value_dim, 1, kHeadDimMax));
  if (latent.value_dim > config.head_dim) {
    return fail(Code::kUnsupported,
                "{}: values wider than keys are not supported: {} is {}, {} and {} together {}",
                where, kValueField, latent.value_dim, kUnturnedField, kTurnedField,
                config.head_dim);
  }
  if (config.kv_head_count != config.head_count) {
    return fail(Code::kInvalidArgument,
                "{}: {} models have as many key/value heads as heads; num_key_value_heads is {}, "
                "num_attention_heads {}",
                where, family_name(config.family), config.kv_head_count, config.head_count);
  }
  if (config.qkv_bias && latent.query_rank == 0) {
    return fail(Code::kUnsupported,
                "{}: field \"attention_bias\" is true, which is not supported where {} is null",
                where, kQueryRankField);
  }
  return {};
}

int64_t latent_parameter_count(const ModelConfig& config) {
  const LatentConfig& latent = config.latent;
  const int64_t width = config.hidden_size;
  const int64_t heads = config.head_count;
  const int64_t queries = heads * config.head_dim;
  const int64_t down = latent.query_rank + latent.rank + config.rotary_dim;
  const int64_t unturned = config.head_dim - config.rotary_dim;
  int64_t count = width * down + latent.rank;
  count += latent.query_rank > 0 ? latent.query_rank * (queries + 1) : width * queries;
  count += latent.rank * heads * (unturned + latent.value_dim);
  count += heads * latent.value_dim * width;
  if (config.qkv_bias) count += down;
  if (config.output_bias) count += width;
  return count;
}

}  // namespace jige::formats
