#include "kernels/cuda/rope.h"

#include "kernels/cuda/vectors.cuh"

namespace jige::cuda {
namespace {

constexpr int kRopeThreads = 256;
constexpr int kHeadsAtOnce = 4;  // of a thread, with the same angles

// A thread turns W pairs of up to kHeadsAtOnce heads of a row.
template <int W>
__global__ void __launch_bounds__(kRopeThreads)
    rope_kernel(cpu::RopeArgs args, int64_t rows, int64_t head_parts) {
  begin_kernel();
  const int64_t index = int64_t{blockIdx.x} * kRopeThreads + threadIdx.x;
  const int64_t half = args.rotary_dim / 2;
  const Divided of_part = divide(index, half / W);
  const Divided of_row = divide(of_part.quotient, head_parts);
  const int64_t row = of_row.quotient;
  if (row >= rows) return;
  const int64_t head_begin = of_row.remainder * kHeadsAtOnce;
  const int64_t pair = of_part.remainder * W;
  const ConstRows data = {args.data.data, args.data.type, args.data.stride};
  Packed<W> first[kHeadsAtOnce], second[kHeadsAtOnce];
  for (int n = 0; n < kHeadsAtOnce; ++n) {
    if (head_begin + n >= args.head_count) continue;
    const int64_t column = (head_begin + n) * args.head_dim + pair;
    first[n] = load_packed<W>(data, row, column);
    second[n] = load_packed<W>(data, row, column + half);
  }
  float cosine[W], sine[W];
  const int64_t angles = args.positions[row] * args.cos_sin_stride + pair;
  load_vector<W>(args.cos_sin, angles, cosine);
  load_vector<W>(args.cos_sin, angles + half, sine);
  for (int i = 0; i < W; ++i) sine[i] = args.inverse ? -sine[i] : sine[i];
  for (int n = 0; n < kHeadsAtOnce; ++n) {
    if (head_begin + n >= args.head_count) continue;
    float a[W], b[W], turned_a[W], turned_b[W];
    first[n].unpack(data.type, a);
    second[n].unpack(data.type, b);
    for (int i = 0; i < W; ++i) {
      turned_a[i] = fmaf(a[i], cosine[i], -(b[i] * sine[i]));
      turned_b[i] = fmaf(b[i], cosine[i], a[i] * sine[i]);
    }
    const int64_t column = (head_begin + n) * args.head_dim + pair;
    store_vector(args.data, row, column, turned_a);
    store_vector(args.data, row, column + half, turned_b);
  }
}

}  // namespace

void rope(const LaunchStream& stream, const cpu::RopeArgs& args, int64_t rows) {
  const int64_t half = args.rotary_dim / 2;
  if (rows == 0 || half == 0 || args.head_count == 0) return;
  const ConstRows angles = {args.cos_sin, ElementType::kF32, args.cos_sin_stride};
  // Heads are rows of their own, and of the table any row may be asked for.
  const Rows heads = {args.data.data, args.data.type, args.head_dim};
  const bool vectors = half % kVector == 0 && aligned(rows, args.data) &&
                       aligned(args.head_count, heads) && aligned(2, angles);
  const int64_t head_parts = ceil_div(args.head_count, kHeadsAtOnce);
  const int64_t threads = rows * head_parts * (half / (vectors ? kVector : 1));
  launch(stream, {blocks_for(threads, kRopeThreads), kRopeThreads},
         vectors ? rope_kernel<kVector> : rope_kernel<1>, args, rows, head_parts);
}

}  // namespace jige::cuda
