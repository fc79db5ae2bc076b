// Writing GGUF files (version 3; the layout is in gguf.h) as a stream: keys and tensors are named
// first, the tensors' blocks are produced while they are written.
//
// The bytes depend on keys and tensors alone; tensors stand in the order in which they are given.
// Threads: free functions; sources are called from the calling thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/gguf_types.h"

namespace jige::formats {

// Key/values in the order in which they are added. REQUIRES: no key is added twice.
class GgufKeys {
 public:
  void number(std::string_view key, uint32_t value);
  void real(std::string_view key, float value);
  void flag(std::string_view key, bool value);
  void text(std::string_view key, std::string_view value);
  void texts(std::string_view key, std::span<const std::string> values);
  void ints(std::string_view key, std::span<const int32_t> values);
  void reals(std::string_view key, std::span<const float> values);
  void flags(std::string_view key, std::span<const uint8_t> values);

  uint64_t count() const { return count_; }
  const std::string& bytes() const { return bytes_; }

 private:
  void begin(std::string_view key, uint32_t type);

  std::string bytes_;
  uint64_t count_ = 0;
};

// Takes whole blocks.
using GgufSink = std::function<Status(std::span<const std::byte> blocks)>;

struct GgufTensorSource {
  std::string name;
  const GgufTypeInfo* type = nullptr;
  std::vector<int64_t> dims;  // the slowest first; the last a multiple of the type's block
  // Hands over all blocks in order, in pieces of any size.
  std::function<Status(const GgufSink& sink)> produce;

  uint64_t bytes() const;
};

// Replaces `path` by a file of these, all or nothing, and gives its bytes. Fails with
// kInvalidArgument where a source does not keep to its shape, kExhausted on a full disk.
Result<uint64_t> write_gguf(const std::string& path, const GgufKeys& keys,
                            std::span<const GgufTensorSource> sources);

}  // namespace jige::formats
