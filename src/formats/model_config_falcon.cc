#include "formats/model_config_falcon.h"

#include <nlohmann/json.hpp>

#include "formats/model_config_fields.h"

namespace jige::formats {
namespace {

constexpr const char* kNewLayers = "new_decoder_architecture";
constexpr const char* kFalconKeyHeads = "num_kv_heads";
constexpr const char* kMultiQuery = "multi_query";
constexpr const char* kSideBySide = "parallel_attn";
constexpr const char* kNormCount = "num_ln_in_parallel_attn";

}  // namespace

Result<int64_t> parse_falcon_kv_heads(const Json& config, const ModelConfig& out,
                                      std::string_view where) {
  JIGE_TRY(const bool is_new, get_bool_or(config, kNewLayers, false, where));
  if (is_new) return get_size_or(config, kFalconKeyHeads, out.head_count, where);
  JIGE_TRY(const bool one, get_bool_or(config, kMultiQuery, true, where));
  return one ? 1 : out.head_count;
}

Status parse_falcon(const Json& config, ModelConfig& out, std::string_view where) {
  JIGE_TRY(const bool is_new, get_bool_or(config, kNewLayers, false, where));
  JIGE_TRY(const bool parallel, get_bool_or(config, kSideBySide, true, where));
  JIGE_TRY(const int64_t norms, get_size_or(config, kNormCount, is_new ? 2 : 1, where));
  if (norms > (is_new ? 2 : 1) || (is_new && !parallel)) {
    return fail(Code::kUnsupported, "{}: {} {}, {} {} and {} {} do not go together", where,
                kNewLayers, is_new, kSideBySide, parallel, kNormCount, norms);
  }
  out.residual = norms == 2 ? ResidualForm::kParallel
                 : parallel ? ResidualForm::kParallelOneNorm
                            : ResidualForm::kSequential;
  return {};
}

void emit_falcon(const ModelConfig& config, Json& out) {
  const bool one = config.kv_head_count == 1;
  const bool sequential = config.residual == ResidualForm::kSequential;
  const bool two_norms = config.residual == ResidualForm::kParallel;
  const bool is_new = two_norms || (!one && !sequential);
  out[kNewLayers] = is_new;
  out[kMultiQuery] = one;
  out[kSideBySide] = !sequential;
  out["alibi"] = false;
  if (!is_new) return;
  out[kFalconKeyHeads] = config.kv_head_count;
  out[kNormCount] = two_norms ? 2 : 1;
}

Status check_falcon(const ModelConfig& config, std::string_view where) {
  const bool grouped = config.kv_head_count != 1 && config.kv_head_count != config.head_count;
  if (config.residual != ResidualForm::kSequential || !grouped) return {};
  return fail(Code::kInvalidArgument,
              "{}: falcon models whose parts stand one after the other have one key/value head or "
              "as many as heads, not {}",
              where, config.kv_head_count);
}

}  // namespace jige::formats
