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
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "tensor/view.h"

namespace jige::formats {

inline constexpr size_t kTensorNameBytesMax = 4096;
inline constexpr uint64_t kSafetensorsHeaderBytesMax = 100'000'000;  // the format's own limit

// One entry of a header. Types and ranks that Jige does not compute with are listed all the same.
struct StoredTensor {
  std::string name;
  std::string dtype_name;      // as the header spells it: "BF16"
  std::optional<DType> dtype;  // empty: listed, but refused when asked for
  std::vector<int64_t> dims;
  uint64_t offset = 0;  // bytes from the start of the file
  uint64_t bytes = 0;

  // Product of the dimensions; cannot overflow.
  int64_t count() const;
};

// A checked header. Not copyable: the index refers to the names in `tensors`.
struct SafetensorsHeader {
  SafetensorsHeader() = default;
  SafetensorsHeader(SafetensorsHeader&&) = default;
  SafetensorsHeader& operator=(SafetensorsHeader&&) = default;

  std::vector<StoredTensor> tensors;  // in the order of their bytes
  std::unordered_map<std::string_view, size_t> index;
  std::vector<std::pair<std::string, std::string>> metadata;
};

// Checks the header of a whole file given as bytes. Fails with kCorrupt, naming `where`, the tensor
// and the contradiction.
Result<SafetensorsHeader> parse_safetensors_header(std::span<const std::byte> file,
                                                   std::string_view where);

class SafetensorsFile {
 public:
  // Maps a file and checks its header; no tensor data is read.
  static Result<SafetensorsFile> open(const std::string& path);

  const std::string& path() const { return map_.path(); }
  std::span<const std::byte> bytes() const { return map_.bytes(); }
  const std::vector<StoredTensor>& tensors() const { return header_.tensors; }
  const std::vector<std::pair<std::string, std::string>>& metadata() const {
    return header_.metadata;
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

  SafetensorsFile(MappedFile map, SafetensorsHeader header);
  Result<const std::byte*> aligned_copy(size_t index) const;

  MappedFile map_;
  SafetensorsHeader header_;
  std::unique_ptr<Copies> copies_;
};

}  // namespace jige::formats
