// Reads the bytes of a file in turn; every read is checked against their end.
//
// Numbers are little-endian. Threads: one thread at a time.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

#include "base/result.h"

namespace jige::formats {

// The number at a place that need not be aligned to it.
template <typename T>
T number_at(const void* at) {
  static_assert(std::is_trivially_copyable_v<T> && std::endian::native == std::endian::little);
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

class ByteReader {
 public:
  // `where` names the file in errors; both must outlive the reader. Reading begins at `begin`, or
  // at the end where that is beyond it.
  ByteReader(std::span<const std::byte> bytes, std::string_view where, uint64_t begin = 0)
      : bytes_(bytes), where_(where), at_(begin < bytes.size() ? begin : bytes.size()) {}

  std::string_view where() const { return where_; }
  size_t at() const { return at_; }
  size_t left() const { return bytes_.size() - at_; }

  // Fails with kCorrupt where the bytes end before, naming `what`.
  template <typename T>
  Result<T> read(std::string_view what) {
    JIGE_TRY(const std::string_view text, take(sizeof(T), what));
    return number_at<T>(text.data());
  }

  // The next bytes themselves. Fails as read.
  Result<std::string_view> take(uint64_t size, std::string_view what) {
    if (size > left()) {
      return fail(Code::kCorrupt,
                  "{}: {} has {} bytes from byte {} on, but the end is at byte {}; the file is "
                  "truncated or damaged",
                  where_, what, size, at_, bytes_.size());
    }
    const std::string_view text(reinterpret_cast<const char*>(bytes_.data()) + at_, size);
    at_ += size;
    return text;
  }

  // Up to the next '\n', which is passed over. Fails as read.
  Result<std::string_view> take_line(std::string_view what) {
    const std::string_view rest(reinterpret_cast<const char*>(bytes_.data()) + at_, left());
    const size_t size = rest.find('\n');
    if (size == std::string_view::npos) {
      return fail(Code::kCorrupt, "{}: {} from byte {} on has no end", where_, what, at_);
    }
    at_ += size + 1;
    return rest.substr(0, size);
  }

 private:
  std::span<const std::byte> bytes_;
  std::string_view where_;
  size_t at_;
};

}  // namespace jige::formats
