#include "kernels/cuda/kv_append.h"

#include "kernels/cuda/portable.cuh"

namespace jige::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kSlots = 16;  // tokens of a cache block
constexpr int kVector = 8;      // elements that a thread moves where all is bf16

// Where elements from `column` on of a row of keys or values stand in the cache.
__device__ int64_t place_of(const KvAppend& a, int64_t slot, int64_t column, int values) {
  const int64_t head = column / a.head_dim;
  const int64_t block_head = slot / kSlots * a.kv_head_count + head;
  return ((block_head * 2 + values) * kSlots + slot % kSlots) * a.head_dim + column % a.head_dim;
}

// Blocks (row, part of the columns, keys or values).
template <int kStep>
__global__ void append_kernel(KvAppend a) {
  begin_kernel();
  const int64_t row = blockIdx.x;
  const int values = static_cast<int>(blockIdx.z);
  const int64_t slot = a.slots[row];
  const int64_t column = (int64_t{blockIdx.y} * kThreads + threadIdx.x) * kStep;
  if (slot < 0 || column >= int64_t{a.kv_head_count} * a.head_dim) return;
  const ConstRows& from = values ? a.v : a.k;
  const int64_t source = row * from.stride + column;
  const int64_t target = place_of(a, slot, column, values);
  if constexpr (kStep == 1) {
    store_element(a.cache, a.cache_type, target, load_element(from.data, from.type, source));
  } else {
    *reinterpret_cast<uint4*>(static_cast<Bf16*>(a.cache) + target) =
        *reinterpret_cast<const uint4*>(static_cast<const Bf16*>(from.data) + source);
  }
}

bool in_vectors(const ConstRows& rows) {
  return rows.type == ElementType::kBf16 && rows.stride % kVector == 0 &&
         reinterpret_cast<uintptr_t>(rows.data) % sizeof(uint4) == 0;
}

}  // namespace

void kv_append(const LaunchStream& stream, const KvAppend& args) {
  const bool vectors = args.cache_type == ElementType::kBf16 && args.head_dim % kVector == 0 &&
                       in_vectors(args.k) && in_vectors(args.v) &&
                       reinterpret_cast<uintptr_t>(args.cache) % sizeof(uint4) == 0;
  const int64_t columns = int64_t{args.kv_head_count} * args.head_dim;
  const unsigned parts = blocks_for(columns, int64_t{kThreads} * (vectors ? kVector : 1));
  launch(stream, {{static_cast<unsigned>(args.rows), parts, 2}, kThreads},
         vectors ? append_kernel<kVector> : append_kernel<1>, args);
}

}  // namespace jige::cuda
