// Products of rows that lie together by group, each group's with an operand of its own: the linear
// layers of experts (ops/expert_linear.h). The rows of group g are [ends[g - 1], ends[g]).
//
// How many rows a group has stays on the GPU: grids are as large as any division needs, and blocks
// that are left over end at once. Threads: asynchronous on the stream.
#pragma once

#include "kernels/cuda/linear.h"

namespace jige::cuda {

// `product` is that of all groups' rows: with outs null, out rows = left rows times the right
// operand of their group; else outs[group] = Σ over its rows of left · right, both across.
struct GroupedProduct {
  Product product;          // no bias, no addend; with outs neither depth nor out's data
  const int32_t* row_ends;  // [groups]
  int64_t groups = 0;
  int64_t right_stride = 0;      // elements from one group's right operand to the next one's
  float* const* outs = nullptr;  // [groups] in device memory; a null one is not wanted
};

// As multiply_in_chains, every element one chain.
void multiply_groups_in_chains(const LaunchStream& stream, const GroupedProduct& grouped);

// On tensor cores, from bf16: sums in an order that the depth alone decides, or that and how many
// rows a group has.
bool groups_take_tensor_cores(const GroupedProduct& grouped);
// REQUIRES: groups_take_tensor_cores(); those of outs are aligned to 8 bytes.
void multiply_groups(const LaunchStream& stream, const GroupedProduct& grouped);

}  // namespace jige::cuda
