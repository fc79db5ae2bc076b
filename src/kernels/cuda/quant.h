// Weights in blocks of eight or four bits on a GPU: their layout, quantising, and products.
//
// Blocks and their roundings are those of the CPU (kernels/cpu/quant_format.h: kQ8; kFp4; or kQ4 or
// kUneven4 as the weight's first row has it), to the bit. Products are other ones: rows of src are
// not quantised but in bf16.
//
// Layout: 64 bytes of a header, then records of 16 rows times 128 of k, those of the same rows one
// after another. A record is the scales, then data in pieces of 16 bytes a lane, so that every lane
// of a warp has with one load of 16 bytes what it multiplies. With g = lane / 4 and t = lane % 4:
//   scales  f16 [g][step of 32][row g, row g + 8]                                     128 bytes
//   8 bits  four pieces, one a step, of two words for row g and two for g + 8: elements 8t … 8t + 7
//           of the step, in a word as bytes 0 2 1 3                                  2048 bytes
//   4 bits  two pieces, two steps each, of a word for row g and one for g + 8: the same elements as
//           halves of bytes, the lower first; the number of a level                  1024 bytes
// n is padded to whole records with rows of zeros, k with blocks of scale zero.
// Threads: asynchronous on the stream.
#pragma once

#include "kernels/cpu/types.h"
#include "kernels/cuda/groups.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/linear.h"

namespace jige::cuda {

// A weight [n, k] in this layout.
struct QuantWeight {
  unsigned char* data = nullptr;  // aligned to 16 bytes
  int64_t n = 0;
  int64_t k = 0;
  bool halves = false;     // four bits a number
  int64_t step_bytes = 0;  // of groups: from one's weight to the next one's
};
inline constexpr int64_t kQuantRecordRows = 16;
inline constexpr int64_t kQuantRecordColumns = 128;
inline constexpr int64_t kQuantHeaderBytes = 64;

inline constexpr int64_t kQuantRecordBytes8 = 128 + 2048;
inline constexpr int64_t kQuantRecordBytes4 = 128 + 1024;

constexpr int64_t quant_weight_bytes(int64_t n, int64_t k, bool halves) {
  const int64_t tiles = (n + kQuantRecordRows - 1) / kQuantRecordRows;
  const int64_t chunks = (k + kQuantRecordColumns - 1) / kQuantRecordColumns;
  return kQuantHeaderBytes + tiles * chunks * (halves ? kQuantRecordBytes4 : kQuantRecordBytes8);
}

// Quantises rows [row_begin, row_begin + rows) of a weight, as cpu::quant_pack; rows that are the
// first to be quantised choose the levels of four bits, which may be those of FP4 all the same. The
// part that ends at n writes the padding.
struct QuantiseRows {
  QuantWeight weight;
  cpu::ConstRows src;  // f32, bf16 or f16
  int64_t rows = 0;
  int64_t row_begin = 0;
  const uint16_t* scales = nullptr;  // f16, given ones; null: none
  int64_t scales_stride = 0;
  bool fp4 = false;  // the numbers of FP4. REQUIRES: four bits
};
void quantise_rows(const LaunchStream& stream, const QuantiseRows& args);

// dst = numbers that the blocks of a part of a weight stand for, rounded to its type.
struct QuantNumbers {
  QuantWeight weight;
  int64_t row_begin = 0;  // REQUIRES: a multiple of kQuantRecordRows
  int64_t rows = 0;
  int64_t column_begin = 0;  // REQUIRES: a multiple of kQuantRecordColumns
  int64_t columns = 0;
  cpu::Rows dst;  // f32 or bf16
};
void quant_numbers(const LaunchStream& stream, const QuantNumbers& args);

// Whether src is bf16, or normalised, and read 16 bytes at a time.
bool quant_few_rows_takes(const FewRowsProduct& product);
// As multiply_few_rows with a weight of blocks in place of product.weight, of groups the first
// one's: sums within a block are those of its integers, then times its scale.
// REQUIRES: quant_few_rows_takes(product), but that k may be any where zeros follow each row of src
// up to a multiple of eight; with a gate n is a multiple of kQuantRecordRows. No heads.
void multiply_few_rows(const LaunchStream& stream, const FewRowsProduct& product,
                       const QuantWeight& weight);

// As the products of groups.h with weights of blocks, the first group's given, in place of the
// right operands, which are not given: the bits are those of weights of their numbers, rounded to
// the type where that is bf16. REQUIRES: no outs.
bool quant_groups_take_tensor_cores(const GroupedProduct& grouped);
// REQUIRES: quant_groups_take_tensor_cores().
void multiply_groups(const LaunchStream& stream, const GroupedProduct& grouped,
                     const QuantWeight& weight);
void multiply_groups_in_chains(const LaunchStream& stream, const GroupedProduct& grouped,
                               const QuantWeight& weight, cpu::ElementType type);

}  // namespace jige::cuda
