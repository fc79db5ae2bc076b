#include "kernels/cpu/kv_cache.h"

#include <cstring>
#include <type_traits>

#include "kernels/cpu/attention_load.h"

namespace jige::cpu::JIGE_ISA_NS {
namespace {

template <typename From, typename To>
constexpr bool kHalves = std::conjunction_v<std::is_same<From, Bf16>, std::is_same<To, Bf16>>;

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

// rows[i] half j becomes rows[j] half i.
JIGE_INLINE void transpose_halves(__m256i (&rows)[16]) {
  __m256i other[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    other[i] = _mm256_unpacklo_epi16(rows[i], rows[i + 1]);
    other[i + 1] = _mm256_unpackhi_epi16(rows[i], rows[i + 1]);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    const int at = i / 2 * 4 + i % 2;
    rows[i / 2 * 4 + i % 2 * 2] = _mm256_unpacklo_epi32(other[at], other[at + 2]);
    rows[i / 2 * 4 + i % 2 * 2 + 1] = _mm256_unpackhi_epi32(other[at], other[at + 2]);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    const int at = i / 4 * 8 + i % 4;
    other[i / 4 * 8 + i % 4 * 2] = _mm256_unpacklo_epi64(rows[at], rows[at + 4]);
    other[i / 4 * 8 + i % 4 * 2 + 1] = _mm256_unpackhi_epi64(rows[at], rows[at + 4]);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    rows[i] = _mm256_permute2x128_si256(other[i], other[i + 8], 0x20);
    rows[i + 8] = _mm256_permute2x128_si256(other[i], other[i + 8], 0x31);
  }
}

// The same of all sixteen tokens and a multiple of sixteen columns, bits as they are.
void copy_columns(const KvBlockWrite& args, const Bf16* src, int64_t stride, Bf16* dst) {
  for (int c = 0; c < args.head_dim; c += 16) {
    __m256i rows[16];
#pragma GCC unroll 16
    for (int j = 0; j < 16; ++j) {
      rows[j] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(src + j * stride + c));
    }
    transpose_halves(rows);
#pragma GCC unroll 16
    for (int j = 0; j < 16; ++j) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(dst + (c + j) * 16), rows[j]);
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
    if constexpr (kHalves<From, To>) {
      std::memcpy(row, src + j * stride, static_cast<size_t>(args.head_dim) * sizeof(Bf16));
      continue;
    }
    for_each_vector<F32x16>(args.head_dim, [&](int64_t c, int lanes) {
      store_lanes(load_lanes<F32x16>(src + j * stride + c, lanes), row + c, lanes);
    });
  }
}

template <typename From, typename To>
void write_keys(const KvBlockWrite& args, const From* src, To* dst) {
  if (args.token_count == 1) return write_one_column(args, src, dst);
  if constexpr (kHalves<From, To>) {
    if (args.token_count == 16 && args.head_dim % 16 == 0) {
      return copy_columns(args, src, args.k.stride, dst);
    }
  }
  write_columns(args, src, args.k.stride, dst);
}

// The smallest bf16 that is not below a value that is not negative; NaN stays one.
JIGE_INLINE Bf16 round_up(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  const bool nan = bits > 0x7f800000u;
  return {static_cast<uint16_t>(nan ? 0x7fc0u : (bits + 0xffffu) >> 16)};
}

// One head of one token in 8 bits; zeros behind it up to a multiple of 16. Returns its scale.
template <typename From>
Bf16 quantise(const From* src, int head_dim, int8_t* dst) {
  F32x16 largest = F32x16::zero();
  F32x16 nan = F32x16::zero();  // x − x is zero, but for infinities and NaN
  for_each_vector<F32x16>(head_dim, [&](int64_t c, int lanes) {
    const F32x16 x = load_lanes<F32x16>(src + c, lanes);
    largest = max(abs(x), largest);
    nan = nan + (x - x);
  });
  const Bf16 scale = round_up(horizontal_max(largest) / 127.0f + horizontal_sum(nan));
  const float step = to_f32(scale);
  const F32x16 divisor = F32x16::broadcast(step == 0.0f ? 1.0f : step);
  for_each_vector<F32x16>(head_dim, [&](int64_t c, int lanes) {
    const __m128i bytes = (load_lanes<F32x16>(src + c, lanes) / divisor).narrow_to_bytes();
    _mm_storeu_si128(reinterpret_cast<__m128i*>(dst + c), bytes);
  });
  return scale;
}

// rows[i] byte j becomes rows[j] byte i.
JIGE_INLINE void transpose_bytes(__m128i (&rows)[16]) {
  for (int round = 0; round < 4; ++round) {
    __m128i other[16];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      other[2 * i] = _mm_unpacklo_epi8(rows[i], rows[i + 8]);
      other[2 * i + 1] = _mm_unpackhi_epi8(rows[i], rows[i + 8]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) rows[i] = other[i];
  }
}

using TokenRows = int8_t[kAttentionBlockKeys][kAttentionDimMax];

// dst[c][slot_begin + j] = rows[j][c].
void write_byte_columns(const KvBlockWrite& args, const TokenRows& rows, int8_t* dst) {
  dst += args.slot_begin;
  if (args.token_count == 1) {
    for (int c = 0; c < args.head_dim; ++c) dst[c * 16] = rows[0][c];
    return;
  }
  for (int c = 0; c < args.head_dim; c += 16) {
    __m128i columns[16];
    for (int j = 0; j < 16; ++j) {
      columns[j] = j < args.token_count
                       ? _mm_load_si128(reinterpret_cast<const __m128i*>(&rows[j][c]))
                       : _mm_setzero_si128();
    }
    transpose_bytes(columns);
    for (int i = 0; i < min_of(args.head_dim - c, 16); ++i) {
      std::memcpy(dst + (c + i) * 16, &columns[i], static_cast<size_t>(args.token_count));
    }
  }
}

void write_in_8_bits(const KvBlockWrite& args) {
  const int64_t head_bytes = attention_block_head_bytes(args.head_dim);
  alignas(64) TokenRows rows;
  for (int head = 0; head < args.head_count; ++head) {
    int8_t* keys = static_cast<int8_t*>(args.block.data) + head * head_bytes;
    int8_t* values = keys + int64_t{kAttentionBlockKeys} * args.head_dim;
    auto* scales = reinterpret_cast<Bf16*>(values + int64_t{kAttentionBlockKeys} * args.head_dim) +
                   args.slot_begin;
    with_elements(args.k, [&](const auto* k) {
      for (int j = 0; j < args.token_count; ++j) {
        scales[j] =
            quantise(k + j * args.k.stride + int64_t{head} * args.head_dim, args.head_dim, rows[j]);
      }
    });
    write_byte_columns(args, rows, keys);
    scales += kAttentionBlockKeys;
    with_elements(args.v, [&](const auto* v) {
      for (int j = 0; j < args.token_count; ++j) {
        scales[j] =
            quantise(v + j * args.v.stride + int64_t{head} * args.head_dim, args.head_dim, rows[j]);
        std::memcpy(values + (args.slot_begin + j) * args.head_dim, rows[j],
                    static_cast<size_t>(args.head_dim));
      }
    });
  }
}

}  // namespace

void kv_block_write(const KvBlockWrite& args) noexcept {
  if (args.in_8_bits) return write_in_8_bits(args);
  with_elements(args.block, [&](auto* block) {
    for (int head = 0; head < args.head_count; ++head) {
      auto* keys = block + int64_t{head} * 2 * kAttentionBlockKeys * args.head_dim;
      auto* values = keys + int64_t{kAttentionBlockKeys} * args.head_dim;
      with_elements(args.k, [&](const auto* k) {
        write_keys(args, k + int64_t{head} * args.head_dim, keys);
      });
      with_elements(args.v, [&](const auto* v) {
        write_rows(args, v + int64_t{head} * args.head_dim, args.v.stride, values);
      });
    }
  });
}

}  // namespace jige::cpu::JIGE_ISA_NS
