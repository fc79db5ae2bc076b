#include "kernels/cuda/delta_rule.cuh"
#include "kernels/cuda/recurrent_spans.cuh"

namespace jige::cuda {
namespace {

constexpr int kDeltaBackwardWarps = 8;
constexpr int kDeltaBackwardColumns = kDeltaBackwardWarps * kWarpColumns;
constexpr int64_t kFloatBytes = sizeof(float);

template <int R>
constexpr int kDeltaBackwardTokens = R > 16 ? 4 : 8;  // of a chunk

// The value heads that are gone through at once, and what is kept of them, all f32.
struct HeadSlice {
  int64_t head_begin, head_count;
  int64_t parts;    // of a head's columns
  int64_t rows;     // T
  float* memories;  // [T, heads · dv] m; null without a correction
  float* deltas;    // [T, heads · dv] dS'ᵀ k^, which is dδ - (q^ · k^) do
  float* sums;      // [2, T, heads · parts, 8 R] rows of S~ do, and what is summed for k^
  float* decays;    // [T, heads] what dlog_decay is summed from
};

__device__ float* sums_of(const HeadSlice& slice, int64_t kind, int64_t row, int64_t head,
                          int64_t part, int64_t width) {
  const int64_t heads = slice.head_count * slice.parts;
  const int64_t at = (kind * slice.rows + row) * heads + (head - slice.head_begin) * slice.parts;
  return slice.sums + (at + part) * width;
}

// Of a value head, [T, dv].
__device__ ColumnSource of_slice(const float* data, const cpu::DeltaRuleOperands& in,
                                 const HeadSlice& slice, int64_t head) {
  return {{data, ElementType::kF32, slice.head_count * in.value_dim},
          (head - slice.head_begin) * in.value_dim};
}

// What is read of a token's columns.
enum Source { kGradDst, kValue, kMemory, kDelta, kSourceCount };

__device__ void set_sources(const DeltaBackward& args, const HeadSlice& slice, int64_t head,
                            ColumnSource* sources, bool corrects) {
  const cpu::DeltaRuleOperands& in = args.rule.in;
  sources[kGradDst] = {args.rule.grad_dst, head * in.value_dim};
  sources[kValue] = {in.v, head * in.value_dim};
  if (corrects) sources[kMemory] = of_slice(slice.memories, in, slice, head);
}

// Sums of the rows of a chunk's tokens over all columns of a part: each warp puts its own into
// shared memory, [tokens][warps][8 R].
template <int R>
struct PartRowSums {
  static constexpr int kRows = kRowLanes * R;
  static constexpr int kFloats = kDeltaBackwardTokens<R> * kDeltaBackwardWarps * kRows;
  float* shared;

  __device__ void put(int token, float (&x)[R]) const {
    sum_columns<R>(x);
    store_column_sums(x, shared + (token * kDeltaBackwardWarps + warp_id()) * kRows);
  }
  // After a barrier: stores the sums of tokens [row, row + count), or adds them.
  __device__ void store(const HeadSlice& slice, const DeltaPart& part, int64_t kind, int64_t row,
                        int count, bool adds) const {
    const int warps = (part.columns + kWarpColumns - 1) / kWarpColumns;
    for (int i = static_cast<int>(threadIdx.x); i < count * kRows;
         i += kDeltaBackwardWarps * kWarp) {
      const int token = i / kRows;
      float* const to = sums_of(slice, kind, row + token, part.head, part.part, kRows) + i % kRows;
      const float* const from = shared + token * kDeltaBackwardWarps * kRows + i % kRows;
      float sum = adds ? *to : 0.0f;
      for (int warp = 0; warp < warps; ++warp) sum += from[warp * kRows];
      *to = sum;
    }
  }
};

// Makes the fetched chunk ready. Begins and ends with a barrier.
template <bool kCorrects, typename Chunk>
__device__ void ready(Chunk& chunk) {
  __syncthreads();
  chunk.template put<kCorrects>();
  __syncthreads();
  if constexpr (kCorrects) {
    chunk.multiply();
    __syncthreads();
  }
}

// δ of the lane's columns.
template <bool kCorrects, typename Chunk>
__device__ void load_delta(const Chunk& chunk, int token, float (&delta)[kLaneColumns]) {
  chunk.load(kValue, token, delta);
  float memory[kLaneColumns] = {};
  if constexpr (kCorrects) chunk.load(kMemory, token, memory);
  const float rate = chunk.rate(token);
  for (int c = 0; c < kLaneColumns; ++c) delta[c] = rate * (delta[c] - memory[c]);
}

template <int R, bool kCorrects>
using GradientChunk =
    DeltaChunk<R, kDeltaBackwardWarps, kDeltaBackwardTokens<R>, kCorrects ? 3 : 2>;

// A token's step with dS: `later` becomes dS'ᵀ k^, `sums` the lane's of rows of dS δ.
template <int R, bool kCorrects>
__device__ void step_back(const GradientChunk<R, kCorrects>& chunk, int token,
                          float (&grads)[R][kLaneColumns], float (&later)[kLaneColumns],
                          float (&sums)[R]) {
  float key[R], query[R], grad_dst[kLaneColumns], delta[kLaneColumns];
  load_rows(chunk.key(token), key);
  load_rows(chunk.query(token), query);
  chunk.load(kGradDst, token, grad_dst);
  load_delta<kCorrects>(chunk, token, delta);
  const float decay = chunk.decay(token);
  float chains[2][kLaneColumns] = {};
#pragma unroll
  for (int j = 0; j < R; ++j) {
    for (int c = 0; c < kLaneColumns; ++c) {
      chains[j % 2][c] = fmaf(key[j], grads[j][c], chains[j % 2][c]);
      grads[j][c] = fmaf(query[j], grad_dst[c], grads[j][c]);
    }
    sums[j] = fmaf(grads[j][1], delta[1], grads[j][0] * delta[0]);
  }
  for (int c = 0; c < kLaneColumns; ++c) later[c] = chains[0][c] + chains[1][c];
  sum_rows(later);
  float grad_memory[kLaneColumns] = {};
  if constexpr (kCorrects) {
    for (int c = 0; c < kLaneColumns; ++c) {
      grad_memory[c] = -chunk.rate(token) * fmaf(chunk.product(token), grad_dst[c], later[c]);
    }
  }
#pragma unroll
  for (int j = 0; j < R; ++j) {
    for (int c = 0; c < kLaneColumns; ++c) {
      const float grad = kCorrects ? fmaf(key[j], grad_memory[c], grads[j][c]) : grads[j][c];
      grads[j][c] = decay * grad;
    }
  }
}

// Goes backward with dS.
template <int R, bool kCorrects>
__global__ void __launch_bounds__(kDeltaBackwardWarps* kWarp)
    gradient_kernel(DeltaBackward args, HeadSlice slice) {
  begin_kernel();
  using Chunk = GradientChunk<R, kCorrects>;
  const cpu::DeltaRuleOperands& in = args.rule.in;
  const DeltaPart part =
      part_of(args.spans, slice.head_begin, slice.head_count, in.value_dim, kDeltaBackwardColumns);
  auto* const shared = reinterpret_cast<float*>(dynamic_shared());
  Chunk chunk(in, part, shared);
  const PartRowSums<R> key_sums = {shared + Chunk::kFloats};
  ColumnSource sources[kCorrects ? 3 : 2];
  set_sources(args, slice, part.head, sources, kCorrects);
  const ColumnSource deltas = of_slice(slice.deltas, in, slice, part.head);
  const int column = warp_id() * kWarpColumns + first_column();
  const bool active = warp_id() * kWarpColumns < part.columns;
  float grads[R][kLaneColumns] = {};

  const int rows = part.span.row_count;
  const int last = (rows - 1) / kDeltaBackwardTokens<R> * kDeltaBackwardTokens<R>;
  chunk.fetch(sources, last, rows - last);
  for (int first = last; first >= 0; first -= kDeltaBackwardTokens<R>) {
    const int count = min(rows - first, kDeltaBackwardTokens<R>);
    const int64_t row = int64_t{part.span.row_begin} + first;
    ready<kCorrects>(chunk);
    if (first > 0) chunk.fetch(sources, first - kDeltaBackwardTokens<R>, kDeltaBackwardTokens<R>);
    for (int token = count - 1; active && token >= 0; --token) {
      float later[kLaneColumns], sums[R];
      step_back<R, kCorrects>(chunk, token, grads, later, sums);
      key_sums.put(token, sums);
      if (row_lane() != 0) continue;
      float* const to = slice.deltas + (row + token) * deltas.rows.stride + deltas.column +
                        part.head_column + column;
      for (int c = 0; c < kLaneColumns; ++c) {
        if (column + c < part.columns) to[c] = later[c];
      }
    }
    __syncthreads();
    key_sums.store(slice, part, 1, row, count, false);
  }
}

template <int R, bool kCorrects>
using StateChunk = DeltaChunk<R, kDeltaBackwardWarps, kDeltaBackwardTokens<R>, kCorrects ? 4 : 2>;

// A token's step with S: the lane's of rows of S~ do and of S~ dm.
template <int R, bool kCorrects>
__device__ void step_on(const StateChunk<R, kCorrects>& chunk, int token,
                        float (&s)[R][kLaneColumns], float (&of_query)[R], float (&of_key)[R]) {
  float key[R], grad_dst[kLaneColumns], delta[kLaneColumns], grad_memory[kLaneColumns] = {};
  load_rows(chunk.key(token), key);
  chunk.load(kGradDst, token, grad_dst);
  load_delta<kCorrects>(chunk, token, delta);
  if constexpr (kCorrects) {
    chunk.load(kDelta, token, grad_memory);
    for (int c = 0; c < kLaneColumns; ++c) {
      grad_memory[c] = -chunk.rate(token) * fmaf(chunk.product(token), grad_dst[c], grad_memory[c]);
    }
  }
  const float decay = chunk.decay(token);
#pragma unroll
  for (int j = 0; j < R; ++j) {
    for (float& state : s[j]) state *= decay;
    of_query[j] = fmaf(s[j][1], grad_dst[1], s[j][0] * grad_dst[0]);
    of_key[j] = fmaf(s[j][1], grad_memory[1], s[j][0] * grad_memory[0]);
    for (int c = 0; c < kLaneColumns; ++c) s[j][c] = fmaf(key[j], delta[c], s[j][c]);
  }
}

// Goes forward with S.
template <int R, bool kCorrects>
__global__ void __launch_bounds__(kDeltaBackwardWarps* kWarp)
    state_kernel(DeltaBackward args, HeadSlice slice) {
  begin_kernel();
  using Chunk = StateChunk<R, kCorrects>;
  const cpu::DeltaRuleOperands& in = args.rule.in;
  const DeltaPart part =
      part_of(args.spans, slice.head_begin, slice.head_count, in.value_dim, kDeltaBackwardColumns);
  auto* const shared = reinterpret_cast<float*>(dynamic_shared());
  Chunk chunk(in, part, shared);
  const PartRowSums<R> query_sums = {shared + Chunk::kFloats};
  const PartRowSums<R> key_sums = {query_sums.shared + PartRowSums<R>::kFloats};
  ColumnSource sources[kCorrects ? 4 : 2];
  set_sources(args, slice, part.head, sources, kCorrects);
  if constexpr (kCorrects) sources[kDelta] = of_slice(slice.deltas, in, slice, part.head);
  const bool active = warp_id() * kWarpColumns < part.columns;
  float s[R][kLaneColumns] = {};

  const int rows = part.span.row_count;
  chunk.fetch(sources, 0, min(rows, kDeltaBackwardTokens<R>));
  for (int first = 0; first < rows; first += kDeltaBackwardTokens<R>) {
    const int count = min(rows - first, kDeltaBackwardTokens<R>);
    const int64_t row = int64_t{part.span.row_begin} + first;
    ready<kCorrects>(chunk);
    const int next = first + kDeltaBackwardTokens<R>;
    if (next < rows) chunk.fetch(sources, next, min(rows - next, kDeltaBackwardTokens<R>));
    for (int token = 0; active && token < count; ++token) {
      float of_query[R], of_key[R];
      step_on<R, kCorrects>(chunk, token, s, of_query, of_key);
      query_sums.put(token, of_query);
      if constexpr (kCorrects) key_sums.put(token, of_key);
    }
    __syncthreads();
    query_sums.store(slice, part, 0, row, count, false);
    if constexpr (kCorrects) key_sums.store(slice, part, 1, row, count, true);
  }
}

// What a lane has of a query or a key, and the factor that makes a unit vector of it.
template <int R, bool kCorrects>
struct UnitVector {
  static constexpr int kElements = R / 4;
  float x[kElements];
  float factor;

  __device__ UnitVector(const ConstRows& rows, int64_t row, int64_t column, int64_t count)
      : factor(1.0f) {
    float squares = 0.0f;
    for (int e = 0; e < kElements; ++e) {
      const int i = lane_id() + e * kWarp;
      x[e] = i < count ? load_element(rows.data, rows.type, row * rows.stride + column + i) : 0.0f;
      squares = fmaf(x[e], x[e], squares);
    }
    if (!kCorrects) return;
    factor = 1.0f / sqrtf(warp_sum(squares) + 1e-6f);
    for (float& value : x) value *= factor;
  }
  // With u the vector and du its gradient: dx = f (du - u (u · du)).
  __device__ void store_gradient(const Rows& dst, int64_t row, int64_t column, int64_t count,
                                 const float (&grad)[kElements]) const {
    float along = 0.0f;
    if (kCorrects) {
      for (int e = 0; e < kElements; ++e) along = fmaf(x[e], grad[e], along);
      along = warp_sum(along);
    }
    for (int e = 0; e < kElements; ++e) {
      const int i = lane_id() + e * kWarp;
      if (i >= count) continue;
      const float value = kCorrects ? factor * fmaf(-along, x[e], grad[e]) : grad[e];
      store_element(dst.data, dst.type, row * dst.stride + column + i, value);
    }
  }
};

// A token, as what is left of its value heads sees it.
struct FinishedToken {
  int64_t row;
  float product;  // q^ · k^
};

// What is left of a token's value head, by a warp; gives δ · do. `along`: q^ · S~ do.
__device__ float finish_head(const DeltaBackward& args, const HeadSlice& slice,
                             const FinishedToken& token, int64_t head, float along) {
  const cpu::DeltaRuleOperands& in = args.rule.in;
  const int64_t row = token.row;
  const auto element = [&](const ConstRows& rows, int64_t column) {
    return load_element(rows.data, rows.type, row * rows.stride + column);
  };
  const int64_t kept = (row * slice.head_count + head - slice.head_begin) * in.value_dim;
  const float rate = element(in.rate, head);
  const float skip = in.skip ? in.skip[head] : 0.0f;
  float grad_rate = 0.0f, behind = 0.0f, slope_skip = 0.0f, along_delta = 0.0f;
  for (int64_t c = lane_id(); c < in.value_dim; c += kWarp) {
    const int64_t column = head * in.value_dim + c;
    const float value = element(in.v, column);
    const float grad_dst = element(args.rule.grad_dst, column);
    const float memory = slice.memories ? slice.memories[kept + c] : 0.0f;
    const float later = slice.deltas[kept + c];
    const float error = value - memory;
    const float grad_delta = fmaf(token.product, grad_dst, later);
    grad_rate = fmaf(grad_delta, error, grad_rate);
    along_delta = fmaf(rate * error, grad_dst, along_delta);
    slope_skip = fmaf(grad_dst, value, slope_skip);
    behind = fmaf(value, later, fmaf(token.product * grad_dst, memory, behind));
    const Rows& grad_v = args.rule.grad_v;
    store_element(grad_v.data, grad_v.type, row * grad_v.stride + column,
                  fmaf(skip, grad_dst, rate * grad_delta));
  }
  grad_rate = warp_sum(grad_rate);
  behind = warp_sum(behind);
  slope_skip = warp_sum(slope_skip);
  along_delta = warp_sum(along_delta);
  if (lane_id() == 0) {
    const auto put = [&](const Rows& rows, float value) {
      static_cast<float*>(rows.data)[row * rows.stride + head] = value;
    };
    put(args.rule.grad_rate, grad_rate);
    if (in.skip) put(args.rule.slopes_skip, slope_skip);
    slice.decays[row * slice.head_count + head - slice.head_begin] = along - rate * behind;
  }
  return along_delta;
}

// A block for a key head of a tile of rows, a warp for each row.
template <int R, bool kCorrects>
__global__ void __launch_bounds__(kSpanTileRows* kWarp)
    finish_kernel(DeltaBackward args, HeadSlice slice) {
  begin_kernel();
  constexpr int kElements = R / 4;
  const cpu::DeltaRuleOperands& in = args.rule.in;
  const Divided at = divide(blockIdx.x, slice.head_count / in.heads_per_key);
  const SpanTile tile = find_span_tile(args.spans, at.quotient);
  if (warp_id() >= tile.count) return;
  const int64_t row = int64_t{tile.span.row_begin} + tile.first + warp_id();
  const int64_t key_head = slice.head_begin / in.heads_per_key + at.remainder;
  const int64_t column = key_head * in.key_dim;
  const UnitVector<R, kCorrects> query(in.q, row, column, in.key_dim);
  const UnitVector<R, kCorrects> key(in.k, row, column, in.key_dim);
  const float scale = kCorrects ? 1.0f / sqrtf(static_cast<float>(in.key_dim)) : 1.0f;
  float product = 0.0f;
  for (int e = 0; e < kElements; ++e) product = fmaf(scale * query.x[e], key.x[e], product);
  const FinishedToken token = {row, warp_sum(product)};
  float grad_query[kElements] = {}, grad_key[kElements] = {};
  for (int64_t h = 0; h < in.heads_per_key; ++h) {
    const int64_t head = key_head * in.heads_per_key + h;
    float along = 0.0f;
    for (int64_t part = 0; part < slice.parts; ++part) {
      const float* const queries = sums_of(slice, 0, row, head, part, kRowLanes * R);
      const float* const keys = sums_of(slice, 1, row, head, part, kRowLanes * R);
      for (int e = 0; e < kElements; ++e) {
        const float grad = scale * queries[lane_id() + e * kWarp];
        grad_query[e] += grad;
        grad_key[e] += keys[lane_id() + e * kWarp];
        along = fmaf(query.x[e], grad, along);
      }
    }
    const float along_delta = finish_head(args, slice, token, head, warp_sum(along));
    for (int e = 0; e < kElements; ++e) {
      grad_query[e] = fmaf(scale * along_delta, key.x[e], grad_query[e]);
    }
  }
  query.store_gradient(args.rule.grad_q, row, column, in.key_dim, grad_query);
  key.store_gradient(args.rule.grad_k, row, column, in.key_dim, grad_key);
}

// dlog_decay: sums over the tokens from each on. A warp for a head of a sequence.
__global__ void __launch_bounds__(kDeltaBackwardWarps* kWarp)
    decay_kernel(DeltaBackward args, HeadSlice slice) {
  begin_kernel();
  const Divided at =
      divide(int64_t{blockIdx.x} * kDeltaBackwardWarps + warp_id(), slice.head_count);
  if (at.quotient >= args.spans.count) return;
  const RecurrentSpan span = args.spans.data[at.quotient];
  const Rows& grads = args.rule.grad_log_decay;
  auto* const to = static_cast<float*>(grads.data) + slice.head_begin + at.remainder;
  double behind = 0.0;
  for (int end = span.row_count; end > 0; end -= kWarp) {
    const int token = end - 1 - lane_id();
    const int64_t row = int64_t{span.row_begin} + token;
    double sum = token < 0 ? 0.0 : double{slice.decays[row * slice.head_count + at.remainder]};
    for (int lanes = 1; lanes < kWarp; lanes *= 2) {
      const double before = __shfl_up_sync(kAllLanes, sum, lanes);
      if (lane_id() >= lanes) sum += before;
    }
    sum += behind;
    behind = __shfl_sync(kAllLanes, sum, kWarp - 1);
    if (token >= 0) to[row * grads.stride] = static_cast<float>(sum);
  }
}

int64_t padded_rows(int64_t key_dim) {
  int64_t rows = 0;
  with_rows(key_dim, [&]<int R>(Count<R>) { rows = kRowLanes * R; });
  return rows;
}

int64_t parts_of_head(const cpu::DeltaRuleOperands& in) {
  return ceil_div(in.value_dim, kDeltaBackwardColumns);
}

// Floats that a slice keeps of each row and value head.
int64_t floats_of_head(const cpu::DeltaRuleOperands& in) {
  const int64_t columns = (in.corrects ? 2 : 1) * in.value_dim;
  return columns + 2 * parts_of_head(in) * padded_rows(in.key_dim) + 1;
}

// Value heads of a slice: those of some key heads.
int64_t heads_of_slice(const DeltaBackward& args) {
  const cpu::DeltaRuleOperands& in = args.rule.in;
  const int64_t of_key = args.rows * in.heads_per_key * floats_of_head(in) * kFloatBytes;
  const int64_t fitting = of_key > 0 ? args.scratch_bytes_max / of_key : args.key_heads;
  return max(int64_t{1}, min(fitting, args.key_heads)) * in.heads_per_key;
}

template <int R, bool kCorrects>
void launch_slice(const LaunchStream& stream, const DeltaBackward& args, const HeadSlice& slice) {
  const cpu::DeltaRuleOperands& in = args.rule.in;
  if (kCorrects) {
    const int64_t columns = slice.head_count * in.value_dim;
    delta_rule_forward(stream, {.in = in,
                                .dst = {slice.memories, ElementType::kF32, columns},
                                .memories = true,
                                .spans = args.spans,
                                .head_begin = slice.head_begin,
                                .head_count = slice.head_count});
  }
  const auto blocks = static_cast<unsigned>(args.spans.count * slice.head_count * slice.parts);
  constexpr int64_t kSums = PartRowSums<R>::kFloats;
  launch(stream,
         {blocks, kDeltaBackwardWarps * kWarp,
          (GradientChunk<R, kCorrects>::kFloats + kSums) * kFloatBytes},
         gradient_kernel<R, kCorrects>, args, slice);
  launch(stream,
         {blocks, kDeltaBackwardWarps * kWarp,
          (StateChunk<R, kCorrects>::kFloats + (kCorrects ? 2 : 1) * kSums) * kFloatBytes},
         state_kernel<R, kCorrects>, args, slice);
  const int64_t key_heads = slice.head_count / in.heads_per_key;
  launch(stream, {blocks_for(args.spans.tiles * key_heads, 1), kSpanTileRows * kWarp},
         finish_kernel<R, kCorrects>, args, slice);
  launch(stream,
         {blocks_for(args.spans.count * slice.head_count, kDeltaBackwardWarps),
          kDeltaBackwardWarps * kWarp},
         decay_kernel, args, slice);
}

}  // namespace

int64_t delta_rule_backward_scratch(const DeltaBackward& args) {
  return args.rows * heads_of_slice(args) * floats_of_head(args.rule.in) * kFloatBytes;
}

void delta_rule_backward(const LaunchStream& stream, const DeltaBackward& args, void* scratch) {
  if (args.spans.count == 0) return;
  const cpu::DeltaRuleOperands& in = args.rule.in;
  const int64_t heads = args.key_heads * in.heads_per_key;
  const int64_t step = heads_of_slice(args);
  for (int64_t begin = 0; begin < heads; begin += step) {
    HeadSlice slice = {};
    slice.head_begin = begin;
    slice.head_count = min(step, heads - begin);
    slice.parts = parts_of_head(in);
    slice.rows = args.rows;
    const int64_t columns = args.rows * slice.head_count * in.value_dim;
    slice.sums = static_cast<float*>(scratch);
    slice.deltas =
        slice.sums + 2 * args.rows * slice.head_count * slice.parts * padded_rows(in.key_dim);
    slice.decays = slice.deltas + columns;
    if (in.corrects) slice.memories = slice.decays + args.rows * slice.head_count;
    with_rows(in.key_dim, [&]<int R>(Count<R>) {
      in.corrects ? launch_slice<R, true>(stream, args, slice)
                  : launch_slice<R, false>(stream, args, slice);
    });
  }
}

}  // namespace jige::cuda
