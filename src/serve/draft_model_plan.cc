#include "serve/draft_model_plan.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "model/inference_folder.h"

namespace jige::serve {

Result<int32_t> common_vocabulary(const text::Tokenizer& large, const text::Tokenizer& draft) {
  const int32_t count = std::min(large.vocab_size(), draft.vocab_size());
  bool any = false;
  for (int32_t id = 0; id < count; ++id) {
    const std::optional<std::string> wanted = large.id_to_token(id);
    const std::optional<std::string> guessed = draft.id_to_token(id);
    if (!wanted || !guessed) continue;  // a hole, which no text has
    any = true;
    if (*wanted == *guessed) continue;
    return fail(Code::kInvalidArgument,
                "the two have other vocabularies: token {} is \"{}\" to the draft model and "
                "\"{}\" to the model",
                id, *guessed, *wanted);
  }
  if (any) return count;
  return fail(Code::kInvalidArgument, "the vocabularies of the two have no token in common");
}

Result<DraftModelPlan> DraftModelPlan::create(const std::string& folder, const DraftModelUse& use) {
  DraftModelPlan plan;
  plan.folder_ = folder;
  plan.ids_max_ = use.ids_max;
  plan.prefix_cache_ = use.prefix_cache;
  JIGE_TRY(model::InferenceFolder opened, model::open_inference_folder(folder, false, use.device));
  const formats::ModelConfig& config = opened.config();
  if (formats::recurrent_layer_count(config) > 0) {
    return fail(Code::kUnsupported,
                "{}: has recurrent layers, whose states cannot be rewound behind a wrong guess; "
                "choose a draft model without",
                folder);
  }
  JIGE_TRY(plan.sizes_,
           model::inference_sizes(
               {.context_max = std::min(use.context_max, config.context_max),
                .batch_tokens_max = use.batch_tokens_max,
                .logit_rows_max = std::clamp<int64_t>(use.sequences, 1, use.batch_tokens_max)},
               *opened.architecture, opened.files));
  plan.architecture_ = std::move(opened.architecture);
  return plan;
}

int64_t DraftModelPlan::bytes(int64_t large_block_count) const {
  model::InferenceSizes sizes = sizes_;
  sizes.kv_block_count = large_block_count;
  return model::inference_memory(*architecture_, sizes).total_bytes();
}

model::InferenceOptions DraftModelPlan::options(int64_t large_block_count,
                                                int64_t memory_bytes_max) const {
  return {.context_max = sizes_.context_max,
          .kv_block_count = large_block_count,
          .batch_tokens_max = sizes_.batch_tokens_max,
          .logit_rows_max = sizes_.logit_rows_max,
          .memory_bytes_max = memory_bytes_max};
}

}  // namespace jige::serve
