#include "images/resize.h"

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "images/pace.h"
#include "images/resize_weights.h"

namespace jige::images {
namespace {

constexpr int32_t kHalf = 1 << (kWeightBits - 1);

uint8_t byte_of_sum(int32_t sum) {
  return static_cast<uint8_t>(std::clamp(sum >> kWeightBits, 0, 255));
}

// Eight bytes as whole numbers.
__m256i load_bytes(const uint8_t* src) {
  return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(src)));
}

// Rows that are done at a time: a weight is loaded once for all of them, and their sums do not wait
// for one another.
constexpr int32_t kRows = 4;

// A row with four bytes a pixel, of which the last counts nothing.
void spread_row(const uint8_t* src, size_t width, uint8_t* dst) {
  for (size_t x = 0; x + 1 < width; ++x) std::memcpy(dst + 4 * x, src + 3 * x, 4);
  std::memcpy(dst + 4 * (width - 1), src + 3 * (width - 1), 3);
}

// One pixel of kRows rows. `pairs`: of two weights, each four times.
void sum_pixel(const std::array<const uint8_t*, kRows>& src, const int32_t* pairs,
               int32_t pair_count, const std::array<uint8_t*, kRows>& dst) {
  __m256i sums[kRows] = {};
  for (int32_t i = 0; i < pair_count; ++i) {
    const auto weights = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(pairs + 8 * i));
#pragma GCC unroll 4
    for (int32_t row = 0; row < kRows; ++row) {
      sums[row] =
          _mm256_add_epi32(sums[row], _mm256_mullo_epi32(load_bytes(src[row] + 8 * i), weights));
    }
  }
#pragma GCC unroll 4
  for (int32_t row = 0; row < kRows; ++row) {
    __m128i sum =
        _mm_add_epi32(_mm256_castsi256_si128(sums[row]), _mm256_extracti128_si256(sums[row], 1));
    sum = _mm_srai_epi32(_mm_add_epi32(sum, _mm_set1_epi32(kHalf)), kWeightBits);
    sum = _mm_packs_epi32(sum, sum);
    const int pixel = _mm_cvtsi128_si32(_mm_packus_epi16(sum, sum));
    std::memcpy(dst[row], &pixel, 3);
  }
}

// What a row takes, in pixels of other work: its pixels, and a share of one for each weight.
int64_t filtered_pixels(int32_t src_width, int32_t dst_width, int32_t taps) {
  return src_width + int64_t{dst_width} * (1 + taps / 4);
}

Result<Image> resize_rows(const Image& image, int32_t width, ResizeFilter filter, Pace& pace) {
  const ResizeWeights weights = resize_weights(image.width, width, filter);
  const auto taps = static_cast<size_t>(weights.taps);
  std::vector<int32_t> pairs(4 * weights.values.size());
  for (size_t i = 0; i < pairs.size(); ++i) pairs[i] = weights.values[i / 4];
  Image resized = make_image(width, image.height);
  std::array<std::vector<uint8_t>, kRows> spread;
  for (auto& row : spread) row.resize(4 * (static_cast<size_t>(image.width) + taps));
  const int64_t row_pixels = filtered_pixels(image.width, width, weights.taps);
  for (int32_t begin = 0; begin < image.height; begin += kRows) {
    if (!pace.step(kRows * row_pixels)) return tl::unexpected(pace.status().error());
    std::array<uint8_t*, kRows> dst{};
    for (int32_t row = 0; row < kRows; ++row) {
      // Behind the last row it is done again.
      const auto y = static_cast<size_t>(std::min(begin + row, image.height - 1));
      spread_row(image.rgb.data() + y * image.row_bytes(), static_cast<size_t>(image.width),
                 spread[row].data());
      dst[row] = resized.rgb.data() + y * resized.row_bytes();
    }
    for (size_t x = 0; x < static_cast<size_t>(width); ++x) {
      std::array<const uint8_t*, kRows> src{};
      for (int32_t row = 0; row < kRows; ++row) src[row] = &spread[row][4 * weights.begins[x]];
      sum_pixel(src, &pairs[4 * x * taps], (weights.counts[x] + 1) / 2, dst);
      for (uint8_t*& pixel : dst) pixel += 3;
    }
  }
  return resized;
}

// One row of the result: weighted sums of rows, `row_bytes` apart.
void sum_rows(const uint8_t* src, size_t row_bytes, const int32_t* weights, int32_t count,
              uint8_t* dst) {
  constexpr size_t kVectors = 4;
  constexpr size_t kBlock = 8 * kVectors;
  size_t x = 0;
  for (; x + kBlock <= row_bytes; x += kBlock) {
    __m256i sums[kVectors];
#pragma GCC unroll 4
    for (__m256i& sum : sums) sum = _mm256_set1_epi32(kHalf);
    for (int32_t i = 0; i < count; ++i) {
      const uint8_t* row = src + static_cast<size_t>(i) * row_bytes + x;
      const __m256i weight = _mm256_set1_epi32(weights[i]);
#pragma GCC unroll 4
      for (size_t v = 0; v < kVectors; ++v) {
        sums[v] = _mm256_add_epi32(sums[v], _mm256_mullo_epi32(load_bytes(row + 8 * v), weight));
      }
    }
#pragma GCC unroll 4
    for (__m256i& sum : sums) sum = _mm256_srai_epi32(sum, kWeightBits);
    // Packing keeps halves of vectors apart; the last step brings their fours of bytes in order.
    const __m256i bytes = _mm256_packus_epi16(_mm256_packs_epi32(sums[0], sums[1]),
                                              _mm256_packs_epi32(sums[2], sums[3]));
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(dst + x),
                        _mm256_permutevar8x32_epi32(bytes, order));
  }
  for (; x < row_bytes; ++x) {
    int32_t sum = kHalf;
    for (int32_t i = 0; i < count; ++i) {
      sum += src[static_cast<size_t>(i) * row_bytes + x] * weights[i];
    }
    dst[x] = byte_of_sum(sum);
  }
}

Result<Image> resize_columns(const Image& image, int32_t height, ResizeFilter filter, Pace& pace) {
  const ResizeWeights weights = resize_weights(image.height, height, filter);
  Image resized = make_image(image.width, height);
  const size_t row_bytes = image.row_bytes();
  const int64_t row_pixels = filtered_pixels(0, image.width, weights.taps);
  for (size_t y = 0; y < static_cast<size_t>(height); ++y) {
    if (!pace.step(row_pixels)) return tl::unexpected(pace.status().error());
    sum_rows(image.rgb.data() + static_cast<size_t>(weights.begins[y]) * row_bytes, row_bytes,
             &weights.values[y * static_cast<size_t>(weights.taps)], weights.counts[y],
             resized.rgb.data() + y * row_bytes);
  }
  return resized;
}

// For each place of the result the place of the source: steps are added up, as Pillow does, so that
// the same one is taken where the sum falls between two.
std::vector<int32_t> nearest_places(int32_t src_size, int32_t dst_size) {
  const double step = static_cast<double>(src_size) / dst_size;
  std::vector<int32_t> places;
  double at = step * 0.5;
  for (int32_t i = 0; i < dst_size; ++i, at += step) {
    places.push_back(std::min(static_cast<int32_t>(at), src_size - 1));
  }
  return places;
}

Result<Image> resize_nearest(const Image& image, int32_t width, int32_t height, Pace& pace) {
  const std::vector<int32_t> columns = nearest_places(image.width, width);
  Image resized = make_image(width, height);
  uint8_t* dst = resized.rgb.data();
  for (const int32_t y : nearest_places(image.height, height)) {
    if (!pace.step(width)) return tl::unexpected(pace.status().error());
    const uint8_t* row = image.rgb.data() + static_cast<size_t>(y) * image.row_bytes();
    for (const int32_t x : columns) {
      for (int c = 0; c < 3; ++c) *dst++ = row[3 * x + c];
    }
  }
  return resized;
}

}  // namespace

Result<Image> resize_image(const Image& image, int32_t width, int32_t height, ResizeFilter filter,
                           const GoOn& go_on) {
  constexpr int32_t kSideMax = 65'535;
  JIGE_CHECK(std::min({width, height, image.width, image.height}) >= 1 &&
                 std::max({width, height, image.width, image.height}) <= kSideMax,
             "from {} x {} to {} x {}", image.width, image.height, width, height);
  if (width == image.width && height == image.height) return image;
  Pace pace(go_on);
  if (filter == ResizeFilter::kNearest) return resize_nearest(image, width, height, pace);
  if (width == image.width) return resize_columns(image, height, filter, pace);
  JIGE_TRY(Image rows, resize_rows(image, width, filter, pace));
  if (height == image.height) return rows;
  return resize_columns(rows, height, filter, pace);
}

}  // namespace jige::images
