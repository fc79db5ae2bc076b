#include "serve/cached_sequence.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace jige::serve {

namespace {

// Row of the model's states; before, and with one more behind it, the current and the spare one.
constexpr int32_t kMarked = 1;
constexpr int64_t kRowsToGoBack = 3;

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
  marked_ = again_ = 0;
}

bool CachedSequence::goes_back() const {
  return !has_states() || (model_.sizes().state_count >= kRowsToGoBack && !model_.beyond());
}

size_t CachedSequence::keep_common(std::span<const int32_t> tokens, size_t count_max) {
  if (model_.forward_count() != forward_count_) clear();
  // What would run again runs with the others.
  tokens_.resize(tokens_.size() - again_);
  again_ = 0;
  const auto common =
      std::mismatch(tokens_.begin(), tokens_.end(), tokens.begin(), tokens.end()).first;
  const size_t wanted = std::min(static_cast<size_t>(common - tokens_.begin()), count_max);
  tokens_.resize(has_states() ? back_to(wanted) : wanted);
  return tokens_.size();
}

size_t CachedSequence::back_to(size_t count) {
  if (count == tokens_.size()) return count;
  if (marked_ > count) marked_ = 0;
  if (marked_ > 0) copy_states(kMarked, current_);
  return marked_;
}

void CachedSequence::mark() {
  copy_states(current_, kMarked);
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
          .context_count = static_cast<int32_t>(tokens_.size() - again_),
          .blocks = blocks_.data(),
          .state = current_};
}

void CachedSequence::appended(std::span<const int32_t> tokens) {
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  again_ = taken_back_max_ = 0;
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
  JIGE_CHECK(again_ == 0, "{} tokens are to run again; call keep_common first", again_);
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
  run_.assign(tokens_.end() - static_cast<std::ptrdiff_t>(again_), tokens_.end());
  run_.insert(run_.end(), tokens.begin(), tokens.end());
  ops::SequenceSpan sequence = span_of(run_);
  const size_t guesses = tokens.size() - 1;
  const bool keeps = has_states() && guesses > 0 && goes_back();
  if (keeps) {
    sequence.spare = spare_;
    sequence.spare_rows = sequence.row_count - static_cast<int32_t>(guesses);
  }
  const auto logit_count = static_cast<int32_t>(draws.size());
  JIGE_TRY(const model::LogitRows rows,
           model_.forward_drawn(batch_of(run_, sequence, logit_count, given), draws));
  appended(tokens);
  if (keeps) taken_back_max_ = guesses;
  return rows;
}

void CachedSequence::take_back(size_t count) {
  JIGE_CHECK(count <= tokens_.size(), "{} tokens of {} taken back", count, tokens_.size());
  tokens_.resize(tokens_.size() - count);
  if (count == 0 || !has_states()) return;
  JIGE_CHECK(count <= taken_back_max_, "states go back by {} tokens, of {}", taken_back_max_,
             count);
  std::swap(current_, spare_);
  again_ = taken_back_max_ - count;
  taken_back_max_ = 0;
}

}  // namespace jige::serve
