#include "source_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
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
      SourceFile& file =
          files.emplace_back(relative.string(), folder, split_lines(text ? *text : ""));
      for (const std::string& line : file.lines) file.code.push_back(code_of(line));
    }
  }
  std::sort(files.begin(), files.end(), [](auto& a, auto& b) { return a.path < b.path; });
  return files;
}

// Where the literal that begins at `at` ends: at its closing mark, or at the end of the line.
size_t literal_end(std::string_view line, size_t at) {
  if (at > 0 && line[at] == '"' && line[at - 1] == 'R') {
    const size_t end = line.find(")\"", at);
    return end == line.npos ? line.size() : end + 1;
  }
  size_t end = at + 1;
  while (end < line.size() && line[end] != line[at]) end += line[end] == '\\' ? 2 : 1;
  return std::min(end, line.size());
}

}  // namespace

const std::vector<SourceFile>& sources() {
  static const std::vector<SourceFile> files = read_sources();
  return files;
}

bool is_word_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

bool has_word(std::string_view text, std::string_view word) {
  for (size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) {
    const size_t end = at + word.size();
    const bool begins = at == 0 || !is_word_char(text[at - 1]) || !is_word_char(word.front());
    const bool ends = end == text.size() || !is_word_char(text[end]) || !is_word_char(word.back());
    if (begins && ends) return true;
  }
  return false;
}

std::string code_of(std::string_view line) {
  std::string code;
  for (size_t at = 0; at < line.size(); ++at) {
    if (line[at] == '/' && line.substr(at).starts_with("//")) break;
    code += line[at];
    // A mark behind a digit parts a number.
    const bool opens =
        line[at] == '"' || (line[at] == '\'' && !(at > 0 && is_word_char(line[at - 1])));
    if (!opens) continue;
    at = literal_end(line, at);
    if (at < line.size()) code += line[at];
  }
  return code;
}

std::vector<FunctionLines> functions_of(const std::vector<std::string>& lines) {
  std::vector<FunctionLines> functions;
  constexpr size_t kNone = SIZE_MAX;
  size_t begin = kNone;  // of a signature, or of the function whose body this is
  bool inside = false;
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string& line = lines[i];
    if (line.empty()) continue;
    if (inside && line[0] == '}') {
      functions.push_back({begin, i});
      inside = false;
      begin = kNone;
    } else if (!inside && line[0] != ' ') {
      const bool signature = line[0] != '#' && line[0] != '}' && line[0] != '/' &&
                             line.find('(') != line.npos && !line.starts_with("namespace");
      begin = signature ? i : kNone;
    }
    if (!inside && begin != kNone) inside = line.ends_with("{");
  }
  return functions;
}

}  // namespace jige
