// VectorFile: the vectors that a command computes, in a file that appears when all are there.
//
//   NAME.npy      NumPy's format 1.0: a matrix of f32, [vectors, dimensions] in C order
//   anything else JSON lines: {"line", "tokens", "truncated" where it is, "embedding": [f32 …]}
//
// Threads: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/file.h"
#include "base/result.h"

namespace jige::cli {

// One vector and the text that it is of.
struct TextVector {
  int64_t line = 0;    // where the text stood, from 1
  int64_t tokens = 0;  // of it
  bool truncated = false;
  std::span<const float> values;
};

// The JSON line of a vector, with its line feed.
std::string vector_line(const TextVector& vector);

// The header of a .npy file of such a matrix: as long for any numbers. Source: NumPy's NEP 1.
std::string npy_header(int64_t rows, int64_t columns);

class VectorFile {
 public:
  // Fails as AtomicFile::create does.
  static Result<VectorFile> create(const std::string& path, int64_t dimensions);

  // REQUIRES: as many values as dimensions.
  Status add(const TextVector& vector);
  // Whether it is a matrix, whose rows do not say which line they are of.
  bool is_npy() const { return is_npy_; }
  // Puts the file in place.
  Status commit();

 private:
  VectorFile(AtomicFile file, bool is_npy, int64_t dimensions)
      : file_(std::move(file)), is_npy_(is_npy), dimensions_(dimensions) {}

  AtomicFile file_;
  bool is_npy_;
  int64_t dimensions_;
  int64_t count_ = 0;
};

}  // namespace jige::cli
