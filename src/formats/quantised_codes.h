// Codes of matrices in few bits as f32, strips of rows at a time: what quantised_matrix.h says of
// their order in words, without scales.
//
// Words are 32 bits wide, their first code in the lowest bits, and not aligned. bits: 4 or 8.
// Threads: free functions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace jige::formats {

// Rows of a strip: what GPTQ and AWQ store side by side is read in pieces of so many.
inline constexpr int64_t kQuantisedStripRows = 32;

// What a byte of F8_E4M3 stands for.
float float8_value(uint8_t byte);
void read_float8(float* dst, const std::byte* src, int64_t count);
void read_int8(float* dst, const std::byte* src, int64_t count);

// `count` codes of a run of words, each less `bias`.
void read_words(float* dst, const std::byte* words, int bits, int bias, int64_t count);

// A matrix of words with `columns` in a line.
struct WordLines {
  const std::byte* bytes = nullptr;
  int64_t columns = 0;
};

// Rows [begin, begin + count) of [N, K] numbers as `dst` [count, K]: row n is column n of GPTQ's
// words, and an eighth of column n / 8 of AWQ's. REQUIRES: count <= kQuantisedStripRows.
void read_gptq_rows(float* dst, const WordLines& words, int bits, int64_t begin, int64_t count,
                    int64_t width);
void read_awq_rows(float* dst, const WordLines& words, int64_t begin, int64_t count, int64_t width);

// Where the code of column i of eight is in a word of AWQ.
inline constexpr int kAwqPlaces[8] = {0, 4, 1, 5, 2, 6, 3, 7};

}  // namespace jige::formats
