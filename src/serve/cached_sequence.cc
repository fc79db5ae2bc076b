#include "serve/cached_sequence.h"

#include <algorithm>
#include <numeric>

namespace jige::serve {

CachedSequence::CachedSequence(model::InferenceModel& model, int32_t adapter)
    : model_(model), adapter_(adapter) {
  blocks_.resize(static_cast<size_t>(model.sizes().kv_block_count));
  std::iota(blocks_.begin(), blocks_.end(), 0);
}

int64_t CachedSequence::context_max() const {
  return std::min(model_.context_max(), model_.sizes().kv_block_count * ops::kKvBlockTokens);
}

size_t CachedSequence::keep_common(std::span<const int32_t> tokens, size_t count_max) {
  if (model_.forward_count() != forward_count_) tokens_.clear();
  const auto common =
      std::mismatch(tokens_.begin(), tokens_.end(), tokens.begin(), tokens.end()).first;
  tokens_.resize(std::min(static_cast<size_t>(common - tokens_.begin()), count_max));
  return tokens_.size();
}

ops::SequenceSpan CachedSequence::span_of(std::span<const int32_t> tokens) const {
  JIGE_CHECK(tokens_.empty() || model_.forward_count() == forward_count_,
             "the cache was used by another; call keep_common first");
  return {.row_begin = 0,
          .row_count = static_cast<int32_t>(tokens.size()),
          .context_count = static_cast<int32_t>(tokens_.size()),
          .blocks = blocks_.data()};
}

void CachedSequence::appended(std::span<const int32_t> tokens) {
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  forward_count_ = model_.forward_count();
}

Result<std::span<const float>> CachedSequence::extend(std::span<const int32_t> tokens,
                                                      int32_t logit_count) {
  const ops::SequenceSpan sequence = span_of(tokens);
  logit_rows_.resize(static_cast<size_t>(logit_count));
  std::iota(logit_rows_.begin(), logit_rows_.end(), sequence.row_count - logit_count);
  JIGE_TRY(const std::span<const float> logits,
           model_.forward({.tokens = tokens,
                           .sequences = std::span(&sequence, 1),
                           .logit_rows = logit_rows_,
                           .adapters = std::span(&adapter_, 1)}));
  appended(tokens);
  return logits;
}

void CachedSequence::take_back(size_t count) {
  JIGE_CHECK(count <= tokens_.size(), "{} tokens of {} taken back", count, tokens_.size());
  tokens_.resize(tokens_.size() - count);
}

Result<std::span<const float>> CachedSequence::extend_scored(std::span<const int32_t> tokens,
                                                             std::span<const int32_t> targets) {
  const ops::SequenceSpan sequence = span_of(tokens);
  JIGE_TRY(const std::span<const float> losses, model_.losses({.tokens = tokens,
                                                               .sequences = std::span(&sequence, 1),
                                                               .logit_rows = {},
                                                               .adapters = std::span(&adapter_, 1)},
                                                              targets));
  appended(tokens);
  return losses;
}

}  // namespace jige::serve
