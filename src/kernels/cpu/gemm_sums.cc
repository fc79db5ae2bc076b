#include "kernels/cpu/gemm_sums.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/gemm_source.h"

namespace jige::cpu {
namespace {

void store_lanes(__m256 value, float* dst) { _mm256_storeu_ps(dst, value); }

void store_lanes(__m256 value, BFloat16* dst) {
  const __m256i words = _mm256_srli_epi32(_mm256_castps_si256(round_lanes_to_bf16(value)), 16);
  _mm_storeu_si128(
      reinterpret_cast<__m128i*>(dst),
      _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
}

template <typename Element>
void store_row(const float* sums, const float* bias, int64_t columns, Element* out) {
  const auto with_bias = [bias](__m256 value, int64_t column) {
    return bias ? _mm256_add_ps(value, _mm256_loadu_ps(bias + column)) : value;
  };
  int64_t i = 0;
  for (; i + 8 <= columns; i += 8) store_lanes(with_bias(_mm256_loadu_ps(sums + i), i), out + i);
  if (i == columns) return;
  __m256 value = load_some<SourceF32>(sums + i, columns - i);
  if (bias) value = _mm256_add_ps(value, load_some<SourceF32>(bias + i, columns - i));
  Element lanes[8];
  store_lanes(value, lanes);
  std::memcpy(out + i, lanes, static_cast<size_t>(columns - i) * sizeof(Element));
}

template <typename Element>
void store_rows(const GemmSumsBlock& block, const float* bias) {
  for (int64_t row = 0; row < block.rows; ++row) {
    store_row(block.sums + row * block.sums_stride, bias, block.columns,
              static_cast<Element*>(block.out) + row * block.out_stride);
  }
}

// f32 sums past the caches, in whole lines. REQUIRES: columns is a multiple of 16.
void stream_rows(const GemmSumsBlock& block) {
  for (int64_t row = 0; row < block.rows; ++row) {
    const float* sums = block.sums + row * block.sums_stride;
    float* out = static_cast<float*>(block.out) + row * block.out_stride;
    for (int64_t i = 0; i < block.columns; i += 8) {
      _mm256_stream_ps(out + i, _mm256_loadu_ps(sums + i));
    }
  }
}

// Two vectors of columns, so that two additions run at once.
template <typename Source>
void add_rows(const typename Source::Element* src, int64_t row_stride, int64_t rows,
              int64_t columns, float* sums) {
  int64_t i = 0;
  for (; i + 16 <= columns; i += 16) {
    __m256 first = _mm256_loadu_ps(sums + i);
    __m256 second = _mm256_loadu_ps(sums + i + 8);
    for (int64_t row = 0; row < rows; ++row) {
      first = _mm256_add_ps(first, Source::load(src + row * row_stride + i));
      second = _mm256_add_ps(second, Source::load(src + row * row_stride + i + 8));
    }
    _mm256_storeu_ps(sums + i, first);
    _mm256_storeu_ps(sums + i + 8, second);
  }
  for (; i < columns; ++i) {
    for (int64_t row = 0; row < rows; ++row) {
      float value;
      read_row<Source>(src + row * row_stride + i, 1, &value);
      sums[i] += value;
    }
  }
}

}  // namespace

void gemm_load_sums(const GemmSumsBlock& block, int64_t padded_columns) {
  for (int64_t row = 0; row < block.rows; ++row) {
    float* sums = block.sums + row * block.sums_stride;
    std::memcpy(sums, static_cast<const float*>(block.out) + row * block.out_stride,
                static_cast<size_t>(block.columns) * sizeof(float));
    std::fill(sums + block.columns, sums + padded_columns, 0.0f);
  }
}

void gemm_store_sums(const GemmEngine& engine, const GemmSumsBlock& block, const float* bias) {
  if (block.out_dtype != DType::kBF16) {
    const bool streams = block.past_caches && !bias && block.columns % kTileLanes == 0;
    return streams ? stream_rows(block) : store_rows<float>(block, bias);
  }
  const int64_t whole = engine.store_bf16 ? block.columns / kTileLanes * kTileLanes : 0;
  if (whole > 0) {
    engine.store_bf16({.sums = block.sums,
                       .sums_stride = block.sums_stride,
                       .bias = bias,
                       .out = static_cast<uint16_t*>(block.out),
                       .out_stride = block.out_stride,
                       .rows = block.rows,
                       .columns = whole,
                       .past_caches = block.past_caches});
  }
  if (whole == block.columns) return;
  GemmSumsBlock rest = block;
  rest.sums += whole;
  rest.out = static_cast<BFloat16*>(block.out) + whole;
  rest.columns -= whole;
  store_rows<BFloat16>(rest, bias ? bias + whole : nullptr);
}

void gemm_add_rows(const void* src, DType dtype, int64_t row_stride, int64_t rows, int64_t columns,
                   float* sums) {
  with_source(dtype, false, [&](auto source) {
    using Source = decltype(source);
    add_rows<Source>(static_cast<const typename Source::Element*>(src), row_stride, rows, columns,
                     sums);
  });
}

}  // namespace jige::cpu
