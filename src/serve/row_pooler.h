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
  std::vector<formats::PoolingKind> further = {};  // what stands behind it
  bool include_prompt = true;                      // in means, cls and max
  bool normalise = true;
  int64_t dimensions = 0;             // 0: as many as there are
  formats::VectorLayers layers = {};  // behind the pooling

  // Numbers of a vector with all dimensions, made of rows of so many.
  int64_t width(int64_t columns) const {
    if (layers) return layers->back().outputs;
    return static_cast<int64_t>(1 + further.size()) * columns;
  }
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

  // Rows that count are among those of the tokens [first, end); token_count both, where none does.
  int64_t first() const;
  int64_t end() const;
  // Whether each pooling has a token that counts.
  bool counts() const;
  // Whether the row of a token counts. REQUIRES: 0 <= token < token_count.
  bool wants(int64_t token) const;
  // Adds the row of a wanted token. REQUIRES: tokens in ascending order.
  void add(int64_t token, std::span<const float> row);
  // The vector. Fails with kCorrupt where it is not finite. REQUIRES: a token that counted.
  Result<std::vector<float>> finish() const;

 private:
  // What one of the poolings has so far.
  struct Pool {
    formats::PoolingKind kind;
    int64_t first, end;            // of the tokens that count
    std::vector<double> sum = {};  // or the largest
    double weight = 0;

    bool wants(int64_t token) const { return token >= first && token < end; }
    void add(int64_t token, std::span<const float> row, size_t kept);
    double divisor() const;
  };

  EmbeddingForm form_;
  int64_t token_count_;
  std::vector<Pool> pools_;
};

}  // namespace jige::serve
