#include "serve/cached_sequence.h"

#include <algorithm>
#include <numeric>

namespace jige::serve {

namespace {

// Rows of the model's states.
constexpr int32_t kCurrent = 0;
constexpr int32_t kMarked = 1;

}  // namespace

CachedSequence::CachedSequence(model::InferenceModel& model, int32_t adapter)
    : model_(model), adapter_(adapter) {
  blocks_.resize(static_cast<size_t>(model.sizes().kv_block_count));
  std::iota(blocks_.begin(), blocks_.end(), 0);
}

int64_t CachedSequence::context_max() const {
  return std::min(model_.context_max(), model_.sizes().kv_block_count * ops::kKvBlockTokens);
}

void CachedSequence::clear() {
  tokens_.clear();
  marked_ = 0;
}

size_t CachedSequence::keep_common(std::span<const int32_t> tokens, size_t count_max) {
  if (model_.forward_count() != forward_count_) clear();
  const auto common =
      std::mismatch(tokens_.begin(), tokens_.end(), tokens.begin(), tokens.end()).first;
  const size_t wanted = std::min(static_cast<size_t>(common - tokens_.begin()), count_max);
  tokens_.resize(model_.sizes().state_count > 0 ? back_to(wanted) : wanted);
  return tokens_.size();
}

size_t CachedSequence::back_to(size_t count) {
  if (count == tokens_.size()) return count;
  if (marked_ > count) marked_ = 0;
  if (marked_ > 0) copy_states(kMarked, kCurrent);
  return marked_;
}

void CachedSequence::mark() {
  copy_states(kCurrent, kMarked);
  marked_ = tokens_.size();
}

void CachedSequence::copy_states(int32_t src, int32_t dst) {
  const Status copied = model_.copy_state(src, dst);
  JIGE_CHECK(copied, "{}", copied.error().message);
  forward_count_ = model_.forward_count();
}

ops::SequenceSpan CachedSequence::span_of(std::span<const int32_t> tokens) const {
  JIGE_CHECK(tokens_.empty() || model_.forward_count() == forward_count_,
             "the cache was used by another; call keep_common first");
  return {.row_begin = 0,
          .row_count = static_cast<int32_t>(tokens.size()),
          .context_count = static_cast<int32_t>(tokens_.size()),
          .blocks = blocks_.data(),
          .state = kCurrent};
}

void CachedSequence::appended(std::span<const int32_t> tokens) {
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  forward_count_ = model_.forward_count();
}

model::InferenceBatch CachedSequence::batch_of(std::span<const int32_t> tokens,
                                               const ops::SequenceSpan& sequence,
                                               int32_t logit_count, const GivenTable& given) {
  logit_rows_.resize(static_cast<size_t>(logit_count));
  std::iota(logit_rows_.begin(), logit_rows_.end(), sequence.row_count - logit_count);
  places_ = given.places();
  return {.tokens = tokens,
          .sequences = std::span(&sequence, 1),
          .logit_rows = logit_rows_,
          .adapters = std::span(&adapter_, 1),
          .places = std::span(&places_, places_ ? 1 : 0)};
}

Result<std::span<const float>> CachedSequence::extend(std::span<const int32_t> tokens,
                                                      int32_t logit_count,
                                                      const GivenTable& given) {
  const ops::SequenceSpan sequence = span_of(tokens);
  placed_.assign(tokens.begin(), tokens.end());
  given_.clear();
  given.place(placed_, 0, given_);
  model::InferenceBatch batch = batch_of(placed_, sequence, logit_count, given);
  batch.given = given_.given;
  batch.mutual = given_.mutual;
  JIGE_TRY(const std::span<const float> logits, model_.forward(batch));
  appended(tokens);
  return logits;
}

Result<model::LogitRows> CachedSequence::extend_drawn(std::span<const int32_t> tokens,
                                                      std::span<const ops::RowDraw> draws,
                                                      const GivenTable& given) {
  const ops::SequenceSpan sequence = span_of(tokens);
  const auto logit_count = static_cast<int32_t>(draws.size());
  JIGE_TRY(const model::LogitRows rows,
           model_.forward_drawn(batch_of(tokens, sequence, logit_count, given), draws));
  appended(tokens);
  return rows;
}

void CachedSequence::take_back(size_t count) {
  JIGE_CHECK(count <= tokens_.size(), "{} tokens of {} taken back", count, tokens_.size());
  JIGE_CHECK(count == 0 || model_.sizes().state_count == 0, "states go forward alone");
  tokens_.resize(tokens_.size() - count);
}

}  // namespace jige::serve
