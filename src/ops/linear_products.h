// Products of linear layers on the calling thread and the team: what the ops of one layer
// (linear.h) and of many experts (expert_linear.h) share. Bits are as linear.h says.
//
// Internal to ops. Threads: inside a loop of the device's team they run on the calling thread
// alone.
#pragma once

#include "kernels/cpu/gemm.h"
#include "ops/linear.h"
#include "tensor/cpu_device.h"

namespace jige::ops {

// dst = src times a packed weight, for either use.
struct PackedProduct {
  TensorView dst;
  TensorView src;
  PackedWeight weight;
  PackUse use = PackUse::kForward;  // of a quantised weight, which serves both
  TensorView bias;
  bool past_caches = false;
  TensorView strip;  // as in LinearForward; needed by a quantised weight's input gradient
};
void multiply(CpuDevice& device, const PackedProduct& product);
// The same of parts of the weight alone, for the use that it is packed for; a bias is that of the
// columns of dst. REQUIRES: a weight in the compute type; no parts.outputs, and parts.right_depth
// 0.
void multiply_parts(CpuDevice& device, const PackedProduct& product, const cpu::GemmParts& parts);

// The columns of the output that lie in one panel of a packed weight.
int64_t product_column_step(const PackedWeight& weight);
// Columns [begin, end) of the product alone. REQUIRES: no bias and no strip, begin a multiple of
// the step, and end as well unless it is the last column.
void multiply_columns(CpuDevice& device, const PackedProduct& product, int64_t begin, int64_t end);

// The weight's gradient, as linear_backward_weight, and as a product for gemm().
void multiply_gradient(CpuDevice& device, const LinearBackwardWeight& args);
cpu::GemmProduct gradient_product(const cpu::GemmEngine& engine, const LinearBackwardWeight& args);

}  // namespace jige::ops
