#include "text/tokenizer_config.h"

#include <charconv>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/file_content.h"
#include "text/component.h"
#include "text/unicode.h"

namespace jige::text {
namespace {

constexpr size_t kFileBytesMax = size_t{64} << 20;

// A special token is a text or an object with a "content".
Status read_token(const Json& object, const char* field, const std::string& where,
                  std::string& token) {
  const Json* value = find_field(object, field);
  if (!value || !token.empty()) return {};
  if (value->is_object()) {
    JIGE_TRY(token, get_string(*value, "content", where));
    return {};
  }
  JIGE_TRY(token, get_string(object, field, where));
  return {};
}

Status read_roles(const Json& object, const std::string& where, TokenizerConfig& config) {
  JIGE_DO(read_token(object, "bos_token", where, config.bos_token));
  JIGE_DO(read_token(object, "eos_token", where, config.eos_token));
  JIGE_DO(read_token(object, "pad_token", where, config.pad_token));
  JIGE_DO(read_token(object, "unk_token", where, config.unk_token));
  JIGE_DO(read_token(object, "cls_token", where, config.words.cls_token));
  JIGE_DO(read_token(object, "sep_token", where, config.words.sep_token));
  return read_token(object, "mask_token", where, config.words.mask_token);
}

Status read_added(const Json& object, const std::string& where, TokenizerConfig& config) {
  const Json* added = find_field(object, "added_tokens_decoder");
  if (!added) return {};
  if (!added->is_object()) {
    return fail(Code::kInvalidArgument, "{}: \"added_tokens_decoder\" must be an object", where);
  }
  for (const auto& [key, value] : added->items()) {
    AddedToken token;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), token.id);
    if (error != std::errc() || end != key.data() + key.size()) {
      return fail(Code::kInvalidArgument,
                  "{}: \"added_tokens_decoder\" has the key \"{}\", not an id", where, key);
    }
    JIGE_TRY(token.content, get_string(value, "content", where));
    JIGE_TRY(token.special, get_bool_or(value, "special", false, where));
    JIGE_TRY(token.single_word, get_bool_or(value, "single_word", false, where));
    JIGE_TRY(token.lstrip, get_bool_or(value, "lstrip", false, where));
    JIGE_TRY(token.rstrip, get_bool_or(value, "rstrip", false, where));
    JIGE_TRY(token.normalized, get_bool_or(value, "normalized", !token.special, where));
    config.added.push_back(std::move(token));
  }
  return {};
}

// A template is a text, or a list of {"name", "template"} from which "default" is taken, else the
// first.
Status read_template(const Json& object, const std::string& where, TokenizerConfig& config) {
  const Json* value = find_field(object, "chat_template");
  if (!value) return {};
  if (!value->is_array()) {
    JIGE_TRY(config.chat_template, get_string(object, "chat_template", where));
    return {};
  }
  for (const Json& entry : *value) {
    JIGE_TRY(const std::string name, get_string(entry, "name", where));
    JIGE_TRY(std::string source, get_string(entry, "template", where));
    if (name == "default" || config.chat_template.empty()) {
      config.chat_template = std::move(source);
    }
    if (name == "default") break;
  }
  return {};
}

// "auto_map": {"AutoTokenizer": "file.Class" or ["file.Class", …]}.
void read_code(const Json& object, TokenizerConfig& config) {
  const Json* map = find_field(object, "auto_map");
  const Json* name = map && map->is_object() ? find_field(*map, "AutoTokenizer") : nullptr;
  if (name && name->is_array() && !name->empty()) name = &name->front();
  if (name && name->is_string()) config.tokenizer_code = name->get<std::string>();
}

Status read_flag(const Json& object, const char* field, const std::string& where,
                 std::optional<bool>& flag) {
  if (!find_field(object, field)) return {};
  JIGE_TRY(flag, get_bool_or(object, field, false, where));
  return {};
}

Status read_tokenizer_config(const std::string& text, const std::string& where,
                             TokenizerConfig& config) {
  JIGE_TRY(const Json json, parse_json(text, where));
  if (!json.is_object()) return fail(Code::kCorrupt, "{}: is not a JSON object", where);
  JIGE_DO(read_roles(json, where, config));
  JIGE_DO(read_added(json, where, config));
  JIGE_DO(read_template(json, where, config));
  if (const Json* name = find_field(json, "tokenizer_class"); name && name->is_string()) {
    config.tokenizer_class = name->get<std::string>();
  }
  read_code(json, config);
  WordListConfig& words = config.words;
  JIGE_DO(read_flag(json, "do_lower_case", where, words.lowers));
  JIGE_TRY(words.splits_punctuation, get_bool_or(json, "split_by_punct", false, where));
  JIGE_DO(read_flag(json, "strip_accents", where, words.strips_accents));
  JIGE_TRY(words.spaces_chinese, get_bool_or(json, "tokenize_chinese_chars", true, where));
  JIGE_DO(read_flag(json, "add_bos_token", where, config.add_bos));
  return read_flag(json, "add_eos_token", where, config.add_eos);
}

Status read_generation_config(const std::string& text, const std::string& where,
                              TokenizerConfig& config) {
  JIGE_TRY(const Json json, parse_json(text, where));
  const Json* eos = find_field(json, "eos_token_id");
  if (!eos) return {};
  for (const Json& id : eos->is_array() ? *eos : Json::array({*eos})) {
    if (!id.is_number_integer()) {
      return fail(Code::kInvalidArgument, "{}: \"eos_token_id\" holds {}, not an id", where,
                  dump_json(id));
    }
    config.generation_eos_ids.push_back(id.get<int64_t>());
  }
  return {};
}

// Folders with images had their template in a file of its own for a while.
Status read_template_json(const std::string& folder, TokenizerConfig& config) {
  const std::string path = folder + "/chat_template.json";
  JIGE_TRY(const auto text, read_optional_file(path));
  if (!text) return {};
  JIGE_TRY(const Json json, parse_json(*text, path));
  return as_file_content(read_template(json, path, config));
}

}  // namespace

Result<std::optional<std::string>> read_optional_file(const std::string& path) {
  Result<std::string> text = read_file(path, kFileBytesMax);
  if (text) return std::optional<std::string>(std::move(*text));
  if (text.error().code == Code::kNotFound) return std::optional<std::string>();
  return tl::unexpected<Error>(std::move(text.error()));
}

Result<TokenizerConfig> load_tokenizer_config(const std::string& folder) {
  TokenizerConfig config;
  const std::string config_path = folder + "/tokenizer_config.json";
  JIGE_TRY(const auto config_text, read_optional_file(config_path));
  if (config_text) {
    JIGE_DO(as_file_content(read_tokenizer_config(*config_text, config_path, config)));
  }

  const std::string map_path = folder + "/special_tokens_map.json";
  JIGE_TRY(const auto map_text, read_optional_file(map_path));
  if (map_text) {
    JIGE_TRY(const Json map, parse_json(*map_text, map_path));
    JIGE_DO(as_file_content(read_roles(map, map_path, config)));
  }

  const std::string template_path = folder + "/chat_template.jinja";
  JIGE_TRY(auto template_text, read_optional_file(template_path));
  if (template_text) {
    if (!is_valid_utf8(*template_text)) {
      return fail(Code::kCorrupt, "{}: is not valid UTF-8", template_path);
    }
    config.chat_template = std::move(*template_text);
  }
  if (config.chat_template.empty()) JIGE_DO(read_template_json(folder, config));

  const std::string generation_path = folder + "/generation_config.json";
  JIGE_TRY(const auto generation_text, read_optional_file(generation_path));
  if (generation_text) {
    JIGE_DO(as_file_content(read_generation_config(*generation_text, generation_path, config)));
  }
  return config;
}

}  // namespace jige::text
