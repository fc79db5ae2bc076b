#include "ops/moments.h"

#include "kernels/cpu/adamw_blocks.h"

namespace jige::ops {
namespace {

constexpr auto kBlockBytes = static_cast<int64_t>(sizeof(cpu::MomentBlock));

int64_t blocks_of(int64_t count) { return (count + cpu::kMomentBlock - 1) / cpu::kMomentBlock; }

}  // namespace

std::string_view moment_format_name(MomentFormat format) {
  return format == MomentFormat::kQ8 ? "q8" : "f32";
}

Result<MomentFormat> parse_moment_format(std::string_view name) {
  for (const MomentFormat format : {MomentFormat::kF32, MomentFormat::kQ8}) {
    if (name == moment_format_name(format)) return format;
  }
  return fail(Code::kInvalidArgument, "moments are kept as f32 or q8, not as \"{}\"", name);
}

std::vector<std::string> moment_format_names() { return {"f32", "q8"}; }

MomentLayout moment_layout(MomentFormat format, const Shape& parameter) {
  const int64_t count = parameter.count();
  if (format == MomentFormat::kF32 || parameter.rank() < 2 || count < cpu::kMomentBlock) {
    return {DType::kF32, parameter};
  }
  return moment_part_layout(DType::kU8, count);
}

MomentLayout moment_part_layout(DType dtype, int64_t count) {
  if (dtype == DType::kF32) return {DType::kF32, Shape{count}};
  return {dtype, Shape{blocks_of(count), kBlockBytes}};
}

int64_t moment_cut(DType dtype) { return dtype == DType::kU8 ? cpu::kMomentBlock : 1; }

int64_t moment_bytes(DType dtype, int64_t count) {
  return dtype == DType::kU8 ? blocks_of(count) * kBlockBytes : dtype_bytes(dtype, count);
}

}  // namespace jige::ops
