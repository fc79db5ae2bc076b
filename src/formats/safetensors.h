// safetensors files, read through a memory map: tensor name -> read-only view, without a copy.
//
// Layout: u64 little-endian N; N bytes of JSON {"name": {"dtype", "shape", "data_offsets": [begin,
// end)}, …, "__metadata__": {string: string}}; data, to which the offsets refer. The ranges cover
// the data without gap or overlap, and the file ends where the data ends.
//
// Invariants: (1) every listed range lies inside the file and has exactly the bytes of its shape.
//             (2) a view stays valid for as long as its SafetensorsFile, also when that is moved.
//             (3) nothing may be written through a view: the map is read-only.
// Threads: const functions may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
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

inline constexpr uint64_t kSafetensorsHeaderBytesMax = 100'000'000;  // the format's own limit

// Checks the header of a whole file given as bytes. Fails with kCorrupt, naming `where`, the tensor
// and the contradiction.
Result<TensorTable> parse_safetensors_header(std::span<const std::byte> file,
                                             std::string_view where);

class SafetensorsFile {
 public:
  // Maps a file and checks its header; no tensor data is read.
  static Result<SafetensorsFile> open(const std::string& path);
  // A file of another kind whose tensors lie in it as those of safetensors do, each in one piece,
  // though in any place: torch_file.h. REQUIRES: `table` is arranged, and invariant (1).
  SafetensorsFile(MappedFile map, TensorTable table);

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
  // its type, get an aligned copy of that tensor on first use (kExhausted without memory).
  Result<TensorView> view(std::string_view name) const;
  // The bytes of a tensor of any type, not aligned. Fails with kNotFound.
  Result<std::span<const std::byte>> bytes_of(std::string_view name) const;

 private:
  // Aligned copies by tensor index.
  struct Copies {
    std::mutex mutex;
    std::unordered_map<size_t, std::unique_ptr<std::byte[]>> by_index;
  };

  Result<const std::byte*> aligned_copy(size_t index) const;

  MappedFile map_;
  TensorTable table_;
  std::unique_ptr<Copies> copies_;
};

}  // namespace jige::formats
