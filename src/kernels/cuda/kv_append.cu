#include "kernels/cuda/kv_append.h"

#include "kernels/cuda/vectors.cuh"

namespace jige::cuda {
namespace {

constexpr int kAppendThreads = 256;
constexpr int64_t kSlots = 16;  // tokens of a cache block

// Where elements from `column` on of a row of keys or values stand in the cache.
__device__ int64_t cache_place(const KvAppend& a, int64_t slot, int64_t column, int values) {
  const int64_t head = column / a.head_dim;
  const int64_t block_head = slot / kSlots * a.kv_head_count + head;
  return ((block_head * 2 + values) * kSlots + slot % kSlots) * a.head_dim + column % a.head_dim;
}

// Blocks (row, part of the columns, keys or values).
template <int kStep>
__global__ void __launch_bounds__(kAppendThreads) append_kernel(KvAppend a) {
  begin_kernel();
  const int64_t row = blockIdx.x;
  const int values = static_cast<int>(blockIdx.z);
  const int64_t slot = a.slots[row];
  const int64_t column = (int64_t{blockIdx.y} * kAppendThreads + threadIdx.x) * kStep;
  if (slot < 0 || column >= int64_t{a.kv_head_count} * a.head_dim) return;
  const ConstRows& from = values ? a.v : a.k;
  const int64_t source = row * from.stride + column;
  const int64_t target = cache_place(a, slot, column, values);
  if constexpr (kStep == 1) {
    store_element(a.cache, a.cache_type, target, load_element(from.data, from.type, source));
  } else {
    *reinterpret_cast<uint4*>(static_cast<Bf16*>(a.cache) + target) =
        *reinterpret_cast<const uint4*>(static_cast<const Bf16*>(from.data) + source);
  }
}

// The smallest bf16 that is not below a value that is not negative; NaN stays one.
__device__ Bf16 rounded_up(float value) {
  const uint32_t bits = float_to_bits(value);
  return {static_cast<uint16_t>(bits > 0x7f800000u ? 0x7fc0u : (bits + 0xffffu) >> 16)};
}

// In 8 bits, as kernels/cpu/kv_cache.h has it: a warp for a head of a row, keys or values.
__global__ void __launch_bounds__(kAppendThreads) append_bytes_kernel(KvAppend a) {
  begin_kernel();
  constexpr int kWarps = kAppendThreads / kWarp;
  const int64_t row = blockIdx.x;
  const int64_t head = int64_t{blockIdx.y} * kWarps + warp_id();
  const int values = static_cast<int>(blockIdx.z);
  const int64_t slot = a.slots[row];
  if (slot < 0 || head >= a.kv_head_count) return;
  const ConstRows from = values ? a.v : a.k;
  const int64_t source = row * from.stride + head * a.head_dim;
  float largest = 0.0f;
  float nan = 0.0f;  // x − x is zero, but for infinities and NaN
  for (int c = lane_id(); c < a.head_dim; c += kWarp) {
    const float x = load_element(from.data, from.type, source + c);
    largest = fmaxf(largest, fabsf(x));
    nan += x - x;
  }
  const Bf16 scale = rounded_up(warp_max(largest) / 127.0f + warp_sum(nan));
  const float step = to_float(scale);
  const float divisor = step == 0.0f ? 1.0f : step;
  auto* const block =
      static_cast<int8_t*>(a.cache) + (slot / kSlots * a.kv_head_count + head) * 2 * kSlots *
                                          (a.head_dim + static_cast<int>(sizeof(Bf16)));
  const auto in_block = static_cast<int>(slot % kSlots);
  int8_t* const to = block + (values * kSlots + in_block) * a.head_dim;
  for (int c = lane_id(); c < a.head_dim; c += kWarp) {
    const float number = rintf(load_element(from.data, from.type, source + c) / divisor);
    to[c] = static_cast<int8_t>(number == number ? static_cast<int>(number) : 0);
  }
  auto* const scales = reinterpret_cast<Bf16*>(block + 2 * kSlots * a.head_dim);
  if (lane_id() == 0) scales[values * kSlots + in_block] = scale;
}

bool bf16_in_vectors(const ConstRows& rows) {
  return rows.type == ElementType::kBf16 && rows.stride % kVector == 0 &&
         reinterpret_cast<uintptr_t>(rows.data) % sizeof(uint4) == 0;
}

}  // namespace

void kv_append(const LaunchStream& stream, const KvAppend& args) {
  const auto rows = static_cast<unsigned>(args.rows);
  if (args.in_8_bits) {
    launch(stream,
           {{rows, blocks_for(args.kv_head_count, kAppendThreads / kWarp), 2}, kAppendThreads},
           append_bytes_kernel, args);
    return;
  }
  const bool vectors = args.cache_type == ElementType::kBf16 && args.head_dim % kVector == 0 &&
                       bf16_in_vectors(args.k) && bf16_in_vectors(args.v) &&
                       reinterpret_cast<uintptr_t>(args.cache) % sizeof(uint4) == 0;
  const int64_t columns = int64_t{args.kv_head_count} * args.head_dim;
  const unsigned parts = blocks_for(columns, int64_t{kAppendThreads} * (vectors ? kVector : 1));
  launch(stream, {{rows, parts, 2}, kAppendThreads},
         vectors ? append_kernel<kVector> : append_kernel<1>, args);
}

}  // namespace jige::cuda
