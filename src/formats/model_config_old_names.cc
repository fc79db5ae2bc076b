#include "formats/model_config_old_names.h"

#include <nlohmann/json.hpp>
#include <string>

namespace jige::formats {
namespace {

struct OldName {
  std::string_view model_type;
  const char* old_name;
  const char* name;
};

constexpr OldName kOldNames[] = {
    {"exaone", "num_layers", "num_hidden_layers"},
    {"exaone", "layer_norm_epsilon", "rms_norm_eps"},
    {"exaone", "activation_function", "hidden_act"},
    {"internlm3", "qkv_bias", "attention_bias"},
    {"internlm3", "bias", "mlp_bias"},
    {"kimi_linear", "model_max_length", "max_position_embeddings"},
    {"kimi_linear", "moe_renormalize", "norm_topk_prob"},
    {"kimi_linear", "num_expert_group", "n_group"},
    {"kimi_linear", "num_experts_per_token", "num_experts_per_tok"},
    {"kimi_linear", "num_shared_experts", "n_shared_experts"},
    {"nomic_bert", "n_embd", "hidden_size"},
    {"nomic_bert", "n_layer", "num_hidden_layers"},
    {"nomic_bert", "n_head", "num_attention_heads"},
    {"nomic_bert", "n_inner", "intermediate_size"},
    {"nomic_bert", "n_positions", "max_position_embeddings"},
    {"nomic_bert", "layer_norm_epsilon", "layer_norm_eps"},
    {"nomic_bert", "activation_function", "hidden_act"},
    {"nomic_bert", "rotary_emb_base", "rope_theta"},
};

// What other folders of a family call it, and what their classes begin with.
struct OtherType {
  std::string_view other, type;
  std::string_view other_class, own_class;
};
constexpr OtherType kOtherTypes[] = {{"gte", "new", "Gte", "New"}};

void rename_type(Json& config) {
  for (const OtherType& one : kOtherTypes) {
    if (config["model_type"] != one.other) continue;
    config["model_type"] = one.type;
    const auto classes = config.find("architectures");
    if (classes == config.end() || !classes->is_array()) continue;
    for (Json& name : *classes) {
      if (!name.is_string()) continue;
      const auto text = name.get<std::string>();
      if (!text.starts_with(one.other_class)) continue;
      name = std::string(one.own_class) + text.substr(one.other_class.size());
    }
  }
}

}  // namespace

Result<Json> with_usual_names(Json config, std::string_view where) {
  const auto type = config.find("model_type");
  if (type == config.end() || !type->is_string()) return config;
  rename_type(config);
  const auto model_type = config["model_type"].get<std::string>();
  for (const OldName& one : kOldNames) {
    const auto old = config.find(one.old_name);
    if (one.model_type != model_type || old == config.end()) continue;
    const Json value = *old;
    config.erase(one.old_name);
    const auto other = config.find(one.name);
    if (other != config.end() && *other != value) {
      return fail(Code::kCorrupt, "{}: {} ({}) contradicts {} ({})", where, one.old_name,
                  dump_json(value).substr(0, 80), one.name, dump_json(*other).substr(0, 80));
    }
    config[one.name] = value;
  }
  return config;
}

}  // namespace jige::formats
