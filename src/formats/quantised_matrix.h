// QuantisedMatrix: one matrix [N, K] of a folder in few bits, as numbers. It is never held as a
// whole: rows are decoded when they are asked for.
//
//   number(n, k) = (code(n, k) - zero(n, g)) * scale(n, g), with one rounding, in f32
//
// g is the group of column k: g_idx[k] where that is stored, otherwise k / block columns.
//
// Codes (w words a row; P = 32 / bits codes a word, the first in its lowest bits):
//   F8_E4M3   weight [N, K]: sign, 4 bits of exponent (bias 7), 3 of mantissa; 0x7f is no number
//   I8        weight [N, K]
//   packed    weight_packed [N, ceil(K / P)] I32, less 2^(bits - 1)
//   GPTQ      qweight [K / P, N] I32
//   AWQ       qweight [K, N / P] I32; column 8c + i is at place 0, 4, 1, 5, 2, 6, 3, 7 of word c
// Scales and zeros, G groups: [N / block rows, G]; of packed weights zeros are weight_zero_point
// [ceil(N / P), G], less 2^(bits - 1). GPTQ and AWQ: scales [G, N] and qzeros [G, N / P], packed as
// AWQ's weights are, of GPTQ in plain order and in its first format one less.
// Threads: values; const functions may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/quantised_scheme.h"
#include "formats/tensor_folder.h"
#include "tensor/dtype.h"

namespace jige::formats {

// Bytes of a tensor whatever its type, as far as a decoder needs them.
struct QuantisedTensor {
  const std::byte* bytes = nullptr;  // not aligned; nullptr: there is none
  std::string dtype;                 // as safetensors spells it
  int64_t columns = 1;
};

class QuantisedMatrix {
 public:
  // Whether the files hold the module's matrix other than in floating point, whatever config.json
  // says.
  static bool stored(const TensorFolder& files, const std::string& module);
  // Whether files hold a part of a matrix under such a name, behind the module's and a dot, or what
  // goes with it.
  static bool is_part(std::string_view name);

  // Checks names, types and shapes of all parts, and the groups of g_idx. REQUIRES: the files
  // outlive it. Fails with kNotFound, kUnsupported or kCorrupt, naming the tensor.
  static Result<QuantisedMatrix> open(const TensorFolder& files, const std::string& module,
                                      const QuantisedWeights& weights);

  int64_t rows() const { return rows_; }        // N
  int64_t columns() const { return columns_; }  // K
  // Rows [begin, begin + count) as f32, [count, K]. REQUIRES: they are there, and `dst` has so many
  // elements.
  void decode(std::span<float> dst, int64_t begin, int64_t count) const;
  // The scales of these rows' blocks of so many columns, the last one shorter, [count, blocks]:
  // what all numbers of a block are whole multiples of. Zero where there is none, as of
  // floating-point codes and of blocks that groups meet in, or where f16 has not the same number.
  void block_scales(std::span<Float16> dst, int64_t begin, int64_t count, int64_t block) const;

 private:
  class Opener;
  // Columns of one group, from the end of the run before on.
  struct Run {
    size_t group = 0;
    int64_t end = 0;
  };

  float scale(int64_t row, int64_t group) const;
  float zero(int64_t row, int64_t group) const;
  void read_codes(float* dst, int64_t begin, int64_t count) const;  // of a strip
  std::vector<Run> runs_of_groups() const;
  int64_t group_of(int64_t column) const;

  QuantisedWeights weights_;
  int64_t rows_ = 0;
  int64_t columns_ = 0;
  int64_t group_count_ = 0;
  QuantisedTensor codes_;
  QuantisedTensor scales_;
  QuantisedTensor zeros_;
  QuantisedTensor groups_;  // g_idx
};

}  // namespace jige::formats
