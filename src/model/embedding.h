// Embedding: the first block of a model. Token table and, for GPT-2 and encoders, learned
// positions.
//
// Shapes: T tokens, V vocabulary, D width, P positions.
//   dst[t] = dropout(norm(scale · table[tokens[t]] (+ positions[position[t]] + types[type[t]])))
//            or, without any of these, what is given (given_row.h)
//   a norm with weights, without, or none; type[t] is 0, or 1 from SequenceSpan::second_begin on
// A model whose layers have inputs of their own (stream_layout.h) makes them here, P columns for
// each of L layers, of the rows e = scale · table[tokens[t]] before dropout:
//   inputs[t] = √½ (norm(D^-½ e Wᵀ) + √P · layer_table[tokens[t]])   the norm of each layer's
//   columns; e may be given: then what is of the tokens' rows of either table has no gradient
// Tokens that the layers' table does not have are its first. Of several residual streams the others
// are made of the first here, behind dropout (altup_ends.h).
// saved: what the norm read, and its 1/std; e as products read it, e Wᵀ and 1/std of the norm; what
// the streams' products save. The gradient of the table has its own memory even where the head uses
// the same parameter: the head's part is added once per step (weights.h), so the bits do not depend
// on micro-batches. Threads: const.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "formats/model_config.h"
#include "model/altup_ends.h"
#include "model/block.h"
#include "model/norm_layer.h"
#include "model/placement.h"
#include "model/projection.h"
#include "model/stream_layout.h"

namespace jige::model {

struct EmbeddingOptions {
  std::string table_name;      // "model.embed_tokens"
  std::string positions_name;  // "transformer.wpe", or empty without learned positions
  std::string types_name;      // or empty without token types
  int64_t vocab_size = 0;
  int64_t width = 0;
  int64_t position_count = 0;   // of texts
  int64_t position_offset = 0;  // rows before that of a text's first token
  int64_t type_count = 0;
  double init_std = 0.02;
  double scale = 1;
  const formats::ModelConfig* norm_of = nullptr;  // a norm as this model has them; null: none
  std::string norm_name = {};                     // empty: without weights
  DeviceKind device = DeviceKind::kCpu;           // that multiplies
};

// Full names, without ".weight".
struct LayerInputsNames {
  std::string table;
  std::string projection;
  std::string norm;
  std::string streams;  // before a number, where there are several
};

class Embedding final : public Block {
 public:
  explicit Embedding(const EmbeddingOptions& options);
  Embedding(const EmbeddingOptions& options, const formats::ModelConfig& config,
            const LayerInputsNames& names);

  // Index of the token table among params().
  static constexpr size_t kTable = 0;

  const std::string& name() const override { return name_; }
  std::span<const ParamSpec> params() const override { return params_; }
  int64_t packed_bytes(DType compute, PackFor use, ops::WeightFormat format) const override {
    return packed_.bytes(compute, use, format);
  }
  void pack(Stream& stream, const BlockWeights& weights, DType compute, PackFor use) const override;
  int64_t strip_bytes(DType compute) const override;
  void list_packs(const BlockWeights& weights, size_t param, DType compute, PackFor use,
                  std::vector<ops::PackPart>& packs) const override;
  int64_t saved_bytes(int64_t token_count, DType compute) const override;
  int64_t pending_bytes(int64_t token_count, DType compute) const override;
  int64_t workspace_bytes(int64_t token_count, DType compute, PackFor use) const override;
  int64_t thread_scratch_bytes(int64_t token_count, DType compute, int threads,
                               bool frozen_base) const override;

  void forward(const BlockContext& context, const BlockWeights& weights, const Batch& batch,
               const TensorView& src, const TensorView& dst,
               const BlockMemory& memory) const override;
  // Keeps grad_dst for W; there is no grad_src.
  void backward_input(const BlockContext& context, const BlockWeights& weights, const Batch& batch,
                      const TensorView& src, const TensorView& grad_dst, const TensorView& grad_src,
                      const BlockMemory& memory) const override;
  void backward_weight(const BlockContext& context, const BlockWeights& weights, const Batch& batch,
                       const TensorView& src, const BlockMemory& memory) const override;
  double forward_flops(double token_count, double context_mean) const override;

 private:
  // What makes the layers' inputs.
  struct Inputs {
    StreamLayout layout;
    size_t table = 0;  // its parameter
    Projection projection;
    NormLayer norm;
    int64_t columns = 0;  // of all layers
    int64_t layer_count = 0;
    int64_t vocab_size = 0;
    float product_scale = 1;
    float table_scale = 1;
  };
  struct Saved {
    TensorView unnormed;  // [T, D] f32
    NormStats norm_stats;
    TensorView rows;     // e, [T, D] compute type
    TensorView product;  // [T, L·P] f32
    NormStats stats;
    StreamSplit::Saved split;
  };
  struct Pending {
    TensorView rows;     // [T, D] f32
    TensorView inputs;   // [T, L·P] f32, at the sum of both parts
    TensorView product;  // [T, L·P] compute type
    TensorView split;    // of the streams' products
  };
  struct Work {
    TensorView rows;    // [T, D] f32: learned positions, or compute type: the gradient at e
    TensorView inputs;  // [T, L·P] f32
    TensorView tokens;  // [T] i32, as the layers' table has them
    TensorView scratch;
    StreamSplit::Work split;
  };
  Saved place_saved(Placement& at, int64_t token_count, DType compute, bool stats) const;
  Pending place_pending(Placement& at, int64_t token_count, DType compute) const;
  Work place_work(Placement& at, int64_t token_count, DType compute, PackFor use) const;
  struct BackwardMemory {
    Saved saved;
    Pending pending;
    Work work;
  };
  BackwardMemory place_backward(const BlockContext& context, const BlockMemory& memory,
                                int64_t token_count) const;
  bool has_positions() const { return position_count_ > 0; }
  bool has_places() const { return has_positions() || types_; }
  // Adds positions and types to the rows of tokens.
  void add_places(const BlockContext& context, const BlockWeights& weights, const Batch& batch,
                  const TensorView& rows) const;
  // The columns of a stream that e stands in; behind them may be those of StreamLayout.
  TensorView residual(const TensorView& rows) const {
    return rows ? rows.column_range(0, width_) : rows;
  }
  void make_streams(const BlockContext& context, const BlockWeights& weights, const TensorView& dst,
                    const BlockMemory& memory) const;
  void make_inputs(const BlockContext& context, const BlockWeights& weights, const Batch& batch,
                   const TensorView& dst, const BlockMemory& memory) const;
  void backward_inputs(const BlockContext& context, const BlockWeights& weights,
                       const TensorView& grad_dst, const BlockMemory& memory) const;
  // Of what the table's rows are told in another table.
  TensorView input_tokens(Stream& stream, const Batch& batch, const Work& work) const;
  // Of gradients those that are no token's.
  void zero_given(Stream& stream, const Batch& batch, const TensorView& rows) const;
  void input_gradients(const BlockContext& context, const BlockWeights& weights, const Batch& batch,
                       const BlockMemory& memory) const;

  std::string name_ = "embedding";
  int64_t width_;
  float scale_;
  int64_t position_offset_;
  int64_t position_count_ = 0;   // 0: none are learned
  std::optional<size_t> types_;  // the parameter of token types
  std::optional<NormLayer> norm_;
  std::vector<ParamSpec> params_;
  std::optional<Inputs> inputs_;
  std::optional<StreamSplit> split_;
  PackedSizes packed_;
};

}  // namespace jige::model
