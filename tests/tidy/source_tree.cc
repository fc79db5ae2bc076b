#include "source_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <set>

#include "base/file.h"

namespace jige {
namespace {

namespace fs = std::filesystem;

const fs::path kRoot = JIGE_SOURCE_DIR;

bool is_source(const fs::path& path) {
  static const std::set<std::string> kEndings = {".h", ".cc", ".cu", ".cuh"};
  return kEndings.contains(path.extension().string());
}

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

std::vector<SourceFile> read_sources() {
  std::vector<SourceFile> files;
  for (const char* top : {"src", "tests", "bench"}) {
    if (!fs::exists(kRoot / top)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / top)) {
      if (!entry.is_regular_file() || !is_source(entry.path())) continue;
      const fs::path relative = fs::relative(entry.path(), kRoot);
      const std::string folder =
          std::string(top) == "src" ? fs::relative(relative.parent_path(), "src").string() : "";
      auto text = read_file(entry.path().string());
      EXPECT_TRUE(text) << relative;
      files.push_back({relative.string(), folder, split_lines(text ? *text : "")});
    }
  }
  std::sort(files.begin(), files.end(), [](auto& a, auto& b) { return a.path < b.path; });
  return files;
}

bool is_word_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

}  // namespace

const std::vector<SourceFile>& sources() {
  static const std::vector<SourceFile> files = read_sources();
  return files;
}

bool has_word(std::string_view text, std::string_view word) {
  for (size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) {
    const size_t end = at + word.size();
    const bool begins = at == 0 || !is_word_char(text[at - 1]) || !is_word_char(word.front());
    const bool ends = end == text.size() || !is_word_char(text[end]) || !is_word_char(word.back());
    if (begins && ends) return true;
  }
  return false;
}

}  // namespace jige
