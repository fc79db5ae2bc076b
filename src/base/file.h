// Files: whole reads, atomic replacement, and read-only memory maps.
//
// Nothing good is overwritten before its replacement is complete: write_file_atomic and AtomicFile
// write to a temporary sibling (the target's name, a dot and six letters or digits), fsync it,
// rename it over the target and fsync the folder. The target's permissions stay. What is no file
// (/dev/null, /dev/stdout, a pipe) is written in place, for there is nothing to be kept. Threads:
// distinct objects may be used from distinct threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace jige {

// The failure of a system call on `path`, such as open, with its errno as `reason`: kNotFound,
// kExhausted or kIo; kCancelled where a signal of the user's ended it, which happens where it waits
// for the other end of a pipe.
tl::unexpected<Error> file_error(const std::string& path, std::string_view action, int reason);

// The whole file as a string. Fails with kInvalidArgument where `path` is a folder, with kExhausted
// above `size_max` bytes, or as file_error says.
Result<std::string> read_file(const std::string& path, size_t size_max = size_t{1} << 32);

// Replaces `path` by `content`, all or nothing. A full disk is kExhausted and leaves no remains.
Status write_file_atomic(const std::string& path, std::string_view content);

// `prefix` with the six letters behind it that mkstemp and mkdtemp replace by others.
inline std::string temporary_pattern(std::string_view prefix) {
  return std::string(prefix) + std::string(6, 'X');
}

// Creates a folder and its parents. Fails with kInvalidArgument where `path` is a file, kNotFound,
// kExhausted, kIo.
Status make_folders(const std::string& path);
// That make_folders(path) would succeed, and files can be made there, as far as can be told without
// making anything: for work that writes in the end. Fails as it does.
Status check_folders(const std::string& path);

// Writes a file of any size piece by piece and puts it in place on commit(); without commit the
// temporary is removed.
class AtomicFile {
 public:
  // Fails with kInvalidArgument where `path` is a folder or "-", kNotFound, kExhausted, kIo.
  static Result<AtomicFile> create(const std::string& path);
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&& other) noexcept;
  ~AtomicFile();

  // Appends bytes. After a failure only destruction is allowed.
  Status write(const void* data, size_t size);
  // Overwrites bytes that were already written, for headers whose values come last.
  Status write_at(uint64_t offset, const void* data, size_t size);
  // Brings what was written to the disk, so that a commit that follows cannot fail for lack of
  // room.
  Status sync();
  Status commit();

 private:
  AtomicFile(std::string path, std::string temporary, int fd);
  std::string path_;
  std::string temporary_;  // empty: written in place
  int fd_ = -1;
};

// A read-only map of a whole file, unmapped on destruction. An empty file maps to an empty span.
class MappedFile {
 public:
  // Fails with kInvalidArgument where `path` is a folder, kNotFound, kIo.
  static Result<MappedFile> open(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

 private:
  MappedFile(std::string path, const std::byte* data, size_t size);
  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace jige
