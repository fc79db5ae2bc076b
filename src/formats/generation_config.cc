#include "formats/generation_config.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "base/file_content.h"
#include "formats/json_file.h"
#include "formats/model_config.h"

namespace jige::formats {
namespace {

constexpr int64_t kCountMax = int64_t{1} << 40;

bool absent(const Json& json, const char* field) {
  const auto it = json.find(field);
  return it == json.end() || it->is_null();
}

// Reads fields of one object into optionals, with range checks.
class FieldReader {
 public:
  FieldReader(const Json& json, std::string_view where) : json_(json), where_(where) {}

  Status integer(const char* field, int64_t low, int64_t high, std::optional<int64_t>& out) const {
    if (absent(json_, field)) return {};
    JIGE_TRY(const int64_t value, get_int(json_, field, where_));
    if (value < low || value > high) return out_of_range(field, value, low, high);
    out = value;
    return {};
  }

  // `positive` excludes zero.
  Status real(const char* field, double high, bool positive, std::optional<double>& out) const {
    if (absent(json_, field)) return {};
    JIGE_TRY(const double value, get_number(json_, field, where_));
    if (!(value >= 0.0 && value <= high) || (positive && value == 0.0)) {
      return fail(Code::kCorrupt, "{}: field \"{}\" is {}; it must lie in {}0, {}]", where_, field,
                  value, positive ? "(" : "[", high);
    }
    out = value;
    return {};
  }

  // -1 stands for "none" in old folders.
  Status token_id(const char* field, std::optional<int32_t>& out) const {
    std::optional<int64_t> value;
    JIGE_DO(integer(field, -1, std::numeric_limits<int32_t>::max(), value));
    if (value && *value >= 0) out = static_cast<int32_t>(*value);
    return {};
  }

 private:
  tl::unexpected<Error> out_of_range(const char* field, int64_t value, int64_t low,
                                     int64_t high) const {
    return fail(Code::kCorrupt, "{}: field \"{}\" is {}; it must lie in [{}, {}]", where_, field,
                value, low, high);
  }

  const Json& json_;
  std::string_view where_;
};

Status parse_eos(const Json& json, std::string_view where, std::vector<int32_t>& out) {
  if (absent(json, "eos_token_id")) return {};
  const Json& value = json.at("eos_token_id");
  const Json list = value.is_array() ? value : Json::array({value});
  if (list.size() > kEosIdsMax) {
    return fail(Code::kCorrupt, "{}: field \"eos_token_id\" has {} entries; at most {}", where,
                list.size(), kEosIdsMax);
  }
  for (const Json& entry : list) {
    const Json wrapped = {{"eos_token_id", entry}};
    std::optional<int32_t> id;
    JIGE_DO(FieldReader(wrapped, where).token_id("eos_token_id", id));
    if (id) out.push_back(*id);
  }
  return {};
}

template <typename T>
void put(Json& json, const char* field, const std::optional<T>& value) {
  if (value) json[field] = *value;
}

}  // namespace

Result<GenerationConfig> parse_generation_config(const Json& json, std::string_view where) {
  if (!json.is_object()) return fail(Code::kCorrupt, "{}: must be a JSON object", where);
  GenerationConfig out;
  const FieldReader reader(json, where);
  JIGE_DO(parse_eos(json, where, out.eos_ids));
  JIGE_DO(reader.token_id("bos_token_id", out.bos_id));
  JIGE_DO(reader.token_id("pad_token_id", out.pad_id));
  if (!absent(json, "do_sample")) {
    JIGE_TRY(out.do_sample, get_bool_or(json, "do_sample", false, where));
  }
  JIGE_DO(reader.real("temperature", 1e4, false, out.temperature));
  JIGE_DO(reader.integer("top_k", 0, kCountMax, out.top_k));
  JIGE_DO(reader.real("top_p", 1.0, true, out.top_p));
  JIGE_DO(reader.real("min_p", 1.0, false, out.min_p));
  JIGE_DO(reader.real("repetition_penalty", 1e4, true, out.repetition_penalty));
  JIGE_DO(reader.integer("max_new_tokens", 1, kCountMax, out.max_new_tokens));
  JIGE_DO(reader.integer("max_length", 1, kCountMax, out.max_length));
  return out;
}

Result<GenerationConfig> load_generation_config(const std::string& folder) {
  const std::string path = folder + "/generation_config.json";
  Result<Json> json = load_json_object(path);
  if (!json && json.error().code == Code::kNotFound) return GenerationConfig();
  if (!json) return tl::unexpected<Error>(std::move(json.error()));
  return as_file_content(parse_generation_config(*json, path));
}

Json to_hf_generation_config(const GenerationConfig& config) {
  Json json = Json::object();
  put(json, "bos_token_id", config.bos_id);
  if (config.eos_ids.size() == 1) json["eos_token_id"] = config.eos_ids[0];
  if (config.eos_ids.size() > 1) json["eos_token_id"] = config.eos_ids;
  put(json, "pad_token_id", config.pad_id);
  put(json, "do_sample", config.do_sample);
  put(json, "temperature", config.temperature);
  put(json, "top_k", config.top_k);
  put(json, "top_p", config.top_p);
  put(json, "min_p", config.min_p);
  put(json, "repetition_penalty", config.repetition_penalty);
  put(json, "max_new_tokens", config.max_new_tokens);
  put(json, "max_length", config.max_length);
  return json;
}

}  // namespace jige::formats
