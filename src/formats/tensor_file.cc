#include "formats/tensor_file.h"

#include <cstring>
#include <new>

#include "formats/strided_copy.h"

namespace jige::formats {

TensorFile::TensorFile(MappedFile map, TensorTable table)
    : map_(std::move(map)), table_(std::move(table)), copies_(std::make_unique<Copies>()) {}

const StoredTensor* TensorFile::find(std::string_view name) const {
  const auto it = table_.index.find(name);
  return it == table_.index.end() ? nullptr : &table_.tensors[it->second];
}

Result<const std::byte*> TensorFile::copy_of(const StoredTensor& tensor) const {
  const auto index = static_cast<size_t>(&tensor - table_.tensors.data());
  const std::lock_guard lock(copies_->mutex);
  std::unique_ptr<std::byte[]>& copy = copies_->by_index[index];
  if (!copy) {
    copy.reset(new (std::nothrow) std::byte[tensor.bytes]);
    if (!copy) {
      return fail(Code::kExhausted, "{}: no memory for the {} bytes of tensor \"{}\"", path(),
                  tensor.bytes, tensor.name);
    }
    const std::byte* data = map_.bytes().data() + tensor.offset;
    if (tensor.strides.empty()) {
      std::memcpy(copy.get(), data, tensor.bytes);
    } else {
      const auto element_bytes = tensor.bytes / static_cast<uint64_t>(tensor.count());
      copy_strided(data, tensor.dims, tensor.strides, element_bytes, copy.get());
    }
  }
  return copy.get();
}

Result<std::span<const std::byte>> TensorFile::bytes_of(std::string_view name) const {
  const StoredTensor* tensor = find(name);
  if (!tensor) return fail(Code::kNotFound, "{}: has no tensor \"{}\"", path(), name);
  if (tensor->strides.empty()) return map_.bytes().subspan(tensor->offset, tensor->bytes);
  JIGE_TRY(const std::byte* copy, copy_of(*tensor));
  return std::span(copy, tensor->bytes);
}

Result<TensorView> TensorFile::view(std::string_view name) const {
  const StoredTensor* tensor = find(name);
  if (!tensor) return fail(Code::kNotFound, "{}: has no tensor \"{}\"", path(), name);
  if (!tensor->dtype) {
    return fail(Code::kUnsupported,
                "{}: tensor \"{}\" has type {}, which Jige does not read; it reads F32, BF16, F16, "
                "I8, U8, I32 and I64",
                path(), name, tensor->dtype_name);
  }
  if (tensor->dims.size() > static_cast<size_t>(kRankMax)) {
    return fail(Code::kUnsupported, "{}: tensor \"{}\" has {} dimensions; at most {} are supported",
                path(), name, tensor->dims.size(), kRankMax);
  }
  const std::byte* data = map_.bytes().data() + tensor->offset;
  const auto element_bytes = static_cast<uint64_t>(dtype_info(*tensor->dtype).block_bytes);
  if (tensor->offset % element_bytes != 0 || !tensor->strides.empty()) {
    JIGE_TRY(data, copy_of(*tensor));
  }
  return TensorView::of(const_cast<std::byte*>(data), *tensor->dtype,
                        Shape(std::span<const int64_t>(tensor->dims)));
}

}  // namespace jige::formats
