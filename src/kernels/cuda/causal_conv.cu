#include "kernels/cuda/causal_conv.h"

#include "kernels/cuda/recurrent_spans.cuh"
#include "kernels/cuda/vectors.cuh"

namespace jige::cuda {
namespace {

constexpr int kConvThreads = 128;
constexpr int kPair = 2;  // columns of a thread where all is aligned to them

template <int W>
__device__ void load_columns(const void* data, ElementType type, int64_t index, float (&x)[W]) {
  if constexpr (W == 1) {
    x[0] = load_element(data, type, index);
  } else if (type == ElementType::kF32) {
    const float2 pair = *reinterpret_cast<const float2*>(static_cast<const float*>(data) + index);
    x[0] = pair.x;
    x[1] = pair.y;
  } else {
    const uint32_t pair =
        *reinterpret_cast<const uint32_t*>(static_cast<const Bf16*>(data) + index);
    x[0] = bits_to_float(pair << 16);
    x[1] = bits_to_float(pair & 0xffff0000u);
  }
}
template <int W>
__device__ void store_columns(void* data, ElementType type, int64_t index, const float (&x)[W]) {
  if constexpr (W == 1) {
    store_element(data, type, index, x[0]);
  } else if (type == ElementType::kF32) {
    *reinterpret_cast<float2*>(static_cast<float*>(data) + index) = make_float2(x[0], x[1]);
  } else {
    *reinterpret_cast<uint32_t*>(static_cast<Bf16*>(data) + index) = floats_to_bf16x2(x[0], x[1]);
  }
}

// Everything of a column, or of two. Taps are kTaps; where there are fewer, the first are left out.
template <int W, int kTaps>
struct Columns {
  int64_t first;
  int unused;  // taps
  float weight[kTaps][W];
  float bias[W];

  __device__ Columns(const cpu::CausalConvOperands& in, int64_t column)
      : first(column), unused(kTaps - static_cast<int>(in.taps)) {
    for (int c = 0; c < W; ++c) {
      const float* const from = in.weight + (column + c) * in.weight_stride;
      for (int i = 0; i < kTaps; ++i) weight[i][c] = i < unused ? 0.0f : from[i - unused];
      bias[c] = in.bias ? in.bias[column + c] : 0.0f;
    }
  }
};

// The inputs of a tile's rows and the kTaps - 1 before them, zeros where there are none.
template <int W, int kTaps>
struct Inputs {
  float x[kTaps - 1 + kSpanTileRows][W];

  __device__ Inputs(const ConstRows& src, int64_t columns, int taps, const void* state,
                    const SpanTile& tile, int64_t column) {
#pragma unroll
    for (int i = 0; i < kTaps - 1 + kSpanTileRows; ++i) {
      const int offset = i - (kTaps - 1);
      const int row = tile.first + offset;
      for (int c = 0; c < W; ++c) x[i][c] = 0.0f;
      if (offset >= tile.count || offset < 1 - taps) continue;
      if (row >= 0) {
        load_columns(src.data, src.type, (tile.span.row_begin + row) * src.stride + column, x[i]);
      } else if (state && tile.span.resumed) {
        load_columns(state, src.type, (taps - 1 + row) * columns + column, x[i]);
      }
    }
  }
};

// u of row `t` of a tile.
template <int W, int kTaps>
__device__ void product(const Columns<W, kTaps>& columns, const Inputs<W, kTaps>& inputs, int t,
                        float (&u)[W]) {
  for (int c = 0; c < W; ++c) u[c] = columns.bias[c];
#pragma unroll
  for (int i = 0; i < kTaps; ++i) {
    if (i < columns.unused) continue;
    for (int c = 0; c < W; ++c) u[c] = fmaf(columns.weight[i][c], inputs.x[t + i][c], u[c]);
  }
}

// The column and the tile of a thread, or none.
struct ConvPlace {
  int64_t column, tile;
  bool valid;
};
template <int W>
__device__ ConvPlace conv_place(const RecurrentSpans& spans, int64_t columns) {
  const int64_t index = int64_t{blockIdx.x} * kConvThreads + threadIdx.x;
  const Divided at = divide(index, columns / W);
  return {at.remainder * W, at.quotient, at.quotient < spans.tiles};
}

// The last taps - 1 inputs once the sequence's first `row_count` rows have come, of `state` as it
// was before: those that it has move up. `renewed` may be the state itself.
template <int W>
__device__ void renew_state(const cpu::CausalConvOperands& in, const RecurrentSpan& span,
                            int row_count, const void* state, void* renewed, int64_t column) {
  const auto kept = static_cast<int>(in.taps) - 1;
  for (int j = 0; j < kept; ++j) {
    const int row = row_count - kept + j;
    float x[W] = {};
    if (row >= 0) {
      load_columns(in.src.data, in.src.type, (span.row_begin + row) * in.src.stride + column, x);
    } else if (span.resumed) {
      load_columns(state, in.src.type, (j + row_count) * in.columns + column, x);
    }
    store_columns(renewed, in.src.type, j * in.columns + column, x);
  }
}

template <int W, int kTaps>
__global__ void __launch_bounds__(kConvThreads)
    conv_forward_kernel(cpu::CausalConvForwardArgs args, RecurrentSpans spans) {
  begin_kernel();
  const cpu::CausalConvOperands& in = args.in;
  const ConvPlace place = conv_place<W>(spans, in.columns);
  if (!place.valid) return;
  const SpanTile tile = find_span_tile(spans, place.tile);
  const auto state_at = [&](int row) {
    return static_cast<unsigned char*>(args.states.data) +
           row * args.states.stride * element_bytes(args.states.type);
  };
  unsigned char* const state = args.states.data ? state_at(tile.span.state) : nullptr;
  const Inputs<W, kTaps> inputs(in.src, in.columns, static_cast<int>(in.taps), state, tile,
                                place.column);
  const Columns<W, kTaps> columns(in, place.column);
#pragma unroll
  for (int t = 0; t < kSpanTileRows; ++t) {
    if (t >= tile.count) break;
    float u[W];
    product(columns, inputs, t, u);
    if (in.silu) {
      for (int c = 0; c < W; ++c) u[c] *= sigmoid(u[c]);
    }
    const int64_t row = tile.span.row_begin + tile.first + t;
    store_columns(args.dst.data, args.dst.type, row * args.dst.stride + place.column, u);
  }
  if (!state || tile.first != 0) return;
  if (tile.span.spare >= 0) {
    renew_state<W>(in, tile.span, tile.span.spare_rows, state, state_at(tile.span.spare),
                   place.column);
  }
  renew_state<W>(in, tile.span, tile.span.row_count, state, state, place.column);
}

// grad_products of grad_dst.
template <int W, int kTaps>
__global__ void __launch_bounds__(kConvThreads)
    products_kernel(cpu::CausalConvBackwardArgs args, RecurrentSpans spans) {
  begin_kernel();
  const cpu::CausalConvOperands& in = args.in;
  const ConvPlace place = conv_place<W>(spans, in.columns);
  if (!place.valid) return;
  const SpanTile tile = find_span_tile(spans, place.tile);
  const Inputs<W, kTaps> inputs(in.src, in.columns, static_cast<int>(in.taps), nullptr, tile,
                                place.column);
  const Columns<W, kTaps> columns(in, place.column);
#pragma unroll
  for (int t = 0; t < kSpanTileRows; ++t) {
    if (t >= tile.count) break;
    const int64_t row = tile.span.row_begin + tile.first + t;
    float u[W], grad[W];
    load_columns(args.grad_dst.data, args.grad_dst.type, row * args.grad_dst.stride + place.column,
                 grad);
    if (in.silu) {
      product(columns, inputs, t, u);
      for (int c = 0; c < W; ++c) {
        const float s = sigmoid(u[c]);
        grad[c] *= s * fmaf(u[c], 1.0f - s, 1.0f);
      }
    }
    store_columns(args.grad_products.data, args.grad_products.type,
                  row * args.grad_products.stride + place.column, grad);
  }
}

// grad_src of grad_products.
template <int W, int kTaps>
__global__ void __launch_bounds__(kConvThreads)
    sources_kernel(cpu::CausalConvBackwardArgs args, RecurrentSpans spans) {
  begin_kernel();
  const cpu::CausalConvOperands& in = args.in;
  const ConvPlace place = conv_place<W>(spans, in.columns);
  if (!place.valid) return;
  const SpanTile tile = find_span_tile(spans, place.tile);
  float grads[kSpanTileRows + kTaps - 1][W];  // from the tile's first row on
#pragma unroll
  for (int i = 0; i < kSpanTileRows + kTaps - 1; ++i) {
    const int row = tile.first + i;
    for (int c = 0; c < W; ++c) grads[i][c] = 0.0f;
    if (row >= tile.span.row_count || i >= tile.count + static_cast<int>(in.taps) - 1) continue;
    load_columns(args.grad_products.data, args.grad_products.type,
                 (tile.span.row_begin + row) * args.grad_products.stride + place.column, grads[i]);
  }
  const Columns<W, kTaps> columns(in, place.column);
#pragma unroll
  for (int t = 0; t < kSpanTileRows; ++t) {
    if (t >= tile.count) break;
    float sum[W] = {};
#pragma unroll
    for (int i = 0; i < kTaps; ++i) {
      if (i < columns.unused) continue;
      for (int c = 0; c < W; ++c) {
        sum[c] = fmaf(columns.weight[i][c], grads[t + kTaps - 1 - i][c], sum[c]);
      }
    }
    const int64_t row = tile.span.row_begin + tile.first + t;
    store_columns(args.grad_src.data, args.grad_src.type, row * args.grad_src.stride + place.column,
                  sum);
  }
}

// How tiles are shared out for sums over rows.
struct TileParts {
  int64_t count;
  int64_t tiles;  // of each
};

// sums [parts, taps + 1, C]: of each tap, then of the bias.
template <int W, int kTaps>
__global__ void __launch_bounds__(kConvThreads)
    part_kernel(cpu::CausalConvWeightArgs args, RecurrentSpans spans, TileParts parts,
                float* sums) {
  begin_kernel();
  const cpu::CausalConvOperands& in = args.in;
  const int64_t index = int64_t{blockIdx.x} * kConvThreads + threadIdx.x;
  const Divided at = divide(index, in.columns / W);
  if (at.quotient >= parts.count) return;
  const int64_t column = at.remainder * W;
  const int64_t begin = at.quotient * parts.tiles;
  const int64_t end = min(begin + parts.tiles, spans.tiles);
  float taps[kTaps][W] = {};
  float bias[W] = {};
  for (int64_t i = begin; i < end; ++i) {
    const SpanTile tile = find_span_tile(spans, i);
    const Inputs<W, kTaps> inputs(in.src, in.columns, static_cast<int>(in.taps), nullptr, tile,
                                  column);
#pragma unroll
    for (int t = 0; t < kSpanTileRows; ++t) {
      if (t >= tile.count) break;
      const int64_t row = tile.span.row_begin + tile.first + t;
      float grad[W];
      load_columns(args.grad_products.data, args.grad_products.type,
                   row * args.grad_products.stride + column, grad);
      for (int c = 0; c < W; ++c) {
        bias[c] += grad[c];
#pragma unroll
        for (int k = 0; k < kTaps; ++k) taps[k][c] = fmaf(grad[c], inputs.x[t + k][c], taps[k][c]);
      }
    }
  }
  float* const to = sums + at.quotient * (in.taps + 1) * in.columns + column;
  const int unused = kTaps - static_cast<int>(in.taps);
  for (int c = 0; c < W; ++c) {
#pragma unroll
    for (int k = 0; k < kTaps; ++k) {
      if (k >= unused) to[(k - unused) * in.columns + c] = taps[k][c];
    }
    to[in.taps * in.columns + c] = bias[c];
  }
}

// Adds the parts of a column, kConvWarps interleaved sums of them, in ascending order.
constexpr int kConvWarps = 8;
__global__ void __launch_bounds__(kConvWarps* kWarp)
    conv_add_parts_kernel(cpu::CausalConvWeightArgs args, const float* sums, int64_t parts) {
  begin_kernel();
  __shared__ float shared[kConvWarps][kWarp];
  const int64_t column = int64_t{blockIdx.x} * kWarp + lane_id();
  const int64_t tap = blockIdx.y;
  const bool valid = column < args.in.columns;
  const float* const from = sums + tap * args.in.columns + column;
  float sum = 0.0f;
  for (int64_t part = warp_id(); valid && part < parts; part += kConvWarps) {
    sum += from[part * (args.in.taps + 1) * args.in.columns];
  }
  shared[warp_id()][lane_id()] = sum;
  __syncthreads();
  if (warp_id() != 0 || !valid) return;
  for (int i = 1; i < kConvWarps; ++i) sum += shared[i][lane_id()];
  if (tap < args.in.taps) {
    args.grad_weight[column * args.grad_weight_stride + tap] += sum;
  } else {
    args.grad_bias[column] += sum;
  }
}

// Whether pairs of columns can be moved at once.
template <typename... AnyRows>
bool in_pairs(int64_t columns, const AnyRows&... operands) {
  return columns % kPair == 0 &&
         ((reinterpret_cast<uintptr_t>(operands.data) %
                   static_cast<uint64_t>(kPair * element_bytes(operands.type)) ==
               0 &&
           operands.stride % kPair == 0) &&
          ...);
}

// Calls run(columns of a thread, taps), both as types.
template <typename Run>
void with_conv_columns(bool pairs, int64_t taps, Run run) {
  constexpr int kFewTaps = 4;
  const auto with_taps = [&]<int W>(Count<W> width) {
    if (taps <= kFewTaps) return run(width, Count<kFewTaps>());
    run(width, Count<static_cast<int>(cpu::kCausalConvTapsMax)>());
  };
  if (pairs) return with_taps(Count<kPair>());
  with_taps(Count<1>());
}

LaunchShape conv_shape(int64_t count, int64_t columns, int width) {
  return {blocks_for(count * (columns / width), kConvThreads), kConvThreads};
}

TileParts tile_parts(const LaunchStream& stream, int64_t columns, const RecurrentSpans& spans) {
  constexpr int64_t kThreadsPerMultiprocessor = 1024;
  constexpr int64_t kTilesLeast = 4;
  const int64_t wanted = ceil_div(int64_t{stream.multiprocessors} * kThreadsPerMultiprocessor,
                                  ceil_div(columns, kPair));
  const int64_t most = ceil_div(spans.tiles, kTilesLeast);
  const int64_t count = wanted < most ? wanted : most;
  if (count == 0) return {0, 0};
  const int64_t tiles = ceil_div(spans.tiles, count);
  return {ceil_div(spans.tiles, tiles), tiles};
}

}  // namespace

void causal_conv_forward(const LaunchStream& stream, const cpu::CausalConvForwardArgs& args,
                         const RecurrentSpans& spans) {
  bool pairs = in_pairs(args.in.columns, args.in.src, args.dst);
  if (args.states.data) pairs = pairs && in_pairs(args.in.columns, args.states);
  with_conv_columns(pairs, args.in.taps, [&]<int W, int kTaps>(Count<W>, Count<kTaps>) {
    launch(stream, conv_shape(spans.tiles, args.in.columns, W), conv_forward_kernel<W, kTaps>, args,
           spans);
  });
}

void causal_conv_backward_input(const LaunchStream& stream, const cpu::CausalConvBackwardArgs& args,
                                const RecurrentSpans& spans) {
  const bool pairs =
      in_pairs(args.in.columns, args.in.src, args.grad_src, args.grad_products, args.grad_dst);
  with_conv_columns(pairs, args.in.taps, [&]<int W, int kTaps>(Count<W>, Count<kTaps>) {
    const LaunchShape shape = conv_shape(spans.tiles, args.in.columns, W);
    launch(stream, shape, products_kernel<W, kTaps>, args, spans);
    launch(stream, shape, sources_kernel<W, kTaps>, args, spans);
  });
}

int64_t causal_conv_backward_weight_scratch(const LaunchStream& stream,
                                            const cpu::CausalConvWeightArgs& args,
                                            const RecurrentSpans& spans) {
  const int64_t sums = tile_parts(stream, args.in.columns, spans).count * (args.in.taps + 1);
  return sums * args.in.columns * static_cast<int64_t>(sizeof(float));
}

void causal_conv_backward_weight(const LaunchStream& stream, const cpu::CausalConvWeightArgs& args,
                                 const RecurrentSpans& spans, void* scratch) {
  const TileParts parts = tile_parts(stream, args.in.columns, spans);
  if (parts.count == 0) return;
  auto* const sums = static_cast<float*>(scratch);
  const bool pairs = in_pairs(args.in.columns, args.in.src, args.grad_products);
  with_conv_columns(pairs, args.in.taps, [&]<int W, int kTaps>(Count<W>, Count<kTaps>) {
    launch(stream, conv_shape(parts.count, args.in.columns, W), part_kernel<W, kTaps>, args, spans,
           parts, sums);
  });
  const auto rows = static_cast<unsigned>(args.in.taps + (args.grad_bias ? 1 : 0));
  launch(stream, {dim3(blocks_for(args.in.columns, kWarp), rows), kConvWarps * kWarp},
         conv_add_parts_kernel, args, sums, parts.count);
}

}  // namespace jige::cuda
