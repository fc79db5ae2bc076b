// LatentHeads: the projection up from the latent, taken apart by head and put where it meets
// queries and results instead of keys and values; so attention over cached latents needs no keys
// and values of heads.
//
// Shapes: T tokens, H heads, R rank of the latent, r columns of keys that all heads share, n of
// queries and keys that are a head's own, w of values; the projection's rows of head h are Kh [n,
// R] and Vh [w, R].
//   scores   q_h · (K_h c) = (q_h K_h) · c          queries [T, H·(R + r)] of one key head (c, s)
//   values   Σ p (V_h c) = V_h (Σ p c)              dst [T, H·w] from results [T, H·(R + r)]
// Both are products of their own, kept in the compute type whatever the format of the block.
// Adapters of the projection are added to both as low-rank products (HeadLowRank).
// Threads: const.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "model/block.h"
#include "model/placement.h"
#include "model/projection.h"
#include "ops/low_rank.h"

namespace jige::model {

class LatentHeads {
 public:
  LatentHeads() = default;
  // `weight`: the projection's place among the parameters.
  LatentHeads(const HeadRows& rows, int64_t rank, int64_t shared, size_t weight);

  void plan(Placement& at, DType compute, ops::WeightFormat format);
  // Where the projection has a value.
  void pack(Stream& stream, const BlockWeights& weights, DType compute) const;

  // dst [T, H·(R + r)] from q [T, H·(n + r)], the columns that turn included. Adapters are those of
  // `up`.
  void queries(const BlockContext& context, const BlockWeights& weights, const Projection& up,
               const TensorView& dst, const TensorView& q) const;
  // dst [T, H·w] from src [T, H·(R + r)].
  void values(const BlockContext& context, const BlockWeights& weights, const Projection& up,
              const TensorView& dst, const TensorView& src) const;

 private:
  struct Places {
    std::vector<int64_t> keys, values;  // by head
  };
  int64_t width() const { return rank_ + shared_; }
  ops::PackedWeight key_view(const BlockWeights& weights, DType compute, int64_t head) const;
  ops::PackedWeight value_view(const BlockWeights& weights, DType compute, int64_t head) const;

  HeadRows rows_;
  int64_t rank_ = 0;
  int64_t shared_ = 0;
  size_t weight_ = 0;
  Places places_[kPackLayouts];
};

// An adapter A [a, R], B [H·(n + w), a] of a projection up from the latent, as low-rank products of
// queries and of values, by head.
struct HeadLowRank {
  std::vector<std::shared_ptr<const ops::LowRankWeight>> queries, values;

  // Places the matrices in `memory`, null when only measuring, from byte `at` on, which moves.
  static HeadLowRank place(const HeadRows& rows, int64_t inputs, int64_t adapter_rank, float scale,
                           DType compute, std::byte* memory, int64_t& at);
  // REQUIRES: placed in memory. Waits for the stream.
  void pack(Stream& stream, const HeadRows& rows, const TensorView& a, const TensorView& b) const;
};

}  // namespace jige::model
