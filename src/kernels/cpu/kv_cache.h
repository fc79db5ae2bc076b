// Writing keys and values into a block of the paged cache.
//
// A block holds 16 tokens of every key/value head: [head]{ keys [d][16]; values [16][d] }, f32 or
// bf16. Slots that are not written keep what they hold.
// Threads: single-threaded; two calls may write different slots of a block at once.
#pragma once

#include <cstdint>

#include "kernels/cpu/attention.h"

namespace jige::cpu {

struct KvBlockWrite {
  AttentionSource k, v;    // rows of the first token written, heads head_dim apart
  AttentionTarget block;   // the cache block; stride is unused
  int32_t slot_begin = 0;  // tokens go to slots [slot_begin, slot_begin + token_count)
  int32_t token_count = 0;
  int32_t head_count = 0;
  int32_t head_dim = 0;
};

// REQUIRES: 0 <= slot_begin, slot_begin + token_count <= 16.
void kv_block_write(const KvBlockWrite& args) noexcept;

}  // namespace jige::cpu
