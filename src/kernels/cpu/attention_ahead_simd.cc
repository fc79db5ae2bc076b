// What rows that see those behind them, too, add to the gradients of attention: the kernels of
// attention_backward.cc give those of the keys up to each row's own. One row after the other, since
// such rows are few.
#include "kernels/cpu/attention.h"
#include "kernels/cpu/attention_load.h"
#include "kernels/cpu/simd_math.h"

namespace jige::cpu::JIGE_ISA_NS {
namespace {

// A row widened.
struct WideRow {
  alignas(64) float at[kAttentionDimMax];

  void load(const AttentionSource& source, int64_t offset, int dim, float scale) {
    const F32x16 factor = F32x16::broadcast(scale);
    with_elements(source, [&](const auto* src) {
      for_each_vector<F32x16>(dim, [&](int64_t c, int lanes) {
        store_lanes(load_lanes<F32x16>(src + offset + c, lanes) * factor, at + c, lanes);
      });
    });
  }
  void clear(int dim) {
    for (int c = 0; c < dim; ++c) at[c] = 0;
  }
  float dot(const AttentionSource& source, int64_t offset, int dim) const {
    F32x16 sum = F32x16::zero();
    with_elements(source, [&](const auto* src) {
      for_each_vector<F32x16>(dim, [&](int64_t c, int lanes) {
        sum = fma(load_lanes<F32x16>(src + offset + c, lanes), load_lanes<F32x16>(at + c, lanes),
                  sum);
      });
    });
    return horizontal_sum(sum);
  }
  void add(const AttentionSource& source, int64_t offset, int dim, float scale) {
    const F32x16 factor = F32x16::broadcast(scale);
    with_elements(source, [&](const auto* src) {
      for_each_vector<F32x16>(dim, [&](int64_t c, int lanes) {
        store_lanes(fma(load_lanes<F32x16>(src + offset + c, lanes), factor,
                        load_lanes<F32x16>(at + c, lanes)),
                    at + c, lanes);
      });
    });
  }
  void add_to(const AttentionTarget& target, int64_t offset, int dim, float scale) const {
    const F32x16 factor = F32x16::broadcast(scale);
    with_elements(target, [&](auto* dst) {
      for_each_vector<F32x16>(dim, [&](int64_t c, int lanes) {
        store_lanes(fma(load_lanes<F32x16>(at + c, lanes), factor,
                        load_lanes<F32x16>(dst + offset + c, lanes)),
                    dst + offset + c, lanes);
      });
    });
  }
};

// A query's weight of a key, and the gradient of their score before its scale.
struct PairWeights {
  float weight;
  float slope;
};

// From the score and grad_dst · v.
PairWeights weigh_pair(const AttentionGradients& args, float score, float change, float lse) {
  if (args.cap > 0) {
    const F32x16 bent = tanh(F32x16::broadcast(score / args.cap));
    alignas(64) float lanes[16];
    bent.store(lanes);
    score = args.cap * lanes[0];
    change *= 1.0f - lanes[0] * lanes[0];
  }
  alignas(64) float weights[16];
  exp_weight(F32x16::broadcast(score - lse)).store(weights);
  return {weights[0], weights[0] * change};
}

}  // namespace

void attention_backward_ahead_queries(const AttentionGradients& args, int32_t row_begin,
                                      int32_t row_count) noexcept {
  const int dim = args.head_dim;
  WideRow q, grad_dst, grad_q;
  for (int32_t row = row_begin; row < row_begin + row_count; ++row) {
    const int64_t i = row / args.head_count;
    const int64_t head = row % args.head_count;
    const int64_t column = head * dim;
    q.load(args.q, i * args.q.stride + column, dim, args.scale);
    grad_dst.load(args.grad_dst, i * args.grad_dst.stride + column, dim, 1.0f);
    grad_q.clear(dim);
    const float lse = args.lse[i * args.lse_stride + head];
    const float dot = grad_dst.dot(args.dst, i * args.dst.stride + column, dim);
    for (int64_t j = i + 1; j < args.length; ++j) {
      const float score = q.dot(args.k, j * args.k.stride, dim);
      const float change = grad_dst.dot(args.v, j * args.v.stride, dim) - dot;
      grad_q.add(args.k, j * args.k.stride, dim, weigh_pair(args, score, change, lse).slope);
    }
    grad_q.add_to(args.grad_q, i * args.grad_q.stride + column, dim, args.scale);
  }
}

void attention_backward_ahead_keys(const AttentionGradients& args, int32_t key_begin,
                                   int32_t key_count) noexcept {
  const int dim = args.head_dim;
  WideRow k, v, grad_dst, grad_k, grad_v;
  for (int64_t j = key_begin; j < int64_t{key_begin} + key_count; ++j) {
    k.load(args.k, j * args.k.stride, dim, args.scale);
    v.load(args.v, j * args.v.stride, dim, 1.0f);
    grad_k.clear(dim);
    grad_v.clear(dim);
    for (int64_t row = 0; row < j * args.head_count; ++row) {
      const int64_t i = row / args.head_count;
      const int64_t head = row % args.head_count;
      const int64_t column = head * dim;
      grad_dst.load(args.grad_dst, i * args.grad_dst.stride + column, dim, 1.0f);
      const float dot = grad_dst.dot(args.dst, i * args.dst.stride + column, dim);
      const float score = k.dot(args.q, i * args.q.stride + column, dim);
      const float change = v.dot(args.grad_dst, i * args.grad_dst.stride + column, dim) - dot;
      const PairWeights pair =
          weigh_pair(args, score, change, args.lse[i * args.lse_stride + head]);
      grad_v.add(args.grad_dst, i * args.grad_dst.stride + column, dim, pair.weight);
      grad_k.add(args.q, i * args.q.stride + column, dim, pair.slope);
    }
    grad_k.add_to(args.grad_k, j * args.grad_k.stride, dim, args.scale);
    grad_v.add_to(args.grad_v, j * args.grad_v.stride, dim, 1.0f);
  }
}

}  // namespace jige::cpu::JIGE_ISA_NS
