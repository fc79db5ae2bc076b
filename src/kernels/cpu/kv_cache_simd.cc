#include "kernels/cpu/kv_cache.h"

#include "kernels/cpu/attention_load.h"

namespace jige::cpu::JIGE_ISA_NS {
namespace {

// dst[c][slot_begin + j] = src[j][c].
template <typename From, typename To>
void write_columns(const KvBlockWrite& args, const From* src, int64_t stride, To* dst) {
  for (int c = 0; c < args.head_dim; c += 8) {
    const int column_count = min_of(args.head_dim - c, 8);
    __m256 low[8];
    __m256 high[8];
    load_transposed(src + c, stride, args.token_count, column_count, low);
    load_transposed(src + c + 8 * stride, stride, args.token_count - 8, column_count, high);
    for (int i = 0; i < column_count; ++i) {
      store_lanes(join(low[i], high[i]), dst + (c + i) * 16 + args.slot_begin, args.token_count);
    }
  }
}

template <typename From, typename To>
void write_one_column(const KvBlockWrite& args, const From* src, To* dst) {
  for (int c = 0; c < args.head_dim; ++c) store_one(to_f32(src[c]), dst + c * 16 + args.slot_begin);
}

template <typename From, typename To>
void write_rows(const KvBlockWrite& args, const From* src, int64_t stride, To* dst) {
  for (int j = 0; j < args.token_count; ++j) {
    To* row = dst + (args.slot_begin + j) * args.head_dim;
    for_each_vector<F32x16>(args.head_dim, [&](int64_t c, int lanes) {
      store_lanes(load_lanes<F32x16>(src + j * stride + c, lanes), row + c, lanes);
    });
  }
}

}  // namespace

void kv_block_write(const KvBlockWrite& args) noexcept {
  with_elements(args.block, [&](auto* block) {
    for (int head = 0; head < args.head_count; ++head) {
      auto* keys = block + int64_t{head} * 2 * kAttentionBlockKeys * args.head_dim;
      auto* values = keys + int64_t{kAttentionBlockKeys} * args.head_dim;
      with_elements(args.k, [&](const auto* k) {
        const auto* src = k + int64_t{head} * args.head_dim;
        if (args.token_count == 1) {
          write_one_column(args, src, keys);
        } else {
          write_columns(args, src, args.k.stride, keys);
        }
      });
      with_elements(args.v, [&](const auto* v) {
        write_rows(args, v + int64_t{head} * args.head_dim, args.v.stride, values);
      });
    }
  });
}

}  // namespace jige::cpu::JIGE_ISA_NS
