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

// Of a weight in four bits.
struct QuantHeader {
  uint16_t levels[kQuantLevels];  // bf16
  uint32_t magic;
  int32_t uneven;
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

}  // namespace jige::cuda
