#include "formats/gguf_config_fields.h"

#include <fmt/format.h>
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/file_content.h"
#include "formats/gguf_config.h"
#include "formats/gguf_config_rope.h"
#include "formats/gguf_field_reader.h"
#include "formats/gguf_params.h"
#include "formats/model_config_rope.h"
#include "formats/model_families.h"

namespace jige::formats {
namespace {

// Keys that change what a model computes, with the value that changes nothing.
struct NeutralKey {
  std::string_view key;
  double neutral;
};

constexpr NeutralKey kNeutralKeys[] = {
    {"expert_shared_count", 0},
    {"expert_group_count", 1},
    {"expert_gating_func", 1},  // softmax
    {"expert_weights_scale", 1},
    {"leading_dense_block_count", 0},
    {"logit_scale", 1},
    {"embedding_scale", 1},
    {"residual_scale", 1},
    {"attention.scale", 0},
    {"attention.clamp_kqv", 0},
    {"attention.max_alibi_bias", 0},
    {"attention.shared_kv_layers", 0},
    {"attention.sliding_window", 0},
    {"attn_logit_softcapping", 0},
    {"final_logit_softcapping", 0},
    {"nextn_predict_layers", 0},
    {"attention.temperature_scale", 0},
    {"attention.temperature_length", 0},
    {"embedding_length_per_layer_input", 0},
    {"moe_latent_size", 0},
};

// Architectures whose files say all by the usual keys, and those with more of them.
constexpr std::string_view kFieldArchitectures[] = {
    "gpt-oss",        "qwen35",     "qwen35moe",  "qwen3next",     "lfm2",         "lfm2moe",
    "granitehybrid",  "granitemoe", "gemma",      "gemma4",        "glm4",         "glm4moe",
    "cohere2",        "exaone4",    "apertus",    "hunyuan-dense", "ernie4_5-moe", "nemotron_h",
    "nemotron_h_moe", "deepseek2",  "minimax-m2", "dots1",         "hunyuan-moe",  "phi2",
    "phi3",           "chatglm",    "gptneox",    "command-r",     "ernie4_5",     "falcon-h1",
    "minicpm3",       "jais2",      "olmo2"};

}  // namespace

bool has_gguf_fields(std::string_view architecture) {
  return std::find(std::begin(kFieldArchitectures), std::end(kFieldArchitectures), architecture) !=
         std::end(kFieldArchitectures);
}

Status refuse_gguf_keys(const GgufMetadata& keys, const std::string& prefix,
                        const std::function<bool(std::string_view)>& is_read) {
  for (const NeutralKey& entry : kNeutralKeys) {
    if (is_read(entry.key)) continue;
    const std::string key = prefix + std::string(entry.key);
    JIGE_TRY(const auto value, keys.find_number(key));
    if (!value || *value == entry.neutral) continue;
    return fail(Code::kUnsupported, "{}: key \"{}\" is {}, which Jige does not compute",
                keys.where(), key, *value);
  }
  JIGE_TRY(const auto causal, keys.find_bool(prefix + "attention.causal"));
  if (causal.value_or(true)) return {};
  return fail(Code::kUnsupported,
              "{}: key \"{}attention.causal\" is false, which Jige does not "
              "compute",
              keys.where(), prefix);
}

bool has_gguf_tied_head(const GgufFile& file) {
  const GgufTensor* output = file.header().find("output.weight");
  const GgufTensor* table = file.header().find("token_embd.weight");
  if (!output || !table) return true;
  return output->type == table->type && output->dims == table->dims &&
         std::memcmp(file.data(*output), file.data(*table), table->bytes) == 0;
}

int64_t gguf_block_count(const GgufFile& file) {
  const GgufMetadata& keys = file.metadata();
  const auto name = keys.find_text("general.architecture");
  if (!name || !*name) return 0;
  const auto count = keys.find_int(std::string(**name) + ".block_count");
  return count ? count->value_or(0) : 0;
}

Result<ModelConfig> read_gguf_fields(const GgufFile& file) { return GgufFieldReader(file).run(); }

Result<ModelConfig> GgufFieldReader::run() {
  JIGE_DO(read_family());
  JIGE_DO(read_sizes());
  JIGE_DO(read_heads());
  JIGE_DO(read_parts());
  const bool own_rope = out_.contains("rope_parameters");
  if (!own_rope) JIGE_DO(read_turned_columns());
  JIGE_DO(refuse_gguf_keys(keys_, prefix_,
                           [&](std::string_view name) { return read_.contains(name); }));
  JIGE_TRY(ModelConfig config, parse());
  if (!own_rope && family_ != Family::kNemotronH) {
    JIGE_DO(read_gguf_rope(file_, prefix_, config));
    JIGE_DO(set_sliding_rope(config));
    JIGE_DO(as_file_content(check_model_config(config, keys_.where())));
  }
  return config;
}

Result<ModelConfig> GgufFieldReader::parse() const {
  auto config = parse_model_config(out_, keys_.where());
  if (config) return config;
  // A field that the keys say wrong is theirs.
  return as_file_content(std::move(config));
}

std::string GgufFieldReader::key(std::string_view name) {
  read_.emplace(name);
  return prefix_ + std::string(name);
}

tl::unexpected<Error> GgufFieldReader::contradiction(std::string_view name, int64_t value,
                                                     const std::string& other) {
  return fail(Code::kCorrupt, "{}: key \"{}\" is {}, but {}", keys_.where(), key(name), value,
              other);
}

Status GgufFieldReader::put_int(const char* field, std::string_view name) {
  JIGE_TRY(out_[field], keys_.get_same_int(key(name)));
  return {};
}

Status GgufFieldReader::put_int_or(const char* field, std::string_view name, int64_t usual) {
  JIGE_TRY(const auto value, keys_.find_same_int(key(name)));
  out_[field] = value.value_or(usual);
  return {};
}

Status GgufFieldReader::put_number_or(const char* field, std::string_view name, double usual) {
  JIGE_TRY(const auto value, keys_.find_number(key(name)));
  out_[field] = value.value_or(usual);
  return {};
}

Status GgufFieldReader::put_flag_or(const char* field, std::string_view name, bool usual) {
  JIGE_TRY(const auto value, keys_.find_bool(key(name)));
  out_[field] = value.value_or(usual);
  return {};
}

Status GgufFieldReader::put_scale(const char* field, std::string_view name) {
  JIGE_TRY(const auto value, keys_.find_number(key(name)));
  out_[field] = value.value_or(0.0) == 0.0 ? 1.0 : *value;
  return {};
}

bool GgufFieldReader::has_part(int64_t layer, std::string_view name) const {
  return has_tensor(fmt::format("blk.{}.{}", layer, name));
}

int64_t GgufFieldReader::rows_of(std::string_view name) const {
  const GgufTensor* tensor = file_.header().find(name);
  return tensor ? tensor->rows() : 0;
}

Result<std::vector<int64_t>> GgufFieldReader::by_layer(std::string_view name) {
  const std::string path = key(name);
  const auto list = keys_.find_ints(path);
  if (!list) {
    JIGE_TRY(const int64_t one, keys_.get_int(path));
    return std::vector<int64_t>(static_cast<size_t>(layers_), one);
  }
  if (!*list) return fail(Code::kCorrupt, "{}: key \"{}\" is missing", keys_.where(), path);
  std::vector<int64_t> values = **list;
  if (static_cast<int64_t>(values.size()) < layers_) {
    return contradiction(name, static_cast<int64_t>(values.size()),
                         fmt::format("numbers for {} layers", layers_));
  }
  values.resize(static_cast<size_t>(layers_));
  return values;
}

Result<std::vector<uint8_t>> GgufFieldReader::flags_by_layer(std::string_view name,
                                                             std::vector<uint8_t> usual) {
  JIGE_TRY(const auto list, keys_.find_flags(key(name)));
  if (!list) return usual;
  if (static_cast<int64_t>(list->size()) >= layers_) {
    return std::vector<uint8_t>(list->begin(), list->begin() + layers_);
  }
  return fail(Code::kCorrupt, "{}: key \"{}\" has {} truth values for {} layers", keys_.where(),
              key(name), list->size(), layers_);
}

Status GgufFieldReader::put_layer_types(const std::vector<uint8_t>& flags, const char* set,
                                        const char* unset) {
  Json types = Json::array();
  for (const uint8_t flag : flags) types.push_back(flag ? set : unset);
  out_["layer_types"] = std::move(types);
  return {};
}

Status GgufFieldReader::put_windows(int64_t period) {
  constexpr std::string_view kPattern = "attention.sliding_window_pattern";
  JIGE_TRY(const auto window, keys_.find_same_int(key("attention.sliding_window")));
  std::vector<uint8_t> flags;
  if (keys_.has_array(key(kPattern))) {
    JIGE_TRY(flags, flags_by_layer(kPattern, {}));
  } else {
    JIGE_TRY(const auto stated, keys_.find_int(key(kPattern)));
    if (stated.value_or(1) < 1) return contradiction(kPattern, *stated, "must be positive");
    flags = gguf_sliding_layers(layers_, stated.value_or(period));
  }
  const bool none = window.value_or(0) == 0;
  if (none) flags.assign(flags.size(), 0);
  out_["sliding_window"] = none ? Json() : Json(*window);
  return put_layer_types(flags, "sliding_attention", "full_attention");
}

Status GgufFieldReader::expect_gating(int64_t function) {
  constexpr std::string_view kGating = "expert_gating_func";
  JIGE_TRY(const auto value, keys_.find_int(key(kGating)));
  if (value.value_or(0) == 0 || *value == function) return {};
  return fail(Code::kUnsupported, "{}: key \"{}\" is {}; Jige computes such models where it is {}",
              keys_.where(), key(kGating), *value, function);
}

Status GgufFieldReader::read_family() {
  JIGE_TRY(const std::string_view name, keys_.get_text("general.architecture"));
  prefix_ = std::string(name) + ".";
  family_ = gguf_family(name, false);
  // Of both versions files have one name.
  if (family_ == Family::kDeepSeekV3) {
    const std::vector<GgufTensor>& tensors = file_.header().tensors;
    const bool bias = std::any_of(tensors.begin(), tensors.end(), [](const GgufTensor& tensor) {
      return tensor.name.ends_with(".exp_probs_b.bias");
    });
    JIGE_TRY(const auto gating, keys_.find_int(key("expert_gating_func")));
    if (!bias && gating.value_or(1) != 2) family_ = Family::kDeepSeekV2;
  }
  if (family_ == Family::kGraniteMoe) {
    JIGE_TRY(const auto shared, keys_.find_int(key("expert_shared_feed_forward_length")));
    if (shared.value_or(0) > 0) family_ = Family::kGraniteMoeShared;
  }
  if (family_ == Family::kGraniteHybrid && is_bamba()) family_ = Family::kBamba;
  // OLMo 3 is OLMo 2 with windows.
  JIGE_TRY(const auto window, keys_.find_same_int(prefix_ + "attention.sliding_window"));
  if (family_ == Family::kOlmo2 && window.value_or(0) != 0) family_ = Family::kOlmo3;
  out_["model_type"] = family_name(family_);
  return {};
}

Status GgufFieldReader::read_sizes() {
  const SizeFields fields = size_fields(family_);
  JIGE_DO(put_int(fields.hidden.data(), "embedding_length"));
  JIGE_DO(put_int(fields.context.data(), "context_length"));
  JIGE_TRY(const int64_t blocks, keys_.get_int(key("block_count")));
  // Layers that predict further tokens are not read.
  JIGE_TRY(const auto beyond, keys_.find_int(key("nextn_predict_layers")));
  if (beyond.value_or(0) < 0 || beyond.value_or(0) >= std::max<int64_t>(blocks, 1)) {
    return contradiction("nextn_predict_layers", *beyond, fmt::format("there are {}", blocks));
  }
  layers_ = blocks - beyond.value_or(0);  // what follows allocates by it
  if (layers_ < 1 || layers_ > kLayersMax) {
    return fail(Code::kCorrupt, "{}: key \"{}\" is {}; it must lie in [1, {}]", keys_.where(),
                key("block_count"), blocks, kLayersMax);
  }
  out_[fields.layers] = layers_;
  const char* layer_eps = "attention.layer_norm_epsilon";
  const char* rms_eps = "attention.layer_norm_rms_epsilon";
  const bool layer_norm = family_info(family_).norm == NormKind::kLayer ||
                          (family_ == Family::kNemotronH && !keys_.has(prefix_ + rms_eps));
  const std::string eps = key(layer_norm ? layer_eps : rms_eps);
  JIGE_TRY(const auto value, keys_.find_number(eps));
  if (!value) return fail(Code::kCorrupt, "{}: key \"{}\" is missing", keys_.where(), eps);
  out_[fields.norm_eps] = *value;

  const GgufTensor* table = file_.header().find("token_embd.weight");
  if (!table || table->dims.size() != 2) {
    return fail(Code::kCorrupt, "{}: tensor \"token_embd.weight\" is {}", keys_.where(),
                table ? "no matrix" : "missing");
  }
  out_["vocab_size"] = table->rows();
  JIGE_TRY(const auto stated, keys_.find_int(key("vocab_size")));
  if (stated && *stated != table->rows()) {
    return contradiction("vocab_size", *stated,
                         fmt::format("tensor \"token_embd.weight\" has {} rows", table->rows()));
  }
  out_["tie_word_embeddings"] = has_gguf_tied_head(file_);
  return {};
}

Status GgufFieldReader::read_heads() {
  JIGE_DO(put_int("num_attention_heads", "attention.head_count"));
  if (keys_.has(prefix_ + "attention.head_count_kv")) {
    JIGE_TRY(kv_heads_, by_layer("attention.head_count_kv"));
  } else {
    kv_heads_.assign(static_cast<size_t>(layers_), out_["num_attention_heads"].get<int64_t>());
  }
  const int64_t most = *std::max_element(kv_heads_.begin(), kv_heads_.end());
  if (most < 1) return contradiction("attention.head_count_kv", most, "some layer has attention");
  const bool hybrid = may_have_layers_without_attention();
  for (const int64_t heads : kv_heads_) {
    if (heads == most || (hybrid && heads == 0) || family_ == Family::kGemma4) continue;
    return fail(Code::kUnsupported,
                "{}: key \"{}\" has {} for one layer and {} for another; Jige reads models whose "
                "layers with attention are alike",
                keys_.where(), key("attention.head_count_kv"), most, heads);
  }
  out_["num_key_value_heads"] = most;
  const bool own_keys = family_ == Family::kGemma4 || family_info(family_).latent_attention;
  if (own_keys) return {};
  JIGE_TRY(const auto length, keys_.find_int(key("attention.key_length")));
  JIGE_TRY(const auto values, keys_.find_int(key("attention.value_length")));
  if (length) {
    out_["head_dim"] = *length;
  } else {
    const int64_t width = out_[size_fields(family_).hidden].get<int64_t>();
    const int64_t heads = out_["num_attention_heads"].get<int64_t>();
    if (heads < 1 || width % heads != 0) {
      return contradiction(
          "attention.head_count", heads,
          fmt::format("does not divide \"{}embedding_length\", {}", prefix_, width));
    }
    out_["head_dim"] = width / heads;
  }
  if (!values || *values == out_["head_dim"].get<int64_t>()) return {};
  return fail(Code::kUnsupported,
              "{}: key \"{}\" is {} and heads have {}; Jige computes models where both are one",
              keys_.where(), key("attention.value_length"), *values,
              out_["head_dim"].get<int64_t>());
}

Status GgufFieldReader::read_turned_columns() {
  constexpr std::string_view kTurned = "rope.dimension_count";
  const FamilyInfo& family = family_info(family_);
  if (family.latent_attention || family_ == Family::kNemotronH) return {};
  JIGE_TRY(const auto turned, keys_.find_int(key(kTurned)));
  const int64_t head_dim = out_["head_dim"].get<int64_t>();
  if (!turned && !family.turns_parts) return {};
  const int64_t columns = turned.value_or(head_dim);
  if (family.turns_parts && columns >= 1 && columns <= head_dim) {
    out_[family.turned_field] = partial_rotary_factor(columns, head_dim);
    return {};
  }
  if (columns == head_dim) return {};
  return fail(Code::kUnsupported,
              "{}: key \"{}\" is {} and heads have {}; Jige computes models where both are one",
              keys_.where(), key(kTurned), columns, head_dim);
}

Status GgufFieldReader::read_parts() {
  const bool biases = has_part(0, "attn_q.bias") || has_part(0, "attn_qkv.bias");
  const bool attention = !family_info(family_).delta_layers && !family_info(family_).mamba2_layers;
  if (attention) out_["attention_bias"] = biases;
  const SizeFields fields = size_fields(family_);
  const bool own_width = family_ == Family::kQwen35Moe || family_ == Family::kNemotronH ||
                         family_ == Family::kGemma4 || family_ == Family::kQwen3Next;
  if (!own_width) JIGE_DO(put_int(fields.ffn.data(), "feed_forward_length"));
  switch (family_) {
    case Family::kGptOss:
      return read_gpt_oss();
    case Family::kQwen35:
    case Family::kQwen35Moe:
    case Family::kQwen3Next:
      return read_delta();
    case Family::kLfm2:
    case Family::kLfm2Moe:
      return read_short_conv();
    case Family::kGraniteMoe:
    case Family::kGraniteMoeShared:
    case Family::kGraniteHybrid:
      return read_granite();
    case Family::kBamba:
      return read_bamba();
    case Family::kGemma4:
      return read_gemma4();
    case Family::kCohere2:
      JIGE_DO(put_number_or("logit_scale", "logit_scale", 1.0));
      return put_windows(family_info(family_).full_period);
    case Family::kExaone4:
      return put_windows(family_info(family_).full_period);
    case Family::kApertus:
      return read_xielu();
    case Family::kErnie45Moe:
      return read_ernie();
    case Family::kNemotronH:
      return read_nemotron_h();
    case Family::kDeepSeekV2:
    case Family::kDeepSeekV3:
      JIGE_DO(read_latents());
      return read_deepseek_experts();
    case Family::kGlm4Moe:
      out_["use_qk_norm"] = has_part(0, "attn_q_norm.weight");
      return read_deepseek_experts();
    case Family::kDots1:
      return read_deepseek_experts();
    case Family::kMiniMaxM2:
      return read_minimax();
    case Family::kHunYuanMoe:
      return read_hunyuan();
    default:
      return read_further_parts(biases);
  }
}

}  // namespace jige::formats
