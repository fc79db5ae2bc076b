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
  if (config.layers && config.layers->front().inputs != width) {
    return fail(Code::kCorrupt,
                "{}: the module Dense behind the pooling takes {} numbers, and the model's rows "
                "have {}",
                folder, config.layers->front().inputs, width);
  }
  return serve::EmbeddingForm{.pooling = config.pooling,
                              .include_prompt = config.include_prompt,
                              .normalise = config.normalise,
                              .layers = config.layers};
}

EmbeddingLength embedding_length(const formats::EmbeddingConfig& config, int64_t held,
                                 int64_t model_context_max) {
  if (config.tokens_max > 0 && config.tokens_max <= held) return {.tokens_max = config.tokens_max};
  return {.tokens_max = held, .hint = serve::context_hint(held, model_context_max)};
}

}  // namespace jige::cli
