// What the kernels of the delta rule share: how S lies in the registers of a warp (delta_rule.h),
// and chunks of tokens in shared memory. `R` rows of a lane: heads have up to 8 R of them.
//
// Threads: device code, by whole warps.
#pragma once

#include "kernels/cuda/delta_rule.h"
#include "kernels/cuda/vectors.cuh"

namespace jige::cuda {

constexpr int kRowLanes = 8;
constexpr int kLaneColumns = 2;
constexpr int kWarpColumns = 8;

// Which of a warp's rows and columns a lane has.
__device__ inline int row_lane() { return lane_id() / 4; }
__device__ inline int first_column() { return lane_id() % 4 * kLaneColumns; }
// Row `j` of a lane.
__device__ inline int row_of_lane(int j) { return 4 * (kRowLanes * (j / 4) + row_lane()) + j % 4; }

// A lane's rows of a vector in shared memory, aligned to 16 bytes.
template <int R>
__device__ inline void load_rows(const float* vector, float (&x)[R]) {
#pragma unroll
  for (int j = 0; j < R; j += 4) {
    const float4 four = *reinterpret_cast<const float4*>(vector + row_of_lane(j));
    x[j] = four.x;
    x[j + 1] = four.y;
    x[j + 2] = four.z;
    x[j + 3] = four.w;
  }
}

// Sums over the rows of a column, for all lanes that have it.
__device__ inline void sum_rows(float (&x)[kLaneColumns]) {
  for (int lanes = 4; lanes < kWarp; lanes *= 2) {
    for (float& value : x) value += __shfl_xor_sync(kAllLanes, value, lanes);
  }
}

// Sums over the columns of a row: lane j of the four that have a row keeps those of rows
// [R / 4 · j, R / 4 · (j + 1)) of the lane, in the first elements. `kLeft`: of the rows.
template <int kLeft, int R>
__device__ inline void sum_columns(float (&x)[R]) {
  constexpr int kHalf = kLeft / 2;
  constexpr int kLanes = kLeft * 2 / R;
  const bool upper = (lane_id() & kLanes) != 0;
#pragma unroll
  for (int j = 0; j < kHalf; ++j) {
    const float sent = __shfl_xor_sync(kAllLanes, upper ? x[j] : x[j + kHalf], kLanes);
    x[j] = (upper ? x[j + kHalf] : x[j]) + sent;
  }
  if constexpr (kLanes > 1) sum_columns<kHalf>(x);
}
// Puts what sum_columns() left into a vector.
template <int R>
__device__ inline void store_column_sums(const float (&x)[R], float* vector) {
#pragma unroll
  for (int e = 0; e < R / 4; ++e) vector[row_of_lane(lane_id() % 4 * (R / 4) + e)] = x[e];
}

// What a token's columns are read from: two of them of a head, from `column` on.
struct ColumnSource {
  ConstRows rows;
  int64_t column;
};

// Which part of a head a block works on.
struct DeltaPart {
  RecurrentSpan span;
  int64_t head;         // value head, of all
  int64_t part;         // of the head's columns
  int64_t head_column;  // where the part's columns begin in the head
  int columns;          // of the part
};
__device__ inline DeltaPart part_of(const RecurrentSpans& spans, int64_t head_begin,
                                    int64_t head_count, int64_t value_dim, int part_columns) {
  const Divided by_part = divide(blockIdx.x, ceil_div(value_dim, part_columns));
  const Divided by_head = divide(by_part.quotient, head_count);
  const int64_t head_column = by_part.remainder * part_columns;
  return {spans.data[by_head.quotient], head_begin + by_head.remainder, by_part.remainder,
          head_column, static_cast<int>(min(value_dim - head_column, int64_t{part_columns}))};
}

// A chunk of tokens of kWarps warps, which read `kSources` numbers of each column and token.
// fetch() has memory on its way into registers, put() makes of it what the tokens' steps read.
template <int R, int kWarps, int kTokens, int kSources>
class DeltaChunk {
 public:
  static constexpr int kRows = kRowLanes * R;
  static constexpr int kColumns = kWarps * kWarpColumns;
  static constexpr int kFloats = 2 * kTokens * kRows + kSources * kTokens * kColumns + 3 * kTokens;

  __device__ DeltaChunk(const cpu::DeltaRuleOperands& in, const DeltaPart& part, float* shared)
      : in_(in), part_(part), shared_(shared) {}

  __device__ const float* key(int token) const { return shared_ + token * kRows; }
  __device__ const float* query(int token) const { return key(kTokens + token); }
  // Those of the lane's columns.
  __device__ void load(int source, int token, float (&x)[kLaneColumns]) const {
    const float* const at = columns(source, token) + warp_id() * kWarpColumns + first_column();
    const float2 pair = *reinterpret_cast<const float2*>(at);
    x[0] = pair.x;
    x[1] = pair.y;
  }
  __device__ float decay(int token) const { return gates()[token]; }
  __device__ float rate(int token) const { return gates()[kTokens + token]; }
  // q^ · k^, after multiply().
  __device__ float product(int token) const { return gates()[2 * kTokens + token]; }

  // Tokens [first, first + count) of the sequence.
  __device__ void fetch(const ColumnSource (&sources)[kSources], int first, int count) {
    count_ = count;
    const int64_t row = int64_t{part_.span.row_begin} + first;
    const int64_t key_column = part_.head / in_.heads_per_key * in_.key_dim;
#pragma unroll
    for (int p = 0; p < kVectors; ++p) {
      const int index = warp_id() + p * kWarps;
      const ConstRows& rows = index % 2 == 0 ? in_.k : in_.q;
      const int64_t at = (row + index / 2) * rows.stride + key_column;
#pragma unroll
      for (int e = 0; e < kElements; ++e) {
        const int i = lane_id() + e * kWarp;
        const bool valid = index / 2 < count && i < in_.key_dim;
        vectors_[p][e] = valid ? load_element(rows.data, rows.type, at + i) : 0.0f;
      }
    }
#pragma unroll
    for (int s = 0; s < kSources; ++s) {
      const ConstRows& rows = sources[s].rows;
#pragma unroll
      for (int n = 0; n < kNumbers; ++n) {
        const int token = token_of(n);
        const bool valid = token < count && column_of() < part_.columns;
        const int64_t at = (row + token) * rows.stride + sources[s].column + part_.head_column;
        numbers_[s][n] = valid ? load_element(rows.data, rows.type, at + column_of()) : 0.0f;
      }
    }
    const auto thread = static_cast<int>(threadIdx.x);
    if (thread >= 2 * count) return;
    const ConstRows& gate = thread < count ? in_.log_decay : in_.rate;
    const int64_t at = (row + thread % count) * gate.stride + part_.head;
    gate_ = load_element(gate.data, gate.type, at);
  }

  // REQUIRES: a barrier on either side.
  template <bool kCorrects>
  __device__ void put() {
#pragma unroll
    for (int p = 0; p < kVectors; ++p) {
      const int index = warp_id() + p * kWarps;
      if (index / 2 >= count_) continue;
      float factor = 1.0f;
      if constexpr (kCorrects) {
        float squares = 0.0f;
        for (int e = 0; e < kElements; ++e) {
          squares = fmaf(vectors_[p][e], vectors_[p][e], squares);
        }
        factor = 1.0f / sqrtf(warp_sum(squares) + 1e-6f);
        if (index % 2 != 0) factor *= 1.0f / sqrtf(static_cast<float>(in_.key_dim));
      }
      float* const to = shared_ + (index % 2 * kTokens + index / 2) * kRows;
#pragma unroll
      for (int e = 0; e < kElements; ++e) to[lane_id() + e * kWarp] = vectors_[p][e] * factor;
    }
#pragma unroll
    for (int s = 0; s < kSources; ++s) {
#pragma unroll
      for (int n = 0; n < kNumbers; ++n) columns(s, token_of(n))[column_of()] = numbers_[s][n];
    }
    const auto thread = static_cast<int>(threadIdx.x);
    if (thread >= 2 * count_) return;
    const bool decays = thread < count_;
    gates()[decays ? thread : kTokens + thread - count_] = decays ? expf(gate_) : gate_;
  }

  // Products of queries and keys. REQUIRES: a barrier on either side.
  __device__ void multiply() const {
    for (int token = warp_id(); token < count_; token += kWarps) {
      float sum = 0.0f;
      for (int e = 0; e < kElements; ++e) {
        const int i = lane_id() + e * kWarp;
        sum = fmaf(query(token)[i], key(token)[i], sum);
      }
      sum = warp_sum(sum);
      if (lane_id() == 0) gates()[2 * kTokens + token] = sum;
    }
  }

 private:
  static constexpr int kThreads = kWarps * kWarp;
  static constexpr int kElements = kRows / kWarp;        // of a lane of a query or a key
  static constexpr int kVectors = 2 * kTokens / kWarps;  // of a warp: keys and queries in turns
  static constexpr int kNumbers = kTokens * kColumns / kThreads;  // of a thread
  static_assert(2 * kTokens % kWarps == 0 && kTokens * kColumns % kThreads == 0 &&
                kThreads % kColumns == 0 && 2 * kTokens <= kThreads);

  __device__ static int column_of() { return static_cast<int>(threadIdx.x) % kColumns; }
  __device__ static int token_of(int n) {
    return static_cast<int>(threadIdx.x) / kColumns + n * (kThreads / kColumns);
  }
  __device__ float* columns(int source, int token) const {
    return shared_ + 2 * kTokens * kRows + (source * kTokens + token) * kColumns;
  }
  __device__ float* gates() const {
    return shared_ + 2 * kTokens * kRows + kSources * kTokens * kColumns;
  }

  const cpu::DeltaRuleOperands& in_;
  const DeltaPart& part_;
  float* shared_;
  int count_ = 0;
  float vectors_[kVectors][kElements];
  float numbers_[kSources][kNumbers];
  float gate_ = 0.0f;
};

// Calls run(rows of a lane), as a type, for heads of so many rows.
template <typename Run>
void with_rows(int64_t key_dim, Run run) {
  if (key_dim <= 8 * kRowLanes) return run(Count<8>());
  if (key_dim <= 16 * kRowLanes) return run(Count<16>());
  run(Count<32>());
}

}  // namespace jige::cuda
