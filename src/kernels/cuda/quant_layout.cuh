// The layout of quant.h as kernels read it. Threads: device code.
#pragma once

#include "kernels/cuda/portable.cuh"
#include "kernels/cuda/quant.h"

namespace jige::cuda {

constexpr int kQuantBlock = 32;               // of k
constexpr int kQuantSteps = 4;                // blocks of a row in a record
constexpr int kQuantScalesBytes = 128;        // of a record
constexpr int kQuantPieceBytes = kWarp * 16;  // of all lanes
constexpr int kQuantLevels = 16;
constexpr uint32_t kQuantMagic = 0x6a717531;

// What its numbers are: of 8 bits, or of 4 bits by their levels.
enum class QuantKind : int32_t { kBytes, kEven, kUneven, kFp4 };
// Of a weight in four bits.
struct QuantHeader {
  uint16_t levels[kQuantLevels];  // bf16
  uint32_t magic;
  QuantKind kind;
  int64_t rows_missing;  // of all; none: the next ones that are quantised are the first again
};
static_assert(sizeof(QuantHeader) <= kQuantHeaderBytes);

__host__ __device__ inline int64_t quant_chunks(int64_t k) {
  return (k + kQuantRecordColumns - 1) / kQuantRecordColumns;
}
__device__ inline unsigned char* quant_record(const QuantWeight& weight, int64_t tile,
                                              int64_t chunk) {
  const int64_t index = tile * quant_chunks(weight.k) + chunk;
  return weight.data + kQuantHeaderBytes +
         index * (weight.halves ? kQuantRecordBytes4 : kQuantRecordBytes8);
}
// Where the scale of a row of a record and a step is.
__device__ inline int quant_scale_at(int row, int step) {
  return row % 8 * 16 + step * 4 + row / 8 * 2;
}
// Where the words of a row, a step and a lane's t are: one of 4 bits, the first of two of 8 bits.
__device__ inline int quant_words_at(bool halves, int row, int step, int t) {
  const int lane = row % 8 * 4 + t;
  if (halves) {
    return kQuantScalesBytes + step / 2 * kQuantPieceBytes + lane * 16 + step % 2 * 8 + row / 8 * 4;
  }
  return kQuantScalesBytes + step * kQuantPieceBytes + lane * 16 + row / 8 * 8;
}

// A word of a lane's piece, or of its scales.
__device__ inline uint32_t quant_word(const uint4& four, int index) {
  return index == 0 ? four.x : index == 1 ? four.y : index == 2 ? four.z : four.w;
}
// A number of 8 bits of a lane's two words for a row and a step, which has its eight elements.
__device__ inline int quant_byte(uint32_t low, uint32_t high, int element) {
  const int place = element % 2 * 16 + element / 2 % 2 * 8;  // bytes 0 2 1 3
  return static_cast<int8_t>((element < 4 ? low : high) >> place & 0xffu);
}
// A number that a block stands for. Zeros are positive.
__device__ inline float quant_number(const QuantWeight& weight, int64_t row, int64_t column) {
  const unsigned char* const record =
      quant_record(weight, row / kQuantRecordRows, column / kQuantRecordColumns);
  const int in_record = static_cast<int>(row % kQuantRecordRows);
  const int step = static_cast<int>(column % kQuantRecordColumns) / kQuantBlock;
  const int at = static_cast<int>(column % kQuantBlock);
  const float d =
      half_to_float(*reinterpret_cast<const uint16_t*>(record + quant_scale_at(in_record, step)));
  const auto* words = reinterpret_cast<const uint32_t*>(
      record + quant_words_at(weight.halves, in_record, step, at / 8));
  if (!weight.halves) {
    return d * static_cast<float>(quant_byte(words[0], words[1], at % 8)) + 0.0f;
  }
  const auto* header = reinterpret_cast<const QuantHeader*>(weight.data);
  return d * to_float(Bf16{header->levels[words[0] >> (4 * (at % 8)) & 15u]}) + 0.0f;
}

}  // namespace jige::cuda
