// Writing keys and values into the paged cache of a GPU, which attention_cached.h describes.
// Threads: asynchronous on the stream.
#pragma once

#include <cstdint>

#include "kernels/cpu/types.h"
#include "kernels/cuda/launch.h"

namespace jige::cuda {

struct KvAppend {
  void* cache;
  cpu::ElementType cache_type;  // f32 or bf16
  bool in_8_bits;               // whatever cache_type is
  cpu::ConstRows k, v;          // [rows, heads · d] f32 or bf16
  const int64_t* slots;         // of each row: block · 16 + token of the block, or -1 for none
  int64_t rows;
  int32_t kv_head_count, head_dim;
};
void kv_append(const LaunchStream& stream, const KvAppend& args);

}  // namespace jige::cuda
