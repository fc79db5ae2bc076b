// CachedSequence: one sequence in a model's key/value cache, that knows which of its tokens are
// still there.
//
// States of recurrent layers go forward alone: of a model that has them keep_common() keeps all, or
// what was there at mark(), or nothing. Where there is room for one more they are kept as they are
// before tokens that may be taken back; those of these that stay run again in front of the next.
// Several of them may share a model and take turns: each notices in keep_common() when another has
// used the cache in between, and starts over.
// Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/result.h"
#include "model/inference.h"
#include "serve/given_rows.h"

namespace jige::serve {

class CachedSequence {
 public:
  // The model must outlive the sequence, which uses all of its cache and runs with one of its
  // adapters, or with none.
  explicit CachedSequence(model::InferenceModel& model, int32_t adapter = model::kNoAdapter);

  // Tokens that fit: the model's context, or what the cache holds if that is less.
  int64_t context_max() const;
  // The longest context that the model could have been loaded with.
  int64_t model_context_max() const { return model_.config().context_max; }
  // Tokens whose keys and values the cache holds.
  size_t size() const { return tokens_.size(); }
  void clear();

  // Keeps the beginning that the cached tokens share with `tokens`, at most `count_max` of them,
  // or less of it where the model has states, and forgets the rest. Returns how many are kept.
  size_t keep_common(std::span<const int32_t> tokens, size_t count_max);
  // Whether mark() is of use: the model has states, and room for a copy of one.
  bool marks() const { return model_.sizes().state_count > 1; }
  // Keeps the states as they are now, in place of those marked before.
  void mark();

  // Whether the last tokens may be taken back: a model with states has room to keep one more, and
  // all of its layers here.
  bool goes_back() const;
  // Tokens that the next extend_drawn() runs again in front of its own.
  size_t again_count() const { return again_; }

  // Runs tokens behind the cached ones, some of which may be ids of given rows; the logits of the
  // last `logit_count` of them. Fails as InferenceModel::forward does. REQUIRES: keep_common or
  // clear since another's turn.
  Result<std::span<const float>> extend(std::span<const int32_t> tokens, int32_t logit_count,
                                        const GivenTable& given = {});
  // The same of tokens behind all rows, for as many draws, as InferenceModel::forward_drawn gives
  // it. All but the first may be taken back where goes_back().
  Result<model::LogitRows> extend_drawn(std::span<const int32_t> tokens,
                                        std::span<const ops::RowDraw> draws,
                                        const GivenTable& given = {});
  // Forgets the last `count` tokens. REQUIRES: as many are there; where the model has states, they
  // may be taken back.
  void take_back(size_t count);

 private:
  bool has_states() const { return model_.sizes().state_count > 0; }
  ops::SequenceSpan span_of(std::span<const int32_t> tokens) const;
  // The batch of `tokens` with logits of the last `logit_count` of them.
  model::InferenceBatch batch_of(std::span<const int32_t> tokens, const ops::SequenceSpan& sequence,
                                 int32_t logit_count, const GivenTable& given);
  void appended(std::span<const int32_t> tokens);
  void copy_states(int32_t src, int32_t dst);
  // How many of so many tokens that are wanted can be kept, with the states as they were there.
  size_t back_to(size_t count);

  model::InferenceModel& model_;
  const int32_t adapter_;
  std::vector<int32_t> blocks_;
  std::vector<int32_t> tokens_;
  int32_t current_ = 0, spare_ = 2;  // rows of the model's states; the marked one is another
  size_t marked_ = 0;                // tokens that the marked states stand behind; 0: none are
  size_t again_ = 0;                 // of the tokens, the last ones, which the states have not
  size_t taken_back_max_ = 0;        // of the last tokens, with states
  std::vector<int32_t> run_;         // of extend_drawn()
  std::vector<int32_t> logit_rows_;  // of extend()
  std::vector<int32_t> placed_;      // its tokens, where rows are given
  PlacedRows given_;
  const model::ImagePlaces* places_ = nullptr;  // of the sequence, during a call
  uint64_t forward_count_ = 0;                  // of the model, after our last forward
};

}  // namespace jige::serve
