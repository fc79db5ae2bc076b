// Copies of tensors whose elements do not follow one another, such as transposed ones.
//
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace jige::formats {

// Writes the elements at data + Σ index[i] * strides[i] * element_bytes to `out`, in C order of
// `dims` and without gaps. REQUIRES: as many strides as dims, none of either negative; elements of
// 1, 2, 4 or 8 bytes.
void copy_strided(const std::byte* data, std::span<const int64_t> dims,
                  std::span<const int64_t> strides, size_t element_bytes, std::byte* out);

}  // namespace jige::formats
