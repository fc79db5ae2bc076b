#include "kernels/cuda/delta_rule.cuh"

namespace jige::cuda {
namespace {

constexpr int kDeltaForwardWarps = 4;
constexpr int kDeltaForwardColumns = kDeltaForwardWarps * kWarpColumns;
constexpr int64_t kStrip = cpu::kDeltaStripColumns;
static_assert(kStrip % kWarpColumns ==
              0);  // where heads are whole strips, all of a warp has columns

template <int R>
constexpr int kDeltaForwardTokens = R > 16 ? 8 : 16;  // of a chunk: registers hold the next one

template <int R>
using ForwardChunk = DeltaChunk<R, kDeltaForwardWarps, kDeltaForwardTokens<R>, 1>;

// The lane's two columns of a head's state.
struct StatePlace {
  float* data;
  int64_t row_stride;
  int64_t rows;
  int columns;  // up to two

  __device__ StatePlace(const DeltaForward& args, const DeltaPart& part, int slot, int column) {
    const cpu::DeltaRuleOperands& in = args.in;
    const int64_t head_column = part.head_column + column;
    const int64_t strip = head_column / kStrip;
    row_stride = min(in.value_dim - strip * kStrip, kStrip);
    data = args.states + slot * args.state_stride +
           (part.head * in.value_dim + strip * kStrip) * in.key_dim + head_column % kStrip;
    rows = in.key_dim;
    columns = max(0, min(part.columns - column, kLaneColumns));
  }
};

// Of a warp that has columns. `pairs`: the columns of all its lanes, aligned side by side.
template <int R>
__device__ void load_state(const StatePlace& place, bool pairs, float (&s)[R][kLaneColumns]) {
#pragma unroll
  for (int j = 0; j < R; ++j) {
    const int row = row_of_lane(j);
    if (row >= place.rows) continue;
    const float* const from = place.data + row * place.row_stride;
    if (pairs) {
      const float2 pair = *reinterpret_cast<const float2*>(from);
      s[j][0] = pair.x;
      s[j][1] = pair.y;
      continue;
    }
    for (int c = 0; c < kLaneColumns; ++c) {
      if (c < place.columns) s[j][c] = from[c];
    }
  }
}
template <int R>
__device__ void store_state(const StatePlace& place, bool pairs,
                            const float (&s)[R][kLaneColumns]) {
#pragma unroll
  for (int j = 0; j < R; ++j) {
    const int row = row_of_lane(j);
    if (row >= place.rows) continue;
    float* const to = place.data + row * place.row_stride;
    if (pairs) {
      *reinterpret_cast<float2*>(to) = make_float2(s[j][0], s[j][1]);
      continue;
    }
    for (int c = 0; c < kLaneColumns; ++c) {
      if (c < place.columns) to[c] = s[j][c];
    }
  }
}

struct Step {
  float dst[kLaneColumns];     // Sᵀ q^, the lane's rows
  float memory[kLaneColumns];  // m, zero without a correction
  float errors[kLaneColumns];  // v - m
};

// A token's step of a warp's columns.
template <int R, bool kCorrects>
__device__ Step step(const ForwardChunk<R>& chunk, int token, float (&s)[R][kLaneColumns]) {
  float key[R], query[R];
  load_rows(chunk.key(token), key);
  load_rows(chunk.query(token), query);
  const float decay = chunk.decay(token);
  const float rate = chunk.rate(token);
  Step result = {};
  chunk.load(0, token, result.errors);
  if constexpr (kCorrects) {
    float chains[2][kLaneColumns] = {};
#pragma unroll
    for (int j = 0; j < R; ++j) {
      for (int c = 0; c < kLaneColumns; ++c) {
        chains[j % 2][c] = fmaf(key[j], s[j][c], chains[j % 2][c]);
      }
    }
    for (int c = 0; c < kLaneColumns; ++c) result.memory[c] = chains[0][c] + chains[1][c];
    sum_rows(result.memory);
    for (int c = 0; c < kLaneColumns; ++c) {
      result.memory[c] *= decay;
      result.errors[c] -= result.memory[c];
    }
  }
  float chains[2][kLaneColumns] = {};
#pragma unroll
  for (int j = 0; j < R; ++j) {
    for (int c = 0; c < kLaneColumns; ++c) {
      s[j][c] = fmaf(key[j], rate * result.errors[c], decay * s[j][c]);
      chains[j % 2][c] = fmaf(query[j], s[j][c], chains[j % 2][c]);
    }
  }
  for (int c = 0; c < kLaneColumns; ++c) result.dst[c] = chains[0][c] + chains[1][c];
  return result;
}

// Stores a token's numbers of a warp's columns; `column`: the lane's first, of the part.
template <bool kCorrects>
__device__ void store_step(const DeltaForward& args, const DeltaPart& part, Step result, float skip,
                           int64_t row, int column) {
  const int64_t head = args.memories ? part.head - args.head_begin : part.head;
  if (!args.memories) sum_rows(result.dst);
  if (row_lane() != 0) return;
  const int64_t at = row * args.dst.stride + head * args.in.value_dim + part.head_column + column;
  for (int c = 0; c < kLaneColumns; ++c) {
    if (column + c >= part.columns) continue;
    // Without a correction the errors are v.
    const float skipped = kCorrects ? 0.0f : skip * result.errors[c];
    store_element(args.dst.data, args.dst.type, at + c,
                  args.memories ? result.memory[c] : result.dst[c] + skipped);
  }
}

template <int R, bool kCorrects>
__global__ void __launch_bounds__(kDeltaForwardWarps* kWarp)
    delta_forward_kernel(DeltaForward args, bool pairs) {
  begin_kernel();
  const DeltaPart part = part_of(args.spans, args.head_begin, args.head_count, args.in.value_dim,
                                 kDeltaForwardColumns);
  const int column = warp_id() * kWarpColumns + first_column();
  const bool active = warp_id() * kWarpColumns < part.columns;
  const StatePlace place(args, part, part.span.state, column);
  float s[R][kLaneColumns] = {};
  if (active && args.states && part.span.resumed) load_state(place, pairs, s);

  ForwardChunk<R> chunk(args.in, part, reinterpret_cast<float*>(dynamic_shared()));
  const ColumnSource values[1] = {{args.in.v, part.head * args.in.value_dim}};
  const float skip = args.in.skip ? args.in.skip[part.head] : 0.0f;
  const int rows = part.span.row_count;
  chunk.fetch(values, 0, min(rows, kDeltaForwardTokens<R>));
  for (int first = 0; first < rows; first += kDeltaForwardTokens<R>) {
    __syncthreads();
    chunk.template put<kCorrects>();
    __syncthreads();
    const int next = first + kDeltaForwardTokens<R>;
    if (next < rows) chunk.fetch(values, next, min(rows - next, kDeltaForwardTokens<R>));
    if (!active) continue;
    const int count = min(rows - first, kDeltaForwardTokens<R>);
    for (int token = 0; token < count; ++token) {
      const Step result = step<R, kCorrects>(chunk, token, s);
      store_step<kCorrects>(args, part, result, skip, int64_t{part.span.row_begin} + first + token,
                            column);
      if (part.span.spare >= 0 && first + token + 1 == part.span.spare_rows) {
        store_state(StatePlace(args, part, part.span.spare, column), pairs, s);
      }
    }
  }
  if (active && args.states) store_state(place, pairs, s);
}

template <int R>
void launch_delta_forward(const LaunchStream& stream, const DeltaForward& args, bool pairs) {
  const int64_t parts = ceil_div(args.in.value_dim, kDeltaForwardColumns);
  const LaunchShape shape = {static_cast<unsigned>(args.spans.count * args.head_count * parts),
                             kDeltaForwardWarps * kWarp,
                             ForwardChunk<R>::kFloats * int64_t{sizeof(float)}};
  launch(stream, shape,
         args.in.corrects ? delta_forward_kernel<R, true> : delta_forward_kernel<R, false>, args,
         pairs);
}

}  // namespace

void delta_rule_forward(const LaunchStream& stream, const DeltaForward& args) {
  const bool pairs = args.in.value_dim % kStrip == 0 && args.state_stride % kLaneColumns == 0 &&
                     reinterpret_cast<uintptr_t>(args.states) % sizeof(float2) == 0;
  with_rows(args.in.key_dim,
            [&]<int R>(Count<R>) { launch_delta_forward<R>(stream, args, pairs); });
}

}  // namespace jige::cuda
