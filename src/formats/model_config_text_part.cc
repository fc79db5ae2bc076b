#include "formats/model_config_text_part.h"

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "formats/model_config_old_names.h"
#include "formats/model_families.h"

namespace jige::formats {
namespace {

struct ImageModel {
  // "qwen3_vl"; that of its language model is "qwen3_vl_text", or the family's.
  std::string_view model_type;
  Family family;
  bool flat = false;  // old folders have the language model's fields at the top
};

constexpr ImageModel kImageModels[] = {
    {"gemma3", Family::kGemma3},          {"mistral3", Family::kMistral},
    {"llava", Family::kMistral},          {"qwen2_vl", Family::kQwen2, true},
    {"qwen2_5_vl", Family::kQwen2, true}, {"qwen3_vl", Family::kQwen3},
    {"qwen3_vl_moe", Family::kQwen3Moe},  {"qwen3_5", Family::kQwen35},
    {"qwen3_5_moe", Family::kQwen35Moe},  {"gemma4", Family::kGemma4},
    {"gemma4_unified", Family::kGemma4},  {"gemma3n", Family::kGemma3n},
    {"llama4", Family::kLlama4},          {"exaone4_5", Family::kExaone4},
    {"idefics3", Family::kLlama},         {"smolvlm", Family::kLlama},
    {"internvl", Family::kQwen2},         {"llava_next", Family::kMistral},
    {"llava_onevision", Family::kQwen2}};

// Language models of other families that they may have.
constexpr std::pair<std::string_view, Family> kOtherLanguages[] = {
    {"mistral3", Family::kMinistral3}, {"mistral3", Family::kMistral4},
    {"llava", Family::kMinistral3},    {"llava", Family::kMistral4},
    {"llava", Family::kLlama},         {"llava_next", Family::kLlama},
    {"llava_next", Family::kQwen2},    {"internvl", Family::kQwen3},
    {"internvl", Family::kQwen3Moe},   {"internvl", Family::kGptOss},
    {"internvl", Family::kLlama}};

// Which have a Llama where they do not say what they have.
constexpr std::string_view kLlava = "llava";
constexpr std::string_view kLlavaNext = "llava_next";
constexpr std::string_view kQwenBeginning = "qwen";

const ImageModel* find_image_model(const Json& config) {
  const auto type = config.find("model_type");
  if (type == config.end()) return nullptr;
  const auto* found = std::find_if(std::begin(kImageModels), std::end(kImageModels),
                                   [&](const ImageModel& one) { return *type == one.model_type; });
  return found == std::end(kImageModels) ? nullptr : found;
}

// Fields that stand at the top in some folders. What is tied is said there where it is said at all.
constexpr const char* kTied = "tie_word_embeddings";
constexpr const char* kOfEither[] = {"torch_dtype",       "dtype",        "bos_token_id",
                                     "eos_token_id",      "pad_token_id", "quantization_config",
                                     "compression_config"};

using UsualFields = std::initializer_list<std::pair<const char*, Json>>;

void add_fields(Json& text, const UsualFields& usual) {
  for (const auto& [field, value] : usual) {
    if (!text.contains(field)) text[field] = value;
  }
}

// Published folders of Gemma 3 leave these out.
void add_gemma3_sizes(Json& text) {
  add_fields(
      text,
      {{"vocab_size", 262208}, {"num_attention_heads", 8}, {"max_position_embeddings", 131072}});
}

// What transformers takes for fields that folders of Gemma 4 leave out; the unified ones differ
// from the rest, and have neither embeddings for every layer nor experts.
void add_gemma4_fields(Json& text, bool unified) {
  if (unified) {
    add_fields(text, {{"max_position_embeddings", 262144},
                      {"sliding_window", 1024},
                      {"hidden_size_per_layer_input", 0}});
  }
  add_fields(
      text,
      {{"vocab_size", 262144}, {"num_attention_heads", 8}, {"max_position_embeddings", 131072}});
}

// What transformers takes for fields that folders of Qwen with images leave out, where the family
// without them has other values.
void add_qwen_fields(Json& text, Family family) {
  const bool experts = family == Family::kQwen3Moe;
  const bool newer = family == Family::kQwen3 || experts;
  const auto says_theta = [&](const char* object) {
    const Json* rope = find_field(text, object);
    return rope && rope->is_object() && find_field(*rope, "rope_theta");
  };
  if (!says_theta("rope_parameters") && !says_theta("rope_scaling")) {
    add_fields(text, {{"rope_theta", newer ? 5e5 : 1e6}});
  }
  if (experts) {
    text["norm_topk_prob"] = true;  // whatever a folder says
    if (!text.contains("num_local_experts")) add_fields(text, {{"num_experts", 60}});
    add_fields(
        text,
        {{"num_key_value_heads", 16}, {"num_experts_per_tok", 4}, {"moe_intermediate_size", 1408}});
  }
  if (newer) return;
  add_fields(text, {{"num_key_value_heads", 8}, {"rms_norm_eps", 1e-5}, {"max_window_layers", 80}});
}

// Folders of LLaVA and Pixtral say of their Mistral what is not the first one's.
void add_mistral_fields(Json& text) {
  add_fields(text, {{"vocab_size", 32000},
                    {"hidden_size", 4096},
                    {"intermediate_size", 14336},
                    {"num_hidden_layers", 32},
                    {"num_attention_heads", 32},
                    {"num_key_value_heads", 8},
                    {"max_position_embeddings", 131072}});
}

// And those of Idefics3 and of LLaVA of their Llama, as transformers has it.
void add_llama_fields(Json& text) {
  add_fields(text, {{"vocab_size", 32000},
                    {"hidden_size", 4096},
                    {"intermediate_size", 11008},
                    {"num_hidden_layers", 32},
                    {"num_attention_heads", 32},
                    {"max_position_embeddings", 2048}});
}

// A text's tokens have the same position in all three dimensions of an image's: they turn as usual.
void drop_image_positions(Json& text) {
  for (const char* object : {"rope_scaling", "rope_parameters"}) {
    const auto rope = text.find(object);
    if (rope == text.end() || !rope->is_object()) continue;
    for (const char* field : {"type", "rope_type"}) {
      const auto type = rope->find(field);
      if (type != rope->end() && *type == "mrope") *type = "default";
    }
  }
}

}  // namespace

Result<Json> text_part(const Json& config, std::string_view where) {
  const ImageModel* known = find_image_model(config);
  if (!known) return with_usual_names(config, where);
  const Json* found = find_field(config, "text_config");
  if (found ? !found->is_object() : !known->flat) {
    return fail(Code::kCorrupt, "{}: field \"text_config\" must be an object", where);
  }
  Json text = found ? *found : config;
  const std::string own = std::string(known->model_type) + "_text";
  const std::string_view usual = family_info(known->family).model_type;
  const bool llava = known->model_type == kLlava || known->model_type == kLlavaNext;
  JIGE_TRY(const std::string inner,
           get_string_or(text, "model_type", llava ? "llama" : usual, where));
  Family language = known->family;
  for (const auto& [model_type, other] : kOtherLanguages) {
    if (model_type == known->model_type && inner == family_info(other).model_type) language = other;
  }
  const FamilyInfo& family = family_info(language);
  if (inner != family.model_type && inner != own && inner != known->model_type) {
    return fail(Code::kUnsupported,
                "{}: the language model of this {} is a \"{}\", which is not one that Jige knows",
                where, known->model_type, inner);
  }
  text["model_type"] = family.model_type;
  text.erase("architectures");
  if (const Json* tied = find_field(config, kTied)) text[kTied] = *tied;
  for (const char* field : kOfEither) {
    const auto at = config.find(field);
    if (at != config.end() && !find_field(text, field)) text[field] = *at;
  }
  if (known->family == Family::kGemma3) add_gemma3_sizes(text);
  if (language == Family::kLlama) add_llama_fields(text);
  if (known->family == Family::kGemma4) {
    add_gemma4_fields(text, known->model_type == "gemma4_unified");
  }
  if (llava && language == Family::kMistral) add_mistral_fields(text);
  if (known->model_type.starts_with(kQwenBeginning) &&
      (known->family == Family::kQwen2 || known->family == Family::kQwen3 ||
       known->family == Family::kQwen3Moe)) {
    add_qwen_fields(text, known->family);
  }
  drop_image_positions(text);
  return text;
}

bool is_image_model(const Json& config) { return find_image_model(config) != nullptr; }

}  // namespace jige::formats
