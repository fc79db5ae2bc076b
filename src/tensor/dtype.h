// Element types of tensors, with conversions of the 16-bit floats.
//
// A type is described by blocks so that quantised types (many elements, one scale) fit the same
// arithmetic: bytes = elements / block_elements * block_bytes. Plain types have blocks of one.
// Threads: values.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace jige {

enum class DType : uint8_t { kF32, kBF16, kF16, kI8, kI32, kI64, kU8 };

struct DTypeInfo {
  std::string_view name;         // "f32", as flags and JSON write it
  std::string_view safetensors;  // "F32", as safetensors headers write it
  int32_t block_elements;
  int32_t block_bytes;
};

const DTypeInfo& dtype_info(DType dtype);

// Bytes of `count` elements. REQUIRES: count is a multiple of the block.
int64_t dtype_bytes(DType dtype, int64_t count);

// Reads "f32", "bf16", … Fails with kInvalidArgument, listing the known ones.
Result<DType> parse_dtype(std::string_view name);

// The upper half of an f32.
struct BFloat16 {
  uint16_t bits;
};

inline float to_float(BFloat16 value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
}

// Rounds to nearest, ties to even; NaN stays a (quiet) NaN.
inline BFloat16 to_bfloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((bits >> 16) | 0x40u)};
  return {static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

// IEEE half precision.
struct Float16 {
  uint16_t bits;
};

float to_float(Float16 value);
// Rounds to nearest, ties to even; overflow gives infinity.
Float16 to_float16(float value);

}  // namespace jige
