#include "cli/vector_file.h"

#include <fmt/format.h>

#include <bit>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/json.h"

namespace jige::cli {
namespace {

// Room for a shape of two numbers of 19 digits, and a multiple of 64, as the format wants it.
constexpr size_t kNpyHeaderBytes = 128;
static_assert(std::endian::native == std::endian::little);

}  // namespace

std::string vector_line(const TextVector& vector) {
  Json line{{"line", vector.line}, {"tokens", vector.tokens}};
  if (vector.truncated) line["truncated"] = true;
  line["embedding"] = std::vector<float>(vector.values.begin(), vector.values.end());
  return dump_json(line) + "\n";
}

std::string npy_header(int64_t rows, int64_t columns) {
  std::string header("\x93NUMPY\x01\x00", 8);
  const size_t text_bytes = kNpyHeaderBytes - header.size() - 2;
  header += static_cast<char>(text_bytes & 0xff);
  header += static_cast<char>(text_bytes >> 8);
  header +=
      fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", rows, columns);
  header.resize(kNpyHeaderBytes - 1, ' ');
  return header + "\n";
}

Result<VectorFile> VectorFile::create(const std::string& path, int64_t dimensions) {
  JIGE_TRY(AtomicFile file, AtomicFile::create(path));
  const bool is_npy = path.ends_with(".npy");
  if (is_npy) {
    const std::string header = npy_header(0, dimensions);  // written again in the end
    JIGE_DO(file.write(header.data(), header.size()));
  }
  return VectorFile(std::move(file), is_npy, dimensions);
}

Status VectorFile::add(const TextVector& vector) {
  JIGE_CHECK(std::ssize(vector.values) == dimensions_, "a vector of {} numbers among some of {}",
             vector.values.size(), dimensions_);
  ++count_;
  if (is_npy_) return file_.write(vector.values.data(), vector.values.size_bytes());
  const std::string line = vector_line(vector);
  return file_.write(line.data(), line.size());
}

Status VectorFile::commit() {
  if (is_npy_) {
    const std::string header = npy_header(count_, dimensions_);
    JIGE_DO(file_.write_at(0, header.data(), header.size()));
  }
  return file_.commit();
}

}  // namespace jige::cli
