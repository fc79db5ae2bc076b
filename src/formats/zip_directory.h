// What a zip archive holds and where: its directory, without unpacking anything.
//
// Layout, from the end: the end record "PK\5\6" (entry count, size and place of the directory; a
// comment); in front of it, where a number does not fit, the locator "PK\6\7" of an end record with
// 64 bits, "PK\6\6". The directory has for each entry "PK\1\2", its flags, method, sizes, the place
// of its local header, and its name; numbers of 64 bits stand in extra field 1. The local header
// "PK\3\4" says again how long name and extra fields are, behind which the data begins.
// Checksums are not looked at.
// Invariant: the data of every entry lies inside the file.
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace jige::formats {

inline constexpr uint64_t kZipEntriesMax = 1'048'576;

struct ZipEntry {
  std::string_view name;  // a view on the file
  bool stored = false;    // neither packed nor encrypted
  uint64_t offset = 0;    // of the data, from the start of the file
  uint64_t bytes = 0;     // as stored
};

// Whether a file begins as archives do.
bool is_zip(std::span<const std::byte> file);

// The entries in the order of the directory. Fails with kCorrupt where the file contradicts itself,
// kUnsupported on archives in several files, naming `where` and the entry.
Result<std::vector<ZipEntry>> read_zip_directory(std::span<const std::byte> file,
                                                 std::string_view where);

}  // namespace jige::formats
