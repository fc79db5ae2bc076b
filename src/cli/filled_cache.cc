#include "cli/filled_cache.h"

#include <algorithm>
#include <vector>

#include "ops/attention.h"

namespace jige::cli {

Status fill_cache(model::InferenceModel& model, int64_t tokens) {
  const std::vector<int32_t> first(
      static_cast<size_t>(std::min(ops::kKvBlockTokens, model.sizes().batch_tokens_max)));
  const int32_t block = 0;
  const ops::SequenceSpan span{
      .row_count = static_cast<int32_t>(first.size()), .context_count = 0, .blocks = &block};
  JIGE_DO(model.forward({.tokens = first, .sequences = std::span(&span, 1), .logit_rows = {}})
              .map([](const auto&) {}));
  const int64_t block_count = (tokens + ops::kKvBlockTokens - 1) / ops::kKvBlockTokens;
  for (int64_t i = 1; i < block_count; ++i) {
    JIGE_DO(model.copy_block(0, static_cast<int32_t>(i)));
  }
  return {};
}

}  // namespace jige::cli
