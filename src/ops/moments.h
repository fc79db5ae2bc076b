// How AdamW's two moments are kept: as f32, or (q8) as codes of 8 bits in blocks of 128 numbers
// behind a scale, 2.06 bytes a parameter for both instead of 8 (kernels/cpu/adamw_blocks.h).
//
// Vectors (norms, biases) and matrices of less than a block stay f32 with either: all of a model's
// together are nothing beside its matrices. Blocks begin at a parameter's first element, so
// whoever cuts an update into parts cuts at multiples of moment_cut().
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tensor/dtype.h"
#include "tensor/view.h"

namespace jige::ops {

enum class MomentFormat : uint8_t { kF32, kQ8 };

std::string_view moment_format_name(MomentFormat format);
// Fails with kInvalidArgument, listing the names.
Result<MomentFormat> parse_moment_format(std::string_view name);
std::vector<std::string> moment_format_names();

// The tensor that holds one moment of a parameter of this shape: its own shape in f32, or u8 blocks
// [blocks, 132]. Zeros are moments of 0 in either.
struct MomentLayout {
  DType dtype = DType::kF32;
  Shape shape;
};
MomentLayout moment_layout(MomentFormat format, const Shape& parameter);

// The same for consecutive elements of a parameter whose moments have this type.
MomentLayout moment_part_layout(DType dtype, int64_t count);

// Elements whose moments stand together, of moments of this type.
int64_t moment_cut(DType dtype);
// Bytes in which one moment of a parameter's first elements stands. REQUIRES: a multiple of
// moment_cut(), or all there are.
int64_t moment_bytes(DType dtype, int64_t count);

}  // namespace jige::ops
