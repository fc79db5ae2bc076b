#include "formats/model_config_token_ids.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/json.h"
#include "base/log.h"
#include "formats/model_config_fields.h"
#include "formats/model_families.h"

namespace jige::formats {
namespace {

// An id, or -1 where the model has none that its vocabulary holds. Folders in the wild name padding
// and end tokens beyond a shrunken vocabulary; such an id can never occur, so it is dropped aloud.
Result<int32_t> checked_id(int64_t id, std::string_view field, const ModelConfig& config,
                           std::string_view where) {
  if (id < -1 || id > std::numeric_limits<int32_t>::max()) {
    return fail(Code::kCorrupt, "{}: field \"{}\" is {}, which is no token id", where, field, id);
  }
  if (id >= config.vocab_size) {
    log_warn("{}: field \"{}\" is {}, outside the vocabulary of {}; it is ignored", where, field,
             id, config.vocab_size);
    return -1;
  }
  return static_cast<int32_t>(id);
}

}  // namespace

Status parse_token_ids(const Json& config, ModelConfig& out, std::string_view where) {
  // A field left out (not null) has the default of its family in transformers, if that fits.
  const auto default_id = [&](std::string_view field, int64_t id) {
    return !present(config, field) && id < out.vocab_size ? id : int64_t{-1};
  };
  const FamilyInfo& defaults = family_info(out.family);
  int64_t bos = default_id("bos_token_id", defaults.bos);
  const int64_t eos = default_id("eos_token_id", defaults.eos);
  int64_t pad = default_id("pad_token_id", defaults.pad);
  JIGE_TRY(bos, get_int_or(config, "bos_token_id", bos, where));
  JIGE_TRY(pad, get_int_or(config, "pad_token_id", pad, where));
  JIGE_TRY(out.bos_id, checked_id(bos, "bos_token_id", out, where));
  JIGE_TRY(out.pad_id, checked_id(pad, "pad_token_id", out, where));

  const Json* list = find_field(config, "eos_token_id");
  std::vector<int64_t> ids;
  if (list && list->is_array()) {
    if (list->size() > kEosIdsMax) {
      return fail(Code::kCorrupt, "{}: field \"eos_token_id\" has {} entries; at most {}", where,
                  list->size(), kEosIdsMax);
    }
    for (const Json& entry : *list) {
      const Json wrapped = {{"eos_token_id", entry}};
      JIGE_TRY(const int64_t id, get_int(wrapped, "eos_token_id", where));
      ids.push_back(id);
    }
  } else {
    JIGE_TRY(const int64_t id, get_int_or(config, "eos_token_id", eos, where));
    ids.push_back(id);
    for (const int64_t more : defaults.more_eos) ids.push_back(default_id("eos_token_id", more));
  }
  for (const int64_t id : ids) {
    JIGE_TRY(const int32_t checked, checked_id(id, "eos_token_id", out, where));
    if (checked >= 0) out.eos_ids.push_back(checked);
  }
  return {};
}

}  // namespace jige::formats
