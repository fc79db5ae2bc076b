#include "formats/lora_config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/file_content.h"
#include "base/json.h"
#include "formats/json_file.h"

namespace jige::formats {
namespace {

constexpr std::string_view kPrefix = "base_model.model.";
constexpr std::pair<LoraPart, std::string_view> kSuffixes[] = {
    {LoraPart::kA, ".lora_A.weight"},
    {LoraPart::kB, ".lora_B.weight"},
    {LoraPart::kMagnitude, ".lora_magnitude_vector"},
    {LoraPart::kMagnitude, ".lora_magnitude_vector.weight"},
    {LoraPart::kBiasOfB, ".lora_B.bias"}};
constexpr size_t kTargetsMax = 4096;
constexpr double kLoraAlphaMax = 1e9;

// Variants that change what the tensors mean are refused by name.
Status check_plain_lora(const Json& json, std::string_view where) {
  JIGE_TRY(const std::string kind, get_string(json, "peft_type", where));
  if (kind != "LORA") {
    return fail(Code::kUnsupported, "{}: adapter kind \"{}\" is not supported; it must be LORA",
                where, kind);
  }
  JIGE_TRY(const std::string bias, get_string_or(json, "bias", "none", where));
  if (bias != "none" && bias != "all" && bias != "lora_only") {
    return fail(Code::kUnsupported,
                "{}: field \"bias\" is \"{}\"; supported are \"none\", \"all\" and \"lora_only\"",
                where, bias);
  }
  for (const char* field :
       {"use_qalora", "use_bdlora", "trainable_token_indices", "target_parameters",
        "megatron_config", "layer_replication", "alora_invocation_tokens", "arrow_config",
        "kasa_config", "monteclora_config"}) {
    const Json* value = find_field(json, field);
    const bool unused = !value || (value->is_boolean() && !value->get<bool>()) ||
                        ((value->is_array() || value->is_object()) && value->empty());
    if (!unused) {
      return fail(Code::kUnsupported, "{}: field \"{}\" is {}, which Jige does not support", where,
                  field, dump_json(*value).substr(0, 80));
    }
  }
  // Other ways to begin move a part of the base weights into the adapter.
  const Json* start = find_field(json, "init_lora_weights");
  if (start && start->is_string() && *start != "gaussian" && *start != "orthogonal" &&
      *start != "eva") {
    return fail(Code::kUnsupported,
                "{}: field \"init_lora_weights\" is {}, which changes the base weights; it is not "
                "supported",
                where, dump_json(*start).substr(0, 80));
  }
  return {};
}

Status parse_targets(const Json& json, LoraConfig& out, std::string_view where) {
  const Json* targets = find_field(json, "target_modules");
  if (!targets) return fail(Code::kNotFound, "{}: field \"target_modules\" is missing", where);
  if (targets->is_string()) {
    out.target_pattern = targets->get<std::string>();
    return {};
  }
  if (!targets->is_array() || targets->empty() || targets->size() > kTargetsMax) {
    return fail(Code::kCorrupt, "{}: field \"target_modules\" must be a list of 1 to {} names",
                where, kTargetsMax);
  }
  for (const Json& target : *targets) {
    if (!target.is_string()) {
      return fail(Code::kCorrupt, "{}: field \"target_modules\" holds {}, which is no name", where,
                  dump_json(target).substr(0, 80));
    }
    out.target_modules.push_back(target.get<std::string>());
  }
  std::sort(out.target_modules.begin(), out.target_modules.end());
  return {};
}

// A rank_pattern or alpha_pattern; `read` checks a value.
template <typename Value, typename Read>
Status parse_pattern(const Json& json, const char* field, std::string_view where,
                     std::vector<std::pair<std::string, Value>>& out, Read read) {
  const Json* patterns = find_field(json, field);
  if (!patterns) return {};
  if (!patterns->is_object() || patterns->size() > kTargetsMax) {
    return fail(Code::kCorrupt, "{}: field \"{}\" must be an object of at most {} patterns", where,
                field, kTargetsMax);
  }
  for (const auto& [expression, value] : patterns->items()) {
    JIGE_TRY(const Value number,
             read(*patterns, expression, fmt::format("{}: field \"{}\"", where, field)));
    out.emplace_back(expression, number);
  }
  return {};
}

Result<int64_t> read_rank(const Json& json, std::string_view field, std::string_view where) {
  JIGE_TRY(const int64_t rank, get_int(json, field, where));
  if (rank >= 1 && rank <= kLoraRankMax) return rank;
  return fail(Code::kCorrupt, "{}: field \"{}\" is {}; it must lie in [1, {}]", where, field, rank,
              kLoraRankMax);
}

Result<double> read_alpha(const Json& json, std::string_view field, std::string_view where) {
  JIGE_TRY(const double alpha, get_number(json, field, where));
  if (std::fabs(alpha) <= kLoraAlphaMax) return alpha;
  return fail(Code::kCorrupt, "{}: field \"{}\" is {}; it must lie in [-1e9, 1e9]", where, field,
              alpha);
}

// PEFT declares integers; a whole value is written as one.
Json alpha_json(double alpha) {
  return alpha == std::floor(alpha) ? Json(static_cast<int64_t>(alpha)) : Json(alpha);
}

// What is no attention, where it is no experts; all in order.
void add_mlp(const ModelConfig& config, std::vector<std::string>& modules) {
  if (config.experts.count == 0) {
    modules.insert(modules.end(), {"down_proj", "gate_proj", "up_proj"});
  }
  std::sort(modules.begin(), modules.end());
}

// Of models whose layers are recurrent or have attention.
std::vector<std::string> hybrid_modules(const ModelConfig& config) {
  std::vector<std::string> modules = {"k_proj", "o_proj", "q_proj", "v_proj"};
  if (config.family == Family::kOlmoHybrid) {  // names of attention in delta nets, too
    modules.insert(modules.end(), {"a_proj", "b_proj", "g_proj"});
  } else if (config.family == Family::kQwen3Next) {
    modules.insert(modules.end(), {"in_proj_ba", "in_proj_qkvz", "out_proj"});
  } else if (config.mamba1.columns > 0) {
    modules.insert(modules.end(), {"in_proj", "out_proj", "x_proj"});
  } else if (config.mamba2.heads > 0) {
    modules.push_back("in_proj");
    if (adapts_recurrent_output(config.family)) modules.push_back("out_proj");
  } else {
    modules.insert(modules.end(),
                   {"in_proj_a", "in_proj_b", "in_proj_qkv", "in_proj_z", "out_proj"});
  }
  add_mlp(config, modules);
  return modules;
}

// Of models whose layers have one part each.
std::vector<std::string> single_part_modules(const ModelConfig& config) {
  if (config.mamba1.columns > 0) return {"in_proj", "x_proj"};
  std::vector<std::string> modules;
  if (attention_part_count(config) > recurrent_layer_count(config)) {
    modules.insert(modules.end(), {"k_proj", "o_proj", "q_proj", "v_proj"});
  }
  if (feed_forward_count(config) > 0 && config.experts.count == 0) {
    modules.insert(modules.end(), {"down_proj", "up_proj"});
  }
  if (recurrent_layer_count(config) > 0) modules.push_back("in_proj");
  std::sort(modules.begin(), modules.end());
  return modules;
}

// Modules of a layer of EXAONE 3: as its files name them, and as transformers does in memory.
constexpr std::pair<std::string_view, std::string_view> kExaoneModules[] = {
    {"attn.attention.q_proj", "self_attn.q_proj"},
    {"attn.attention.k_proj", "self_attn.k_proj"},
    {"attn.attention.v_proj", "self_attn.v_proj"},
    {"attn.attention.out_proj", "self_attn.o_proj"},
    {"mlp.c_fc_0", "mlp.gate_proj"},
    {"mlp.c_fc_1", "mlp.up_proj"},
    {"mlp.c_proj", "mlp.down_proj"}};

std::string_view last_name(std::string_view module) { return module.substr(module.rfind('.') + 1); }

// Of the families before Llama; nothing of others.
std::vector<std::string> early_linear_modules(Family family) {
  switch (family) {
    case Family::kGpt2:
    case Family::kGptBigCode:
      return {"c_attn", "c_fc", "c_proj"};
    case Family::kGptNeo:
      return {"c_fc", "c_proj", "k_proj", "out_proj", "q_proj", "v_proj"};
    case Family::kGptJ:
      return {"fc_in", "fc_out", "k_proj", "out_proj", "q_proj", "v_proj"};
    case Family::kOpt:
      return {"fc1", "fc2", "k_proj", "out_proj", "q_proj", "v_proj"};
    case Family::kGptNeoX:
    case Family::kFalcon:
      return {"dense", "dense_4h_to_h", "dense_h_to_4h", "query_key_value"};
    default:
      return {};
  }
}

}  // namespace

double LoraConfig::scale(int64_t of_rank, double of_alpha) const {
  const auto r = static_cast<double>(of_rank);
  return of_alpha / (use_rslora ? std::sqrt(r) : r);
}

Result<LoraConfig> parse_lora_config(const Json& json, std::string_view where) {
  if (!json.is_object()) return fail(Code::kCorrupt, "{}: must be a JSON object", where);
  JIGE_DO(check_plain_lora(json, where));
  LoraConfig out;
  JIGE_TRY(out.rank, read_rank(json, "r", where));
  JIGE_TRY(out.alpha, read_alpha(json, "lora_alpha", where));
  JIGE_TRY(out.dropout, get_number_or(json, "lora_dropout", 0.0, where));
  if (!(out.dropout >= 0.0 && out.dropout < 1.0)) {
    return fail(Code::kCorrupt, "{}: field \"lora_dropout\" is {}; it must lie in [0, 1)", where,
                out.dropout);
  }
  JIGE_TRY(out.use_rslora, get_bool_or(json, "use_rslora", false, where));
  JIGE_TRY(out.use_dora, get_bool_or(json, "use_dora", false, where));
  JIGE_TRY(out.ties_saved, get_bool_or(json, "ensure_weight_tying", false, where));
  JIGE_DO(parse_pattern(json, "rank_pattern", where, out.rank_pattern, read_rank));
  JIGE_DO(parse_pattern(json, "alpha_pattern", where, out.alpha_pattern, read_alpha));
  JIGE_TRY(out.fan_in_fan_out, get_bool_or(json, "fan_in_fan_out", false, where));
  JIGE_TRY(out.base_model, get_string_or(json, "base_model_name_or_path", "", where));
  JIGE_DO(parse_targets(json, out, where));
  return out;
}

Result<LoraConfig> load_lora_config(const std::string& folder) {
  const std::string path = folder + "/adapter_config.json";
  JIGE_TRY(const Json json, load_json_object(path));
  return as_file_content(parse_lora_config(json, path));
}

Json to_peft_config(const LoraConfig& config) {
  Json json;
  json["peft_type"] = "LORA";
  json["task_type"] = "CAUSAL_LM";
  json["base_model_name_or_path"] = config.base_model.empty() ? Json() : Json(config.base_model);
  json["r"] = config.rank;
  json["lora_alpha"] = alpha_json(config.alpha);
  json["lora_dropout"] = config.dropout;
  json["use_rslora"] = config.use_rslora;
  json["use_dora"] = config.use_dora;
  if (config.ties_saved) json["ensure_weight_tying"] = true;
  json["rank_pattern"] = Json::object();
  for (const auto& [expression, rank] : config.rank_pattern) {
    json["rank_pattern"][expression] = rank;
  }
  json["alpha_pattern"] = Json::object();
  for (const auto& [expression, alpha] : config.alpha_pattern) {
    json["alpha_pattern"][expression] = alpha_json(alpha);
  }
  json["fan_in_fan_out"] = config.fan_in_fan_out;
  json["bias"] = "none";
  json["target_modules"] =
      config.target_modules.empty() ? Json(config.target_pattern) : Json(config.target_modules);
  json["modules_to_save"] = nullptr;
  json["inference_mode"] = true;
  return json;
}

std::string lora_tensor_name(std::string_view module, LoraPart part) {
  const auto suffix = std::ranges::find(kSuffixes, part, [](const auto& s) { return s.first; });
  JIGE_CHECK(suffix != std::end(kSuffixes), "{} is no part of an adapted module", module);
  return fmt::format("{}{}{}", kPrefix, module, suffix->second);
}

Result<LoraTensorName> parse_lora_tensor_name(std::string_view name, std::string_view where) {
  constexpr std::string_view kBaseLayer = ".base_layer.";
  const auto refusal = [&] {
    return fail(
        Code::kUnsupported,
        "{}: tensor \"{}\" is not named base_model.model.MODULE.lora_{{A,B}}.weight, nor as "
        "other parts of LoRA or tensors of a base are",
        where, name);
  };
  if (!name.starts_with(kPrefix)) return refusal();
  const std::string_view rest = name.substr(kPrefix.size());
  for (const auto& [part, suffix] : kSuffixes) {
    if (!rest.ends_with(suffix)) continue;
    if (rest.size() == suffix.size()) return refusal();
    return LoraTensorName{std::string(rest.substr(0, rest.size() - suffix.size())), part};
  }
  const bool of_base = rest.ends_with(".weight") || rest.ends_with(".bias");
  if (!of_base || rest.find("lora_") != rest.npos || rest.starts_with('.')) return refusal();
  std::string saved(rest);
  if (const size_t at = saved.find(kBaseLayer); at != saved.npos) {
    saved.erase(at, kBaseLayer.size() - 1);
  }
  return LoraTensorName{std::move(saved), LoraPart::kSaved};
}

std::vector<std::string> lora_target_names(Family family, std::vector<std::string> targets) {
  if (family != Family::kExaone) return targets;
  std::set<std::string> names(targets.begin(), targets.end());
  for (const std::string& target : targets) {
    for (const auto& [stored, in_memory] : kExaoneModules) {
      const bool named = target == stored || stored.ends_with("." + target);
      if (named) names.emplace(last_name(in_memory));
    }
  }
  return {names.begin(), names.end()};
}

std::string exaone_module_in_memory(std::string_view module) {
  constexpr std::string_view kLayers = "transformer.h.";
  if (!module.starts_with(kLayers)) return {};
  module.remove_prefix(kLayers.size());
  const size_t dot = module.find('.');
  for (const auto& [stored, in_memory] : kExaoneModules) {
    if (dot == module.npos || module.substr(dot + 1) != stored) continue;
    return fmt::format("model.layers.{}.{}", module.substr(0, dot), in_memory);
  }
  return {};
}

bool adapts_recurrent_output(Family family) {
  switch (family) {
    case Family::kFalconH1:
    case Family::kNemotronH:
    case Family::kMamba:
    case Family::kFalconMamba:
    case Family::kMamba2:
      return false;
    default:
      return true;
  }
}

std::vector<std::string> lora_linear_modules(const ModelConfig& config) {
  const Family family = config.family;
  if (auto modules = early_linear_modules(family); !modules.empty()) return modules;
  if (family == Family::kStarCoder2) {
    return {"c_fc", "c_proj", "k_proj", "o_proj", "q_proj", "v_proj"};
  }
  if (family == Family::kInternLm2) return {"w1", "w2", "w3", "wo", "wqkv"};
  if (family == Family::kExaone) {
    return {"c_fc_0", "c_fc_1", "c_proj", "k_proj", "out_proj", "q_proj", "v_proj"};
  }
  if (family == Family::kPhi) return {"dense", "fc1", "fc2", "k_proj", "q_proj", "v_proj"};
  if (family == Family::kNanoChat) return {"fc1", "fc2", "k_proj", "o_proj", "q_proj", "v_proj"};
  if (family == Family::kPhi3) return {"down_proj", "gate_up_proj", "o_proj", "qkv_proj"};
  if (family == Family::kGlm || family == Family::kGlm4) {
    return {"down_proj", "gate_up_proj", "k_proj", "o_proj", "q_proj", "v_proj"};
  }
  if (family == Family::kArcee || family == Family::kNemotron || family == Family::kApertus ||
      family == Family::kJais2) {
    return {"down_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"};
  }
  if (config.latent.rank > 0) {
    std::vector<std::string> modules = {"kv_a_proj_with_mqa", "kv_b_proj", "o_proj"};
    const bool query_latent = config.latent.query_rank > 0;
    const std::vector<std::string> queries = query_latent
                                                 ? std::vector<std::string>{"q_a_proj", "q_b_proj"}
                                                 : std::vector<std::string>{"q_proj"};
    modules.insert(modules.end(), queries.begin(), queries.end());
    if (config.delta.by_key) {  // and of delta nets, but for their decays
      modules.insert(modules.end(), {"b_proj", "g_a_proj", "g_b_proj", "k_proj", "v_proj"});
    }
    add_mlp(config, modules);
    return modules;
  }
  if (family == Family::kLfm2 || family == Family::kLfm2Moe) {
    std::vector<std::string> modules = {"k_proj", "out_proj", "q_proj", "v_proj"};
    if (recurrent_layer_count(config) > 0) modules.insert(modules.begin(), "in_proj");
    if (!has_experts(family)) modules.insert(modules.end(), {"w1", "w2", "w3"});
    return modules;
  }
  if (family == Family::kLfm3) {  // but for the gates of heads
    std::vector<std::string> modules = {"k_proj", "o_proj", "q_proj", "v_proj"};
    if (recurrent_layer_count(config) > 0)
      modules = {"in_proj", "k_proj", "o_proj", "out_proj", "q_proj", "v_proj"};
    modules.insert(modules.end(), {"w1", "w2", "w3"});
    return modules;
  }
  if (!config.layer_parts.empty()) return single_part_modules(config);
  if (family == Family::kGraniteHybrid) {
    std::vector<std::string> modules = {"k_proj", "o_proj", "q_proj", "v_proj"};
    if (recurrent_layer_count(config) > 0) modules.insert(modules.end(), {"in_proj", "out_proj"});
    if (config.experts.count == 0) {
      modules.insert(modules.end(), {"input_linear", "output_linear"});
    }
    std::sort(modules.begin(), modules.end());
    return modules;
  }
  if (recurrent_layer_count(config) > 0) return hybrid_modules(config);
  const bool dense = family == Family::kGemma4 && config.experts.count == 0;
  if (has_experts(family) && !dense) return {"k_proj", "o_proj", "q_proj", "v_proj"};
  return {"down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"};
}

}  // namespace jige::formats
