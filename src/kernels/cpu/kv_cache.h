// Writing keys and values into a block of the paged cache.
//
// A block holds 16 tokens of every key/value head: [head]{ keys [d][16]; values [16][d] }, f32 or
// bf16, or int8 with scales behind: [head]{ keys; values; key scales [16]; value scales [16] }, the
// scales bf16. Slots that are not written keep what they hold.
//
// 8 bits: a token's keys of one head have one scale, its values another. Of a row x,
//   scale = the smallest bf16 not below max |x| / 127;  x8[c] = x[c] / scale to the nearest even
// so that no |x8| is above 127 and no error above scale / 2. bf16, since it has the range of f32
// (no row is too small or too large for it) at half the bytes; that its 8 bits round up costs less
// than 1 part in 128 of the step. A row with a value that is not finite has the scale NaN. A row's
// bits follow from the row alone: not from its slot, nor from what is written with it. Threads:
// single-threaded; two calls may write different slots of a block at once.
#pragma once

#include <cstdint>

#include "kernels/cpu/attention.h"

namespace jige::cpu {

struct KvBlockWrite {
  AttentionSource k, v;    // rows of the first token written, heads head_dim apart
  AttentionTarget block;   // the cache block; stride is unused
  bool in_8_bits = false;  // the block is int8 with scales
  int32_t slot_begin = 0;  // tokens go to slots [slot_begin, slot_begin + token_count)
  int32_t token_count = 0;
  int32_t head_count = 0;
  int32_t head_dim = 0;
};

// REQUIRES: 0 <= slot_begin, slot_begin + token_count <= 16.
void kv_block_write(const KvBlockWrite& args) noexcept;

}  // namespace jige::cpu
