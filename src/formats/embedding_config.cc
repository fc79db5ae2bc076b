#include "formats/embedding_config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/file_content.h"
#include "base/json.h"
#include "formats/json_file.h"
#include "formats/model_config.h"

namespace jige::formats {
namespace {

constexpr std::string_view kPoolingNames[] = {"lasttoken", "mean", "weightedmean",
                                              "cls",       "max",  "mean_sqrt_len_tokens"};
constexpr std::string_view kLibrary = "sentence_transformers.";
constexpr size_t kModulesMax = 64;

// The older form of the pooling's file: a flag for each mode.
struct ModeFlag {
  const char* field;
  const char* mode;
};
constexpr ModeFlag kModeFlags[] = {{"pooling_mode_cls_token", "cls"},
                                   {"pooling_mode_max_tokens", "max"},
                                   {"pooling_mode_mean_tokens", "mean"},
                                   {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens"},
                                   {"pooling_mode_weightedmean_tokens", "weightedmean"},
                                   {"pooling_mode_lasttoken", "lasttoken"}};

// Names from files, in errors of bounded length.
std::string cut_short(std::string_view text) { return std::string(text.substr(0, 80)); }

// A file that need not be there: null then.
Result<Json> load_optional(const std::string& path) {
  Result<Json> json = load_json_object(path);
  if (!json && json.error().code == Code::kNotFound) return Json();
  return json;
}

struct Modules {
  std::string pooling_path;
  std::vector<std::string> dense_paths;
  bool normalise = false;
};

tl::unexpected<Error> refuse_module(std::string_view where, size_t index, std::string_view type) {
  return fail(
      Code::kUnsupported,
      "{}: module {} has the type \"{}\", which Jige does not compute; it computes "
      "Transformer, Pooling, Dense and Normalize of sentence_transformers, in this order: take "
      "a model without the others",
      where, index, cut_short(type));
}

// Where a module's files are: a folder inside the model's.
Status check_path(std::string_view where, size_t index, const std::string& path) {
  const bool inside = !path.empty() && path.front() != '/' && path.find("..") == std::string::npos;
  if (inside && path.find('\0') == std::string::npos) return {};
  return fail(Code::kCorrupt,
              "{}: field \"path\" of module {} is \"{}\"; it must name a folder "
              "inside the model's",
              where, index, cut_short(path));
}

// The kind of a module, "Pooling"; empty for a class of another library.
std::string_view module_kind(std::string_view type) {
  return type.starts_with(kLibrary) ? type.substr(type.rfind('.') + 1) : std::string_view();
}

Result<Modules> parse_modules(const Json& list, std::string_view where) {
  if (!list.is_array() || list.size() > kModulesMax) {
    return fail(Code::kCorrupt, "{}: must be a list of at most {} modules", where, kModulesMax);
  }
  if (list.size() < 2) {
    return fail(Code::kUnsupported,
                "{}: lists {} module(s) and no Pooling, which makes one vector of a text; take the "
                "folder of an embedding model",
                where, list.size());
  }
  Modules modules;
  for (size_t i = 0; i < list.size(); ++i) {
    JIGE_TRY(const std::string type, get_string(list[i], "type", where));
    JIGE_TRY(const std::string path, get_string_or(list[i], "path", "", where));
    const std::string_view kind = module_kind(type);
    const bool dense = i > 1 && kind == "Dense";
    const bool last = i > 1 && i + 1 == list.size() && kind == "Normalize";
    if (!(i == 0 ? kind == "Transformer" : i == 1 ? kind == "Pooling" : dense || last)) {
      return refuse_module(where, i, type);
    }
    if (i == 0 && !path.empty()) {
      return fail(Code::kUnsupported,
                  "{}: field \"path\" of module 0 is \"{}\": Jige reads models that lie in the "
                  "folder itself; move what is in there beside modules.json, and set it to \"\"",
                  where, cut_short(path));
    }
    if (i == 1 || dense) JIGE_DO(check_path(where, i, path));
    if (i == 1) modules.pooling_path = path;
    if (dense) modules.dense_paths.push_back(path);
    modules.normalise = last;
  }
  return modules;
}

// The modes that a pooling's file names.
Result<std::vector<std::string>> parse_modes(const Json& json, std::string_view where) {
  std::vector<std::string> modes;
  if (const Json* mode = find_field(json, "pooling_mode")) {
    const Json list = mode->is_array() ? *mode : Json::array({*mode});
    for (const Json& entry : list) {
      if (!entry.is_string()) {
        return fail(Code::kCorrupt, "{}: field \"pooling_mode\" must be a name or a list of names",
                    where);
      }
      modes.push_back(entry.get<std::string>());
    }
  } else {
    for (const ModeFlag& flag : kModeFlags) {
      JIGE_TRY(const bool on, get_bool_or(json, flag.field, false, where));
      if (on) modes.push_back(flag.mode);
    }
  }
  // The mean is what sentence-transformers takes where nothing is said.
  if (modes.empty()) modes.push_back("mean");
  return modes;
}

Status parse_poolings(const Json& json, std::string_view where, EmbeddingConfig& config) {
  JIGE_TRY(const std::vector<std::string> modes, parse_modes(json, where));
  std::vector<PoolingKind> kinds;
  for (const std::string& mode : modes) {
    const std::optional<PoolingKind> kind = find_pooling(mode);
    if (!kind || modes.size() > std::size(kPoolingNames)) {
      return fail(
          Code::kUnsupported,
          "{}: field \"pooling_mode\" names {}, which Jige does not compute; it computes {}, "
          "or several of them: choose one with --pooling if the model was made for it",
          where, cut_short(mode), fmt::join(kPoolingNames, ", "));
    }
    kinds.push_back(*kind);
  }
  config.pooling = kinds.front();
  config.further.assign(kinds.begin() + 1, kinds.end());
  return {};
}

Status read_pooling(const std::string& path, std::optional<PoolingKind> chosen,
                    EmbeddingConfig& config) {
  JIGE_TRY(const Json json, load_json_object(path));
  if (chosen) {
    config.pooling = *chosen;
  } else {
    JIGE_DO(parse_poolings(json, path, config));
  }
  JIGE_TRY(config.include_prompt, get_bool_or(json, "include_prompt", true, path));
  const bool old = !find_field(json, "embedding_dimension");
  const char* field = old ? "word_embedding_dimension" : "embedding_dimension";
  JIGE_TRY(config.width, get_int_or(json, field, 0, path));
  if (config.width >= 0 && config.width <= kHiddenMax) return {};
  return fail(Code::kCorrupt, "{}: field \"{}\" is {}; it must lie in [1, {}]", path, field,
              config.width, kHiddenMax);
}

Status read_layers(const std::string& folder, const std::vector<std::string>& paths,
                   EmbeddingConfig& config) {
  if (paths.empty()) return {};
  std::vector<VectorLayer> layers;
  for (const std::string& path : paths) {
    JIGE_TRY(VectorLayer layer, load_vector_layer(folder + "/" + path));
    const auto poolings = static_cast<int64_t>(1 + config.further.size());
    const int64_t width = layers.empty() ? poolings * config.width : layers.back().outputs;
    if (width > 0 && layer.inputs != width) {
      return fail(Code::kCorrupt,
                  "{}/{}/config.json: field \"in_features\" is {}, but the module before it gives "
                  "{} numbers",
                  folder, path, layer.inputs, width);
    }
    layers.push_back(std::move(layer));
  }
  config.layers = std::make_shared<const std::vector<VectorLayer>>(std::move(layers));
  return {};
}

Status read_prompts(const std::string& path, EmbeddingConfig& config) {
  JIGE_TRY(const Json json, load_optional(path));
  if (const Json* prompts = find_field(json, "prompts")) {
    if (!prompts->is_object()) {
      return fail(Code::kCorrupt, "{}: field \"prompts\" must be an object of texts by name", path);
    }
    for (const auto& [name, value] : prompts->items()) {
      if (value.is_null()) continue;
      if (!value.is_string()) {
        return fail(Code::kCorrupt, "{}: prompt \"{}\" must be a text", path, cut_short(name));
      }
      config.prompts.emplace_back(name, value.get<std::string>());
    }
  }
  JIGE_TRY(config.default_prompt, get_string_or(json, "default_prompt_name", "", path));
  if (config.default_prompt.empty() || config.find_prompt(config.default_prompt)) return {};
  return fail(Code::kCorrupt,
              "{}: field \"default_prompt_name\" is \"{}\", which is not among \"prompts\"; add it "
              "there, or set the name to null",
              path, cut_short(config.default_prompt));
}

Status read_limits(const std::string& folder, EmbeddingConfig& config) {
  JIGE_TRY(const TextLimits limits, load_text_limits(folder));
  config.tokens_max = limits.tokens_max;
  config.cuts_left = limits.cuts_left;
  const std::string path = folder + "/sentence_bert_config.json";
  JIGE_TRY(const Json json, load_optional(path));
  JIGE_TRY(config.lowers, get_bool_or(json, "do_lower_case", false, path));
  JIGE_TRY(const std::string task, get_string_or(json, "transformer_task", "", path));
  if (!task.empty() && task != "feature-extraction") {
    return fail(Code::kUnsupported,
                "{}: field \"transformer_task\" is \"{}\"; embeddings are made by a model of the "
                "task feature-extraction: take such a folder",
                path, cut_short(task));
  }
  if (!find_field(json, "max_seq_length")) return {};
  JIGE_TRY(config.tokens_max, get_int(json, "max_seq_length", path));
  if (config.tokens_max >= 1 && config.tokens_max <= kContextMax) return {};
  return fail(Code::kCorrupt, "{}: field \"max_seq_length\" is {}; it must lie in [1, {}]", path,
              config.tokens_max, kContextMax);
}

// Reads modules.json; empty where there is none.
Result<std::optional<Modules>> load_modules(const std::string& path) {
  const Result<std::string> text = read_file(path, kConfigBytesMax);
  if (!text && text.error().code == Code::kNotFound) return std::optional<Modules>();
  if (!text) return tl::unexpected<Error>(text.error());
  JIGE_TRY(const Json json, parse_json(*text, path));
  JIGE_TRY(Modules modules, parse_modules(json, path));
  return std::optional(std::move(modules));
}

}  // namespace

std::optional<PoolingKind> find_pooling(std::string_view name) {
  const auto* found = std::find(std::begin(kPoolingNames), std::end(kPoolingNames), name);
  if (found == std::end(kPoolingNames)) return std::nullopt;
  return static_cast<PoolingKind>(found - std::begin(kPoolingNames));
}

std::vector<std::string> pooling_names() {
  return {std::begin(kPoolingNames), std::end(kPoolingNames)};
}

bool is_embedding_folder(const std::string& folder) {
  std::error_code error;
  return std::filesystem::exists(folder + "/modules.json", error);
}

const std::string* EmbeddingConfig::find_prompt(std::string_view name) const {
  const auto found = std::find_if(prompts.begin(), prompts.end(),
                                  [&](const auto& prompt) { return prompt.first == name; });
  return found == prompts.end() ? nullptr : &found->second;
}

Result<TextLimits> load_text_limits(const std::string& folder) {
  const std::string path = folder + "/tokenizer_config.json";
  JIGE_TRY(const Json json, load_optional(path));
  JIGE_TRY(const std::string side, get_string_or(json, "truncation_side", "right", path));
  if (side != "left" && side != "right") {
    return fail(Code::kCorrupt,
                "{}: field \"truncation_side\" is \"{}\"; it must be \"left\" or \"right\"", path,
                cut_short(side));
  }
  JIGE_TRY(const double length, get_number_or(json, "model_max_length", 0, path));
  // Without a limit the field is 10^30.
  const Json* inputs = find_field(json, "model_input_names");
  const bool listed = inputs && inputs->is_array();
  const bool limited = length >= 1 && length <= static_cast<double>(kContextMax);
  return TextLimits{.tokens_max = limited ? static_cast<int64_t>(length) : 0,
                    .cuts_left = side == "left",
                    .has_types = !listed || std::find(inputs->begin(), inputs->end(),
                                                      "token_type_ids") != inputs->end()};
}

Result<EmbeddingConfig> load_embedding_config(const std::string& folder,
                                              std::optional<PoolingKind> pooling) {
  const auto load = [&]() -> Result<EmbeddingConfig> {
    EmbeddingConfig config;
    if (pooling) config.pooling = *pooling;
    JIGE_TRY(const std::optional<Modules> modules, load_modules(folder + "/modules.json"));
    if (modules) {
      config.normalise = modules->normalise;
      const std::string path = folder + "/" + modules->pooling_path + "/config.json";
      JIGE_DO(read_pooling(path, pooling, config));
      JIGE_DO(read_layers(folder, modules->dense_paths, config));
    }
    JIGE_DO(read_prompts(folder + "/config_sentence_transformers.json", config));
    JIGE_DO(read_limits(folder, config));
    return config;
  };
  return as_file_content(load());
}

}  // namespace jige::formats
