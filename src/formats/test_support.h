// What the tests of this folder share: scratch folders, fixtures, and a seeded mutator of files.
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
#include "base/rng.h"
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

// Damages a text in one to four ways that real damage and malice take.
class Mutator {
 public:
  explicit Mutator(uint64_t seed) : rng_(derive_key(seed, "mutator")) {}

  std::string mutate(std::string text) {
    const uint64_t count = 1 + rng_.below(4);
    for (uint64_t i = 0; i < count; ++i) mutate_once(text);
    return text;
  }

 private:
  size_t place(const std::string& text) { return rng_.below(text.size() + 1); }

  void mutate_once(std::string& text) {
    static constexpr std::string_view kTokens[] = {"0",
                                                   "-1",
                                                   "1e999",
                                                   "1e308",
                                                   "18446744073709551615",
                                                   "9223372036854775807",
                                                   "4294967296",
                                                   "null",
                                                   "true",
                                                   "\"\"",
                                                   "{}",
                                                   "[]",
                                                   "[[[[[[[[",
                                                   "{\"a\":",
                                                   ",",
                                                   ":",
                                                   "\"",
                                                   "\\u0000",
                                                   "\\ud800",
                                                   "\xff",
                                                   "\xed\xa0\x80",
                                                   "../",
                                                   "NaN",
                                                   "0.5",
                                                   "65536",
                                                   "2147483648"};
    switch (text.empty() ? 3 : rng_.below(9)) {
      case 0:
        text[rng_.below(text.size())] ^= static_cast<char>(1u << rng_.below(8));
        break;
      case 1:
        text.resize(rng_.below(text.size()));
        break;
      case 2: {
        const size_t begin = rng_.below(text.size());
        text.erase(begin, 1 + rng_.below(16));
        break;
      }
      case 3:
        text.insert(place(text), kTokens[rng_.below(std::size(kTokens))]);
        break;
      case 4: {
        const size_t begin = rng_.below(text.size());
        text.insert(place(text), text.substr(begin, 1 + rng_.below(64)));
        break;
      }
      case 5:
      case 6:
        replace_number(text);
        break;
      case 7: {
        const uint64_t word = rng_.next_u64() >> rng_.below(64);
        const size_t begin = rng_.below(text.size());
        std::memcpy(text.data() + begin, &word, std::min<size_t>(8, text.size() - begin));
        break;
      }
      default:
        text.append(1 + rng_.below(40), static_cast<char>(rng_.below(256)));
    }
  }

  // Puts an awkward number in the place of one that stands in the text.
  void replace_number(std::string& text) {
    static constexpr std::string_view kDigits = "0123456789";
    const size_t begin = text.find_first_of(kDigits, rng_.below(text.size()));
    if (begin == std::string::npos) return;
    const size_t end = std::min(text.find_first_not_of(kDigits, begin), text.size());
    static constexpr std::string_view kNumbers[] = {"0",
                                                    "1",
                                                    "2",
                                                    "3",
                                                    "7",
                                                    "8",
                                                    "-1",
                                                    "255",
                                                    "4095",
                                                    "65535",
                                                    "1048577",
                                                    "2147483647",
                                                    "4294967295",
                                                    "9223372036854775807",
                                                    "18446744073709551615",
                                                    "1e30",
                                                    "0.1",
                                                    "1e-320"};
    text.replace(begin, end - begin, kNumbers[rng_.below(std::size(kNumbers))]);
  }

  Rng rng_;
};

}  // namespace jige::formats
