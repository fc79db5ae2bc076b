// Two sequences that a model runs side by side, for tests that compare its logits with others.
//
// Threads: one.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <utility>
#include <vector>

#include "model/inference.h"

namespace jige {

// Runs a prompt in two pieces, then tokens one by one, of two sequences side by side.
class TwoSequences {
 public:
  explicit TwoSequences(model::InferenceModel& model, int32_t adapter = model::kNoAdapter)
      : model_(model), adapters_{adapter, adapter} {
    blocks_.resize(static_cast<size_t>(model.sizes().kv_block_count));
    std::iota(blocks_.rbegin(), blocks_.rend(), 0);
  }
  // Logits of the last row of each sequence in every step, one behind the other.
  std::vector<float> run() {
    std::vector<float> all;
    for (const auto& [first, second] : {std::pair{7, 5}, {6, 1}, {1, 1}, {1, 1}}) {
      step(first, second, all);
    }
    return all;
  }

 private:
  void step(int first, int second, std::vector<float>& all) {
    const int32_t* const half = blocks_.data() + blocks_.size() / 2;
    const ops::SequenceSpan spans[] = {
        {.row_begin = 0, .row_count = first, .context_count = done_[0], .blocks = blocks_.data()},
        {.row_begin = first,
         .row_count = second,
         .context_count = done_[1],
         .blocks = half,
         .state = 1}};
    std::vector<int32_t> tokens;
    for (int i = 0; i < first + second; ++i) tokens.push_back(next_++ * 7 % 31);
    const int32_t rows[] = {first - 1, first + second - 1};
    const auto logits = model_.forward(
        {.tokens = tokens, .sequences = spans, .logit_rows = rows, .adapters = adapters_});
    ASSERT_TRUE(logits) << logits.error().message;
    all.insert(all.end(), logits->begin(), logits->end());
    done_[0] += first;
    done_[1] += second;
  }
  model::InferenceModel& model_;
  std::array<int32_t, 2> adapters_;
  std::vector<int32_t> blocks_;
  int32_t done_[2] = {0, 0};
  int32_t next_ = 1;
};

}  // namespace jige
