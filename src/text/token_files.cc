#include "text/token_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "text/tokenizer_config.h"

namespace jige::text {
namespace {

constexpr const char* kConfigFile = "tokenizer_config.json";
constexpr const char* kSpecialFile = "special_tokens_map.json";
constexpr const char* kAddedFile = "added_tokens.json";
constexpr const char* kStatedField = "added_tokens_decoder";
constexpr const char* kExtraField = "extra_special_tokens";
constexpr const char* kAdditionalField = "additional_special_tokens";

// Types of models whose class is known where their folders name none; of those that begin as
// Qwen2's and Qwen3's names do it is Qwen2's.
constexpr std::array<std::string_view, 9> kGpt2Types = {
    "gpt2", "opt", "gptj", "gpt_neo", "codegen", "phi", "starcoder2", "jais2", "dbrx"};
constexpr std::array<std::string_view, 14> kRobertaTypes = {"roberta",    "roberta-prelayernorm",
                                                            "bart",       "bridgetower",
                                                            "clap",       "data2vec-text",
                                                            "florence2",  "ibert",
                                                            "led",        "lilt",
                                                            "longformer", "mega",
                                                            "mra",        "mvp"};

struct RoleField {
  const char* name;
  std::string RoleTexts::*text;
};
// In the order in which their tokens are added.
constexpr std::array<RoleField, 7> kRoleFields = {{{"bos_token", &RoleTexts::bos},
                                                   {"eos_token", &RoleTexts::eos},
                                                   {"unk_token", &RoleTexts::unk},
                                                   {"sep_token", &RoleTexts::sep},
                                                   {"pad_token", &RoleTexts::pad},
                                                   {"cls_token", &RoleTexts::cls},
                                                   {"mask_token", &RoleTexts::mask}}};

bool is_role(std::string_view field) {
  return std::ranges::any_of(kRoleFields, [&](const RoleField& one) { return one.name == field; });
}

// A token as a file names it.
struct NamedToken {
  std::string content;
  bool has_flags = false;  // an object; a text says nothing of the flags
  bool special = false;
  bool single_word = false;
  bool lstrip = false;
  bool rstrip = false;
  std::optional<bool> normalized = {};  // otherwise where it is not special

  bool is_normalized() const { return normalized.value_or(!special); }
  bool operator==(const NamedToken& other) const {
    if (content != other.content || has_flags != other.has_flags) return false;
    return !has_flags || (special == other.special && single_word == other.single_word &&
                          lstrip == other.lstrip && rstrip == other.rstrip &&
                          is_normalized() == other.is_normalized());
  }
};

// `where` names the file and the field.
Result<NamedToken> read_named(const Json& value, const std::string& where) {
  NamedToken token;
  if (value.is_string()) {
    token.content = value.get<std::string>();
    return token;
  }
  if (!value.is_object()) {
    return fail(Code::kInvalidArgument, "{} holds {}, not the text of a token", where,
                dump_json(value).substr(0, 80));
  }
  token.has_flags = true;
  JIGE_TRY(token.content, get_string(value, "content", where));
  JIGE_TRY(token.special, get_bool_or(value, "special", false, where));
  JIGE_TRY(token.single_word, get_bool_or(value, "single_word", false, where));
  JIGE_TRY(token.lstrip, get_bool_or(value, "lstrip", false, where));
  JIGE_TRY(token.rstrip, get_bool_or(value, "rstrip", false, where));
  if (find_field(value, "normalized")) {
    JIGE_TRY(token.normalized, get_bool_or(value, "normalized", false, where));
  }
  return token;
}

using Fields = std::vector<std::pair<std::string, Json>>;
using StatedTokens = std::map<int64_t, NamedToken>;

void set_field(Fields& fields, const std::string& name, const Json& value) {
  const auto found = std::ranges::find(fields, name, &Fields::value_type::first);
  if (found == fields.end()) {
    fields.emplace_back(name, value);
  } else {
    found->second = value;
  }
}

bool is_token(const Json& value) { return value.is_string() || value.is_object(); }

bool says_something(const Json* value) {
  return value && !(value->is_structured() && value->empty()) && *value != Json("");
}

// What the files say together, before anything of it is added.
class TokenReader {
 public:
  TokenReader(const TokenFiles& files, std::string_view where)
      : fields_(files.config), where_(where) {
    if (!fields_.is_object()) fields_ = Json::object();
  }

  Status read(const TokenFiles& files) {
    take_own_fields();
    if (const Json* stated = find_field(fields_, kStatedField)) return read_decoder(*stated);
    if (fields_.contains(kStatedField)) return {};
    read_special_map(files.special);
    return read_added(files.added);
  }

  const StatedTokens& stated() const { return stated_; }

  // The tokens with a role and of other fields, in order; `roles` receives the texts of the former.
  Result<std::vector<NamedToken>> named(const RoleTexts& usual, RoleTexts& roles) const {
    std::vector<NamedToken> named;
    for (const RoleField& role : kRoleFields) {
      NamedToken token{.content = usual.*role.text};
      if (const Json* value = find_field(fields_, role.name)) {
        JIGE_TRY(token, read_named(*value, place(role.name)));
      } else if (fields_.contains(role.name)) {
        token = {};
      }
      roles.*role.text = token.content;
      if (!token.content.empty()) named.push_back(std::move(token));
    }
    Fields others;
    for (const auto& [field, value] : fields_.items()) {
      if (is_other_field(field) && is_token(value)) set_field(others, field, value);
    }
    for (const auto& [field, value] : own_) set_field(others, field, value);
    for (const auto& [field, value] : others) {
      JIGE_TRY(NamedToken token, read_named(value, place(field)));
      named.push_back(std::move(token));
    }
    return named;
  }

  Result<std::vector<NamedToken>> extra() const {
    const char* name = fields_.contains(kExtraField) ? kExtraField : kAdditionalField;
    std::vector<NamedToken> tokens;
    const Json* list = find_field(fields_, name);
    if (!list) return tokens;
    if (!list->is_array()) {
      return fail(Code::kInvalidArgument, "{} is not a list of tokens", place(name));
    }
    for (const Json& value : *list) {
      JIGE_TRY(NamedToken token, read_named(value, place(name)));
      tokens.push_back(std::move(token));
    }
    return tokens;
  }

 private:
  static bool is_other_field(std::string_view field) {
    return field.ends_with("_token") && !is_role(field);
  }

  std::string place(std::string_view name) const {
    return fmt::format("{}: \"{}\" in the files beside it", where_, name);
  }

  // A model's own tokens with a name, which lie in a field each or in an object.
  void take_own_fields() {
    if (fields_.contains(kAdditionalField) && !says_something(find_field(fields_, kExtraField))) {
      fields_[kExtraField] = fields_[kAdditionalField];
      fields_.erase(kAdditionalField);
    }
    for (const auto& [field, value] : fields_.items()) {
      if (is_other_field(field) && value.is_string()) set_field(own_, field, value);
    }
    for (const auto& [field, value] : own_) fields_.erase(field);
    take_named_extras();
  }

  void take_named_extras() {
    const Json* extra = find_field(fields_, kExtraField);
    if (!extra || !extra->is_object()) return;
    for (const auto& [field, value] : extra->items()) set_field(own_, field, value);
    fields_.erase(kExtraField);
  }

  Status read_decoder(const Json& decoder) {
    for (const auto& [key, value] : decoder.items()) {
      int64_t id = -1;
      const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
      if (error != std::errc() || end != key.data() + key.size()) {
        return fail(Code::kInvalidArgument, "{} has the key \"{}\", not an id", place(kStatedField),
                    key.substr(0, 80));
      }
      if (!value.is_object()) {
        return fail(Code::kInvalidArgument, "{} of id {} is not an object", place(kStatedField),
                    id);
      }
      JIGE_TRY(stated_[id], read_named(value, place(kStatedField)));
    }
    return {};
  }

  void read_special_map(const Json& map) {
    if (!map.is_object()) return;
    for (const auto& [field, value] : map.items()) {
      if (field == kExtraField && value.is_array()) {
        Json& extra = fields_[kExtraField];
        if (!extra.is_array()) extra = Json::array();
        for (const Json& token : value) extra.push_back(as_special(token));
      } else {
        fields_[field] = field == kExtraField ? value : as_special(value);
      }
    }
    take_named_extras();
  }

  static Json as_special(Json token) {
    if (token.is_object()) token["special"] = true;
    return token;
  }

  // A token is special if it has a role or is an extra one; transformers 5 looks for that before it
  // knows what the objects of tokenizer_config.json are, which say "__type".
  Status read_added(const Json& added) {
    if (!added.is_object()) return {};
    std::unordered_set<std::string> special;
    const auto note = [&](const Json& value) -> Status {
      if (find_field(value, "__type")) return {};
      JIGE_TRY(NamedToken token, read_named(value, place(kAddedFile)));
      special.insert(std::move(token.content));
      return {};
    };
    for (const RoleField& role : kRoleFields) {
      if (const Json* value = find_field(fields_, role.name)) JIGE_DO(note(*value));
    }
    if (const Json* extra = find_field(fields_, kExtraField)) {
      for (const Json& value : *extra) JIGE_DO(note(value));
    }
    for (const auto& [content, id] : added.items()) {
      if (!id.is_number_integer()) {
        return fail(Code::kInvalidArgument, "{}: token \"{}\" has no number", place(kAddedFile),
                    content.substr(0, 80));
      }
      stated_[id.get<int64_t>()] = {
          .content = content, .has_flags = true, .special = special.contains(content)};
    }
    return {};
  }

  Json fields_;  // of tokenizer_config.json, changed by the others
  Fields own_;
  StatedTokens stated_;
  const std::string_view where_;
};

// Gives tokens their ids, one by one.
class TokenPlacer {
 public:
  TokenPlacer(const Vocabulary& vocabulary, int64_t token_count, std::string_view where)
      : vocabulary_(vocabulary), token_count_(token_count), where_(where) {}

  Status add(const NamedToken& token, std::optional<int64_t> stated_id = {}) {
    if (token.content.empty()) return {};
    const auto [entry, is_new] = places_.try_emplace(token.content, added_.size());
    if (is_new) {
      JIGE_TRY(const int64_t id, id_of(token.content));
      added_.push_back({.content = token.content, .id = static_cast<int32_t>(id)});
      id_max_ = std::max(id_max_, id);
    }
    AddedToken& added = added_[entry->second];
    if (stated_id && *stated_id != added.id) {
      return fail(Code::kUnsupported,
                  "{}: the files beside it give token \"{}\" the id {}, which would be {} by its "
                  "place behind the {} tokens here, as transformers 5 counts; take a folder with a "
                  "tokenizer.json, or correct the id",
                  where_, token.content.substr(0, 80), *stated_id, added.id, token_count_);
    }
    added.special = added.special || token.special;
    added.single_word = token.single_word;
    added.lstrip = token.lstrip;
    added.rstrip = token.rstrip;
    added.normalized = token.is_normalized();
    return {};
  }

  std::vector<AddedToken> take() { return std::move(added_); }

 private:
  Result<int64_t> id_of(const std::string& content) const {
    if (const int32_t known = vocabulary_.find(content); known >= 0) return known;
    const int64_t id = std::max(id_max_ + 1, token_count_);
    if (id > kTokenIdMax) {
      return fail(Code::kCorrupt, "{}: added token \"{}\" would have the id {}, above {}", where_,
                  content.substr(0, 80), id, kTokenIdMax);
    }
    if (!vocabulary_.contains(static_cast<int32_t>(id))) return id;
    return fail(Code::kUnsupported,
                "{}: added token \"{}\" gets the id {}, for there are {} tokens here, but \"{}\" "
                "has it; take a folder with a tokenizer.json, or number the tokens without holes",
                where_, content.substr(0, 80), id, token_count_,
                vocabulary_.token(static_cast<int32_t>(id)).substr(0, 80));
  }

  const Vocabulary& vocabulary_;
  const int64_t token_count_;
  const std::string_view where_;
  std::vector<AddedToken> added_;
  std::unordered_map<std::string, size_t> places_;
  int64_t id_max_ = -1;
};

Result<Json> read_object(const std::string& folder, const char* name) {
  const std::string path = folder + "/" + name;
  JIGE_TRY(const auto text, read_optional_file(path));
  if (!text) return Json();
  JIGE_TRY(Json json, parse_json(*text, path));
  if (!json.is_object()) return fail(Code::kCorrupt, "{}: is not a JSON object", path);
  return json;
}

}  // namespace

Result<TokenFiles> read_token_files(const std::string& folder) {
  TokenFiles files;
  JIGE_TRY(files.config, read_object(folder, kConfigFile));
  JIGE_TRY(files.special, read_object(folder, kSpecialFile));
  JIGE_TRY(files.added, read_object(folder, kAddedFile));
  JIGE_TRY(files.model, read_object(folder, "config.json"));
  return files;
}

TokenizerClass tokenizer_class_of(const TokenFiles& files) {
  const auto text = [](const Json& json, const char* field) {
    const Json* value = find_field(json, field);
    return value && value->is_string() ? value->get<std::string>() : std::string();
  };
  std::string name = text(files.config, "tokenizer_class");
  if (!name.empty()) return {.name = std::move(name)};
  name = text(files.model, "tokenizer_class");
  if (!name.empty()) return {.name = std::move(name), .is_by_model = true};
  TokenizerClass by_type{.is_by_model = true, .model_type = text(files.model, "model_type")};
  const std::string& type = by_type.model_type;
  const auto among = [&](const auto& types) {
    return std::ranges::find(types, type) != types.end();
  };
  const bool qwen2 = type.starts_with("qwen2") || type.starts_with("qwen3");
  if (type.empty() || among(kGpt2Types)) by_type.name = "GPT2Tokenizer";
  if (among(kRobertaTypes)) by_type.name = "RobertaTokenizer";
  if (qwen2 && !type.starts_with("qwen3_5")) by_type.name = "Qwen2Tokenizer";
  return by_type;
}

Result<FolderTokens> find_folder_tokens(const TokenFiles& files, const TokenRules& rules,
                                        const Vocabulary& vocabulary, int64_t token_count,
                                        std::string_view where) {
  TokenReader reader(files, where);
  JIGE_DO(reader.read(files));
  FolderTokens tokens;
  JIGE_TRY(std::vector<NamedToken> named, reader.named(rules.usual, tokens.roles));
  JIGE_TRY(const std::vector<NamedToken> extra, reader.extra());
  std::unordered_set<std::string> names;
  for (const NamedToken& token : named) names.insert(token.content);
  named.insert(named.end(), extra.begin(), extra.end());

  TokenPlacer placer(vocabulary, token_count, where);
  std::unordered_set<std::string> stated;
  for (const auto& [id, token] : reader.stated()) {
    NamedToken added = token;
    added.special = added.special || names.contains(token.content);
    JIGE_DO(placer.add(added, id));
    stated.insert(token.content);
  }
  std::unordered_map<std::string, std::vector<NamedToken>> seen;
  for (const NamedToken& token : named) {
    std::vector<NamedToken>& like = seen[token.content];
    if (stated.contains(token.content) || std::ranges::find(like, token) != like.end()) continue;
    like.push_back(token);
    NamedToken added = token;
    added.special = added.special || !added.has_flags || names.contains(token.content);
    JIGE_DO(placer.add(added));
  }
  if (rules.flags_are_lost) {
    for (const NamedToken& token : named) {
      JIGE_DO(placer.add({.content = token.content, .has_flags = true, .special = true}));
    }
  }
  tokens.added = placer.take();
  return tokens;
}

}  // namespace jige::text
