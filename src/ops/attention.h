// Attention over ragged sequences with grouped-query heads, optional sliding window, and over a
// paged key/value cache. Causal, but for sequences that are looked at from both sides and for rows
// of a cache that see one another, such as those of an image.
//
// Shapes: T rows of all sequences flat, H query heads, G key/value heads (H a multiple of G), d
// head dimension. Query head h reads key/value head h / (H/G). A query at position p of its
// sequence sees keys at positions max(0, p - window + 1) … p (window 0: all of 0 … p); with
// both_sides also those up to p + window - 1 (window 0: all that the sequence has). A query of a
// span whose rows see one another sees all keys up to the span's last row, whatever the window is.
//
// Online softmax over tiles of keys; never a T×T matrix. Order, which results are defined by: keys
// in ascending position, in tiles aligned to the start of the sequence. So a row's bits depend on
// its own query and keys only: not on its neighbours, on how the batch is packed, on chunking of a
// prompt, or on threads. Forward with a cache gives the same bits whether a prompt comes in one
// piece or many. On a GPU, where sums have another order (kernels/cuda/attention_cached.h), also on
// whether a sequence has few rows or more. Threads: asynchronous on the stream.
#pragma once

#include <cstdint>
#include <vector>

#include "tensor/device.h"
#include "tensor/view.h"

namespace jige::ops {

// The widest heads there may be.
inline constexpr int64_t kAttentionDimMax = 640;

// What scores get besides: products of queries with rows of one table and of keys with those of
// another, by how far a key stands behind its query: row row_of[key − query] of both, for distances
// from 1 − n to n − 1, n the tokens of the longest sequence (ops/distance_rows.h). Either table may
// be empty; products are times the scale of scores.
struct AttentionDistanceTables {
  TensorView for_queries;           // [rows, H·d], of the type of queries and keys
  TensorView for_keys;              // likewise
  const int32_t* row_of = nullptr;  // memory that outlives the work; null: there are none
};

struct AttentionShape {
  int64_t head_count = 0;     // H
  int64_t kv_head_count = 0;  // G
  int64_t head_dim = 0;       // d
  double scale = 0;           // of the scores, usually 1/sqrt(d)
  int64_t window = 0;         // 0: none
  double cap = 0;             // scores become cap · tanh(score / cap); 0: they stay
  // Queries see keys behind them, too. REQUIRES: attention_forward() of whole sequences.
  bool both_sides = false;
  // What scores get besides, by how far a key stands behind its query: of head h
  // distances[h · distance_stride + key − query] (ops/distance_scores.h), of distances from 1 − n
  // to n + 15, n the tokens of the longest sequence; null: nothing. Memory that outlives the work.
  // REQUIRES: both_sides, and no cap.
  const float* distances = nullptr;
  int64_t distance_stride = 0;
  // REQUIRES: both_sides, no cap, and a key head for every query head.
  AttentionDistanceTables distance_tables = {};
  // [H] learned scores that take part in the softmax of their query head and have no value; null:
  // none. Memory that outlives the work.
  const float* sinks = nullptr;
};

// A sequence whose tokens all are of the first token type.
inline constexpr int32_t kFirstTypeAlone = INT32_MAX;

// What has no row of the states to stand in.
inline constexpr int32_t kNoSpareState = -1;

// One sequence's rows in the flat batch.
struct SequenceSpan {
  int32_t row_begin = 0;
  int32_t row_count = 0;
  int32_t context_count = 0;  // tokens before these rows that are in the cache; 0 in training
  const int32_t* blocks =
      nullptr;  // cache block of tokens [16 i, 16 i + 16) of the sequence; null in training
  // Row of the states of recurrent layers that is the sequence's; not read in training.
  int32_t state = 0;
  // Another row of them, which afterwards holds what the states are behind the first `spare_rows`
  // of these rows, whatever it held: where to go on from if the other rows were wrong guesses.
  int32_t spare = kNoSpareState;
  int32_t spare_rows = 0;  // 1 to row_count, with a spare row
  bool has_spare() const { return spare != kNoSpareState; }
  // From which token of the sequence on the token type is the second, in inference with a model
  // that has types (model/embedding.h); not read by attention.
  int32_t second_begin = kFirstTypeAlone;
  // Its rows see one another: each those behind it, too. Who has text around such rows gives spans
  // of either. REQUIRES: attention_cached(), or attention_forward() with key_begins, on a CPU.
  bool mutual = false;
};

struct AttentionForward {
  TensorView dst;  // [T, H·d] f32 or bf16
  TensorView q;  // [T, H·d] f32 or bf16 (row stride free: a column range of a fused tensor is fine)
  TensorView k;    // [T, G·d]
  TensorView v;    // [T, G·d]
  TensorView lse;  // [T, H] f32: log of the sum of exponentials, for backward; or empty
  std::vector<SequenceSpan> sequences;
  AttentionShape shape;
  // Of sequences that are divided (SequencePiece), and of spans of which some see one another: the
  // row of k and v of the first token of each one's sequence; rows of k and v need not be as many
  // as those of q then. Empty: where its rows of q begin.
  std::vector<int32_t> key_begins = {};
};
void attention_forward(Stream& stream, const AttentionForward& args);

// Rows of a sequence that is divided: some of its tokens lie here, one behind the other, and all of
// them in tensors of whole sequences.
struct SequencePiece {
  int32_t row_begin = 0;    // here
  int32_t row_count = 0;    // here
  int32_t position = 0;     // of the first of them in the sequence
  int32_t whole_begin = 0;  // row of the sequence's first token among whole sequences
  int32_t whole_count = 0;  // tokens of the sequence

  bool operator==(const SequencePiece&) const = default;
};
// The first row of the piece's sequence whose query its gradients depend on: keys go in tiles.
int32_t first_query_row(const SequencePiece& piece);

struct AttentionBackward {
  TensorView grad_q;             // [T, H·d] overwritten
  TensorView grad_k;             // [T, G·d] overwritten
  TensorView grad_v;             // [T, G·d] overwritten
  TensorView grad_dst;           // [T, H·d]
  TensorView q, k, v, dst, lse;  // as in forward
  std::vector<SequenceSpan> sequences;
  AttentionShape shape;
  // Of the rows of sequences, runs that see one another. REQUIRES: a stream of a CPU.
  struct MutualRun {
    int32_t row_begin = 0;
    int32_t row_count = 0;
  };
  std::vector<MutualRun> mutual = {};
};
void attention_backward(Stream& stream, const AttentionBackward& args);

// The gradients of pieces alone, T rows, from tensors of whole sequences, R rows, with the bits of
// attention_backward() over these. What counts of a piece's sequence: k and v up to the piece's
// last row; q, dst, grad_dst and lse from first_query_row() on. The rest may hold anything.
// REQUIRES: a stream of a CPU.
struct AttentionBackwardPieces {
  TensorView grad_q;                       // [T, H·d] overwritten
  TensorView grad_k, grad_v;               // [T, G·d] overwritten
  TensorView grad_dst, q, k, v, dst, lse;  // [R, …] as in backward
  std::vector<SequencePiece> pieces;
  AttentionShape shape;
};
void attention_backward_pieces(Stream& stream, const AttentionBackwardPieces& args);

// slopes [T, H] f32, whose sums over rows are the gradients of the sinks.
struct AttentionSinkSlopes {
  TensorView slopes;
  TensorView grad_dst, dst, lse;  // as in backward
  AttentionShape shape;           // with sinks
};
void attention_sink_slopes(Stream& stream, const AttentionSinkSlopes& args);

// Scratch that attention forward and backward take of each thread, for sequences of up to
// `length_max` tokens.
int64_t attention_scratch_bytes(const AttentionShape& shape, int64_t length_max);
// What forward takes besides where scores get products with rows by distance.
int64_t attention_distance_scratch_bytes(const AttentionShape& shape);

// Paged key/value cache of one layer. A block holds 16 tokens of every key/value head:
// [block][G]{ keys [d][16] ; values [16][d] }: keys lie interleaved so that 16 scores are one
// vector. In 8 bits (i8) scales follow, one for the keys and one for the values of a token and
// head: [block][G]{ keys ; values ; bf16 key scales [16] ; bf16 value scales [16] }, and rows are
// rounded once, as they are appended (kernels/cpu/kv_cache.h says how). On a GPU keys lie as values
// do.
inline constexpr int64_t kKvBlockTokens = 16;
struct KvCacheView {
  void* data = nullptr;
  DType dtype = DType::kF32;  // f32, bf16 or i8
  int64_t block_count = 0;
  int64_t kv_head_count = 0;
  int64_t head_dim = 0;
};
int64_t kv_cache_bytes(DType dtype, int64_t block_count, int64_t kv_head_count, int64_t head_dim);

// Writes rows of k and v [T, G·d] to positions context_count … context_count + row_count - 1 of
// each sequence. REQUIRES: blocks cover those positions and are in [0, block_count).
void kv_append(Stream& stream, const KvCacheView& cache, const TensorView& k, const TensorView& v,
               const std::vector<SequenceSpan>& sequences);

// What calls share that have the same sequences, on a GPU (ops/step_tables.h).
struct StepTables;

// Attention of q against the cache; the rows' own keys must have been appended before.
// Prompt chunks and single-token decodes may be mixed in one call.
struct AttentionCached {
  TensorView dst;  // [T, H·d] f32 or bf16
  TensorView q;    // [T, H·d] f32 or bf16
  KvCacheView cache;
  std::vector<SequenceSpan> sequences;
  AttentionShape shape;
  StepTables* tables = nullptr;  // or null; emptied whenever the step is put on the stream
  // Values are the first so many columns of keys, as the cache has them once more, and zeros; of
  // dst no more are read: on a GPU the others may hold anything. 0: values are what they are.
  int64_t latent_columns = 0;
};
void attention_cached(Stream& stream, const AttentionCached& args);

// What rope(), kv_append() and attention_cached() do one after the other, in one pass where the
// device has it; else nothing is done, and false. Then it does not matter what q and k hold after
// it. Rows turn by their place in the sequence. REQUIRES: no sequence reads what another appends.
struct AttentionStep {
  AttentionCached attention;  // of queries before they turn
  TensorView k, v;            // [T, G·d], before they turn; or empty: they stand in the cache
  TensorView q_cos_sin, k_cos_sin;  // [positions, rotary_dim] f32 as in ops/rope.h, of one stride
  int64_t rotary_dim = 0;           // 0: nothing turns
};
bool attention_step(Stream& stream, const AttentionStep& args);

}  // namespace jige::ops
