// A tensor as it lies in a file, and the table of those of one file.
//
// Threads: values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/result.h"
#include "tensor/dtype.h"

namespace jige::formats {

inline constexpr size_t kTensorNameBytesMax = 4096;
inline constexpr size_t kRankListedMax = 64;

// One entry of a file. Types and ranks that Jige does not compute with are listed all the same.
struct StoredTensor {
  std::string name;
  std::string dtype_name;      // as safetensors spells it: "BF16"
  std::optional<DType> dtype;  // empty: listed, but refused when asked for
  std::vector<int64_t> dims;
  // Elements from one place of a dimension to the next, where they do not follow one another in C
  // order; else empty.
  std::vector<int64_t> strides;
  uint64_t offset = 0;  // bytes from the start of the file
  uint64_t bytes = 0;   // of all elements

  // Product of the dimensions; cannot overflow.
  int64_t count() const;
};

// The type that Jige computes with, by the name in safetensors.
std::optional<DType> readable_dtype(std::string_view dtype_name);
// Bits of an element of any type of safetensors; 0 for a name that it does not have.
int stored_type_bits(std::string_view dtype_name);

// Product of the dimensions, of which none is negative. Fails with kCorrupt where it, or that of
// those that are not 0, leaves no room for bits in 64 bits.
Result<uint64_t> checked_count(const StoredTensor& tensor, std::string_view where);

// Not copyable: the index refers to the names in `tensors`.
struct TensorTable {
  TensorTable() = default;
  TensorTable(TensorTable&&) = default;
  TensorTable& operator=(TensorTable&&) = default;

  std::vector<StoredTensor> tensors;  // in the order of their bytes
  std::unordered_map<std::string_view, size_t> index;
  std::vector<std::pair<std::string, std::string>> metadata;

  // Sorts the tensors and makes the index. Fails with kCorrupt where a name appears twice.
  Status arrange(std::string_view where);
};

}  // namespace jige::formats
