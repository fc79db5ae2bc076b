// A *unit* is a group of columns of one row. A few lanes of a warp share a unit, or the threads of
// a block do; each keeps its vectors of the unit in registers, so memory is read once. Units of odd
// widths or alignment are read an element at a time, and again for each pass.
#include "kernels/cuda/norm.h"

#include "kernels/cuda/linear.h"
#include "kernels/cuda/row_norm.cuh"

namespace jige::cuda {
namespace {

constexpr int kNormThreads = 256;  // where a unit has no block of its own
constexpr int kNormThreadsMax = 512;

// How units are shared out.
struct Sharing {
  int64_t units;
  int64_t groups;  // a row
  int64_t width;
  int lanes;    // threads of a unit: a power of two up to a warp, or whole warps
  int threads;  // of a block
};

// Where the unit of a thread is. Threads without a unit meet the others in sums.
struct UnitPlace {
  int64_t row, group, column;  // of the first column of the unit
  int lane;
  bool valid;
};
__device__ inline UnitPlace unit_place(const Sharing& sharing) {
  const int per_block = sharing.threads / sharing.lanes;
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t unit = int64_t{blockIdx.x} * per_block + thread / sharing.lanes;
  const bool valid = unit < sharing.units;
  const Divided at = divide(valid ? unit : 0, sharing.groups);
  return {at.quotient, at.remainder, at.remainder * sharing.width, thread % sharing.lanes, valid};
}

// Of the threads of a unit, for all of them.
__device__ inline float unit_sum(float value, int lanes, float* shared) {
  if (lanes > kWarp) return block_sum(value, shared);
  for (int distance = lanes / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, distance);
  }
  return value;
}

// The vectors of a thread: kCount of them in registers, or, with 0, as many as there are, read from
// memory whenever they are asked for.
template <int W, int kCount>
struct Vectors {
  Packed<W> packed[kCount];

  __device__ void load(const ConstRows& rows, const UnitPlace& place, const Sharing& sharing) {
    for (int j = 0; j < kCount; ++j) {
      const int64_t column = (int64_t{j} * sharing.lanes + place.lane) * W;
      packed[j] = place.valid && column < sharing.width
                      ? load_packed<W>(rows, place.row, place.column + column)
                      : Packed<W>::zero();
    }
  }
  __device__ void unpack(const ConstRows& rows, const UnitPlace&, int64_t, int j,
                         float (&x)[W]) const {
    packed[j].unpack(rows.type, x);
  }
};
template <int W>
struct Vectors<W, 0> {
  __device__ void load(const ConstRows&, const UnitPlace&, const Sharing&) {}
  __device__ void unpack(const ConstRows& rows, const UnitPlace& place, int64_t column, int,
                         float (&x)[W]) const {
    load_packed<W>(rows, place.row, place.column + column).unpack(rows.type, x);
  }
};

// body(column within the unit, index of the vector) for the vectors of a thread.
template <int W, int kCount, typename Body>
__device__ void for_vectors(const UnitPlace& place, const Sharing& sharing, Body body) {
  if (!place.valid) return;
  if constexpr (kCount == 0) {
    for (int64_t i = int64_t{place.lane} * W; i < sharing.width; i += int64_t{sharing.lanes} * W) {
      body(i, 0);
    }
  } else {
    for (int j = 0; j < kCount; ++j) {
      const int64_t column = (int64_t{j} * sharing.lanes + place.lane) * W;
      if (column < sharing.width) body(column, j);
    }
  }
}

template <bool kLayer, int W, int kCount>
__global__ void __launch_bounds__(kNormThreadsMax)
    norm_forward_kernel(cpu::NormForwardArgs args, Sharing sharing) {
  begin_kernel();
  __shared__ float shared[kWarp];
  const UnitPlace place = unit_place(sharing);
  const auto width = static_cast<float>(sharing.width);
  Vectors<W, kCount> src;
  src.load(args.src, place, sharing);
  float mean = 0.0f;
  if constexpr (kLayer) {
    float sum = 0.0f;
    for_vectors<W, kCount>(place, sharing, [&](int64_t column, int j) {
      float x[W];
      src.unpack(args.src, place, column, j, x);
      for (int i = 0; i < W; ++i) sum += x[i];
    });
    mean = unit_sum(sum, sharing.lanes, shared) / width;
  }
  float squares = 0.0f;
  for_vectors<W, kCount>(place, sharing, [&](int64_t column, int j) {
    float x[W];
    src.unpack(args.src, place, column, j, x);
    for (int i = 0; i < W; ++i) squares = fmaf(x[i] - mean, x[i] - mean, squares);
  });
  const float variance = unit_sum(squares, sharing.lanes, shared) / width;
  const float rstd = 1.0f / sqrtf(variance + args.eps);
  for_vectors<W, kCount>(place, sharing, [&](int64_t column, int j) {
    float x[W], factors[W];
    src.unpack(args.src, place, column, j, x);
    load_factors<W>(args.weight, args.weight_adds_one, column, factors);
    for (int i = 0; i < W; ++i) x[i] = (x[i] - mean) * rstd * factors[i];
    if (kLayer && args.bias) {
      float bias[W];
      load_vector<W>(args.bias, column, bias);
      for (int i = 0; i < W; ++i) x[i] += bias[i];
    }
    store_vector(args.dst, place.row, place.column + column, x);
  });
  if (!place.valid || place.lane != 0) return;
  if (args.rstd.data) args.rstd.data[place.row * args.rstd.stride + place.group] = rstd;
  if (kLayer && args.mean.data) {
    args.mean.data[place.row * args.mean.stride + place.group] = mean;
  }
}

template <bool kLayer, int W, int kCount>
__global__ void __launch_bounds__(kNormThreadsMax)
    norm_backward_input_kernel(cpu::NormBackwardInputArgs args, Sharing sharing) {
  begin_kernel();
  __shared__ float shared[kWarp];
  const UnitPlace place = unit_place(sharing);
  const auto width = static_cast<float>(sharing.width);
  const ConstRows old = {args.grad_src.data, args.grad_src.type, args.grad_src.stride};
  Vectors<W, kCount> src, grad_dst, grad_src;
  src.load(args.src, place, sharing);
  grad_dst.load(args.grad_dst, place, sharing);
  if (args.accumulate) grad_src.load(old, place, sharing);
  const float rstd = args.rstd.data[place.row * args.rstd.stride + place.group];
  const float mean = kLayer ? args.mean.data[place.row * args.mean.stride + place.group] : 0.0f;
  // Gradients of the normalised columns, and these columns.
  const auto unpack = [&](int64_t column, int j, float(&g)[W], float(&x)[W]) {
    float factors[W];
    load_factors<W>(args.weight, args.weight_adds_one, column, factors);
    grad_dst.unpack(args.grad_dst, place, column, j, g);
    src.unpack(args.src, place, column, j, x);
    for (int i = 0; i < W; ++i) {
      g[i] *= factors[i];
      x[i] = (x[i] - mean) * rstd;
    }
  };
  float sum_g = 0.0f, sum_gx = 0.0f;
  for_vectors<W, kCount>(place, sharing, [&](int64_t column, int j) {
    float g[W], x[W];
    unpack(column, j, g, x);
    for (int i = 0; i < W; ++i) {
      if (kLayer) sum_g += g[i];
      sum_gx = fmaf(g[i], x[i], sum_gx);
    }
  });
  const float mean_g = kLayer ? unit_sum(sum_g, sharing.lanes, shared) / width : 0.0f;
  const float mean_gx = unit_sum(sum_gx, sharing.lanes, shared) / width;
  for_vectors<W, kCount>(place, sharing, [&](int64_t column, int j) {
    float g[W], x[W];
    unpack(column, j, g, x);
    for (int i = 0; i < W; ++i) g[i] = fmaf(-x[i], mean_gx, g[i] - mean_g) * rstd;
    if (args.accumulate) {
      grad_src.unpack(old, place, column, j, x);
      for (int i = 0; i < W; ++i) g[i] += x[i];
    }
    store_vector(args.grad_src, place.row, place.column + column, g);
  });
}

// A block a row: what products of few rows do themselves where they can (row_norm.cuh).
__global__ void __launch_bounds__(kRowNormThreads) row_norm_kernel(cpu::NormForwardArgs args) {
  begin_kernel();
  __shared__ float shared[kWarp];
  const int64_t row = blockIdx.x;
  const RowNorm norm = {args.weight, args.eps, args.weight_adds_one, static_cast<int>(args.width)};
  norm_row(norm, static_cast<const float*>(args.src.data) + row * args.src.stride, shared,
           [&](int column, const float(&x)[kVector]) { store_vector(args.dst, row, column, x); });
}

// Whether its order is that of the sums.
bool is_row_norm(const cpu::NormForwardArgs& args, int64_t rows) {
  return rows <= kFewRows && args.group_count == 1 && args.src.type == ElementType::kF32 &&
         args.dst.type == ElementType::kBf16 && args.width % kVector == 0 &&
         args.width <= kRowNormColumns && !args.rstd.data;
}

int power_of_two_from(int64_t count) {
  int power = 1;
  while (power < count) power *= 2;
  return power;
}

// Shares units out, and calls run(vector width, vectors of a thread, sharing), the former two as
// types.
template <typename Run>
void with_sharing(int64_t rows, int64_t groups, int64_t width, bool vectors, Run run) {
  Sharing sharing = {rows * groups, groups, width, kWarp, kNormThreads};
  const int64_t count = ceil_div(width, vectors ? kVector : 1);
  if (!vectors || count > 2 * kNormThreadsMax) {
    if (count > 2 * kNormThreadsMax) sharing.lanes = sharing.threads = kNormThreadsMax;
    if (vectors) return run(Count<kVector>(), Count<0>(), sharing);
    return run(Count<1>(), Count<0>(), sharing);
  }
  if (count <= kWarp) {
    sharing.lanes = power_of_two_from(count);
    return run(Count<kVector>(), Count<1>(), sharing);
  }
  if (count > 2 * kWarp) {
    sharing.lanes = sharing.threads = static_cast<int>(ceil_div(count, 2 * kWarp)) * kWarp;
  }
  run(Count<kVector>(), Count<2>(), sharing);
}

LaunchShape norm_shape(const Sharing& sharing) {
  return {blocks_for(sharing.units, sharing.threads / sharing.lanes),
          static_cast<unsigned>(sharing.threads)};
}

template <bool kLayer>
void launch_norm_forward(const LaunchStream& stream, const cpu::NormForwardArgs& args,
                         int64_t rows) {
  const bool vectors = args.width % kVector == 0 && aligned(rows, args.dst, args.src) &&
                       aligned(args.weight) && aligned(args.bias);
  if (!kLayer && vectors && rows > 0 && is_row_norm(args, rows)) {
    launch(stream, {static_cast<unsigned>(rows), kRowNormThreads}, row_norm_kernel, args);
    return;
  }
  with_sharing(rows, args.group_count, args.width, vectors,
               [&]<int W, int kCount>(Count<W>, Count<kCount>, const Sharing& sharing) {
                 launch(stream, norm_shape(sharing), norm_forward_kernel<kLayer, W, kCount>, args,
                        sharing);
               });
}

template <bool kLayer>
void launch_backward_input(const LaunchStream& stream, const cpu::NormBackwardInputArgs& args,
                           int64_t rows) {
  const bool vectors = args.width % kVector == 0 &&
                       aligned(rows, args.grad_src, args.grad_dst, args.src) &&
                       aligned(args.weight);
  with_sharing(rows, args.group_count, args.width, vectors,
               [&]<int W, int kCount>(Count<W>, Count<kCount>, const Sharing& sharing) {
                 launch(stream, norm_shape(sharing), norm_backward_input_kernel<kLayer, W, kCount>,
                        args, sharing);
               });
}

// The weight gradient. Tiles of columns times parts of the units; a block sums the units of a part,
// each row of its threads every kTileRows-th of them.
constexpr int kNormPartThreads = 256;
constexpr int kUnitsAtOnce = 4;
constexpr int kBlocksPerMultiprocessor = 6;

struct UnitParts {
  int64_t count, units;  // parts, and units of each
  int tiles;
  int tile_vectors;  // threads side by side, a power of two up to a warp
  bool vectors;
};

UnitParts unit_parts(const LaunchStream& stream, const cpu::NormBackwardWeightArgs& args) {
  UnitParts parts = {};
  parts.vectors = args.width % kVector == 0 && aligned(args.row_count, args.grad_dst, args.src);
  const int64_t vectors = ceil_div(args.width, parts.vectors ? kVector : 1);
  parts.tile_vectors = vectors < kWarp ? power_of_two_from(vectors) : kWarp;
  parts.tiles = static_cast<int>(ceil_div(vectors, parts.tile_vectors));
  const int64_t units = args.row_count * args.group_count;
  const int64_t rows_of_tile = kNormPartThreads / parts.tile_vectors;
  const int64_t wanted =
      ceil_div(int64_t{stream.multiprocessors} * kBlocksPerMultiprocessor, parts.tiles);
  const int64_t most = ceil_div(units, rows_of_tile * kUnitsAtOnce);
  parts.count = wanted < most ? wanted : most;
  if (parts.count == 0) return parts;
  parts.units = ceil_div(units, parts.count);
  parts.count = ceil_div(units, parts.units);
  return parts;
}

// Sums of a thread over its units.
template <bool kLayer, int W>
__device__ void add_units(const cpu::NormBackwardWeightArgs& args, int64_t begin, int64_t end,
                          int64_t step, int64_t column, float (&weight)[W], float (&bias)[W]) {
  for (int64_t first = begin; first < end; first += kUnitsAtOnce * step) {
    Packed<W> grads[kUnitsAtOnce], sources[kUnitsAtOnce];
    float rstd[kUnitsAtOnce], mean[kUnitsAtOnce];
    for (int n = 0; n < kUnitsAtOnce; ++n) {
      const int64_t unit = first + n * step;
      grads[n] = Packed<W>::zero();
      sources[n] = Packed<W>::zero();
      rstd[n] = mean[n] = 0.0f;
      if (unit >= end) continue;
      const Divided at = divide(unit, args.group_count);
      const int64_t at_column = at.remainder * args.width + column;
      grads[n] = load_packed<W>(args.grad_dst, at.quotient, at_column);
      sources[n] = load_packed<W>(args.src, at.quotient, at_column);
      rstd[n] = args.rstd.data[at.quotient * args.rstd.stride + at.remainder];
      if (kLayer) mean[n] = args.mean.data[at.quotient * args.mean.stride + at.remainder];
    }
    for (int n = 0; n < kUnitsAtOnce; ++n) {
      float g[W], x[W];
      grads[n].unpack(args.grad_dst.type, g);
      sources[n].unpack(args.src.type, x);
      for (int i = 0; i < W; ++i) {
        weight[i] = fmaf(g[i], (x[i] - mean[n]) * rstd[n], weight[i]);
        if (kLayer) bias[i] += g[i];
      }
    }
  }
}

// Adds what the threads of a column of the block have, and puts it into the row of sums.
template <int W>
__device__ void store_part(const float (&sums)[W], int tile_vectors, int64_t first_column,
                           int64_t width, float* to) {
  __shared__ float shared[kNormPartThreads * W];
  const int thread = static_cast<int>(threadIdx.x);
  const int columns = tile_vectors * W;
  __syncthreads();
  for (int i = 0; i < W; ++i) shared[thread * W + i] = sums[i];
  __syncthreads();
  for (int i = thread; i < columns; i += kNormPartThreads) {
    float sum = 0.0f;
    for (int at = i; at < kNormPartThreads * W; at += columns) sum += shared[at];
    if (first_column + i < width) to[first_column + i] = sum;
  }
}

// sums [1 or 2, parts, D]: those of the weight, then those of the bias.
template <bool kLayer, int W>
__global__ void __launch_bounds__(kNormPartThreads)
    norm_part_kernel(cpu::NormBackwardWeightArgs args, UnitParts parts, float* sums) {
  begin_kernel();
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t part = blockIdx.x / static_cast<unsigned>(parts.tiles);
  const int64_t tile = blockIdx.x % static_cast<unsigned>(parts.tiles);
  const int64_t first_column = tile * parts.tile_vectors * W;
  const int64_t column = first_column + thread % parts.tile_vectors * W;
  const int64_t begin = part * parts.units;
  const int64_t units = args.row_count * args.group_count;
  const int64_t end = begin + parts.units < units ? begin + parts.units : units;
  float weight[W] = {}, bias[W] = {};
  if (column < args.width) {
    add_units<kLayer, W>(args, begin + thread / parts.tile_vectors, end,
                         kNormPartThreads / parts.tile_vectors, column, weight, bias);
  }
  store_part(weight, parts.tile_vectors, first_column, args.width, sums + part * args.width);
  if (kLayer && args.grad_bias) {
    store_part(bias, parts.tile_vectors, first_column, args.width,
               sums + (parts.count + part) * args.width);
  }
}

// to[i] += the parts of column i in ascending order, kWarp interleaved sums of them.
__global__ void __launch_bounds__(kWarp* kWarp)
    norm_add_parts_kernel(float* weight, float* bias, const float* sums, int64_t parts,
                          int64_t width) {
  begin_kernel();
  __shared__ float shared[kWarp][kWarp];
  float* const to = blockIdx.y == 0 ? weight : bias;
  const int64_t column = int64_t{blockIdx.x} * kWarp + lane_id();
  const float* const from = sums + blockIdx.y * parts * width + column;
  float sum = 0.0f;
  if (column < width) {
    for (int64_t part = warp_id(); part < parts; part += kWarp) sum += from[part * width];
  }
  shared[warp_id()][lane_id()] = sum;
  __syncthreads();
  if (warp_id() != 0 || column >= width) return;
  for (int i = 1; i < kWarp; ++i) sum += shared[i][lane_id()];
  to[column] += sum;
}

template <bool kLayer>
void launch_backward_weight(const LaunchStream& stream, const cpu::NormBackwardWeightArgs& args,
                            float* sums) {
  const UnitParts parts = unit_parts(stream, args);
  if (parts.count == 0) return;
  const LaunchShape shape = {static_cast<unsigned>(parts.count * parts.tiles), kNormPartThreads};
  launch(stream, shape,
         parts.vectors ? norm_part_kernel<kLayer, kVector> : norm_part_kernel<kLayer, 1>, args,
         parts, sums);
  const unsigned vectors = kLayer && args.grad_bias ? 2 : 1;
  launch(stream, {dim3(blocks_for(args.width, kWarp), vectors), kWarp * kWarp},
         norm_add_parts_kernel, args.grad_weight, args.grad_bias, sums, parts.count, args.width);
}

}  // namespace

void norm_forward(const LaunchStream& stream, const cpu::NormForwardArgs& args, int64_t rows,
                  bool layer) {
  layer ? launch_norm_forward<true>(stream, args, rows)
        : launch_norm_forward<false>(stream, args, rows);
}

void norm_backward_input(const LaunchStream& stream, const cpu::NormBackwardInputArgs& args,
                         int64_t rows, bool layer) {
  layer ? launch_backward_input<true>(stream, args, rows)
        : launch_backward_input<false>(stream, args, rows);
}

int64_t norm_backward_weight_scratch(const LaunchStream& stream,
                                     const cpu::NormBackwardWeightArgs& args, bool layer) {
  const int64_t rows = unit_parts(stream, args).count * (layer ? 2 : 1);
  return rows * args.width * static_cast<int64_t>(sizeof(float));
}

void norm_backward_weight(const LaunchStream& stream, const cpu::NormBackwardWeightArgs& args,
                          bool layer, void* scratch) {
  auto* const sums = static_cast<float*>(scratch);
  layer ? launch_backward_weight<true>(stream, args, sums)
        : launch_backward_weight<false>(stream, args, sums);
}

}  // namespace jige::cuda
