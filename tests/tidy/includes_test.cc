// Sources include what they use, so that the tree builds without precompiled headers, too: every
// header that is precompiled is included by each source that names what is in it, directly or
// through headers of the tree.

#include <gtest/gtest.h>

#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "source_tree.h"

namespace jige {
namespace {

struct Names {
  std::string_view header;
  std::string_view prefixes;  // by blanks, as are the names
  std::string_view names;
};

constexpr Names kNames[] = {
    {"algorithm", "std:: std::ranges::",
     "all_of any_of clamp copy copy_n count count_if equal fill fill_n find find_if is_sorted "
     "lower_bound max max_element min min_element minmax_element next_permutation none_of reverse "
     "rotate sort stable_sort transform upper_bound"},
    {"array", "std::", "array"},
    {"cmath", "std::", "ceil exp floor isfinite isnan log lround pow sqrt tanh"},
    {"filesystem", "std::", "filesystem"},
    {"functional", "std::", "function"},
    {"map", "std::", "map multimap"},
    {"memory", "std::", "make_shared make_unique shared_ptr unique_ptr"},
    {"optional", "std::", "nullopt optional"},
    {"span", "std::", "span"},
    {"string", "std::", "string to_string"},
    {"string_view", "std::", "string_view"},
    {"unordered_map", "std::", "unordered_map"},
    {"vector", "std::", "vector"},
    {"fmt/format.h", "fmt::", "format print"},
    {"nlohmann/json.hpp", "Json::", "array object parse"},
};

std::vector<std::string> split_words(std::string_view text) {
  std::istringstream stream{std::string(text)};
  return {std::istream_iterator<std::string>(stream), {}};
}

// What sources write who use a header.
std::vector<std::string> uses_of(const Names& of) {
  std::vector<std::string> uses;
  for (const std::string& prefix : split_words(of.prefixes)) {
    for (const std::string& name : split_words(of.names)) uses.push_back(prefix + name);
  }
  return uses;
}

// Files that `include` in quotes may mean.
std::vector<std::string> candidates(const std::string& include) {
  return {"src/" + include, "tests/" + include, "tests/integration/" + include,
          "tests/tidy/" + include, "bench/" + include};
}

struct Includes {
  std::set<std::string> outside;  // in angle brackets
  std::set<std::string> inside;   // in quotes
};

using Tree = std::map<std::string, Includes>;  // by path

Tree read_includes() {
  Tree tree;
  for (const SourceFile& file : sources()) {
    Includes& includes = tree[file.path];
    for (const std::string& line : file.lines) {
      constexpr std::string_view kInclude = "#include ";
      if (!line.starts_with(kInclude)) continue;
      const size_t begin = kInclude.size() + 1;
      const size_t end = line.find_first_of("\">", begin);
      if (end == std::string::npos) continue;
      auto& kind = line[begin - 1] == '<' ? includes.outside : includes.inside;
      kind.insert(line.substr(begin, end - begin));
    }
  }
  return tree;
}

// Adds what `path` includes from outside the tree, also through headers of the tree.
void add_reached(const Tree& tree, const std::string& path, std::set<std::string>& seen,
                 std::set<std::string>& outside) {
  const auto at = tree.find(path);
  if (at == tree.end() || !seen.insert(path).second) return;
  outside.insert(at->second.outside.begin(), at->second.outside.end());
  for (const std::string& include : at->second.inside) {
    for (const std::string& header : candidates(include)) add_reached(tree, header, seen, outside);
  }
}

// What each file includes from outside the tree, also through headers of the tree; found once.
const std::map<std::string, std::set<std::string>>& reached() {
  static const auto all = [] {
    const Tree tree = read_includes();
    std::map<std::string, std::set<std::string>> outside;
    for (const SourceFile& file : sources()) {
      std::set<std::string> seen;
      add_reached(tree, file.path, seen, outside[file.path]);
    }
    return outside;
  }();
  return all;
}

// The first line that names something of a header, counted from 1; 0: none does.
size_t first_use(const SourceFile& file, const std::vector<std::string>& uses) {
  for (size_t i = 0; i < file.code.size(); ++i) {
    if (file.code[i].find("::") == std::string::npos) continue;
    for (const std::string& use : uses) {
      if (has_word(file.code[i], use)) return i + 1;
    }
  }
  return 0;
}

TEST(Tidy, SourcesIncludeWhatTheyUse) {
  size_t found = 0;
  for (const Names& of : kNames) {
    const std::vector<std::string> uses = uses_of(of);
    for (const SourceFile& file : sources()) {
      const size_t line = first_use(file, uses);
      if (line == 0) continue;
      ++found;
      EXPECT_TRUE(reached().at(file.path).contains(std::string(of.header)))
          << file.path << ":" << line << ": include <" << of.header << ">";
    }
  }
  EXPECT_GT(found, 1000u);
}

// base/json.h only declares Json: who has one by value includes what defines it.
TEST(Tidy, SourcesThatHoldJsonIncludeItsDefinition) {
  const std::regex held(R"(^ *(const )?Json \w+( = .*|\{.*)?;)");
  size_t found = 0;
  for (const SourceFile& file : sources()) {
    for (size_t i = 0; i < file.code.size(); ++i) {
      const std::string& code = file.code[i];
      if (code.find("Json ") == code.npos || !std::regex_search(code, held)) continue;
      ++found;
      EXPECT_TRUE(reached().at(file.path).contains("nlohmann/json.hpp"))
          << file.path << ":" << i + 1 << ": include <nlohmann/json.hpp>";
    }
  }
  EXPECT_GT(found, 100u);
}

}  // namespace
}  // namespace jige
