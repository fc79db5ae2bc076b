#include "train/document_index.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <functional>

#include "base/file.h"

namespace jige::train {
namespace {

constexpr uint64_t kMagic = 0x53434F444547494A;  // the bytes "JIGEDOCS"
constexpr size_t kHeaderWords = 3;

tl::unexpected<Error> contradiction(const std::string& path, std::string_view what) {
  return fail(Code::kCorrupt, "{}: {}; remove it to have the documents counted anew", path, what);
}

Result<std::vector<int64_t>> read_sidecar(const std::string& path, int64_t token_count) {
  JIGE_TRY(const MappedFile map, MappedFile::open(path));
  const auto bytes = map.bytes();
  std::array<uint64_t, kHeaderWords> header{};
  if (bytes.size() < sizeof header) return contradiction(path, "is cut off");
  std::memcpy(header.data(), bytes.data(), sizeof header);
  const uint64_t count = header[2];
  if (header[0] != kMagic || header[1] != static_cast<uint64_t>(token_count) ||
      count > bytes.size() / sizeof(uint64_t) ||
      bytes.size() != (kHeaderWords + count) * sizeof(uint64_t)) {
    return contradiction(path, "does not belong to its token file");
  }
  std::vector<int64_t> ends(count);
  if (count > 0) std::memcpy(ends.data(), bytes.data() + sizeof header, count * sizeof(uint64_t));
  const bool ascending =
      std::adjacent_find(ends.begin(), ends.end(), std::greater_equal<>()) == ends.end();
  const bool complete = ends.empty() ? token_count == 0 : ends.front() > 0;
  if (!ascending || !complete || (!ends.empty() && ends.back() != token_count)) {
    return contradiction(path, "lists ends that contradict each other");
  }
  return ends;
}

}  // namespace

std::string document_index_path(const std::string& token_path) { return token_path + ".documents"; }

Status write_document_index(const std::string& token_path, std::span<const int64_t> ends) {
  const std::array<uint64_t, kHeaderWords> header = {
      kMagic, ends.empty() ? 0 : static_cast<uint64_t>(ends.back()), ends.size()};
  JIGE_TRY(AtomicFile file, AtomicFile::create(document_index_path(token_path)));
  JIGE_DO(file.write(header.data(), sizeof header));
  JIGE_DO(file.write(ends.data(), ends.size_bytes()));
  return file.commit();
}

Result<std::vector<int64_t>> read_document_ends(const formats::TokenFile& file, int32_t separator) {
  const std::string path = document_index_path(file.path());
  std::error_code error;
  if (std::filesystem::exists(path, error)) return read_sidecar(path, file.count());
  std::vector<int64_t> ends;
  if (separator < 0) {
    if (file.count() > 0) ends.push_back(file.count());
    return ends;
  }
  for (int64_t begin = 0; begin < file.count();) {
    begin = file.document_end(begin, separator);
    ends.push_back(begin);
  }
  return ends;
}

}  // namespace jige::train
