#include "formats/model_config_sizes.h"

#include <nlohmann/json.hpp>

#include "formats/model_config_fields.h"
#include "formats/model_families.h"

namespace jige::formats {

Result<int64_t> get_own_or_common(const Json& config, std::string_view own, std::string_view common,
                                  std::string_view where) {
  const bool by_common = !find_field(config, own) && find_field(config, common);
  JIGE_TRY(const int64_t value, get_int(config, by_common ? common : own, where));
  JIGE_TRY(const int64_t other, get_int_or(config, common, value, where));
  if (other == value) return value;
  return fail(Code::kCorrupt, "{}: {} ({}) contradicts {} ({})", where, own, value, common, other);
}

Result<int64_t> parse_ffn_size(const Json& config, const ModelConfig& out, std::string_view where) {
  const SizeFields fields = size_fields(out.family);
  if (!family_info(out.family).ffn_of_width) return get_int(config, fields.ffn, where);
  if (out.hidden_size < 1 || out.hidden_size > kHiddenMax) {
    return fail(Code::kCorrupt, "{}: field \"{}\" is {}; it must lie in [1, {}]", where,
                fields.hidden, out.hidden_size, kHiddenMax);
  }
  return get_size_or(config, fields.ffn, 4 * out.hidden_size, where);
}

Result<int64_t> parse_context(const Json& config, Family family, std::string_view where) {
  const std::string_view field = size_fields(family).context;
  const int64_t usual = family_info(family).context;
  if (usual > 0) return get_size_or(config, field, usual, where);
  return get_own_or_common(config, field, "max_position_embeddings", where);
}

Result<int64_t> divided_head_dim(const ModelConfig& config, std::string_view where) {
  const SizeFields fields = size_fields(config.family);
  if (config.head_count < 1 || config.hidden_size % config.head_count != 0) {
    return fail(Code::kCorrupt, "{}: {} ({}) does not divide {} ({})", where, fields.heads,
                config.head_count, fields.hidden, config.hidden_size);
  }
  return config.hidden_size / config.head_count;
}

}  // namespace jige::formats
