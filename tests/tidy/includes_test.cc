// Sources include what they use, so that the tree builds without precompiled headers, too: every
// header that is precompiled is included by each source that names what is in it, directly or
// through headers of the tree.

#include <gtest/gtest.h>

#include <array>
#include <bitset>
#include <iterator>
#include <regex>
#include <sstream>
#include <string>
#include <string_view>
#include <unordered_map>
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

// What sources write who use a header, each with the place of the header above.
const std::unordered_map<std::string, size_t>& uses() {
  static const auto all = [] {
    std::unordered_map<std::string, size_t> places;
    for (size_t i = 0; i < std::size(kNames); ++i) {
      for (const std::string& prefix : split_words(kNames[i].prefixes)) {
        for (const std::string& name : split_words(kNames[i].names)) places[prefix + name] = i;
      }
    }
    return places;
  }();
  return all;
}

// Files that `include` in quotes may mean.
std::vector<std::string> candidates(const std::string& include) {
  return {"src/" + include, "tests/" + include, "tests/integration/" + include,
          "tests/tidy/" + include, "bench/" + include};
}

using Headers = std::bitset<std::size(kNames)>;

// Which of the headers above each file of the tree includes, also through headers of the tree.
class Reached {
 public:
  Reached() {
    for (const SourceFile& file : sources()) files_[file.path] = read(file);
  }

  const Headers& of(const std::string& path) {
    File& file = files_.at(path);
    if (file.done) return file.headers;
    file.done = true;
    for (const std::string& include : file.inside) {
      for (const std::string& header : candidates(include)) {
        if (files_.contains(header)) file.headers |= of(header);
      }
    }
    return file.headers;
  }

 private:
  struct File {
    std::vector<std::string> inside;  // included in quotes
    Headers headers;
    bool done = false;  // the headers are also those of `inside`
  };

  static File read(const SourceFile& source) {
    constexpr std::string_view kInclude = "#include ";
    File file;
    for (const std::string& line : source.lines) {
      if (!line.starts_with(kInclude)) continue;
      const size_t begin = kInclude.size() + 1;
      const size_t end = line.find_first_of("\">", begin);
      if (end == std::string::npos) continue;
      const std::string name = line.substr(begin, end - begin);
      if (line[begin - 1] == '"') file.inside.push_back(name);
      for (size_t i = 0; i < std::size(kNames); ++i) {
        if (line[begin - 1] == '<' && kNames[i].header == name) file.headers.set(i);
      }
    }
    return file;
  }

  std::unordered_map<std::string, File> files_;  // by path
};

const Headers& reached(const std::string& path) {
  static Reached all;
  return all.of(path);
}

// Calls `use(name)` for each qualified name in a line of code, and for what its beginnings name:
// std::vector and std::vector::iterator.
template <typename Use>
void for_qualified_names(std::string_view code, const Use& use) {
  for (size_t colon = code.find("::"); colon != code.npos; colon = code.find("::", colon)) {
    size_t begin = colon;
    while (begin > 0 && is_word_char(code[begin - 1])) --begin;
    while (code.substr(colon).starts_with("::")) {
      colon += 2;
      while (colon < code.size() && is_word_char(code[colon])) ++colon;
      use(std::string(code.substr(begin, colon - begin)));
    }
  }
}

TEST(Tidy, SourcesIncludeWhatTheyUse) {
  size_t found = 0;
  for (const SourceFile& file : sources()) {
    std::array<size_t, std::size(kNames)> lines = {};  // of the first use; counted from 1
    for (size_t i = 0; i < file.code.size(); ++i) {
      for_qualified_names(file.code[i], [&](const std::string& name) {
        const auto use = uses().find(name);
        if (use != uses().end() && lines[use->second] == 0) lines[use->second] = i + 1;
      });
    }
    for (size_t i = 0; i < lines.size(); ++i) {
      if (lines[i] == 0) continue;
      ++found;
      EXPECT_TRUE(reached(file.path)[i])
          << file.path << ":" << lines[i] << ": include <" << kNames[i].header << ">";
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
      EXPECT_TRUE(reached(file.path)[uses().at("Json::parse")])
          << file.path << ":" << i + 1 << ": include <nlohmann/json.hpp>";
    }
  }
  EXPECT_GT(found, 100u);
}

}  // namespace
}  // namespace jige
