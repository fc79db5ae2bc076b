// Block-quantised weights: formats, arithmetic and the layout the kernels read.
//
//   y[t][n] = bias[n] + Σ_b s[t][b] · d[n][b] · Σ_i x[t][b][i] · w[n][b][i]
//
// Blocks are 32 successive numbers of the summed index, the depth, which is padded with zeros to
// whole blocks.
//
// A weight block is an f16 scale d and 32 integers w; the number it stands for is d · w. kQ8, kQ4
// and kUneven4 are the contents of the blocks that GGUF calls Q8_0, Q4_0 and IQ4_NL. A weight takes
// 8.5 bits in kQ8, 4.5 in the others.
//   kQ8  w in [-127, 127], d = f16(max |v| / 127).
//   kQ4  w in [-8, 7]; d = f16(m / -c), m being the number of the largest magnitude (the negative
//        one of two), with the c of kQ4Divisors, tried in this order, that leaves the least
//        squared error.
//   kFp4 twice a number of FP4 (E2M1): w in {0, 1, 2, 3, 4, 6, 8, 12} and their negatives, d half
//        the power of two that the OCP's microscaling formats (MXFP4) take, 2^(floor(log2 max |v|)
//        - 3). So numbers that come from MXFP4 are kept as they are, as long as f16 has the scale.
//   kUneven4  w one of sixteen levels, which lie closer where numbers are many: kUnevenUnsigned.
// In the first three w is v · (1 / d), clamped, rounded to nearest even; of FP4 the numbers of even
// bits are the even ones. A scale beyond f16 is ±65504, one that rounds to zero makes the block
// zeros. A block with a NaN or an infinity has the scale NaN and zeros. The squared error is summed
// as eight chains r · r + e, chain j of the elements j, j + 8, j + 16, j + 24, r = v - d · w with
// one rounding; then chains 4, 2 and 1 apart are added.
//
// The level of a number is the nearest one to what it is when clamped to [-128, 127] and rounded to
// nearest even, of two the upper. In kUneven4 w is the level of v · (1 / d), and
//   d = f16(m · (S / Q)), S = Σ r · u, Q = Σ u², r = v · (1 / m), u the level of r · s,
// m being as in kQ4 and s the place of kUnevenPlaces, tried in this order, with the largest S² / Q.
// (m · S / Q is the scale that leaves least where the levels are u; m² · S² / Q is what is then
// less than Σ v².) S is summed as the error is. Where m is below 2^-112 d is zero. As no level is
// zero, zeros have the level 1, and a scale of zero or NaN.
//
// Beside a block's numbers the scale may be given that they are whole multiples of, but for a
// rounding. In kQ8 and kQ4 it is the block's, bit for bit, where every v · (1 / d) is at most half
// a step beyond the integers; elsewhere, and in the other two, it is passed over. So a matrix of
// few bits whose groups are whole blocks is kept as it is.
//
// A row block is an f32 scale s = max |v| / 127 and integers x = v · (127 / max |v|), rounded to
// nearest even. Where max |v| is below 2^-112 both are zero; where the block has a NaN or an
// infinity, s is NaN and x zeros, so every output of the row is NaN.
//
// The sum within a block is exact; the blocks are one chain of fused multiply-adds, in f32, in
// ascending order from zero: acc = fma(s · d rounded to f32, sum, acc). Then bias is added, then
// the result rounded to the output's type. So the bits depend neither on rows, threads, blocking
// nor instruction set. (Of two NaNs of different bits that meet, either may be the one that stays.)
//
// Layout: panels of 32 columns, one after another; in a panel a run of blocks
//   { f16 scale[32]; data }                                   (whole lines of 64 bytes)
// so that a product reads memory as one stream. Kernels sum unsigned weights, z + w with the zero
// point z: 128, 8, 12 and 128. Those are the data, but for two that are looked up: kFp4 by its bits
// (a sign, two of the exponent, one of the mantissa), kUneven4 by the number of the level. Data are
// in groups of four depths: group g of column c is bytes [g][c][4].
//   kQ8      eight groups of 128 bytes.
//   others   four times 128 bytes, group 2j in the lower and group 2j + 1 in the upper half of
//   each.
// Padding columns are zeros.
// Threads: values.
#pragma once

#include <cstddef>
#include <cstdint>

namespace jige::cpu {

enum class QuantFormat : uint8_t { kQ8, kQ4, kFp4, kUneven4 };
inline constexpr QuantFormat kQuantFormats[] = {QuantFormat::kQ8, QuantFormat::kQ4,
                                                QuantFormat::kFp4, QuantFormat::kUneven4};
inline constexpr int kQuantFormatCount = 4;

inline constexpr int kQuantBlock = 32;    // depths of a block
inline constexpr int kQuantColumns = 32;  // of a panel
inline constexpr int kQuantHalf = 16;     // columns of one line of 64 bytes
inline constexpr int kQuantGroup = 4;     // depths that one instruction sums
inline constexpr int kQuantGroupBytes = kQuantColumns * kQuantGroup;
inline constexpr int kQuantScaleBytes = kQuantColumns * 2;  // of a block

inline constexpr float kQ4Divisors[] = {8, 8.5, 7.25, 8.25, 7.75, 8.75, 7, 8.125};
inline constexpr int kFp4Largest = 12;
inline constexpr uint8_t kFp4Unsigned[16] = {12, 13, 14, 15, 16, 18, 20, 24,
                                             12, 11, 10, 9,  8,  6,  4,  0};
inline constexpr uint8_t kUnevenUnsigned[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                                129, 141, 153, 166, 181, 197, 217, 241};
inline constexpr int kUnevenOne = 8;  // the number of the level 1
inline constexpr float kUnevenPlaces[] = {-127, 113, -134, -106, 120, -120, -140, 106};
inline constexpr float kQuantScaleMax = 65504;
inline constexpr uint16_t kQuantScaleNan = 0x7e00;
// Magnitudes of rows, as bits: from the first on numbers are quantised, from the second on they are
// infinities and NaNs.
inline constexpr uint32_t kQuantLeast = 0x07800000;  // 2^-112
inline constexpr uint32_t kQuantInfinity = 0x7f800000;

// One block of a row. Kernels that sum unsigned weights start at the offset.
struct QuantBlock {
  int8_t values[kQuantBlock];
  float scale;
  int32_t offset;  // minus the zero point times the sum of values
};

// What a kernel needs to know of a format.
template <QuantFormat kFormat>
struct QuantTraits {
  static constexpr bool kHalves = kFormat != QuantFormat::kQ8;
  // Whether halves are looked up, and what they then stand for, unsigned.
  static constexpr bool kLooksUp = kFormat == QuantFormat::kFp4 || kFormat == QuantFormat::kUneven4;
  static constexpr const uint8_t* kUnsigned =
      kFormat == QuantFormat::kFp4 ? kFp4Unsigned : kUnevenUnsigned;
  static constexpr int kZero = kFormat == QuantFormat::kQ4    ? 8
                               : kFormat == QuantFormat::kFp4 ? kFp4Largest
                                                              : 128;
  static constexpr int kDataBytes = kQuantColumns * kQuantBlock / (kHalves ? 2 : 1);
  static constexpr int kBlockBytes = kQuantScaleBytes + kDataBytes;
};

// Calls body.operator()<format>().
template <typename Body>
auto with_format(QuantFormat format, Body&& body) {
  switch (format) {
    case QuantFormat::kQ4:
      return body.template operator()<QuantFormat::kQ4>();
    case QuantFormat::kFp4:
      return body.template operator()<QuantFormat::kFp4>();
    case QuantFormat::kUneven4:
      return body.template operator()<QuantFormat::kUneven4>();
    case QuantFormat::kQ8:
      break;
  }
  return body.template operator()<QuantFormat::kQ8>();
}

// One call of a micro-kernel: up to the engine's rows times all columns of some panels.
struct QuantMicroArgs {
  int64_t blocks;           // of the depth
  int rows;                 // 1 … engine.rows_max
  int64_t columns;          // 1 …
  const QuantBlock* left;   // [blocks][rows], so that a call reads one stream
  const std::byte* panels;  // the first one
  int64_t panel_bytes;
  int64_t ahead;      // bytes of panels that are asked for ahead of the arithmetic; 0: none
  const float* bias;  // of the first column; null: none
  void* out;          // of the first row and column, f32 or bf16
  bool out_is_bf16;
  int64_t out_stride;  // elements from row to row
};

struct QuantEngine {
  const char* name;
  int rows;      // of a micro-kernel call, where there are many
  int rows_max;  // so many or fewer are best in one call
  void (*micro[kQuantFormatCount])(const QuantMicroArgs& args);  // by format
};

}  // namespace jige::cpu
