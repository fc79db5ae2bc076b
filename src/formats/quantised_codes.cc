#include "formats/quantised_codes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

namespace jige::formats {
namespace {

// Words, or of AWQ columns, that are taken apart at once: the strip's part of them stays in the
// first-level cache, and rows are written in whole lines of it.
constexpr int64_t kWordsAtOnce = 16;
constexpr int64_t kAwqCodes = 8;  // of a word
constexpr int64_t kAwqWordsAcross = kQuantisedStripRows / kAwqCodes + 1;

const std::array<float, 256>& float8_values() {
  static const auto values = [] {
    std::array<float, 256> made{};
    for (size_t i = 0; i < made.size(); ++i) made[i] = float8_value(static_cast<uint8_t>(i));
    return made;
  }();
  return values;
}

template <int kBits>
void unpack(float* dst, uint32_t word, int bias) {
  constexpr int kCount = 32 / kBits;
  constexpr uint32_t kMask = (1u << kBits) - 1;
  for (int i = 0; i < kCount; ++i) {
    dst[i] = static_cast<float>(static_cast<int>(word >> (i * kBits) & kMask) - bias);
  }
}

template <int kBits>
void unpack_run(float* dst, const std::byte* words, int bias, int64_t count) {
  constexpr int64_t kCount = 32 / kBits;
  for (int64_t done = 0; done < count; done += kCount) {
    uint32_t word = 0;
    std::memcpy(&word, words + done / kCount * 4, sizeof(word));
    if (count - done >= kCount) {
      unpack<kBits>(dst + done, word, bias);
    } else {
      float last[kCount];
      unpack<kBits>(last, word, bias);
      std::copy_n(last, count - done, dst + done);
    }
  }
}

template <int kBits>
void unpack_columns(float* dst, const WordLines& words, int64_t begin, int64_t count,
                    int64_t width) {
  constexpr int64_t kCount = 32 / kBits;
  uint32_t piece[kWordsAtOnce][kQuantisedStripRows];
  const int64_t line_count = width / kCount;
  for (int64_t line = 0; line < line_count; line += kWordsAtOnce) {
    const int64_t lines = std::min(kWordsAtOnce, line_count - line);
    for (int64_t i = 0; i < lines; ++i) {
      std::memcpy(piece[i], words.bytes + ((line + i) * words.columns + begin) * 4,
                  static_cast<size_t>(count) * 4);
    }
    for (int64_t row = 0; row < count; ++row) {
      float* to = dst + row * width + line * kCount;
      for (int64_t i = 0; i < lines; ++i) unpack<kBits>(to + i * kCount, piece[i][row], 0);
    }
  }
}

}  // namespace

float float8_value(uint8_t byte) {
  const int exponent = byte >> 3 & 15;
  const int mantissa = byte & 7;
  float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                  : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  if ((byte & 0x7f) == 0x7f) magnitude = std::numeric_limits<float>::quiet_NaN();
  return byte < 0x80 ? magnitude : -magnitude;
}

void read_float8(float* dst, const std::byte* src, int64_t count) {
  const std::array<float, 256>& values = float8_values();
  for (int64_t i = 0; i < count; ++i) dst[i] = values[std::to_integer<size_t>(src[i])];
}

void read_int8(float* dst, const std::byte* src, int64_t count) {
  for (int64_t i = 0; i < count; ++i) dst[i] = static_cast<float>(static_cast<int8_t>(src[i]));
}

void read_words(float* dst, const std::byte* words, int bits, int bias, int64_t count) {
  bits == 4 ? unpack_run<4>(dst, words, bias, count) : unpack_run<8>(dst, words, bias, count);
}

void read_gptq_rows(float* dst, const WordLines& words, int bits, int64_t begin, int64_t count,
                    int64_t width) {
  bits == 4 ? unpack_columns<4>(dst, words, begin, count, width)
            : unpack_columns<8>(dst, words, begin, count, width);
}

void read_awq_rows(float* dst, const WordLines& words, int64_t begin, int64_t count,
                   int64_t width) {
  uint32_t piece[kAwqWordsAcross][kWordsAtOnce] = {};
  const int64_t first = begin / kAwqCodes;
  const int64_t across = (begin + count - 1) / kAwqCodes - first + 1;
  for (int64_t column = 0; column < width; column += kWordsAtOnce) {
    const int64_t columns = std::min(kWordsAtOnce, width - column);
    for (int64_t i = 0; i < columns; ++i) {
      uint32_t line[kAwqWordsAcross];
      std::memcpy(line, words.bytes + ((column + i) * words.columns + first) * 4,
                  static_cast<size_t>(across) * 4);
      for (int64_t word = 0; word < across; ++word) piece[word][i] = line[word];
    }
    for (int64_t row = begin; row < begin + count; ++row) {
      const uint32_t* from = piece[row / kAwqCodes - first];
      const int shift = 4 * kAwqPlaces[row % kAwqCodes];
      float codes[kWordsAtOnce];
      for (int64_t i = 0; i < kWordsAtOnce; ++i) {
        codes[i] = static_cast<float>(static_cast<int>(from[i] >> shift & 15));
      }
      std::copy_n(codes, columns, dst + (row - begin) * width + column);
    }
  }
}

}  // namespace jige::formats
