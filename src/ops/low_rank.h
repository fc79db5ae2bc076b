// Low-rank additions to some rows of a linear layer's result: the products of LoRA adapters, of one
// or of several at once.
//
// Shapes: T rows, K inputs, N outputs of all parts; a weight has A [R, K], the A of all its parts
// one above the other, and a B_p [N_p, r_p] for each part, which are columns of dst:
//   u_p = s_p · src A_pᵀ    rounded to the compute type, as a product and when scaled
//   dst_p += u_p B_pᵀ       the product rounded to the type of dst, then added
//   dst_p = f_p ∘ dst_p + c_p   where a part has factors f or addends c [N_p], rounded once
// Each range of rows is two products of its own (ops/linear.h), so the bits of a row depend on its
// input and its weight alone: not on other rows, other ranges, how rows are cut into ranges, or
// threads. Ranges of little work run side by side, cut so that each thread has a share of their
// rows, since what keeps a team together costs as much as they do; the others follow each other
// with the whole team.
// Threads: asynchronous on the stream.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ops/linear.h"
#include "tensor/device.h"
#include "tensor/view.h"

namespace jige::ops {

struct LowRankWeight {
  struct Part {
    int64_t column = 0;  // of dst, the first
    int64_t a_row = 0;   // of A, the first
    PackedWeight b;      // [N_p, r_p], kForward
    float scale = 1;
    TensorView factor = {};  // [N_p] f32, or empty: 1
    TensorView addend = {};  // [N_p] f32, or empty: 0
  };
  PackedWeight a;  // [R, K], kForward
  std::vector<Part> parts;
};

// Rows [row_begin, row_end) and what is added to them.
struct LowRankRows {
  std::shared_ptr<const LowRankWeight> weight;
  int64_t row_begin = 0;
  int64_t row_end = 0;
};

struct LowRankForward {
  TensorView dst;                 // [T, N], f32 or bf16; added to
  TensorView src;                 // [T, K], f32 or bf16
  TensorView product;             // [T, R of the widest or more], gets u; f32 or bf16
  TensorView scratch;             // u8, low_rank_scratch_bytes of T rows and the widest part
  std::vector<LowRankRows> rows;  // no row twice
};
void low_rank_forward(Stream& stream, const LowRankForward& args);

// Bytes of scratch for so many rows and outputs of a part.
int64_t low_rank_scratch_bytes(int64_t row_count, int64_t part_outputs);

}  // namespace jige::ops
