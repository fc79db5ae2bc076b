#include "cli/filled_cache.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <vector>

#include "ops/attention.h"

namespace jige::cli {
namespace {

Status run_all(model::InferenceModel& model, int64_t tokens) {
  std::vector<int32_t> blocks(static_cast<size_t>(model.sizes().kv_block_count));
  std::iota(blocks.begin(), blocks.end(), 0);
  for (int64_t done = 0; done < tokens;) {
    const int64_t count = std::min(model.sizes().batch_tokens_max, tokens - done);
    const std::vector<int32_t> piece(static_cast<size_t>(count));
    const ops::SequenceSpan span{.row_count = static_cast<int32_t>(count),
                                 .context_count = static_cast<int32_t>(done),
                                 .blocks = blocks.data()};
    JIGE_DO(model.forward({.tokens = piece, .sequences = std::span(&span, 1), .logit_rows = {}})
                .map([](const auto&) {}));
    done += count;
  }
  return {};
}

// The first `block_count` blocks: one by a step, the others as its copies.
Status write_blocks(model::InferenceModel& model, int64_t block_count) {
  const std::vector<int32_t> first(static_cast<size_t>(
      std::min({ops::kKvBlockTokens, model.sizes().batch_tokens_max, model.context_max()})));
  const int32_t block = 0;
  const ops::SequenceSpan span{
      .row_count = static_cast<int32_t>(first.size()), .context_count = 0, .blocks = &block};
  JIGE_DO(model.forward({.tokens = first, .sequences = std::span(&span, 1), .logit_rows = {}})
              .map([](const auto&) {}));
  for (int64_t i = 1; i < block_count; ++i) {
    JIGE_DO(model.copy_block(0, static_cast<int32_t>(i)));
  }
  return {};
}

}  // namespace

Status fill_cache(model::InferenceModel& model, int64_t tokens) {
  if (model.sizes().state_count > 0) return run_all(model, tokens);
  return write_blocks(model, (tokens + ops::kKvBlockTokens - 1) / ops::kKvBlockTokens);
}

Status write_cache(model::InferenceModel& model) {
  return write_blocks(model, model.sizes().kv_block_count);
}

}  // namespace jige::cli
