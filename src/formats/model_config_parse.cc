// config.json -> ModelConfig.
#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/file_content.h"
#include "base/json.h"
#include "base/log.h"
#include "formats/json_file.h"
#include "formats/model_config.h"
#include "formats/model_config_experts.h"
#include "formats/model_families.h"

namespace jige::formats {
namespace {

constexpr int64_t kSlidingWindowDefault = 4096;  // Mistral, Qwen2, Qwen3
constexpr int64_t kMaxWindowLayersDefault = 28;  // Qwen2, Qwen3
constexpr int64_t kQwen3HeadDimDefault = 128;
constexpr int64_t kMistralKvHeadsDefault = 8;  // Mistral, Mixtral
constexpr int64_t kQwenKvHeadsDefault = 32;    // Qwen2, Qwen3
constexpr int64_t kQwen3MoeKvHeadsDefault = 4;
constexpr double kMixtralThetaDefault = 1e6;

bool is_qwen(Family family) { return family == Family::kQwen2 || family == Family::kQwen3; }

bool present(const Json& object, std::string_view field) {
  return object.is_object() && object.contains(std::string(field));
}

// The first entry of "architectures", or empty.
Result<std::string> first_architecture(const Json& config, std::string_view where) {
  const Json* list = find_field(config, "architectures");
  if (!list || (list->is_array() && list->empty())) return std::string();
  if (!list->is_array() || !list->front().is_string()) {
    return fail(Code::kCorrupt, "{}: field \"architectures\" must be a list of names", where);
  }
  return list->front().get<std::string>();
}

Result<Family> detect_family(const Json& config, std::string_view where) {
  JIGE_TRY(const std::string type, get_string_or(config, "model_type", "", where));
  JIGE_TRY(const std::string name, first_architecture(config, where));
  if (type.empty() && name.empty()) {
    return fail(Code::kNotFound, "{}: fields \"model_type\" and \"architectures\" are missing",
                where);
  }
  const FamilyInfo* by_type = nullptr;
  const FamilyInfo* by_name = nullptr;
  std::string known;
  for (const FamilyInfo& info : kFamilies) {
    if (info.model_type == type) by_type = &info;
    if (info.causal_class == name || info.base_class == name) by_name = &info;
    known += (known.empty() ? "" : ", ") + std::string(info.causal_class);
  }
  if ((!type.empty() && !by_type) || (!name.empty() && !by_name)) {
    return fail(
        Code::kUnsupported,
        "{}: architecture \"{}\" (model_type \"{}\") is not one that Jige knows; it knows {}",
        where, name, type, known);
  }
  if (by_type && by_name && by_type != by_name) {
    return fail(Code::kCorrupt, "{}: model_type \"{}\" contradicts architecture \"{}\"", where,
                type, name);
  }
  return (by_type ? by_type : by_name)->family;
}

Result<DType> parse_stored_dtype(const Json& config, std::string_view where) {
  JIGE_TRY(std::string old_name, get_string_or(config, "torch_dtype", "", where));
  JIGE_TRY(std::string new_name, get_string_or(config, "dtype", "", where));
  if (!old_name.empty() && !new_name.empty() && old_name != new_name) {
    return fail(Code::kCorrupt, "{}: torch_dtype \"{}\" contradicts dtype \"{}\"", where, old_name,
                new_name);
  }
  std::string name = new_name.empty() ? old_name : new_name;
  if (name.starts_with("torch.")) name = name.substr(6);
  if (name.empty() || name == "float32") return DType::kF32;
  if (name == "bfloat16") return DType::kBF16;
  if (name == "float16") return DType::kF16;
  return fail(Code::kUnsupported,
              "{}: field \"torch_dtype\" is \"{}\"; supported are float32, bfloat16 and float16",
              where, name);
}

// The families' classes in transformers turn whole heads: they never look at partial_rotary_factor
// without scaling, and with it they fail.
Status check_partial_factor(const Json& object, const Json& config, const RopeConfig& rope,
                            std::string_view where) {
  constexpr const char* kField = "partial_rotary_factor";
  JIGE_TRY(const double top, get_number_or(config, kField, 1.0, where));
  JIGE_TRY(const double factor, get_number_or(object, kField, top, where));
  if (factor == 1.0) return {};
  if (rope.scaling != RopeScaling::kNone) {
    return fail(Code::kUnsupported,
                "{}: field \"{}\" is {}; with scaled rotary embeddings it must be 1 or absent",
                where, kField, factor);
  }
  log_warn("{}: field \"{}\" is {}; the family turns whole heads, so it is ignored", where, kField,
           factor);
  return {};
}

// One rotary description: `object` is rope_parameters, rope_scaling or an empty object.
Result<RopeConfig> parse_rope_object(const Json& object, const Json& config, const ModelConfig& out,
                                     std::string_view where) {
  RopeConfig rope;
  if (out.family == Family::kMixtral) rope.theta = kMixtralThetaDefault;
  JIGE_TRY(const double top_theta, get_number_or(config, "rope_theta", rope.theta, where));
  JIGE_TRY(rope.theta, get_number_or(object, "rope_theta", top_theta, where));
  if (find_field(config, "rope_theta") && rope.theta != top_theta) {
    return fail(Code::kCorrupt, "{}: rope_theta is {} at the top and {} in the rope parameters",
                where, top_theta, rope.theta);
  }
  for (const char* nested : {"full_attention", "sliding_attention"}) {
    if (find_field(object, nested)) {
      return fail(Code::kUnsupported,
                  "{}: rope parameters that differ by layer type (\"{}\") are not supported", where,
                  nested);
    }
  }
  JIGE_TRY(const std::string old_type, get_string_or(object, "type", "default", where));
  JIGE_TRY(const std::string type, get_string_or(object, "rope_type", old_type, where));
  if (type == "linear") {
    rope.scaling = RopeScaling::kLinear;
  } else if (type == "llama3") {
    rope.scaling = RopeScaling::kLlama3;
  } else if (type != "default") {
    return fail(Code::kUnsupported,
                "{}: rope type \"{}\" is not supported; supported are default, linear and llama3",
                where, type);
  }
  JIGE_DO(check_partial_factor(object, config, rope, where));
  if (rope.scaling == RopeScaling::kNone) return rope;
  JIGE_TRY(rope.factor, get_number(object, "factor", where));
  if (rope.scaling == RopeScaling::kLinear) return rope;
  JIGE_TRY(rope.low_freq_factor, get_number(object, "low_freq_factor", where));
  JIGE_TRY(rope.high_freq_factor, get_number(object, "high_freq_factor", where));
  constexpr const char* kOriginal = "original_max_position_embeddings";
  JIGE_TRY(const int64_t top_context, get_int_or(config, kOriginal, out.context_max, where));
  JIGE_TRY(rope.original_context, get_int_or(object, kOriginal, top_context, where));
  if (find_field(config, kOriginal) && rope.original_context != top_context) {
    return fail(Code::kCorrupt, "{}: {} is {} at the top and {} in the rope parameters", where,
                kOriginal, top_context, rope.original_context);
  }
  return rope;
}

// Old folders say rope_theta and rope_scaling, new ones rope_parameters; both must agree.
Result<RopeConfig> parse_rope(const Json& config, const ModelConfig& out, std::string_view where) {
  const Json* parameters = find_field(config, "rope_parameters");
  const Json* scaling = find_field(config, "rope_scaling");
  for (const auto& [object, field] :
       {std::pair{parameters, "rope_parameters"}, std::pair{scaling, "rope_scaling"}}) {
    if (object && !object->is_object()) {
      return fail(Code::kCorrupt, "{}: field \"{}\" must be an object or null", where, field);
    }
  }
  const Json none = Json::object();
  const Json* first = parameters ? parameters : scaling ? scaling : &none;
  JIGE_TRY(const RopeConfig rope, parse_rope_object(*first, config, out, where));
  if (parameters && scaling) {
    // Where only one of the two carries theta, that one counts for both.
    Json filled = *scaling;
    if (!find_field(filled, "rope_theta")) filled["rope_theta"] = rope.theta;
    JIGE_TRY(const RopeConfig other, parse_rope_object(filled, config, out, where));
    if (other != rope) {
      return fail(Code::kCorrupt, "{}: rope_scaling contradicts rope_parameters", where);
    }
  }
  return rope;
}

// "layer_types" as flags, or nothing when the field is absent.
Result<std::optional<std::vector<uint8_t>>> parse_layer_types(const Json& config,
                                                              int64_t layer_count,
                                                              std::string_view where) {
  const Json* list = find_field(config, "layer_types");
  if (!list) return std::nullopt;
  if (!list->is_array() || list->size() != static_cast<size_t>(layer_count)) {
    return fail(Code::kCorrupt,
                "{}: field \"layer_types\" must be a list of {} names, one per layer", where,
                layer_count);
  }
  std::vector<uint8_t> flags;
  for (const Json& entry : *list) {
    const std::string name = entry.is_string() ? entry.get<std::string>() : dump_json(entry);
    if (name != "full_attention" && name != "sliding_attention") {
      return fail(Code::kUnsupported,
                  "{}: layer type \"{}\" is not supported; supported are full_attention and "
                  "sliding_attention",
                  where, name.substr(0, 80));
    }
    flags.push_back(name == "sliding_attention");
  }
  return flags;
}

// An integer that must be positive when it is there.
Result<int64_t> get_size_or(const Json& config, std::string_view field, int64_t fallback,
                            std::string_view where) {
  JIGE_TRY(const int64_t value, get_int_or(config, field, fallback, where));
  if (find_field(config, field) && value < 1) {
    return fail(Code::kCorrupt, "{}: field \"{}\" is {}; it must be positive", where, field, value);
  }
  return value;
}

Status parse_windows(const Json& config, ModelConfig& out, std::string_view where) {
  const bool qwen = is_qwen(out.family);
  bool used = out.family == Family::kMistral ||
              (out.family == Family::kMixtral && find_field(config, "sliding_window"));
  if (qwen || out.family == Family::kQwen3Moe) {
    JIGE_TRY(used, get_bool_or(config, "use_sliding_window", false, where));
  }
  if (used && !(present(config, "sliding_window") && !find_field(config, "sliding_window"))) {
    JIGE_TRY(out.sliding_window,
             get_size_or(config, "sliding_window", kSlidingWindowDefault, where));
  }
  JIGE_TRY(const std::optional<std::vector<uint8_t>> listed,
           parse_layer_types(config, out.layer_count, where));
  std::vector<uint8_t> flags(static_cast<size_t>(out.layer_count), out.sliding_window > 0);
  if (qwen && out.sliding_window > 0) {
    JIGE_TRY(const int64_t full_layers,
             get_int_or(config, "max_window_layers", kMaxWindowLayersDefault, where));
    const auto full = std::clamp<int64_t>(full_layers, 0, out.layer_count);
    std::fill_n(flags.begin(), full, uint8_t{0});
  }
  if (listed && *listed != flags) {
    if (!qwen) {
      return fail(Code::kUnsupported, "{}: field \"layer_types\" is not supported for {} models",
                  where, family_name(out.family));
    }
    if (out.sliding_window == 0) {
      return fail(Code::kCorrupt,
                  "{}: layer_types names sliding_attention, but there is no sliding window in use",
                  where);
    }
    flags = *listed;
  }
  const auto sliding_count = std::count(flags.begin(), flags.end(), uint8_t{1});
  if (sliding_count == 0) out.sliding_window = 0;
  if (sliding_count > 0 && sliding_count < out.layer_count) out.layer_is_sliding = std::move(flags);
  return {};
}

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

Status parse_token_ids(const Json& config, ModelConfig& out, std::string_view where) {
  // A field left out (not null) has the default of its family in transformers, if that fits.
  const bool gpt2 = out.family == Family::kGpt2;
  const bool has_defaults = !is_qwen(out.family) && out.family != Family::kQwen3Moe;
  const auto default_id = [&](std::string_view field, int64_t id) {
    const bool applies = has_defaults && !present(config, field) && id < out.vocab_size;
    return applies ? id : int64_t{-1};
  };
  int64_t bos = default_id("bos_token_id", gpt2 ? 50256 : 1);
  const int64_t eos = default_id("eos_token_id", gpt2 ? 50256 : 2);
  JIGE_TRY(bos, get_int_or(config, "bos_token_id", bos, where));
  JIGE_TRY(const int64_t pad, get_int_or(config, "pad_token_id", -1, where));
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
  }
  for (const int64_t id : ids) {
    JIGE_TRY(const int32_t checked, checked_id(id, "eos_token_id", out, where));
    if (checked >= 0) out.eos_ids.push_back(checked);
  }
  return {};
}

Result<int64_t> divided_head_dim(const ModelConfig& config, std::string_view where) {
  const SizeFields fields = size_fields(config.family);
  if (config.head_count < 1 || config.hidden_size % config.head_count != 0) {
    return fail(Code::kCorrupt, "{}: {} ({}) does not divide {} ({})", where, fields.heads,
                config.head_count, fields.hidden, config.hidden_size);
  }
  return config.hidden_size / config.head_count;
}

// Null means as many as query heads; left out, Llama has as many too.
Result<int64_t> parse_kv_head_count(const Json& config, const ModelConfig& out,
                                    std::string_view where) {
  int64_t fallback = out.head_count;
  if (!present(config, "num_key_value_heads")) {
    const bool mixtral = out.family == Family::kMixtral;
    if (out.family == Family::kMistral || mixtral) fallback = kMistralKvHeadsDefault;
    if (is_qwen(out.family)) fallback = kQwenKvHeadsDefault;
    if (out.family == Family::kQwen3Moe) fallback = kQwen3MoeKvHeadsDefault;
  }
  return get_size_or(config, "num_key_value_heads", fallback, where);
}

Status parse_gated_family(const Json& config, ModelConfig& out, std::string_view where) {
  JIGE_TRY(out.hidden_size, get_int(config, "hidden_size", where));
  JIGE_TRY(out.layer_count, get_int(config, "num_hidden_layers", where));
  JIGE_TRY(out.head_count, get_int(config, "num_attention_heads", where));
  JIGE_TRY(out.ffn_size, get_int(config, "intermediate_size", where));
  JIGE_TRY(out.context_max, get_int(config, "max_position_embeddings", where));
  const double eps_default = out.family == Family::kMixtral ? 1e-5 : 1e-6;
  JIGE_TRY(out.norm_eps, get_number_or(config, "rms_norm_eps", eps_default, where));
  JIGE_TRY(out.kv_head_count, parse_kv_head_count(config, out, where));
  if (find_field(config, "head_dim")) {
    JIGE_TRY(out.head_dim, get_int(config, "head_dim", where));
  } else if (out.family == Family::kQwen3) {
    out.head_dim = kQwen3HeadDimDefault;
  } else {
    JIGE_TRY(out.head_dim, divided_head_dim(out, where));
  }
  JIGE_TRY(const std::string activation, get_string_or(config, "hidden_act", "silu", where));
  if (activation != "silu" && activation != "swish") {
    return fail(Code::kUnsupported,
                "{}: hidden_act \"{}\" is not supported for {}; it must be silu", where, activation,
                family_name(out.family));
  }
  JIGE_TRY(out.tied_embeddings, get_bool_or(config, "tie_word_embeddings", false, where));
  JIGE_TRY(out.rope, parse_rope(config, out, where));
  bool attention_bias = false;
  const bool qwen3 = out.family == Family::kQwen3 || out.family == Family::kQwen3Moe;
  if (out.family == Family::kLlama || qwen3) {
    JIGE_TRY(attention_bias, get_bool_or(config, "attention_bias", false, where));
  }
  out.qkv_bias = attention_bias || out.family == Family::kQwen2;
  out.output_bias = attention_bias;
  if (out.family == Family::kLlama) {
    JIGE_TRY(out.mlp_bias, get_bool_or(config, "mlp_bias", false, where));
  }
  out.qk_norm = qwen3;
  return has_experts(out.family) ? parse_experts(config, out, where) : Status();
}

// GPT-2 spells sizes in its own way, but readers accept the common names too.
Result<int64_t> gpt2_size(const Json& config, std::string_view field, std::string_view common,
                          std::string_view where) {
  const bool own = find_field(config, field);
  JIGE_TRY(const int64_t value,
           get_int(config, own || !find_field(config, common) ? field : common, where));
  JIGE_TRY(const int64_t other, get_int_or(config, common, value, where));
  if (other != value) {
    return fail(Code::kCorrupt, "{}: {} ({}) contradicts {} ({})", where, field, value, common,
                other);
  }
  return value;
}

Result<ActivationKind> parse_gpt2_activation(const Json& config, std::string_view where) {
  JIGE_TRY(const std::string name, get_string_or(config, "activation_function", "gelu_new", where));
  std::string known;
  for (const Gpt2Activation& one : kGpt2Activations) {
    if (one.name == name) return one.kind;
    known += (known.empty() ? "" : ", ") + std::string(one.name);
  }
  return fail(Code::kUnsupported,
              "{}: activation_function \"{}\" is not supported; supported are {}", where, name,
              known);
}

Status parse_gpt2(const Json& config, ModelConfig& out, std::string_view where) {
  JIGE_TRY(out.hidden_size, gpt2_size(config, "n_embd", "hidden_size", where));
  JIGE_TRY(out.layer_count, gpt2_size(config, "n_layer", "num_hidden_layers", where));
  JIGE_TRY(out.head_count, gpt2_size(config, "n_head", "num_attention_heads", where));
  JIGE_TRY(out.context_max, gpt2_size(config, "n_positions", "max_position_embeddings", where));
  if (out.hidden_size < 1 || out.hidden_size > kHiddenMax) {
    return fail(Code::kCorrupt, "{}: field \"n_embd\" is {}; it must lie in [1, {}]", where,
                out.hidden_size, kHiddenMax);
  }
  JIGE_TRY(out.ffn_size, get_size_or(config, "n_inner", 4 * out.hidden_size, where));
  JIGE_TRY(out.norm_eps, get_number_or(config, "layer_norm_epsilon", 1e-5, where));
  out.kv_head_count = out.head_count;
  JIGE_TRY(out.head_dim, divided_head_dim(out, where));
  JIGE_TRY(out.activation, parse_gpt2_activation(config, where));
  JIGE_TRY(out.scores_by_head_dim, get_bool_or(config, "scale_attn_weights", true, where));
  JIGE_TRY(out.scores_by_layer,
           get_bool_or(config, "scale_attn_by_inverse_layer_idx", false, where));
  JIGE_TRY(const bool cross_attention, get_bool_or(config, "add_cross_attention", false, where));
  if (cross_attention) {
    return fail(Code::kUnsupported,
                "{}: field \"add_cross_attention\" is true, which Jige does not support", where);
  }
  JIGE_TRY(out.tied_embeddings, get_bool_or(config, "tie_word_embeddings", true, where));
  out.norm = NormKind::kLayer;
  out.position = PositionKind::kLearned;
  out.qkv_bias = out.output_bias = out.mlp_bias = true;
  return {};
}

}  // namespace

Result<ModelConfig> parse_model_config(const Json& config, std::string_view where) {
  if (!config.is_object()) return fail(Code::kCorrupt, "{}: must be a JSON object", where);
  ModelConfig out;
  JIGE_TRY(out.family, detect_family(config, where));
  if (find_field(config, "quantization_config")) {
    const Json& quantization = *find_field(config, "quantization_config");
    JIGE_TRY(const std::string method, get_string_or(quantization, "quant_method", "?", where));
    return fail(Code::kUnsupported,
                "{}: the weights are quantised (method \"{}\"), which Jige does not read; take the "
                "unquantised model",
                where, method);
  }
  JIGE_TRY(out.vocab_size, get_int(config, "vocab_size", where));
  JIGE_TRY(out.stored_dtype, parse_stored_dtype(config, where));
  JIGE_DO(out.family == Family::kGpt2 ? parse_gpt2(config, out, where)
                                      : parse_gated_family(config, out, where));
  // Sizes first: what follows allocates by the number of layers.
  const auto checked = [&]() -> Status {
    Status status = check_model_config(out, where);
    if (!status) status.error().code = Code::kCorrupt;
    return status;
  };
  JIGE_DO(checked());
  JIGE_DO(parse_windows(config, out, where));
  JIGE_DO(parse_token_ids(config, out, where));
  JIGE_DO(checked());
  return out;
}

Result<ModelConfig> load_model_config(const std::string& folder) {
  const std::string path = folder + "/config.json";
  Result<Json> config = load_json_object(path);
  if (!config && config.error().code == Code::kNotFound) {
    return fail(Code::kNotFound, "{}: is not there; \"{}\" is no Hugging Face model folder", path,
                folder);
  }
  JIGE_TRY(const Json json, std::move(config));
  return as_file_content(parse_model_config(json, path));
}

}  // namespace jige::formats
