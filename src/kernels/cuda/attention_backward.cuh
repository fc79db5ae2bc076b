// What the two kernels of backward attention on tensor cores share. Each recomputes the weights of
// a tile from lse: one for the gradients of keys and values, a block for a tile of keys and a
// key/value head, and one for those of queries, a block for a tile of queries and a query head. So
// every sum stays in the registers of one warp, in a fixed order. Products of scores are (keys,
// queries) in the one and (queries, keys) in the other, so that weights are at once the left side
// of the next product. Threads: device code.
#pragma once

#include "kernels/cuda/attention_flash.cuh"

namespace jige::cuda {

// A factor of all rows.
struct Constant {
  float value;
  __device__ float operator()(int, int) const { return value; }
};

struct BackwardArgs {
  FlatAttentionBackward flat;
  Scores scores;
};

__device__ inline const Bf16* bf16_at(const ConstRows& rows, int64_t row, int64_t column) {
  return static_cast<const Bf16*>(rows.data) + row * rows.stride + column;
}

// Calls body(m, n, e) for the registers of accumulators.
template <int kM, int kN, typename Body>
__device__ inline void for_registers(Body body) {
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int n = 0; n < kN; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) body(m, n, e);
    }
  }
}

// With scores as they come from the product and gradients of weights: those become gradients of
// scores and these weights. seen(m, n, e) tells which are not hidden, where any is; statistics(m,
// n, e) gives lse · log2 e and the sum of the query's row.
template <bool kBends, int kM, int kN, typename Seen, typename Statistics>
__device__ inline void weigh(float (&scores)[kM][kN][4], float (&grads)[kM][kN][4],
                             const Scores& how, bool hides, Seen seen, Statistics statistics) {
  if (kBends) {
    for_registers<kM, kN>(
        [&](int m, int n, int e) { scores[m][n][e] = bounded_tanh(scores[m][n][e] * how.bend); });
  }
  if (hides) {
    for_registers<kM, kN>([&](int m, int n, int e) {
      if (!seen(m, n, e)) scores[m][n][e] = -INFINITY;
    });
  }
  for_registers<kM, kN>([&](int m, int n, int e) {
    const float2 row = statistics(m, n, e);
    const float score = scores[m][n][e];
    const float weight = fast_exp2(fmaf(score, how.factor, -row.x));
    const float slope = kBends ? weight * fmaxf(fmaf(-score, score, 1.0f), 0.0f) : weight;
    scores[m][n][e] = weight;
    grads[m][n][e] = slope * (grads[m][n][e] - row.y);
  });
}

// lse · log2 e and the sum of a query; of one beyond the sequence, what makes its weights zeros.
__device__ inline float2 query_statistics(const FlatAttentionBackward& args,
                                          const AttentionTile& tile, int head, int query) {
  if (query >= tile.length) return make_float2(INFINITY, 0.0f);
  const int64_t i = head * args.rows + tile.row + query;
  return make_float2(args.scratch[i], args.scratch[i + args.rows * args.attention.head_count]);
}

// Rows of a tile of keys, for heads of a dimension.
constexpr int flash_keys(int dim, bool small) { return dim == 256 && small ? 32 : 64; }

void flash_gradients_of_keys(const LaunchStream& stream, const BackwardArgs& args);
void flash_gradients_of_queries(const LaunchStream& stream, const BackwardArgs& args);

}  // namespace jige::cuda
