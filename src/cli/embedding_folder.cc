#include "cli/embedding_folder.h"

#include <utility>
#include <vector>

#include "cli/flags.h"
#include "serve/context_hint.h"

namespace jige::cli {
namespace {

constexpr const char* kFolderPooling = "folder";

}  // namespace

void declare_pooling(Flags& flags, std::string& pooling) {
  if (pooling.empty()) pooling = kFolderPooling;
  std::vector<std::string> poolings = formats::pooling_names();
  poolings.insert(poolings.begin(), kFolderPooling);
  flags.choice("--pooling NAME", pooling, std::move(poolings),
               "which of a text's rows become its vector");
}

Result<formats::EmbeddingConfig> read_embedding_config(const std::string& folder,
                                                       const std::string& pooling) {
  return formats::load_embedding_config(folder, formats::find_pooling(pooling));
}

Result<serve::EmbeddingForm> embedding_form(const formats::EmbeddingConfig& config,
                                            const std::string& folder, int64_t width) {
  if (config.width > 0 && config.width != width) {
    return fail(Code::kCorrupt, "{}: the pooling is of rows of {} numbers, and the model has {}",
                folder, config.width, width);
  }
  const auto pooled = static_cast<int64_t>(1 + config.further.size()) * width;
  if (config.layers && config.layers->front().inputs != pooled) {
    return fail(Code::kCorrupt,
                "{}: the module Dense behind the pooling takes {} numbers, and of the model's rows "
                "come {}",
                folder, config.layers->front().inputs, pooled);
  }
  return serve::EmbeddingForm{.pooling = config.pooling,
                              .further = config.further,
                              .include_prompt = config.include_prompt,
                              .normalise = config.normalise,
                              .layers = config.layers};
}

EmbeddingLength embedding_length(const LengthLimits& limits) {
  if (limits.of_folder > 0 && limits.of_folder <= limits.held) {
    return {.tokens_max = limits.of_folder};
  }
  return {.tokens_max = limits.held, .hint = serve::context_hint(limits.held, limits.of_model)};
}

api::ServedKind folder_kind(const std::string& folder) {
  if (formats::is_pair_folder(folder)) return api::ServedKind::kPairs;
  return formats::is_embedding_folder(folder) ? api::ServedKind::kEmbeddings
                                              : api::ServedKind::kAnswers;
}

Result<api::ServedEmbedding> served_embedding(const formats::EmbeddingConfig& config,
                                              const std::string& folder,
                                              const formats::ModelConfig& model, int64_t held) {
  JIGE_TRY(const serve::EmbeddingForm form, embedding_form(config, folder, model.hidden_size));
  EmbeddingLength length = embedding_length(
      {.of_folder = config.tokens_max, .held = held, .of_model = model.context_max});
  return api::ServedEmbedding{.config = config,
                              .form = form,
                              .width = form.width(model.hidden_size),
                              .tokens_max = length.tokens_max,
                              .context_hint = std::move(length.hint)};
}

api::ServedPairs served_pairs(formats::PairConfig config, const formats::ModelConfig& model,
                              int64_t held) {
  EmbeddingLength length = embedding_length(
      {.of_folder = config.tokens_max, .held = held, .of_model = model.context_max});
  return {.config = std::move(config),
          .tokens_max = length.tokens_max,
          .context_hint = std::move(length.hint)};
}

}  // namespace jige::cli
