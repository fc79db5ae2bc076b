// The paged key/value cache: sizes, checks and appending.
#include <algorithm>

#include "base/check.h"
#include "kernels/cpu/attention_layout.h"
#include "kernels/cpu/kv_cache.h"
#include "ops/attention.h"
#include "ops/attention_cached_cuda.h"
#include "ops/attention_schedule.h"

namespace jige::ops {
namespace {

// The part of a sequence's new rows that falls into one cache block.
struct BlockPart {
  int32_t block = 0;
  int32_t slot_begin = 0;
  int32_t token_count = 0;
  int64_t row = 0;
};

std::vector<BlockPart> block_parts(const std::vector<SequenceSpan>& sequences) {
  std::vector<BlockPart> parts;
  for (const SequenceSpan& sequence : sequences) {
    const int64_t end = int64_t{sequence.context_count} + sequence.row_count;
    for (int64_t position = sequence.context_count; position < end;) {
      BlockPart part;
      part.block = sequence.blocks[position / kKvBlockTokens];
      part.slot_begin = static_cast<int32_t>(position % kKvBlockTokens);
      part.token_count =
          static_cast<int32_t>(std::min(kKvBlockTokens - part.slot_begin, end - position));
      part.row = sequence.row_begin + position - sequence.context_count;
      parts.push_back(part);
      position += part.token_count;
    }
  }
  return parts;
}

}  // namespace

int64_t kv_cache_bytes(DType dtype, int64_t block_count, int64_t kv_head_count, int64_t head_dim) {
  const int64_t heads = block_count * kv_head_count;
  if (dtype == DType::kI8) {
    return heads * cpu::attention_block_head_bytes(static_cast<int32_t>(head_dim));
  }
  return dtype_bytes(dtype, heads * 2 * kKvBlockTokens * head_dim);
}

void check_kv_cache(const KvCacheView& cache) {
  JIGE_CHECK(cache.data, "a cache without memory");
  JIGE_CHECK(cache.dtype == DType::kF32 || cache.dtype == DType::kBF16 || cache.dtype == DType::kI8,
             "cache of {}", dtype_info(cache.dtype).name);
  JIGE_CHECK(cache.kv_head_count > 0 && cache.head_dim > 0 && cache.head_dim <= kAttentionDimMax,
             "cache of {} heads of {}", cache.kv_head_count, cache.head_dim);
}

void kv_append(Stream& stream, const KvCacheView& cache, const TensorView& k, const TensorView& v,
               const std::vector<SequenceSpan>& sequences) {
  check_kv_cache(cache);
  const int64_t columns = cache.kv_head_count * cache.head_dim;
  check_attention_matrix(k, "k", k.rows(), columns);
  check_attention_matrix(v, "v", k.rows(), columns);
  check_attention_sequences(sequences, k.rows(), cache.kv_head_count);
  for (const SequenceSpan& sequence : sequences) {
    check_attention_blocks(sequence, sequence.context_count, cache.block_count);
  }
  if (on_cuda(stream)) return kv_append_on_gpu(stream, cache, k, v, sequences);
  CpuStream& cpu_stream = as_cpu(stream);
  CpuDevice* device = &cpu_stream.cpu();
  cpu_stream.submit([=, parts = block_parts(sequences)] {
    const int64_t block_bytes = kv_cache_bytes(cache.dtype, 1, cache.kv_head_count, cache.head_dim);
    const auto write = [&](const BlockPart& part) {
      cpu::KvBlockWrite args;
      args.k = attention_source(k, part.row, 0);
      args.v = attention_source(v, part.row, 0);
      args.block = {static_cast<char*>(cache.data) + part.block * block_bytes, 0,
                    cache.dtype == DType::kBF16};
      args.in_8_bits = cache.dtype == DType::kI8;
      args.slot_begin = part.slot_begin;
      args.token_count = part.token_count;
      args.head_count = static_cast<int32_t>(cache.kv_head_count);
      args.head_dim = static_cast<int32_t>(cache.head_dim);
      cpu::kv_block_write(args);
    };
    device->team().parallel_for(static_cast<int64_t>(parts.size()), 4,
                                [&](int64_t begin, int64_t end, int) {
                                  for (int64_t i = begin; i < end; ++i) {
                                    write(parts[static_cast<size_t>(i)]);
                                  }
                                });
  });
}

}  // namespace jige::ops
