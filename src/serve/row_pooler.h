// RowPooler: one vector of the rows that a model gives of a text's tokens.
//
// The formulas are those of formats/embedding_config.h. Sums are in double, in the order of the
// tokens, as are those of the layers behind the pooling, and so is the length that a vector is
// divided by (10^-12 at least): bits depend on the rows alone. With fewer dimensions than the
// vector has, the first ones are kept, before it is normalised (Matryoshka embeddings).
// Threads: one at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "formats/embedding_config.h"

namespace jige::serve {

// What a vector is made like.
struct EmbeddingForm {
  formats::PoolingKind pooling = formats::PoolingKind::kLastToken;
  bool include_prompt = true;  // in means and max
  bool normalise = true;
  int64_t dimensions = 0;             // 0: as many as there are
  formats::VectorLayers layers = {};  // behind the pooling

  // Numbers of a vector with all dimensions, made of rows of so many.
  int64_t width(int64_t columns) const { return layers ? layers->back().outputs : columns; }
};

// Fails with kInvalidArgument where none of a text's tokens counts: all belong to a prompt, which
// the pooling leaves out.
Status check_pooled(const EmbeddingForm& form, int64_t token_count, int64_t prompt_count);

class RowPooler {
 public:
  // For a text of so many tokens, of which the first `prompt_count` are those of a prompt.
  // REQUIRES: form.dimensions is at most form.width() of the rows, whose width is that of the
  // layers.
  RowPooler(const EmbeddingForm& form, int64_t token_count, int64_t prompt_count);

  // The tokens [first, end) are those whose rows count; token_count both, where none does.
  int64_t first() const { return std::min(first_, token_count_); }
  int64_t end() const { return end_; }
  // Whether the row of a token counts. REQUIRES: 0 <= token < token_count.
  bool wants(int64_t token) const;
  // Adds the row of a wanted token. REQUIRES: tokens in ascending order.
  void add(int64_t token, std::span<const float> row);
  // The vector. Fails with kCorrupt where it is not finite. REQUIRES: a token that counted.
  Result<std::vector<float>> finish() const;

 private:
  EmbeddingForm form_;
  int64_t token_count_;
  int64_t first_, end_;      // of the tokens that count
  std::vector<double> sum_;  // or the largest
  double weight_ = 0;
};

}  // namespace jige::serve
