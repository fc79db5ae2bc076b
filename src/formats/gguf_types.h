// The tensor types of GGUF files: their blocks, and their values as f32.
//
// A row is a whole number of blocks. Little-endian; h is an IEEE half, q a number of 4 to 6 bits,
// element 32 g + l of a block of 256 stands in group g at place l:
//
//   Q8_0  h d, i8 q[32]                                  d q
//   Q4_0  h d, u8 ql[16]                                 d (q - 8); low halves of bytes come first
//   Q4_1  h d, h m, u8 ql[16]                            d q + m
//   Q5_0  h d, u32 high bits, u8 ql[16]                  d (q - 16)
//   Q5_1  h d, h m, u32 high bits, u8 ql[16]             d q + m
//   Q2_K  u8 scales[16] (scale, minimum), u8 q[64], h d, h dmin        d scale q - dmin minimum
//   Q3_K  u8 high bits[32], u8 ql[64], u8 scales[12] (6 bits), h d     d (scale - 32) (q - 4)
//   Q4_K  h d, h dmin, u8 scales[12] (6 + 6 bits), u8 q[128]           d scale q - dmin minimum
//   Q5_K  h d, h dmin, u8 scales[12], u8 high bits[32], u8 ql[128]     the same
//   Q6_K  u8 ql[128], u8 qh[64], i8 scales[16], h d                    d scale (q - 32)
//   IQ4_NL  h d, u8 ql[16]                                             d table[q]
//   IQ4_XS  h d, u16 high scales, u8 scales[4] (6 bits), u8 ql[128]    d (scale - 32) table[q]
//   MXFP4   u8 power of two, u8 ql[16]                                 2^(power - 128) table[q]
//
// Products and sums are rounded to f32 one by one, in this order.
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace jige::formats {

// Numbers of the types that are told apart by more than their table entry.
inline constexpr uint32_t kGgufF32 = 0;
inline constexpr uint32_t kGgufF16 = 1;
inline constexpr uint32_t kGgufBF16 = 30;

inline constexpr uint32_t kGgufQ4_0 = 2;
inline constexpr uint32_t kGgufQ8_0 = 8;
inline constexpr uint32_t kGgufMxfp4 = 39;

// Numbers of the types of values of keys.
enum GgufValueType : uint32_t {
  kGgufValueU8 = 0,
  kGgufValueI8 = 1,
  kGgufValueU16 = 2,
  kGgufValueI16 = 3,
  kGgufValueU32 = 4,
  kGgufValueI32 = 5,
  kGgufValueF32 = 6,
  kGgufValueBool = 7,
  kGgufValueText = 8,
  kGgufValueArray = 9,
  kGgufValueU64 = 10,
  kGgufValueI64 = 11,
  kGgufValueF64 = 12,
};

struct GgufTypeInfo {
  uint32_t number;  // as the file writes it
  std::string_view name;
  uint32_t block_elements;
  uint32_t block_bytes;
  // Writes block_elements values for every block; null for types that Jige does not read.
  void (*decode)(const std::byte* blocks, int64_t block_count, float* out);
};

// The type of a number, or nullptr where the format has none.
const GgufTypeInfo* find_gguf_type(uint32_t number);

// The names of all types with a `decode`: "F32, F16, Q4_0 …".
std::string readable_gguf_types();

}  // namespace jige::formats
