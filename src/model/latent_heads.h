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
#include "model/device_copies.h"
#include "model/placement.h"
#include "model/projection.h"
#include "ops/head_linear.h"
#include "ops/low_rank.h"

namespace jige::model {

class LatentHeads {
 public:
  LatentHeads() = default;
  // `weight`: the projection's place among the parameters.
  LatentHeads(const HeadRows& rows, int64_t rank, int64_t shared, size_t weight, DeviceKind device);

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
    int64_t keys = 0;    // of the first head
    int64_t values = 0;  // likewise
    int64_t step = 0;    // from one head's to the next's
  };
  int64_t width() const { return rank_ + shared_; }
  ops::HeadWeights key_views(const BlockWeights& weights, DType compute) const;
  ops::HeadWeights value_views(const BlockWeights& weights, DType compute) const;

  HeadRows rows_;
  int64_t rank_ = 0;
  int64_t shared_ = 0;
  size_t weight_ = 0;
  DeviceKind device_ = DeviceKind::kCpu;  // that multiplies
  Places places_[kPackLayouts];
};

// An adapter A [a, R], B [H·(n + w), a] of a projection up from the latent, as low-rank products of
// queries and of values, by head.
struct HeadLowRank {
  std::vector<std::shared_ptr<const ops::LowRankWeight>> queries, values;

  // Places the matrices in `memory`, null when only measuring, from byte `at` on, which moves.
  static HeadLowRank place(const HeadRows& rows, int64_t inputs, int64_t adapter_rank, float scale,
                           DType compute, std::byte* memory, int64_t& at);
  // `a` and `b` are the host's. REQUIRES: placed in memory. Waits for the stream. Fails with
  // kExhausted where the device has no room for copies.
  Status pack(Stream& stream, const HeadRows& rows, const TensorView& a, const TensorView& b,
              DeviceCopies& copies) const;
};

}  // namespace jige::model
