#include "formats/stored_tensor.h"

#include <algorithm>
#include <limits>
#include <tuple>

namespace jige::formats {
namespace {

struct StoredType {
  std::string_view name;
  int bits;
};

// Every type of safetensors, so that the sizes of tensors Jige cannot use are checked as well.
constexpr StoredType kStoredTypes[] = {
    {"F32", 32},    {"BF16", 16},   {"F16", 16},        {"I8", 8},          {"I32", 32},
    {"I64", 64},    {"U8", 8},      {"F64", 64},        {"C64", 64},        {"U64", 64},
    {"U32", 32},    {"I16", 16},    {"U16", 16},        {"BOOL", 8},        {"F8_E4M3", 8},
    {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"F6_E2M3", 6},
    {"F6_E3M2", 6}, {"F4", 4},
};

}  // namespace

int64_t StoredTensor::count() const {
  int64_t product = 1;
  for (const int64_t dim : dims) product *= dim;
  return product;
}

std::optional<DType> readable_dtype(std::string_view dtype_name) {
  for (const DType dtype :
       {DType::kF32, DType::kBF16, DType::kF16, DType::kI8, DType::kI32, DType::kI64, DType::kU8}) {
    if (dtype_info(dtype).safetensors == dtype_name) return dtype;
  }
  return std::nullopt;
}

int stored_type_bits(std::string_view dtype_name) {
  for (const StoredType& type : kStoredTypes) {
    if (type.name == dtype_name) return type.bits;
  }
  return 0;
}

Result<uint64_t> checked_count(const StoredTensor& tensor, std::string_view where) {
  // Zero dimensions count as one here, so that no partial product can overflow later.
  uint64_t bound = 1;
  bool empty = false;
  for (const int64_t dim : tensor.dims) {
    empty |= dim == 0;
    if (__builtin_mul_overflow(bound, static_cast<uint64_t>(std::max<int64_t>(dim, 1)), &bound) ||
        bound > std::numeric_limits<uint64_t>::max() / 128) {
      return fail(Code::kCorrupt, "{}: tensor \"{}\": the product of its dimensions overflows",
                  where, tensor.name);
    }
  }
  return empty ? 0 : bound;
}

Status TensorTable::arrange(std::string_view where) {
  std::sort(tensors.begin(), tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return std::tie(a.offset, a.bytes, a.name) < std::tie(b.offset, b.bytes, b.name);
  });
  index.reserve(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!index.emplace(tensors[i].name, i).second) {
      return fail(Code::kCorrupt, "{}: tensor \"{}\" appears twice", where, tensors[i].name);
    }
  }
  return {};
}

}  // namespace jige::formats
