#include "tensor/dtype.h"

#include <immintrin.h>

#include "base/check.h"

namespace jige {
namespace {

constexpr DTypeInfo kInfos[] = {
    {"f32", "F32", 1, 4}, {"bf16", "BF16", 1, 2}, {"f16", "F16", 1, 2}, {"i8", "I8", 1, 1},
    {"i32", "I32", 1, 4}, {"i64", "I64", 1, 8},   {"u8", "U8", 1, 1},
};

}  // namespace

const DTypeInfo& dtype_info(DType dtype) { return kInfos[static_cast<size_t>(dtype)]; }

int64_t dtype_bytes(DType dtype, int64_t count) {
  const DTypeInfo& info = dtype_info(dtype);
  JIGE_CHECK(count >= 0 && count % info.block_elements == 0, "{} elements are no whole {} blocks",
             count, info.name);
  return count / info.block_elements * info.block_bytes;
}

Result<DType> parse_dtype(std::string_view name) {
  std::string known;
  for (size_t i = 0; i < std::size(kInfos); ++i) {
    if (name == kInfos[i].name) return static_cast<DType>(i);
    known += (i ? ", " : "") + std::string(kInfos[i].name);
  }
  return fail(Code::kInvalidArgument, "\"{}\" is not a data type; known are {}", name, known);
}

float to_float(Float16 value) { return _cvtsh_ss(value.bits); }

Float16 to_float16(float value) {
  return {static_cast<uint16_t>(_cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT))};
}

}  // namespace jige
