// Renewing rows of packed weights: what pack_weight and an optimizer's update share.
//
// Threads: start_packing by one thread, then pack_rows from any number of them for rows that do not
// overlap; where two meet within a block of 32 rows of the whole weight, one after the other.
#pragma once

#include <cstddef>

#include "kernels/cpu/gemm_engine.h"
#include "ops/linear.h"
#include "tensor/cpu_device.h"

namespace jige::ops {

// Marks a packed weight as one for the instruction set in use, and tells its engine.
const cpu::GemmEngine& start_packing(const PackedWeight& packed);

// Packs rows of a weight, whose first is row part.row_begin of the packed one.
void pack_rows(CpuDevice& device, const cpu::GemmEngine& engine, const PackPart& part,
               const TensorView& rows);

// What a packed weight in the compute type is on a GPU: rows [n, k] of that type, whatever its use.
inline TensorView packed_rows_on_gpu(const PackedWeight& packed) {
  constexpr int64_t kBytesBefore = 64;
  return TensorView::of(static_cast<std::byte*>(packed.data) + kBytesBefore, packed.compute,
                        Shape{packed.n, packed.k});
}

}  // namespace jige::ops
