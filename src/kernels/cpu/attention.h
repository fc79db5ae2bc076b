// Attention of a tile of query rows against the keys of one key/value head: forward over flat rows
// or over a paged cache, and backward. Causal, but forward may look ahead, too.
//
// The one computation that every path realises, so that the bits of a query row depend on its query
// and on the keys and values it sees, and on nothing else:
//   score    s(j) = chain over c ascending of fma(scale·q[c], k[j][c], ·) from 0
//   tile     64 keys, aligned to the start of the sequence:
//              m' = max(m, visible s); α = exp(m − m'); p(j) = exp(s(j) − m')
//              l = l·α, then lane j mod 16 adds p(j), blocks of 16 keys ascending (16 lanes)
//              o = o·α, then chain over j ascending of fma(p(j), v[j], ·)
//   split    512 keys, aligned to the start of the sequence, starts anew: m = lowest, l = 0, o = 0;
//              at its end the 16 lanes of l are added as horizontal_sum does
//   merge    splits ascending: the first visible one is taken as it is, a later one by
//              m' = max(M, m); a = exp(M − m'); b = exp(m − m');
//              L = fma(l, b, L·a); O = fma(o, b, O·a); M = m'
//   sink     a learned score s of the query head that has no value, where there is one:
//              m' = max(M, s); a = exp(M − m'); L = fma(L, a, exp(s − m')); M = m'
//   result   dst = O · (a · (1 / L)), a = 1 without a sink; lse = M + log L
// Of a cache in 8 bits, whose whole numbers k8 and v8 have scales κ and ν by token, it is the same
// but for
//   score    s(j) = (chain over c ascending of fma(scale·q[c], k8[j][c], ·) from 0) · κ(j)
//   tile     o = o·α, then chain over j ascending of fma(p(j)·ν(j), v8[j], ·); l takes p(j) as it
//   is
// Where scores have a cap c, each becomes c·tanh(s(j)·(1/c)), 1/c in f32, before anything else is
// done with it.
// Where scores depend on the distance, too, each becomes s(j) + d(j − position) in f32 likewise.
// Where they get products with rows by distance, K for queries and Q for keys, each becomes
// (s(j) + u) + v, u the chain over c of fma(scale·q[c], K[c], ·) and v that of
// fma(scale·Q[c], k[j][c], ·), both from 0; what is left out is not added.
// Keys, tiles and splits that a row does not see are not touched for it, or are exact no-ops
// (α = exp(0) = 1, l + 0); so how rows share a tile, and which splits run on which thread, leaves
// no trace, and values that a row does not see may be anything, NaN too.
//
// Backward: P = exp(s − lse), D = Σ dst·grad_dst (16 lanes, horizontal_sum), dP = grad_dst·v,
// dS = P·(dP − D), with a sink or without, and times 1 − tanh² where scores have a cap. grad_q is a
// chain over keys ascending, times scale at the end; grad_k and grad_v are chains over the rows
// that see the key, positions ascending and heads ascending within one. All sums are f32; a
// sequence's gradients depend on that sequence only.
//
// On the matrix tiles of AMX and in pairs of AVX512_BF16 (attention_products), for bf16 and for
// queries in bf16 over a cache in 8 bits, the same with these differences, where a product is that
// of attention_products_amx.h or of attention_products_pairs.h:
//   score    S(j) = product over c, from 0; x(j) = S(j)·f with f = scale·log2 e in f32; under a cap
//            c the same of tanh(S(j)·(scale·(1/c))) and f = c·log2 e; with scores by distance of
//            fma(d(j − position), 1/scale, S(j)); with rows by distance (S(j) + u) + v of products
//            q·K and Q·k likewise
//   tile     64 keys: m' = max(m, f·max S); α = 2^(m − m');
//            p(j) = 2^fma(S(j), f, −m'); powers by power_of_two (attention_tiles.h);
//              l = l·α, lanes as above (of p in f32, not as rounded for the product)
//              o = fma(o, α, Σ p(j)·v[j] + 0): a product over j, from 0, of p rounded to bf16,
//              p = 0 where the row does not see the key
//   split    in it numbers below the normal range count as zeros; at its end m becomes m·ln 2;
//            merge, sink and result as above
// Of a cache in 8 bits there, whose whole numbers are exact in bf16:
//   score    x(j) = S(j)·f(j) with f(j) = κ(j)·f, under a cap tanh(S(j)·(κ(j)·(scale·(1/c))))·f
//   tile     m' = max(m, max x); p(j) = 2^fma(S(j), f(j), −m'); o takes p(j)·ν(j), rounded to bf16,
//            times v8[j]; l takes p(j) as it is
// Backward there: P = 2^fma(S, f, −lse·log2 e); P and dS are rounded to bf16; grad_q sums over keys
// in steps of 32 ascending, grad_k and grad_v over rows (positions × heads from the start of the
// sequence) in steps of 32 ascending, for the steps of which some row sees a key of the tile of 64;
// scale multiplies grad_q and grad_k at the end.
//
// Memory: the scratch that the *_scratch_bytes functions state, whatever the length of a sequence,
// but for attention_backward_sequence, which holds grad_k and grad_v of a sequence in f32.
// Threads: every function is single-threaded and may run on any thread.
#pragma once

#include <cstdint>

namespace jige::cpu {

inline constexpr int kAttentionTileKeys = 64;
inline constexpr int kAttentionSplitKeys = 512;
inline constexpr int kAttentionRowsMax = 96;        // query rows (positions × heads) of a tile
inline constexpr int kAttentionTiledRowsMax = 256;  // the same forward on tiles and in pairs
inline constexpr int kAttentionDimMax = 640;        // head dimension
inline constexpr int kAttentionBlockKeys = 16;  // keys of a cache block, lanes of a score vector

// Rows of f32 or bf16 (or int8: AttentionKeys); `stride` elements from one token to the next.
struct AttentionSource {
  const void* data = nullptr;
  int64_t stride = 0;
  bool is_bf16 = false;
};
struct AttentionTarget {
  void* data = nullptr;
  int64_t stride = 0;
  bool is_bf16 = false;
};

// Keys and values of one sequence and one head.
struct AttentionKeys {
  // Flat: rows of the sequence's first token. Paged: data is this head's part of cache block 0, for
  // keys [d][16], for values [16][d]; stride is unused.
  AttentionSource k, v;
  const int32_t* blocks = nullptr;  // paged: cache block of every 16 keys; null: flat
  int64_t block_stride = 0;         // paged: elements from one cache block to the next
  // Paged in 8 bits: k and v are int8, and these are this head's scales in cache block 0, bf16, of
  // the keys of 16 tokens and then of their values. Null: k and v say what they are.
  const void* scales = nullptr;
};

// Rows of two tables by distance: what a query is multiplied with, and what a key is, besides each
// other. `row_of[key − query]` is their row, for distances between 1 − key_count and key_count − 1;
// a table without data has no part.
struct AttentionDistanceRows {
  AttentionSource for_queries, for_keys;  // of the head's row 0
  const int32_t* row_of = nullptr;        // null: there are none
};

// Query rows of one sequence and one key/value head. Row r is head r mod head_count of the position
// context_count + r / head_count.
struct AttentionRows {
  AttentionKeys keys;
  AttentionSource q;       // of row 0; heads lie head_dim apart
  AttentionTarget dst;     // likewise
  float* lse = nullptr;    // of row 0, heads one apart; or null
  int64_t lse_stride = 0;  // elements from one position to the next
  int32_t context_count = 0;
  int32_t head_count = 0;
  int32_t head_dim = 0;
  int32_t window = 0;  // 0: none
  // How many keys behind its own a row sees, of key_count that there are.
  int32_t ahead = 0;
  int32_t key_count = INT32_MAX;
  float scale = 0;
  float cap = 0;                 // of the scores; 0: none
  const float* sinks = nullptr;  // of the heads; or null
  // Flat, without a cap: what scores of the first head get besides, by how far the key stands
  // behind the row's position, from 1 − key_count to key_count + 15; heads are `distance_stride`
  // apart. Or null.
  const float* distances = nullptr;
  int64_t distance_stride = 0;
  // Likewise, and one head alone: in the type of keys and queries where these are all bf16.
  AttentionDistanceRows distance_rows;
  void* distance_scratch = nullptr;  // attention_distance_scratch_bytes, aligned to 64 bytes
  int32_t row_begin = 0;
  int32_t row_count = 0;
  // Splits [split_begin, split_end). Without `partial` these must be all splits the rows see.
  int32_t split_begin = 0;
  int32_t split_end = 0;
  float* partial = nullptr;  // where each split's (m, l, o) goes, attention_partial_floats each
  void* scratch = nullptr;   // attention_scratch_bytes, aligned to 64 bytes
};

// What multiplies: chains of fused multiply-adds, pairs of AVX512_BF16, or the tiles of AMX.
enum class AttentionProducts { kChains, kPairs, kTiles };
// Those that operands that are all bf16 (keys and values bf16 or in 8 bits), or not, and this scale
// get under the active instruction set.
AttentionProducts attention_products(bool all_bf16, float scale) noexcept;

// Scratch of attention_rows and attention_merge.
int64_t attention_scratch_bytes(int32_t head_dim) noexcept;
// That of attention_rows for rows by distance.
int64_t attention_distance_scratch_bytes(int32_t head_dim) noexcept;
// Floats that one split of a tile of `row_count` rows takes in AttentionRows::partial.
int64_t attention_partial_floats(int32_t row_count, int32_t head_dim) noexcept;

// Attention of one tile of rows. REQUIRES: row_count <= kAttentionRowsMax, or
// kAttentionTiledRowsMax on tiles and in pairs; head_dim <= kAttentionDimMax.
void attention_rows(const AttentionRows& args) noexcept;
// Merges the splits that attention_rows left in args.partial and writes dst. `args` as there, with
// [split_begin, split_end) all splits the rows see; partial is at split_begin.
void attention_merge(const AttentionRows& args) noexcept;

// One sequence and key/value head, backward. Every pointer is at the sequence's first token and the
// first of `head_count` query heads, or the key/value head.
struct AttentionGradients {
  AttentionSource q, k, v, dst, grad_dst;
  const float* lse = nullptr;
  int64_t lse_stride = 0;
  AttentionTarget grad_q, grad_k, grad_v;
  int32_t length = 0;      // tokens of the sequence
  int32_t head_count = 0;  // query heads of this key/value head
  int32_t head_dim = 0;
  int32_t window = 0;
  float scale = 0;
  float cap = 0;  // of the scores; 0: none
  // Where a sequence is divided: grad_q, and grad_k with grad_v, begin with the rows of these
  // positions, and attention_backward_keys writes those of [grad_k_begin, grad_k_end) alone.
  int32_t grad_q_begin = 0;
  int32_t grad_k_begin = 0;
  int32_t grad_k_end = INT32_MAX;
  void* scratch = nullptr;
};

// Scratch of the two functions below, and of attention_backward_sequence for a length.
int64_t attention_backward_scratch_bytes(int32_t head_dim) noexcept;
int64_t attention_sequence_scratch_bytes(int32_t head_dim, int32_t length) noexcept;

// grad_q of rows [row_begin, row_begin + row_count), numbered as in AttentionRows.
// REQUIRES: row_count <= kAttentionRowsMax.
void attention_backward_queries(const AttentionGradients& args, int32_t row_begin,
                                int32_t row_count) noexcept;
// grad_k and grad_v of the tile of 64 keys from `key_begin`. REQUIRES: a multiple of 64.
void attention_backward_keys(const AttentionGradients& args, int32_t key_begin) noexcept;
// All three of the whole sequence, at 5/7 of the arithmetic of the two above. REQUIRES: it is not
// divided.
void attention_backward_sequence(const AttentionGradients& args) noexcept;

// Of rows that see one another, a run of `length` at whose first row the pointers are: what the
// keys behind each row add to its grad_q, and what the rows before each key add to grad_k and
// grad_v, which the functions above have written. With s = scale q_i·k_j of i < j, bent by the cap,
// p = exp(s − lse_i) and g = p (grad_dst_i·v_j − grad_dst_i·dst_i), these are scale Σ_j g k_j,
// scale Σ_i g q_i and Σ_i p grad_dst_i; a sum is in ascending order and added at once. The window
// does not matter. Rows are numbered as in AttentionRows. REQUIRES: the run is not divided.
void attention_backward_ahead_queries(const AttentionGradients& args, int32_t row_begin,
                                      int32_t row_count) noexcept;
void attention_backward_ahead_keys(const AttentionGradients& args, int32_t key_begin,
                                   int32_t key_count) noexcept;

}  // namespace jige::cpu
