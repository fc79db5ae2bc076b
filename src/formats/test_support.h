// What the tests of this folder share: scratch folders and fixtures.
//
// Threads: one test at a time.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/test_mutator.h"
#include "base/test_path.h"

namespace jige::formats {

// A folder that is removed with its content.
class ScratchFolder {
 public:
  ScratchFolder() : path_(temporary_pattern(test_root() + "jige-formats-")) {
    if (!::mkdtemp(path_.data())) ADD_FAILURE() << "no scratch folder at " << path_;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(std::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  std::string path_;
};

inline std::string fixture(std::string_view name) {
  return std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/formats/" + std::string(name);
}

// A folder or file of those that read images.
inline std::string image_tower_fixture(std::string_view name) {
  return std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/image_towers/" + std::string(name);
}

inline std::string read_or_fail(const std::string& path) {
  Result<std::string> text = read_file(path);
  EXPECT_TRUE(text) << (text ? "" : text.error().message);
  return text ? std::move(*text) : std::string();
}

// Without the care of write_file_atomic, which would spend the time on the disk. Removed first:
// some file systems bring a file that is truncated and rewritten to the disk at once.
inline void write_or_fail(const std::string& path, std::string_view content) {
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
  std::ofstream file(path, std::ios::binary);
  file.write(content.data(), static_cast<std::streamsize>(content.size()));
  ASSERT_TRUE(file.flush()) << path;
}

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// The names of everything in a folder, sorted.
inline std::vector<std::string> folder_entries(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Expects a failure whose message holds `words`.
#define EXPECT_FAILS_WITH(expression, wanted_code, words)                                  \
  do {                                                                                     \
    const auto& failing_result = (expression);                                             \
    ASSERT_FALSE(failing_result) << "expected a failure naming " << (words);               \
    EXPECT_EQ(failing_result.error().code, wanted_code) << failing_result.error().message; \
    EXPECT_NE(failing_result.error().message.find(words), std::string::npos)               \
        << failing_result.error().message << "\ndoes not hold: " << (words);               \
  } while (false)

}  // namespace jige::formats
