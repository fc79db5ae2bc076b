#include "formats/pair_config.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/file_content.h"
#include "base/json.h"
#include "formats/json_file.h"
#include "formats/model_config.h"
#include "formats/tensor_folder.h"

namespace jige::formats {
namespace {

constexpr std::string_view kPairClassEnd = "ForSequenceClassification";
constexpr int64_t kLabelsUsual = 2;  // where config.json says nothing

// The first entry of "architectures", or empty.
std::string class_of(const Json& config) {
  const Json* list = find_field(config, "architectures");
  const bool named = list && list->is_array() && !list->empty() && list->front().is_string();
  return named ? list->front().get<std::string>() : std::string();
}

// As transformers counts them.
Result<int64_t> label_count(const Json& config, std::string_view where) {
  const Json* names = find_field(config, "id2label");
  const bool named = names && names->is_object();
  return get_int_or(config, "num_labels",
                    named ? static_cast<int64_t>(names->size()) : kLabelsUsual, where);
}

Status check_labels(const Json& config, std::string_view where) {
  JIGE_TRY(const int64_t labels, label_count(config, where));
  if (labels == 1) return {};
  return fail(Code::kUnsupported,
              "{}: the model has {} labels (\"id2label\", \"num_labels\"; {} where both are left "
              "out), and a score of a pair of texts needs a model with one; take a cross-encoder "
              "or reranker",
              where, labels, kLabelsUsual);
}

// Whether a class of torch that turns logits into scores is the sigmoid, and not Identity.
Result<bool> parse_score_activation(const std::string& name, std::string_view where) {
  const std::string_view kind = std::string_view(name).substr(name.rfind('.') + 1);
  if (name.starts_with("torch.") && (kind == "Sigmoid" || kind == "Identity")) {
    return kind == "Sigmoid";
  }
  return fail(Code::kUnsupported,
              "{}: the activation of scores is \"{}\", which Jige does not compute; it computes "
              "torch's Sigmoid and Identity",
              where, name.substr(0, 80));
}

Result<bool> read_score_activation(const std::string& folder, const Json& config,
                                   const std::string& where) {
  const std::string path = folder + "/config_sentence_transformers.json";
  Result<Json> beside = load_json_object(path);
  if (!beside && beside.error().code != Code::kNotFound) return tl::unexpected(beside.error());
  if (beside) {
    JIGE_TRY(const std::string name, get_string_or(*beside, "activation_fn", "", path));
    if (!name.empty()) return parse_score_activation(name, path);
  }
  std::string name;
  if (const Json* library = find_field(config, "sentence_transformers")) {
    JIGE_TRY(name, get_string_or(*library, "activation_fn", "", where));
  }
  if (name.empty()) {
    JIGE_TRY(name, get_string_or(config, "sbert_ce_default_activation_function", "", where));
  }
  if (name.empty()) return true;
  return parse_score_activation(name, where);
}

// What stands behind the pooling of an encoder.
struct PairHead {
  VectorLayerSource first, last;
  PoolingKind pooling = PoolingKind::kCls;
};

PairHead bert_head(const ModelConfig& model) {
  if (model.family == Family::kDistilBert) {
    return {.first = {.weight = "pre_classifier.weight",
                      .bias = "pre_classifier.bias",
                      .activation = VectorActivation::kRelu},
            .last = {.weight = "classifier.weight", .bias = "classifier.bias"}};
  }
  const bool nomic = model.family == Family::kNomicBert;
  const bool gte = model.family == Family::kGte;
  const bool bert = nomic || gte || model.family == Family::kBert;
  const std::string dense = nomic  ? "nomic_bert.pooler.dense"
                            : gte  ? "new.pooler.dense"
                            : bert ? "bert.pooler.dense"
                                   : "classifier.dense";
  const std::string last = bert ? "classifier" : "classifier.out_proj";
  return {.first = {.weight = dense + ".weight",
                    .bias = dense + ".bias",
                    .activation = VectorActivation::kTanh},
          .last = {.weight = last + ".weight", .bias = last + ".bias"}};
}

Result<PairHead> deberta_head(const Json& config, const ModelConfig& model,
                              std::string_view where) {
  JIGE_TRY(const int64_t width, get_int_or(config, "pooler_hidden_size", model.hidden_size, where));
  if (width != model.hidden_size) {
    return fail(Code::kUnsupported,
                "{}: field \"pooler_hidden_size\" is {}, which Jige does not compute; it computes "
                "that of hidden_size ({})",
                where, width, model.hidden_size);
  }
  PairHead head{.first = {.weight = "pooler.dense.weight", .bias = "pooler.dense.bias"},
                .last = {.weight = "classifier.weight", .bias = "classifier.bias"}};
  JIGE_TRY(const std::string name, get_string_or(config, "pooler_hidden_act", "gelu", where));
  for (const auto& [known, activation] :
       {std::pair("gelu", VectorActivation::kGelu), std::pair("tanh", VectorActivation::kTanh),
        std::pair("relu", VectorActivation::kRelu)}) {
    if (name != known) continue;
    head.first.activation = activation;
    return head;
  }
  return fail(Code::kUnsupported,
              "{}: field \"pooler_hidden_act\" is \"{}\", which Jige does not compute; it computes "
              "gelu, tanh and relu",
              where, name.substr(0, 80));
}

Result<PairHead> eurobert_head(const Json& config, std::string_view where) {
  JIGE_TRY(const std::string pooling, get_string_or(config, "classifier_pooling", "late", where));
  if (pooling != "bos" && pooling != "mean") {
    return fail(Code::kUnsupported,
                "{}: field \"classifier_pooling\" is \"{}\", which Jige does not compute for this "
                "family; it computes bos and mean",
                where, pooling.substr(0, 80));
  }
  return PairHead{.first = {.weight = "dense.weight",
                            .bias = "dense.bias",
                            .activation = VectorActivation::kGelu},
                  .last = {.weight = "classifier.weight", .bias = "classifier.bias"},
                  .pooling = pooling == "bos" ? PoolingKind::kCls : PoolingKind::kMean};
}

Result<PairHead> modern_bert_head(const Json& config, const ModelConfig& model,
                                  std::string_view where) {
  JIGE_TRY(const std::string pooling, get_string_or(config, "classifier_pooling", "cls", where));
  JIGE_TRY(const std::string activation,
           get_string_or(config, "classifier_activation", "gelu", where));
  JIGE_TRY(const bool bias, get_bool_or(config, "classifier_bias", false, where));
  if (activation != "gelu") {
    return fail(Code::kUnsupported,
                "{}: field \"classifier_activation\" is \"{}\", which Jige does not compute; it "
                "computes gelu",
                where, activation.substr(0, 80));
  }
  if (pooling != "cls" && pooling != "mean") {
    return fail(Code::kUnsupported,
                "{}: field \"classifier_pooling\" is \"{}\", which Jige does not compute; it "
                "computes cls and mean",
                where, pooling.substr(0, 80));
  }
  return PairHead{.first = {.weight = "head.dense.weight",
                            .bias = bias ? "head.dense.bias" : "",
                            .norm = "head.norm.weight",
                            .norm_bias = model.norm_bias ? "head.norm.bias" : "",
                            .norm_eps = model.norm_eps,
                            .activation = VectorActivation::kGelu},
                  .last = {.weight = "classifier.weight", .bias = "classifier.bias"},
                  .pooling = pooling == "cls" ? PoolingKind::kCls : PoolingKind::kMean};
}

// The head of a class for sequence classification, and what it reads.
Status read_pair_head(const TensorFolder& files, const Json& json, const ModelConfig& model,
                      std::string_view where, PairConfig& config) {
  const int64_t width = model.hidden_size;
  std::vector<VectorLayer> layers;
  const auto add = [&](VectorLayerSource source, int64_t outputs) -> Status {
    source.inputs = width;
    source.outputs = outputs;
    JIGE_TRY(VectorLayer layer, read_vector_layer(files, source));
    layers.push_back(std::move(layer));
    return {};
  };
  if (!is_encoder(model.family)) {
    JIGE_DO(add({.weight = "score.weight"}, 1));
  } else {
    PairHead head = bert_head(model);
    if (model.family == Family::kModernBert) {
      JIGE_TRY(head, modern_bert_head(json, model, where));
    } else if (model.family == Family::kDebertaV2) {
      JIGE_TRY(head, deberta_head(json, model, where));
    } else if (model.family == Family::kEuroBert) {
      JIGE_TRY(head, eurobert_head(json, where));
    }
    JIGE_DO(add(head.first, width));
    JIGE_DO(add(head.last, 1));
    config.pooling = head.pooling;
  }
  config.layers = std::make_shared<const std::vector<VectorLayer>>(std::move(layers));
  return {};
}

// How much a language model's head says "yes" rather than "no".
Result<std::vector<VectorLayer>> read_verdict(const TensorFolder& files, const ModelConfig& model,
                                              const text::Tokenizer& tokenizer) {
  const auto yes = tokenizer.token_to_id("yes");
  const auto no = tokenizer.token_to_id("no");
  if (!yes || !no || *yes >= model.vocab_size || *no >= model.vocab_size) {
    return fail(Code::kUnsupported,
                "{}: the tokenizer has no tokens \"yes\" and \"no\" that the model knows, between "
                "which Qwen3-Reranker decides; take such a model",
                files.folder());
  }
  const char* name = model.tied_embeddings ? "model.embed_tokens.weight" : "lm_head.weight";
  const int64_t width = model.hidden_size;
  JIGE_TRY(const TensorView table, find_plain_tensor(files, name, {model.vocab_size, width}));
  VectorLayer layer{.inputs = width, .outputs = 1};
  for (int64_t i = 0; i < width; ++i) {
    layer.weight.push_back(widened(table, *yes * width + i) - widened(table, *no * width + i));
  }
  return std::vector{std::move(layer)};
}

Result<PairConfig> load_pairs(const std::string& folder, const text::Tokenizer& tokenizer) {
  const std::string path = folder + "/config.json";
  JIGE_TRY(const ModelConfig model, load_model_config(folder));
  JIGE_TRY(const Json json, load_json_object(path));
  const std::string name = class_of(json);
  const bool judges = name.ends_with(kPairClassEnd);
  if (!judges && name != "Qwen3ForCausalLM") {
    return fail(
        Code::kUnsupported,
        "{}: the class \"{}\" does not judge pairs of texts; those that do are Bert…, DistilBert…, "
        "MPNet…, NomicBert…, Roberta…, XLMRoberta…, ModernBert…, DebertaV2…, EuroBert…, New… and "
        "Qwen3ForSequenceClassification with one label, and Qwen3ForCausalLM of Qwen3-Reranker",
        path, name.substr(0, 80));
  }
  if (judges) JIGE_DO(check_labels(json, path));
  JIGE_TRY(const TensorFolder files, TensorFolder::open(folder));
  JIGE_TRY(const TextLimits limits, load_text_limits(folder));
  PairConfig config{.token_types = limits.has_types ? std::max<int64_t>(1, model.token_types) : 1,
                    .tokens_max = limits.tokens_max};
  if (judges) {
    JIGE_DO(read_pair_head(files, json, model, path, config));
    JIGE_TRY(config.is_sigmoid, read_score_activation(folder, json, path));
  } else {
    JIGE_TRY(std::vector<VectorLayer> verdict, read_verdict(files, model, tokenizer));
    config.layers = std::make_shared<const std::vector<VectorLayer>>(std::move(verdict));
  }
  if (!is_encoder(model.family)) {
    config.join = PairJoin::kQwen3;
    config.pooling = PoolingKind::kLastToken;
  }
  return config;
}

}  // namespace

bool is_pair_folder(const std::string& folder) {
  const Result<Json> config = load_json_object(folder + "/config.json");
  if (!config || !class_of(*config).ends_with(kPairClassEnd)) return false;
  const Result<std::string> modules = read_file(folder + "/modules.json", kConfigBytesMax);
  return !modules || modules->find("Pooling") == std::string::npos;
}

Result<PairConfig> load_pair_config(const std::string& folder, const text::Tokenizer& tokenizer) {
  return as_file_content(load_pairs(folder, tokenizer));
}

double pair_score(const PairConfig& config, float logit) {
  return config.is_sigmoid ? 1 / (1 + std::exp(-double{logit})) : double{logit};
}

}  // namespace jige::formats
