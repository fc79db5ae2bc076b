// Sources include what they use, so that the tree builds without precompiled headers, too: every
// header that is precompiled is included by each source that names what is in it, directly or
// through headers of the tree.

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "source_tree.h"

namespace jige {
namespace {

struct Names {
  std::string_view header;
  std::vector<std::string_view> words;
};

const std::vector<Names>& names() {
  static const std::vector<Names> table = {
      {"algorithm",
       {"std::min",
        "std::max",
        "std::clamp",
        "std::minmax_element",
        "std::min_element",
        "std::max_element",
        "std::sort",
        "std::stable_sort",
        "std::find",
        "std::find_if",
        "std::copy",
        "std::copy_n",
        "std::fill",
        "std::fill_n",
        "std::any_of",
        "std::all_of",
        "std::none_of",
        "std::count_if",
        "std::reverse",
        "std::rotate",
        "std::transform",
        "std::lower_bound",
        "std::upper_bound",
        "std::equal",
        "std::is_sorted",
        "std::next_permutation",
        "std::ranges::sort",
        "std::ranges::stable_sort",
        "std::ranges::find",
        "std::ranges::find_if",
        "std::ranges::any_of",
        "std::ranges::all_of",
        "std::ranges::none_of",
        "std::ranges::count",
        "std::ranges::count_if",
        "std::ranges::copy",
        "std::ranges::fill",
        "std::ranges::max",
        "std::ranges::min",
        "std::ranges::max_element",
        "std::ranges::min_element",
        "std::ranges::reverse",
        "std::ranges::equal",
        "std::ranges::lower_bound",
        "std::ranges::upper_bound",
        "std::ranges::transform",
        "std::ranges::is_sorted"}},
      {"array", {"std::array"}},
      {"cmath",
       {"std::sqrt", "std::exp", "std::log", "std::pow", "std::isfinite", "std::isnan", "std::ceil",
        "std::floor", "std::lround", "std::tanh"}},
      {"filesystem", {"std::filesystem"}},
      {"functional", {"std::function"}},
      {"map", {"std::map", "std::multimap"}},
      {"memory", {"std::unique_ptr", "std::shared_ptr", "std::make_unique", "std::make_shared"}},
      {"optional", {"std::optional", "std::nullopt"}},
      {"span", {"std::span"}},
      {"string", {"std::string", "std::to_string"}},
      {"string_view", {"std::string_view"}},
      {"unordered_map", {"std::unordered_map"}},
      {"vector", {"std::vector"}},
      {"fmt/format.h", {"fmt::format", "fmt::print"}},
      {"nlohmann/json.hpp", {"Json::array", "Json::object", "Json::parse"}},
  };
  return table;
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

// The first line that names something of a header, counted from 1; 0: none does.
size_t first_use(const SourceFile& file, const Names& of) {
  for (size_t i = 0; i < file.lines.size(); ++i) {
    const std::string_view line = file.lines[i];
    const std::string_view code = line.substr(0, line.find("//"));
    if (code.find("::") == code.npos) continue;
    if (code.find('"') != code.npos && file.path.starts_with("tests/tidy/")) continue;
    for (const std::string_view word : of.words) {
      if (has_word(code, word)) return i + 1;
    }
  }
  return 0;
}

TEST(Tidy, SourcesIncludeWhatTheyUse) {
  const Tree tree = read_includes();
  size_t uses = 0;
  for (const SourceFile& file : sources()) {
    std::set<std::string> seen;
    std::set<std::string> outside;
    add_reached(tree, file.path, seen, outside);
    for (const Names& of : names()) {
      const size_t line = first_use(file, of);
      if (line == 0) continue;
      ++uses;
      EXPECT_TRUE(outside.contains(std::string(of.header)))
          << file.path << ":" << line << ": include <" << of.header << ">";
    }
  }
  EXPECT_GT(uses, 1000u);
}

}  // namespace
}  // namespace jige
