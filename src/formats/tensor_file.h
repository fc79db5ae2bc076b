// A file with tensors, read through a memory map: tensor name -> read-only view, without a copy of
// those that lie in one piece. safetensors.h and torch_file.h open such files.
//
// Invariants: (1) every element of a listed tensor lies inside the file, and the tensor has exactly
//                 the bytes of its shape.
//             (2) a view stays valid for as long as its TensorFile, also when that is moved.
//             (3) nothing may be written through a view: the map is read-only.
// Threads: const functions may be called from any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "formats/stored_tensor.h"
#include "tensor/view.h"

namespace jige::formats {

class TensorFile {
 public:
  // REQUIRES: `table` is arranged, and invariant (1).
  TensorFile(MappedFile map, TensorTable table);

  const std::string& path() const { return map_.path(); }
  std::span<const std::byte> bytes() const { return map_.bytes(); }
  const std::vector<StoredTensor>& tensors() const { return table_.tensors; }
  const std::vector<std::pair<std::string, std::string>>& metadata() const {
    return table_.metadata;
  }

  // The entry of a name, or nullptr.
  const StoredTensor* find(std::string_view name) const;
  // The tensor as a contiguous view on the map. Fails with kNotFound, or with kUnsupported for
  // types and ranks Jige does not compute with. Files of old writers, whose data is not aligned to
  // its type, and tensors with strides get a copy on first use (kExhausted without memory).
  Result<TensorView> view(std::string_view name) const;
  // The bytes of a tensor of any type, in C order, not aligned; of one with strides a copy, as
  // above. Fails with kNotFound.
  Result<std::span<const std::byte>> bytes_of(std::string_view name) const;

 private:
  // Aligned copies in C order, by tensor index.
  struct Copies {
    std::mutex mutex;
    std::unordered_map<size_t, std::unique_ptr<std::byte[]>> by_index;
  };

  Result<const std::byte*> copy_of(const StoredTensor& tensor) const;

  MappedFile map_;
  TensorTable table_;
  std::unique_ptr<Copies> copies_;
};

}  // namespace jige::formats
