#include "model/joined_rows.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "model/architecture.h"

namespace jige::model {
namespace {

// The tensor by the name that the files have for it, or null.
const formats::StoredTensor* find_stored(const formats::TensorFolder& files,
                                         const std::string& tensor) {
  for (const std::string& name : Architecture::names_in_files(tensor)) {
    if (const formats::StoredTensor* stored = files.find(name)) return stored;
  }
  return nullptr;
}

std::vector<int64_t> dims_of(const ParamSpec& spec, int64_t rows) {
  std::vector<int64_t> dims;
  for (int axis = 0; axis < spec.shape.rank(); ++axis) dims.push_back(spec.shape[axis]);
  dims[0] = rows;
  return dims;
}

// The tensors one behind the other, of one type, which have all rows between them.
Result<std::vector<const formats::StoredTensor*>> find_joined(const formats::TensorFolder& files,
                                                              const ParamSpec& spec) {
  const JoinedRows& place = *spec.joined;
  const formats::StoredTensor* whole = find_stored(files, place.whole);
  std::vector<const formats::StoredTensor*> found;
  int64_t rows = 0;
  for (const std::string& name : whole ? std::vector{place.whole} : place.tensors) {
    const formats::StoredTensor* stored = find_stored(files, name);
    if (!stored) return fail(Code::kNotFound, "{}: tensor \"{}\" is missing", files.folder(), name);
    const DType dtype = stored->dtype.value_or(DType::kU8);
    if (dtype != DType::kF32 && dtype != DType::kBF16 && dtype != DType::kF16) {
      return fail(Code::kUnsupported,
                  "{}: tensor \"{}\" is stored as {}; supported are F32, BF16, F16", files.folder(),
                  stored->name, stored->dtype_name);
    }
    const int64_t own = stored->dims.empty() ? 0 : std::min(stored->dims[0], place.rows - rows);
    if (own < 1 || stored->dims != dims_of(spec, own) ||
        (!found.empty() && found[0]->dtype != stored->dtype)) {
      return fail(Code::kCorrupt,
                  "{}: tensor \"{}\" [{}] of {} is no part of the [{}] that {} make in config.json",
                  files.folder(), stored->name, fmt::join(stored->dims, ", "), stored->dtype_name,
                  fmt::join(dims_of(spec, place.rows), ", "), fmt::join(place.tensors, ", "));
    }
    rows += own;
    found.push_back(stored);
  }
  if (rows == place.rows) return found;
  return fail(Code::kCorrupt, "{}: tensors {} have {} rows together, but config.json makes it {}",
              files.folder(), fmt::join(place.tensors, ", "), rows, place.rows);
}

}  // namespace

bool is_joined(const formats::TensorFolder& files, const ParamSpec& spec) {
  if (!spec.joined) return false;
  const formats::StoredTensor* own = nullptr;
  for (const std::string& name : Architecture::stored_names(spec)) {
    if (!own) own = files.find(name);
  }
  if (own && own->dims == dims_of(spec, spec.shape[0])) return false;
  return own || find_stored(files, spec.joined->whole);
}

Status check_joined(const formats::TensorFolder& files, const ParamSpec& spec) {
  return find_joined(files, spec).map([](const auto&) {});
}

Result<TensorView> read_joined(const formats::TensorFolder& files, const ParamSpec& spec,
                               LoadBuffer& buffer) {
  JIGE_TRY(const auto found, find_joined(files, spec));
  JIGE_TRY(const TensorView param, buffer.make(files.folder(), *found.front()->dtype, spec.shape));
  const int64_t row_bytes = dtype_bytes(param.dtype, spec.shape.count() / spec.shape[0]);
  const int64_t first = spec.joined->first;
  auto* to = static_cast<std::byte*>(param.data);
  int64_t at = 0;  // the tensor's first row among those of all
  for (const formats::StoredTensor* stored : found) {
    JIGE_TRY(const TensorView rows, files.view(stored->name));
    const int64_t begin = std::max(first, at);
    const int64_t end = std::min(first + spec.shape[0], at + stored->dims[0]);
    if (begin < end) {
      std::memcpy(to + (begin - first) * row_bytes,
                  static_cast<const std::byte*>(rows.data) + (begin - at) * row_bytes,
                  static_cast<size_t>((end - begin) * row_bytes));
    }
    at += stored->dims[0];
  }
  return param;
}

std::vector<std::string> joined_names(const ParamSpec& spec) {
  if (!spec.joined) return {};
  return Architecture::names_in_files(spec.joined->whole);
}

}  // namespace jige::model
