// Blocks of weights turned back into numbers, for products of many rows.
#include "kernels/cuda/quant_layout.cuh"
#include "kernels/cuda/vectors.cuh"

namespace jige::cuda {
namespace {

constexpr int kNumbersThreads = 256;
constexpr int kNumbersElements = 8;

__device__ void store_numbers(const QuantNumbers& args, int64_t row, int64_t column,
                              const float (&x)[kNumbersElements], bool vectors) {
  const int64_t at = row * args.dst.stride + column;
  if (vectors && column + kNumbersElements <= args.columns) {
    store_vector(args.dst.data, args.dst.type, at, x);
    return;
  }
  for (int i = 0; i < kNumbersElements && column + i < args.columns; ++i) {
    store_element(args.dst.data, args.dst.type, at + i, x[i]);
  }
}

// A thread has a lane's piece of a record: a step of 8 bits or two of 4, two rows.
template <bool kHalves>
__global__ void __launch_bounds__(kNumbersThreads)
    numbers_kernel(QuantNumbers args, int64_t chunks, bool vectors) {
  __shared__ float levels[kQuantLevels];
  begin_kernel();
  if (kHalves && threadIdx.x < kQuantLevels) {
    const auto* header = reinterpret_cast<const QuantHeader*>(args.weight.data);
    levels[threadIdx.x] = to_float(Bf16{header->levels[threadIdx.x]});
  }
  __syncthreads();
  const int pieces = kHalves ? kQuantSteps / 2 : kQuantSteps;
  const int64_t index = int64_t{blockIdx.x} * kNumbersThreads + threadIdx.x;
  const int lane = lane_id();
  const auto piece = static_cast<int>(index / kWarp % pieces);
  const int64_t chunk = index / kWarp / pieces % chunks;
  const int64_t first_row = index / kWarp / pieces / chunks * kQuantRecordRows;
  if (first_row >= args.rows) return;
  const unsigned char* record =
      quant_record(args.weight, (args.row_begin + first_row) / kQuantRecordRows,
                   args.column_begin / kQuantRecordColumns + chunk);
  const uint4 data = *reinterpret_cast<const uint4*>(record + kQuantScalesBytes +
                                                     piece * kQuantPieceBytes + lane * 16);
  const uint32_t words[] = {data.x, data.y, data.z, data.w};
#pragma unroll
  for (int i = 0; i < 4; i += kHalves ? 1 : 2) {
    const int half = kHalves ? i % 2 : i / 2;
    const int step = kHalves ? piece * 2 + i / 2 : piece;
    const int row = lane / 4 + half * 8;
    const float d =
        half_to_float(*reinterpret_cast<const uint16_t*>(record + quant_scale_at(row, step)));
    float x[kNumbersElements];
    for (int e = 0; e < kNumbersElements; ++e) {
      float value = 0.0f;
      if constexpr (kHalves) {
        value = levels[words[i] >> (4 * e) & 15u];
      } else {
        value = static_cast<float>(quant_byte(words[i], words[i + 1], e));
      }
      x[e] = d * value + 0.0f;  // zeros are positive
    }
    const int64_t column =
        chunk * kQuantRecordColumns + step * kQuantBlock + lane % 4 * kNumbersElements;
    if (first_row + row < args.rows) store_numbers(args, first_row + row, column, x, vectors);
  }
}

}  // namespace

void quant_numbers(const LaunchStream& stream, const QuantNumbers& args) {
  if (args.rows <= 0 || args.columns <= 0) return;
  const int64_t chunks = quant_chunks(args.columns);
  const int64_t tiles = (args.rows + kQuantRecordRows - 1) / kQuantRecordRows;
  const int64_t pieces = args.weight.halves ? kQuantSteps / 2 : kQuantSteps;
  launch(stream, {blocks_for(tiles * chunks * pieces * kWarp, kNumbersThreads), kNumbersThreads},
         args.weight.halves ? numbers_kernel<true> : numbers_kernel<false>, args, chunks,
         aligned(args.rows, args.dst));
}

}  // namespace jige::cuda
