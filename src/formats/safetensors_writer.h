// Writing safetensors files as a stream: tensors are named first and produced later, row by row, so
// that no second copy of them is ever in memory.
//
// The bytes depend only on the tensors: they stand in the format's usual order (type by descending
// size, then name), which keeps every tensor aligned to its type; the header is padded with spaces
// to a multiple of 8 bytes.
// Threads: free functions; the sources are called from the calling thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "tensor/view.h"

namespace jige::formats {

// Takes the next rows of a tensor; the views have its type and its columns.
using RowSink = std::function<Status(const TensorView& rows)>;

// A tensor to be written.
struct TensorSource {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  // Hands over all rows in order, in pieces of any height. Called once per written file.
  std::function<Status(const RowSink& sink)> produce;

  // A source of host memory that must stay as it is until the writing is done.
  static TensorSource of(std::string name, const TensorView& view);
  uint64_t bytes() const;
};

struct WrittenFile {
  uint64_t bytes = 0;
  uint64_t xxh64 = 0;
};

using SafetensorsMetadata = std::vector<std::pair<std::string, std::string>>;

// What transformers wants to find in a file of PyTorch weights.
SafetensorsMetadata default_metadata();

// Replaces `path` by a file of these tensors, all or nothing. Fails with kInvalidArgument on names
// that are given twice or sources that do not keep to their shape, kExhausted on a full disk.
Result<WrittenFile> write_safetensors(const std::string& path,
                                      std::span<const TensorSource> sources,
                                      const SafetensorsMetadata& metadata = default_metadata());

// The same into a file that the caller commits; `where` names it in errors.
Result<WrittenFile> stream_safetensors(AtomicFile& file, std::string_view where,
                                       std::span<const TensorSource> sources,
                                       const SafetensorsMetadata& metadata = default_metadata());

}  // namespace jige::formats
