// Products, copies and sums of linear layers (ops/linear.h).
//
// Threads: asynchronous on the stream.
#pragma once

#include "kernels/cpu/types.h"
#include "kernels/cuda/launch.h"

namespace jige::cuda {

// Products of one shape, whose operands lie so many elements apart.
struct ProductBatch {
  int64_t count = 1;
  int64_t left_step = 0;
  int64_t right_step = 0;
  int64_t out_step = 0;
};

// out[row][column] = Σ_d left(row, d) · right(d, column), plus bias[column] or, with accumulate,
// what out held. Sums are f32. An operand's rows are those of its lines, left(row, d) =
// left[row][d] and right(d, column) = right[column][d], or where it lies across, those of d:
// left[d][row], right[d][column].
struct Product {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t depth = 0;
  cpu::ConstRows left;
  cpu::ConstRows right;
  cpu::Rows out;  // f32 or bf16; f32 with accumulate
  bool left_across = false;
  bool right_across = false;
  bool accumulate = false;     // REQUIRES: no bias
  const void* bias = nullptr;  // null: none
  // [rows, columns], added to the sums; null data: none. For multiply_lt alone: f32, as out is.
  cpu::ConstRows addend = {};  // REQUIRES: not accumulate
  ProductBatch batch = {};     // for multiply_lt alone. REQUIRES: no bias, accumulate or addend
};

// In f32: every element one chain of fused multiply-adds in ascending d, from zero or from what out
// held; then the bias, f32, is added. Operands f32 or bf16.
void multiply_in_chains(const LaunchStream& stream, const Product& product);

// out[t][row] = Σ_k src[t][k] · weight[row][k] + bias[row] for a few rows of src, which are rounded
// to bf16. The order of a sum depends on k alone, so a row's bits are the same whatever the others.
// With a gate the weight has n rows for it and then n others: out is gate(sums of the former) ·
// (those of the latter), both rounded to bf16 before. Or the gate of experts that is held in bounds
// (kernels/cpu/experts.h), whose bias is added once they are rounded.
enum class ProductGate { kNone, kSilu, kGelu, kBounded };  // GELU in the tanh form
struct ProductBounds {
  float alpha = 0;
  float limit = 0;
};
// RMSNorm of the rows of src, which are rounded to bf16 after it: the bits of norm_forward().
struct ProductNorm {
  bool given = false;
  bool adds_one = false;          // to the weight
  const float* weight = nullptr;  // [k], or null
  float eps = 0;
};
// Rows by group (groups.h), each group's with a weight of its own: `rows` are the most that a group
// has, and out's rows those of all.
struct FewRowsGroups {
  int64_t count = 0;                  // 0: there are none
  const int32_t* row_ends = nullptr;  // [count]
  int64_t all_rows = 0;
  int64_t weight_stride = 0;  // elements from one weight to the next one
  int64_t bias_stride = 0;    // the same of biases
  // Row r of the product has row rows_of[r] / rows_by of src; null: row r.
  const int32_t* rows_of = nullptr;
  int64_t rows_by = 1;
};
// Products of heads, each with a weight of its own: so many elements lie from one's to the next
// one's weight, columns of src and columns of out.
struct FewRowsHeads {
  int64_t count = 0;  // 0: there are none
  int64_t weight_step = 0;
  int64_t src_step = 0;
  int64_t out_step = 0;
};
struct FewRowsProduct {
  int64_t rows = 0;  // 1 … kFewRows
  int64_t n = 0;
  int64_t k = 0;
  cpu::ConstRows src;                 // [rows, k], f32 or bf16
  const cpu::Bf16* weight = nullptr;  // [n, k], with a gate [2n, k]
  cpu::Rows out;                      // [rows, n], f32 or bf16
  const float* bias = nullptr;        // one for each row of the weight; null: none
  // [rows, n], added to the sums and not in out's memory; null data: none. Without a gate.
  cpu::ConstRows addend = {};
  ProductGate gate = ProductGate::kNone;
  ProductBounds bounds = {};
  ProductNorm norm = {};
  FewRowsGroups groups = {};  // REQUIRES: no addend or norm; src in bf16
  FewRowsHeads heads = {};    // REQUIRES: the same; no bias, gate or groups
};
inline constexpr int64_t kFewRows = 16;
// Whether the operands are such that there may be a gate, or the norm that they have.
bool few_rows_takes_gate(const FewRowsProduct& product);
bool few_rows_takes_norm(const FewRowsProduct& product);
void multiply_few_rows(const LaunchStream& stream, const FewRowsProduct& product);

// dst = src rounded to the type of dst, f32 or bf16; with accumulate dst, which is f32, += src.
struct RowsCopy {
  int64_t rows = 0;
  int64_t columns = 0;
  cpu::Rows dst;
  cpu::ConstRows src;
  bool accumulate = false;
};
void copy_rows(const LaunchStream& stream, const RowsCopy& copy);
// The same with dst [columns, rows], transposed. REQUIRES: not accumulate.
void copy_turned(const LaunchStream& stream, const RowsCopy& copy);

// sums[column] += Σ over the rows of src. The order depends on the number of rows alone. `scratch`
// has column_sums_bytes.
int64_t column_sums_bytes(int64_t rows, int64_t columns);
void add_column_sums(const LaunchStream& stream, float* sums, const cpu::ConstRows& src,
                     int64_t rows, int64_t columns, void* scratch);

}  // namespace jige::cuda
