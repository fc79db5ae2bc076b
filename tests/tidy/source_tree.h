// The sources of the tree as the checks in this folder read them. Not for use from several threads.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace jige {

struct SourceFile {
  std::string path;    // relative to the root
  std::string folder;  // relative to src/, "" outside it
  std::vector<std::string> lines;
  std::vector<std::string> code;  // of each line, by code_of()
};

// All sources under src, tests and bench, in order of their paths; read once.
const std::vector<SourceFile>& sources();

bool is_word_char(char c);

// `word` stands in `text` and is no part of a longer word.
bool has_word(std::string_view text, std::string_view word);

// A line without its comment and without what stands in its string and character literals.
std::string code_of(std::string_view line);

// A function outside classes, from the line its signature begins at to its closing bracket.
struct FunctionLines {
  size_t begin, end;
};
std::vector<FunctionLines> functions_of(const std::vector<std::string>& lines);

}  // namespace jige
