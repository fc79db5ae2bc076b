#include "formats/model_config_gemma3n.h"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include "formats/model_config_fields.h"
#include "formats/model_families.h"

namespace jige::formats {
namespace {

constexpr int64_t kStreamsMin = 2;
constexpr int64_t kStreamsMax = 4;
constexpr int64_t kStreamsDefault = 4;
constexpr int64_t kRankDefault = 64;
constexpr int64_t kInputColumnsDefault = 256;
constexpr int64_t kInputVocabDefault = 262144;
constexpr int64_t kSharedLayersDefault = 15;
// Where nothing is said, the first layers of deep models have sparse gates.
constexpr int64_t kSparseLayersDefault = 10;
constexpr double kSparsityDefault = 0.95;
constexpr double kSparsityMax = 0.9999;
constexpr double kClipMax = 1e6;
constexpr const char* kFfnSize = "intermediate_size";
constexpr const char* kStreams = "altup_num_inputs";
constexpr const char* kActive = "altup_active_idx";
constexpr const char* kClip = "altup_coef_clip";
constexpr const char* kScalesCorrected = "altup_correct_scale";
constexpr const char* kRank = "laurel_rank";
constexpr const char* kSparsity = "activation_sparsity_pattern";
constexpr const char* kInputColumns = "hidden_size_per_layer_input";
constexpr const char* kInputVocab = "vocab_size_per_layer_input";
constexpr const char* kSharedKeys = "num_kv_shared_layers";

}  // namespace

Result<int64_t> parse_gemma3n_ffn_size(const Json& config, std::string_view where) {
  const Json* list = find_field(config, kFfnSize);
  if (!list || !list->is_array()) return get_int(config, kFfnSize, where);
  const bool same =
      std::adjacent_find(list->begin(), list->end(), std::not_equal_to<>()) == list->end();
  if (list->empty() || !same) {
    return fail(Code::kUnsupported,
                "{}: field \"{}\" must have the same number for every layer; layers of different "
                "widths are not supported",
                where, kFfnSize);
  }
  return get_int(Json{{kFfnSize, list->front()}}, kFfnSize, where);
}

Status parse_gemma3n(const Json& config, ModelConfig& out, std::string_view where) {
  JIGE_TRY(const int64_t active, get_int_or(config, kActive, 0, where));
  if (active != 0) {
    return fail(Code::kUnsupported,
                "{}: field \"{}\" is {}; layers compute with stream 0 in models that Jige supports",
                where, kActive, active);
  }
  JIGE_TRY(out.altup.streams, get_int_or(config, kStreams, kStreamsDefault, where));
  JIGE_TRY(out.altup.scales_corrected, get_bool_or(config, kScalesCorrected, true, where));
  const bool unclipped = present(config, kClip) && !find_field(config, kClip);
  const double usual_clip = unclipped ? 0.0 : AltUpConfig().clip;
  JIGE_TRY(out.altup.clip, get_number_or(config, kClip, usual_clip, where));
  JIGE_TRY(out.laurel_rank, get_int_or(config, kRank, kRankDefault, where));
  JIGE_TRY(out.layer_inputs.size, get_int_or(config, kInputColumns, kInputColumnsDefault, where));
  JIGE_TRY(out.layer_inputs.vocab_size, get_int_or(config, kInputVocab, kInputVocabDefault, where));
  JIGE_TRY(out.shared_kv_layers, get_int_or(config, kSharedKeys, kSharedLayersDefault, where));
  return {};
}

Status parse_ffn_sparsity(const Json& config, ModelConfig& out, std::string_view where) {
  const auto count = static_cast<size_t>(out.layer_count);
  std::vector<double> shares(count, 0.0);
  if (const Json* list = find_field(config, kSparsity)) {
    if (!list->is_array() || list->size() != count) {
      return fail(Code::kCorrupt, "{}: field \"{}\" must be a list of {} numbers, one per layer",
                  where, kSparsity, count);
    }
    for (size_t i = 0; i < count; ++i) {
      JIGE_TRY(shares[i], get_number(Json{{kSparsity, (*list)[i]}}, kSparsity, where));
    }
  } else if (out.layer_count > kSparseLayersDefault) {
    std::fill_n(shares.begin(), kSparseLayersDefault, kSparsityDefault);
  }
  const bool any =
      std::any_of(shares.begin(), shares.end(), [](double share) { return share != 0; });
  if (any) out.ffn_sparsity = std::move(shares);
  return {};
}

Status check_gemma3n(const ModelConfig& config, std::string_view where) {
  const AltUpConfig& altup = config.altup;
  if (!family_info(config.family).altup) {
    if (altup == AltUpConfig() && config.laurel_rank == 0 && config.ffn_sparsity.empty()) return {};
    return fail(Code::kInvalidArgument,
                "{}: {} models have one residual stream, nothing beside attention and dense gates",
                where, family_name(config.family));
  }
  const auto in_range = [&](const char* field, auto value, auto low, auto high) -> Status {
    if (value >= low && value <= high) return {};  // false for NaN
    return fail(Code::kInvalidArgument, "{}: field \"{}\" is {}; it must lie in [{}, {}]", where,
                field, value, low, high);
  };
  JIGE_DO(in_range(kStreams, altup.streams, kStreamsMin, kStreamsMax));
  JIGE_DO(in_range(kClip, altup.clip, 0.0, kClipMax));
  JIGE_DO(in_range(kRank, config.laurel_rank, int64_t{1}, kHiddenMax));
  JIGE_DO(in_range(kInputColumns, config.layer_inputs.size, int64_t{1}, kHiddenMax));
  const std::vector<double>& shares = config.ffn_sparsity;
  if (!shares.empty() && shares.size() != static_cast<size_t>(config.layer_count)) {
    return fail(Code::kInvalidArgument, "{}: {} has {} entries for {} layers", where, kSparsity,
                shares.size(), config.layer_count);
  }
  for (const double share : shares) JIGE_DO(in_range(kSparsity, share, 0.0, kSparsityMax));
  return {};
}

void emit_gemma3n(const ModelConfig& config, Json& out) {
  const auto layers = static_cast<size_t>(config.layer_count);
  out[kStreams] = config.altup.streams;
  out[kActive] = 0;
  out[kScalesCorrected] = config.altup.scales_corrected;
  out[kClip] = config.altup.clip > 0 ? Json(config.altup.clip) : Json();
  out[kRank] = config.laurel_rank;
  out[kSparsity] =
      config.ffn_sparsity.empty() ? std::vector<double>(layers, 0.0) : config.ffn_sparsity;
  out[kInputColumns] = config.layer_inputs.size;
  out[kInputVocab] = config.layer_inputs.vocab_size;
  out[kSharedKeys] = config.shared_kv_layers;
}

}  // namespace jige::formats
