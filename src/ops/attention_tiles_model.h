// The forward arithmetic of attention on matrix tiles and in pairs as kernels/cpu/attention.h
// states it, one query row at a time in plain C++: what the tests compare bits with. Threads: none.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/attention.h"
#include "ops/attention_test_support.h"

namespace jige::ops::attention_test {

// Scales of a cache in 8 bits, [rows, key/value heads]; the inputs' keys and values are its whole
// numbers then.
struct TilesScales {
  Matrix k, v;
};

struct TilesModel {
  std::vector<float> dst;
  float lse = 0;
};

inline float flushed(float value) {
  return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0f, value) : value;
}

// Σ left(k)·right(k) as the active products sum it: tiles 32 at a time, even and odd apart; pairs
// in one chain, of each pair the odd one first.
template <typename Left, typename Right>
float tile_sum(int64_t begin, int64_t end, Left&& left, Right&& right) {
  float sum = 0;
  if (cpu::attention_products(true, 1.0f) == cpu::AttentionProducts::kPairs) {
    for (int64_t pair = begin; pair < end; pair += 2) {
      for (const int64_t k : {pair + 1, pair}) {
        if (k < end) sum = flushed(std::fma(flushed(left(k)), flushed(right(k)), sum));
      }
    }
    return sum;
  }
  for (int64_t step = begin; step < end; step += 32) {
    float chains[2] = {0, 0};
    for (int64_t k = step; k < step + 32; ++k) {
      if (k >= end) continue;
      float& chain = chains[k % 2];
      chain = flushed(std::fma(flushed(left(k)), flushed(right(k)), chain));
    }
    sum = flushed(sum + flushed(chains[0] + chains[1]));
  }
  return sum;
}

// power_of_two of attention_tiles.h.
inline float power_of_two_model(float x) {
  if (x < -125.0f) return 0;
  const float n = std::nearbyint(x);
  const float r = x - n;
  float sum = 0.009582852944731712f;
  for (const float c : {0.055906426161527634f, 0.24024099111557007f, 0.6931241750717163f, 1.0f}) {
    sum = std::fma(sum, r, c);
  }
  return std::ldexp(sum, static_cast<int>(n));
}

// e^x as the kernels that merge splits compute it (exp_weight of simd_math.h).
inline float exp_weight_model(float x) {
  const float bounded = std::max(-86.6f, x);
  const float bias = 12582912.0f + 127.0f;
  const float n = std::fma(bounded, 1.44269504088896f, bias) - bias;
  const float r = std::fma(n, -1.42860682031e-6f, std::fma(n, -0x1.62e4p-1f, bounded));
  float sum = 0.00138367142063f;
  for (const float c :
       {0.00836914032698f, 0.0416681058705f, 0.166665166616f, 0.499999940395f, 1.0f, 1.0f}) {
    sum = std::fma(sum, r, c);
  }
  return std::ldexp(sum, static_cast<int>(n));
}

// tanh of simd_math.h, whose exponential is exp there.
inline float tanh_model(float x) {
  const float magnitude = std::fabs(x);
  const float square = flushed(x * x);
  if (magnitude < 0.625f) {
    float sum = -0.00571406353265f;
    for (const float c : {0.0206480622292f, -0.0537427738309f, 0.133314833045f, -0.333332836628f}) {
      sum = std::fma(sum, square, c);
    }
    return flushed(std::fma(flushed(x * square), sum, x));
  }
  const float bounded = std::min(89.5f, magnitude + magnitude);
  const float n = std::nearbyint(std::fma(bounded, 1.44269504088896f, 0.0f));
  const float r = std::fma(n, -1.42860682031e-6f, std::fma(n, -0x1.62e4p-1f, bounded));
  float sum = 0.00138367142063f;
  for (const float c :
       {0.00836914032698f, 0.0416681058705f, 0.166665166616f, 0.499999940395f, 1.0f, 1.0f}) {
    sum = std::fma(sum, r, c);
  }
  const float power = std::ldexp(sum, static_cast<int>(n));
  return std::copysign(1.0f - 2.0f / (power + 1.0f), x);
}

// m, l and o of some keys.
struct TilesState {
  float m = -3.402823466e38f;
  float l = 0;
  std::vector<float> o;
};

// The row at `position` of a sequence and head.
class TilesRow {
 public:
  TilesRow(const Inputs& in, const HeadPlace& place, int64_t position, const TilesScales* scales)
      : in_(in), scales_(scales), place_(place), position_(position), dim_(in.shape.head_dim) {
    kv_head_ = place.head / (in.shape.head_count / in.shape.kv_head_count);
    kv_column_ = kv_head_ * dim_;
    seen_ = seen_keys(in.shape, position, place.length);
    const auto scale = static_cast<float>(in.shape.scale);
    const auto cap = static_cast<float>(in.shape.cap);
    inner_ = cap > 0 ? scale * (1.0f / cap) : 0.0f;
    factor_ = (cap > 0 ? cap : scale) * 1.44269504088896f;
  }

  bool sees(int64_t j) const { return seen_.begin <= j && j < seen_.end; }
  const KeyRange& seen() const { return seen_; }
  int64_t tile_keys() const { return 64; }

  // One split of 512 keys.
  TilesState split(int64_t begin) const {
    TilesState state;
    state.o.assign(static_cast<size_t>(dim_), 0.0f);
    std::vector<float> lanes(16, 0.0f);
    for (int64_t tile = begin; tile < begin + 512; tile += tile_keys()) {
      if (tile >= seen_.end || tile + tile_keys() <= seen_.begin) continue;
      attend(tile, &state, &lanes);
    }
    for (size_t width = 8; width > 0; width /= 2) {
      for (size_t i = 0; i < width; ++i) lanes[i] += lanes[i + width];
    }
    state.l = lanes[0];
    state.m *= 0.693147180559945f;
    return state;
  }

 private:
  float score(int64_t j) const {
    const float sum = tile_sum(
        0, dim_,
        [&](int64_t c) { return in_.q.get(place_.row + position_, place_.head * dim_ + c); },
        [&](int64_t c) { return in_.k.get(place_.row + j, kv_column_ + c); });
    if (const float* distances = in_.shape.distances) {
      const float added = distances[place_.head * in_.shape.distance_stride + j - position_];
      return flushed(std::fma(added, 1.0f / static_cast<float>(in_.shape.scale), sum));
    }
    if (in_.shape.distance_tables.row_of) return with_distance_rows(sum, j);
    return inner_ > 0 ? tanh_model(flushed(sum * scaled(inner_, j))) : sum;
  }
  float with_distance_rows(float sum, int64_t j) const {
    const AttentionDistanceTables& tables = in_.shape.distance_tables;
    const int64_t row = tables.row_of[j - position_];
    const auto of = [&](const Matrix& matrix, int64_t at, int64_t column) {
      return [&matrix, at, column](int64_t c) { return matrix.get(at, column + c); };
    };
    const int64_t column = place_.head * dim_;
    if (tables.for_queries) {
      sum = flushed(sum + tile_sum(0, dim_, of(in_.q, place_.row + position_, column),
                                   of(in_.for_queries, row, column)));
    }
    if (tables.for_keys) {
      sum = flushed(sum + tile_sum(0, dim_, of(in_.for_keys, row, column),
                                   of(in_.k, place_.row + j, kv_column_)));
    }
    return sum;
  }
  float factor(int64_t j) const { return inner_ > 0 ? factor_ : scaled(factor_, j); }
  // A factor of the scores times the scale of a key.
  float scaled(float factor, int64_t j) const {
    return scales_ ? flushed(scales_->k.get(place_.row + j, kv_head_) * factor) : factor;
  }
  float of_values(float weight, int64_t j) const {
    return scales_ ? flushed(weight * scales_->v.get(place_.row + j, kv_head_)) : weight;
  }

  void attend(int64_t tile, TilesState* state, std::vector<float>* lanes) const {
    const auto count = static_cast<size_t>(tile_keys());
    std::vector<float> weights(count, 0.0f);
    float largest = -3.402823466e38f;
    for (size_t j = 0; j < count; ++j) {
      const int64_t key = tile + static_cast<int64_t>(j);
      if (!sees(key)) continue;
      weights[j] = score(key);
      largest = std::max(largest, flushed(weights[j] * factor(key)));
    }
    const float m = std::max(state->m, largest);
    const float alpha = power_of_two_model(state->m - m);
    state->m = m;
    for (float& lane : *lanes) lane *= alpha;
    for (size_t j = 0; j < count; ++j) {
      const int64_t key = tile + static_cast<int64_t>(j);
      if (!sees(key)) continue;
      const float weight = power_of_two_model(std::fma(weights[j], factor(key), -m));
      (*lanes)[j % 16] += weight;
      weights[j] = of_values(weight, key);
    }
    for (int64_t c = 0; c < dim_; ++c) {
      const float sum = tile_sum(
          0, tile_keys(),
          [&](int64_t j) { return to_float(to_bfloat16(weights[static_cast<size_t>(j)])); },
          [&](int64_t j) {
            return sees(tile + j) ? in_.v.get(place_.row + tile + j, kv_column_ + c) : 0.0f;
          });
      float& o = state->o[static_cast<size_t>(c)];
      o = std::fma(o, alpha, sum + 0.0f);
    }
  }

  const Inputs& in_;
  const TilesScales* scales_;
  HeadPlace place_;
  int64_t position_;
  int64_t dim_;
  int64_t kv_head_ = 0;
  int64_t kv_column_ = 0;
  KeyRange seen_;
  float factor_ = 0;
  float inner_ = 0;  // under a cap
};

inline TilesModel tiles_model(const Inputs& in, const HeadPlace& place, int64_t position,
                              const TilesScales* scales = nullptr) {
  const TilesRow row(in, place, position, scales);
  TilesState merged;
  for (int64_t begin = row.seen().begin / 512 * 512; begin < row.seen().end; begin += 512) {
    const TilesState split = row.split(begin);
    if (merged.o.empty()) {
      merged = split;
      continue;
    }
    const float m = std::max(merged.m, split.m);
    const float a = exp_weight_model(merged.m - m);
    const float b = exp_weight_model(split.m - m);
    merged.m = m;
    merged.l = std::fma(split.l, b, merged.l * a);
    for (size_t c = 0; c < merged.o.size(); ++c) {
      merged.o[c] = std::fma(split.o[c], b, merged.o[c] * a);
    }
  }
  TilesModel model;
  const float inverse = 1.0f / merged.l;
  for (const float o : merged.o) model.dst.push_back(o * inverse);
  model.lse = merged.m + static_cast<float>(std::log(static_cast<double>(merged.l)));
  return model;
}

}  // namespace jige::ops::attention_test
