// Embedding: the first block of a model. Token table and, for GPT-2, learned positions.
//
// Shapes: T tokens, V vocabulary, D width, P positions.
//   dst[t] = dropout(scale · table[tokens[t]] (+ positions[position[t]]))
// The gradient of the table has its own memory even where the head uses the same parameter: the
// head's part is added once per step (weights.h), so the bits do not depend on micro-batches.
// Threads: const.
#pragma once

#include <string>
#include <vector>

#include "model/block.h"

namespace jige::model {

struct EmbeddingOptions {
  std::string table_name;      // "model.embed_tokens"
  std::string positions_name;  // "transformer.wpe", or empty without learned positions
  int64_t vocab_size = 0;
  int64_t width = 0;
  int64_t position_count = 0;
  double init_std = 0.02;
  double scale = 1;
};

class Embedding final : public Block {
 public:
  explicit Embedding(const EmbeddingOptions& options);

  // Index of the token table among params().
  static constexpr size_t kTable = 0;

  const std::string& name() const override { return name_; }
  std::span<const ParamSpec> params() const override { return params_; }
  int64_t packed_bytes(DType, PackFor, ops::WeightFormat) const override { return 0; }
  void pack(Stream&, const BlockWeights&, DType, PackFor) const override {}
  int64_t strip_bytes(DType) const override { return 0; }
  int64_t saved_bytes(int64_t, DType) const override { return 0; }
  int64_t pending_bytes(int64_t token_count, DType compute) const override;
  int64_t workspace_bytes(int64_t token_count, DType compute, PackFor use) const override;
  int64_t thread_scratch_bytes(int64_t, DType, int, bool) const override { return 0; }

  void forward(const BlockContext& context, const BlockWeights& weights, const Batch& batch,
               const TensorView& src, const TensorView& dst,
               const BlockMemory& memory) const override;
  // Keeps grad_dst for W; there is no grad_src.
  void backward_input(const BlockContext& context, const BlockWeights& weights, const Batch& batch,
                      const TensorView& src, const TensorView& grad_dst, const TensorView& grad_src,
                      const BlockMemory& memory) const override;
  void backward_weight(const BlockContext& context, const BlockWeights& weights, const Batch& batch,
                       const TensorView& src, const BlockMemory& memory) const override;
  double forward_flops(double, double) const override { return 0; }

 private:
  bool has_positions() const { return params_.size() > 1; }

  std::string name_ = "embedding";
  int64_t width_;
  float scale_;
  std::vector<ParamSpec> params_;
};

}  // namespace jige::model
