// Blocks: the pieces a model is made of, each with three separate tasks.
//
//   forward (F)          dst = f(src)              keeps `saved` when a backward follows
//   backward_input (X)   grad_src from grad_dst    keeps `pending` for W
//   backward_weight (W)  parameter gradients += …  from src, saved and pending
//
// A schedule decides when and where each task runs; nothing is recorded on a tape. Between blocks
// flows the residual stream, [T, D] f32, in a few models with columns behind it that several layers
// read (stream_layout.h). A block is a pure description: it owns no memory and no
// parameters, so several devices and micro-batches may use one Block at once. Memory is the
// caller's:
//
//   saved      per block and micro-batch, lives from F to W   saved_bytes(T)
//   pending    per block and micro-batch, lives from X to W   pending_bytes(T)
//   workspace  per device, lives during one task              workspace_bytes(T)
//   src        the block's input must live from F to W too; src of a block is dst of the one before
//
// Sizes are exact functions of the token count T, so that a schedule's peak is known before it
// runs. The workspace of PackFor::kTraining covers F, X and W with `saved` given; an F that keeps
// nothing (saved empty: inference) needs the workspace of PackFor::kInference. dst may not be the
// memory of src; grad_src may be that of grad_dst, which saves a buffer.
// Dropout (step_dropout.h): a mask is a function of keys, the site and the token's place in the
// step; so F, an F that is made again, X and W see the same one. Sites: 0 the embedding, 1 + 2i the
// attention of layer i, 2 + 2i its MLP; those of adapters are hashes (projection.h). Invariant: F,
// X and W give the same bits whatever the split of tokens into batches, as far as the ops promise
// (ops/linear.h, ops/attention.h). Threads: const; tasks are asynchronous on the stream they are
// given.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/context_exchange.h"
#include "model/placement.h"
#include "model/step_dropout.h"
#include "ops/attention.h"
#include "ops/linear.h"
#include "ops/linear_rows.h"
#include "tensor/device.h"
#include "tensor/view.h"

namespace jige::model {

struct GivenRow;

// The flat batch every task of a micro-batch sees. Views are device memory.
struct Batch {
  TensorView tokens;     // [T] i32
  TensorView positions;  // [T] i32, position of each token in its own sequence
  // Empty, or rows of angles in place of BlockWeights::rope_table, which positions name then: where
  // some tokens have no one position to turn by (image_places.h). On CPUs only.
  TensorView angles;        // [T, columns] f32
  TensorView targets;       // [T] i32, the next token; -1: no loss here. Training and scoring only
  TensorView loss_weights;  // [T] f32, gradient weight of each target, or empty: all 1
  std::vector<ops::SequenceSpan> sequences;
  // The same rows as spans of those that see one another and of others (seen_spans() in
  // given_row.h); empty: as `sequences`.
  std::vector<ops::SequenceSpan> seen;
  // So many rows stand in place of embeddings (given_row.h), numbered among all rows, of which the
  // first here is `first_row`.
  const GivenRow* given = nullptr;
  size_t given_count = 0;
  int64_t first_row = 0;
  ops::StepTables* tables = nullptr;  // of inference: what the layers of a step share on a GPU
  StepDropout dropout;                // off but in training steps
  float balance_weight = 0;  // gradient weight of unequal use of experts (ops/expert_balance.h)
  int64_t token_count() const { return tokens.rows(); }
};

// kUniform: in [-init_std, init_std). kLogUniform: the logarithm of a number in (0, init_std].
// kLogColumn: the logarithm of the number of its column, from 1.
// kStep: what the softplus of is in [init_std / 100, init_std], its logarithm uniform.
enum class InitKind { kNormal, kUniform, kLogUniform, kLogColumn, kStep, kZero, kOne, kConstant };

// Where files may hold a parameter of an expert, or of a head's norm: in a tensor of all experts of
// a layer, [E, N of all parts, K], or [E, K, N] where transposed; a bias in [E, N]. The rows of
// parts follow one another or, interleaved, come in turns.
struct StackedPlace {
  std::string tensor;  // "model.layers.0.mlp.experts.gate_up_proj"
  int64_t expert = 0;
  int64_t expert_count = 0;
  int64_t part = 0;
  int64_t part_count = 1;  // of equal height
  bool interleaved = false;
  bool transposed = false;
  bool usual = false;  // how the family's files are written
};

// The order in which files have the rows of a parameter, or the numbers of a vector. Parts that
// stand one behind the other here, part p of turns · parts[p] rows, come in turns there: parts[0]
// rows of the first, parts[1] of the second and so on, `turns` times. So it is in each of `outer`
// blocks, with `ahead` rows before and `kept` behind them that stand the same way in both.
struct StoredRows {
  int64_t outer = 1;
  int64_t turns = 1;
  std::vector<int64_t> parts = {};
  int64_t kept = 0;
  int64_t ahead = 0;
  int64_t swapped = 0;  // or halves of so many rows each stand the other way round
  // Where files have a row.
  int64_t at(int64_t row) const {
    if (swapped > 0) return row < swapped ? row + swapped : row - swapped;
    int64_t turn = 0;
    for (const int64_t rows : parts) turn += rows;
    const int64_t in_block = row % (ahead + turns * turn + kept) - ahead;
    if (in_block < 0 || in_block >= turns * turn) return row;
    int64_t in_turn = 0;  // first row of the part
    int64_t in_part = in_block;
    size_t p = 0;
    for (; in_part >= turns * parts[p]; ++p) {
      in_part -= turns * parts[p];
      in_turn += parts[p];
    }
    return row - in_block + in_part / parts[p] * turn + in_turn + in_part % parts[p];
  }
};

// Where files may hold a parameter's rows: those of some tensors one behind the other, however they
// are cut, or of one tensor that has all.
struct JoinedRows {
  std::vector<std::string> tensors;
  std::string whole;
  int64_t first = 0;  // of the parameter
  int64_t rows = 0;   // of all
};

// One parameter as the world knows it: Hugging Face name, shape [out, in] for matrices.
struct ParamSpec {
  std::string name;
  Shape shape;
  InitKind init = InitKind::kNormal;
  double init_std = 0.02;
  bool decay = false;        // whether weight decay applies (matrices yes, norms and biases no)
  bool packed = false;       // only pack() reads the value; tasks read the packed form
  bool transposed = false;   // files hold [in, out] (GPT-2's Conv1D)
  bool fixed = false;        // its gradient stays zero
  bool by_rows = false;      // W of it may leave out rows (Param::grad_rows)
  bool choice_bias = false;  // of experts, for their choice alone; fixed
  bool wide = false;         // files hold it as f32 whatever their type
  bool adapter = false;      // a LoRA matrix; the base is frozen where a model has them
  bool adapter_b = false;    // B of it, which an optimizer may move faster
  bool as_row = false;       // of a vector [N], which files hold as [1, N]
  bool whole = false;        // f32 whatever the type of embedding tables is, though a matrix
  bool as_scalar = false;    // of a vector [1], which files hold without dimensions
  std::optional<Shape> as_kernels = {};  // files hold a matrix as [out, …], in more dimensions
  std::optional<StackedPlace> stacked = {};
  std::optional<StoredRows> stored_rows = {};
  std::optional<StoredRows> stored_columns = {};  // the same of a matrix's columns
  std::optional<JoinedRows> joined = {};

  // Of the tensor in files that holds it alone.
  Shape stored_shape() const {
    if (as_scalar) return Shape();
    if (as_row) return Shape{1, shape[0]};
    if (as_kernels) return *as_kernels;
    return transposed ? Shape{shape[1], shape[0]} : shape;
  }
};

// A parameter's memory on a device. `value` is the f32 master (or the stored type when only
// inference follows); `grad` is f32 and empty when the parameter is frozen.
struct Param {
  TensorView value;
  TensorView grad;
  TensorView scales = {};  // for pack() alone: those of the value's blocks, where they are known
  // The rows whose gradients W computes, where it leaves out others, whose are zeros; null: all. Of
  // parameters that are by_rows.
  const std::vector<ops::RowRange>* grad_rows = nullptr;
};

// What a block reads while it runs: its parameters in the order of Block::params(), and the packed
// forms of its matrices, laid out by Block::pack(). `packed` is one buffer of packed_bytes().
struct BlockWeights {
  std::vector<Param> params;
  TensorView packed;                                       // u8
  ops::WeightFormat format = ops::WeightFormat::kCompute;  // of its matrices, adapters aside
  // Quantised matrices in training, and on a GPU: memory in which a task turns them back into
  // numbers, one for a whole device. Empty: a CPU's inference, whose products are in whole numbers.
  TensorView strip;       // u8
  TensorView rope_table;  // [positions, columns] f32 (rope_table.h), one for a whole device
};

// What W does with the gradients of matrices: adds to them, or stores them and so spares a step the
// zeros to begin with. Those of vectors and tables are added to in either case.
enum class GradientUse { kAdd, kStore };

struct StepAdapters;  // adapter.h

// What the sequences of a batch that inference runs have in a recurrent layer, a row each
// (SequenceSpan::state).
struct SequenceStates {
  TensorView inputs;    // of its convolution, of the compute type; empty in training
  TensorView matrices;  // f32
};

// What a block needs besides: compute type and, for inference, the paged key/value cache of its
// layer.
struct BlockContext {
  Stream& stream;
  DType compute = DType::kF32;  // f32 or bf16
  TensorView workspace;         // u8, workspace_bytes(T)
  ops::KvCacheView kv_cache;    // data == nullptr: attention over the batch's own rows
  SequenceStates states;        // of a recurrent layer, in place of the cache or beside it
  GradientUse gradients = GradientUse::kAdd;
  const StepAdapters* adapters = nullptr;  // of inference: what rows of the batch get besides
  // Where sequences are divided among ranks and the batch has a part of each: how attention gets
  // the rest, and room for it, gathered_bytes(R). Or null.
  ContextExchange* exchange = nullptr;
  TensorView gathered;  // u8
  // The rows that W takes, where its sums over tokens go on elsewhere; none: all. Of models that
  // check_context_support() takes (context_support.h).
  std::optional<RowRange> weight_rows;

  RowCut weight_cut(int64_t row_count) const {
    const RowRange rows = weight_rows.value_or(RowRange{0, row_count});
    return {.all = row_count, .begin = rows.begin, .end = rows.end};
  }
};

struct BlockMemory {
  TensorView saved;    // u8, empty when no backward follows
  TensorView pending;  // u8, used by X and W
};

// How experts were used, which stands in `saved` behind X.
struct ExpertRecord {
  TensorView row_ends;  // [E] i32: rows of all experts up to each
  TensorView balance;   // [T] f32, ops::ExpertBalance::losses where the batch gives it a weight
};

enum class PackFor { kInference, kTraining };  // training packs for the input gradient as well

class Block {
 public:
  virtual ~Block() = default;
  // "embedding", "layer.3", "head".
  virtual const std::string& name() const = 0;
  virtual std::span<const ParamSpec> params() const = 0;

  // Bytes of the packed matrices, and the packing itself, to be redone after values change.
  // Parameters with an empty value keep their packed form as it is.
  virtual int64_t packed_bytes(DType compute, PackFor use, ops::WeightFormat format) const = 0;
  virtual void pack(Stream& stream, const BlockWeights& weights, DType compute,
                    PackFor use) const = 0;

  // Gives the lengths of DoRA's rows (projection.h) those that rows of the base had when they were
  // packed.
  virtual void start_magnitudes(Stream&, const BlockWeights&, DType /*compute*/) const {}

  // Bytes of BlockWeights::strip that its tasks need where its matrices are quantised.
  virtual int64_t strip_bytes(DType compute) const = 0;

  // Appends the places of a parameter in the packed matrices, where its packed forms depend on
  // nothing else and an optimizer may renew them with the value. None: only pack() does.
  virtual void list_packs(const BlockWeights&, size_t /*param*/, DType /*compute*/, PackFor,
                          std::vector<ops::PackPart>&) const {}

  virtual int64_t saved_bytes(int64_t token_count, DType compute) const = 0;
  virtual int64_t pending_bytes(int64_t token_count, DType compute) const = 0;
  virtual int64_t workspace_bytes(int64_t token_count, DType compute, PackFor use) const = 0;
  // Bytes of BlockContext::gathered that F and X need where a batch of so many rows is divided.
  virtual int64_t gathered_bytes(int64_t /*row_count*/, DType /*compute*/) const { return 0; }
  // Bytes of scratch that F, X and W take of each of so many threads (CpuDevice::scratch); where
  // the base is frozen, W of its matrices runs no product.
  virtual int64_t thread_scratch_bytes(int64_t token_count, DType compute, int threads,
                                       bool frozen_base) const = 0;

  // src is ignored by the first block, dst by a head in training (see head.h).
  virtual void forward(const BlockContext& context, const BlockWeights& weights, const Batch& batch,
                       const TensorView& src, const TensorView& dst,
                       const BlockMemory& memory) const = 0;
  virtual void backward_input(const BlockContext& context, const BlockWeights& weights,
                              const Batch& batch, const TensorView& src, const TensorView& grad_dst,
                              const TensorView& grad_src, const BlockMemory& memory) const = 0;
  virtual void backward_weight(const BlockContext& context, const BlockWeights& weights,
                               const Batch& batch, const TensorView& src,
                               const BlockMemory& memory) const = 0;

  // E of a block with experts, and of them what stands in `saved` behind X.
  virtual int64_t expert_count() const { return 0; }
  virtual ExpertRecord expert_record(const TensorView& /*saved*/, int64_t /*token_count*/,
                                     DType /*compute*/) const {
    return {};
  }

  // Forward floating-point operations for T tokens of mean context length C, for rate reports.
  virtual double forward_flops(double token_count, double context_mean) const = 0;
};

// A model as a graph of blocks. Node i reads the outputs of `inputs`; the decoder families are
// chains.
struct BlockGraph {
  struct Node {
    const Block* block = nullptr;
    std::vector<int32_t> inputs;  // indices of earlier nodes; empty for the first
  };
  std::vector<Node> nodes;  // in topological order
};

}  // namespace jige::model
