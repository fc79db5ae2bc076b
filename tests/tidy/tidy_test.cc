// Checks of the tree itself: the layering of the folders, sizes, comments, banned calls. Each
// failure names the file and says what to do instead.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "source_tree.h"

namespace jige {
namespace {

namespace fs = std::filesystem;

// Which folders a folder may include besides itself, as the table of docs/ARCHITECTURE.md says;
// those that may include everything are not in it.
std::map<std::string, std::set<std::string>> allowed_includes() {
  static const std::regex kRow(R"(\| `([a-z/]+)` \| .* \| ([a-z/ ]+|–) \|)");
  std::map<std::string, std::set<std::string>> allowed;
  std::ifstream page(fs::path(JIGE_SOURCE_DIR) / "docs/ARCHITECTURE.md");
  bool inside = false;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("## ")) inside = line == "## Folders and what they may see";
    std::smatch row;
    if (!inside || !std::regex_match(line, row, kRow) || row[2] == "everything") continue;
    std::istringstream folders(row[2] == "–" ? "" : row[2].str());
    std::set<std::string>& of_row = allowed[row[1]];
    for (std::string folder; folders >> folder;) of_row.insert(folder);
  }
  return allowed;
}

// Columns of a UTF-8 line, one a code point.
size_t column_count(const std::string& line) {
  return static_cast<size_t>(std::count_if(line.begin(), line.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

bool is_test(const SourceFile& file) {
  return file.path.ends_with("_test.cc") || file.path.starts_with("tests/");
}

TEST(Tidy, FindsWords) {
  EXPECT_TRUE(has_word("  throw 1;", "throw"));
  EXPECT_TRUE(has_word("rethrow(); throw;", "throw"));
  EXPECT_TRUE(has_word("std::rand();", "rand("));
  EXPECT_FALSE(has_word("rethrow(); throws();", "throw"));
  EXPECT_FALSE(has_word("operand(a);", "rand("));
  EXPECT_FALSE(has_word("throw_away", "throw"));
}

TEST(Tidy, FindsCode) {
  EXPECT_EQ(code_of("  throw Error(\"// text\");  // why"), "  throw Error(\"\");  ");
  EXPECT_EQ(code_of("if (c == '\"' && d == '\\'') f(\"a\\\"b\", 1'000);"),
            "if (c == '' && d == '') f(\"\", 1'000);");
  EXPECT_EQ(code_of("auto x = R\"({\"a\": 1})\" + y;"), "auto x = R\"\" + y;");
  EXPECT_EQ(code_of("auto x = R\"(begins"), "auto x = R\"");
}

TEST(Tidy, FindsFunctions) {
  std::istringstream text(R"(#define F(x) \
  g(x)
namespace {
int f(int a) {
  return a;
}
struct S {
  int g() {
  }
};
int h(int a,
      int b) {
  if (a) {
  }
}
C::C(int a)
    : a_(a) {}
int k(int a);

C::D(int a)
    : a_(f(a)) {
}
})");
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  std::vector<std::pair<size_t, size_t>> found;
  for (const auto& [begin, end] : functions_of(lines)) found.emplace_back(begin, end);
  EXPECT_EQ(found, (std::vector<std::pair<size_t, size_t>>{{3, 5}, {10, 14}, {19, 21}}));
}

TEST(Tidy, FindsTheTree) { EXPECT_GT(sources().size(), 40u); }

TEST(Tidy, FoldersIncludeOnlyWhatTheirLayerMay) {
  constexpr std::string_view kInclude = "#include \"";
  const auto table = allowed_includes();
  EXPECT_TRUE(table.contains("base") && table.at("base").empty());
  for (const SourceFile& file : sources()) {
    if (file.folder.empty() || file.folder.starts_with("cli")) continue;
    const auto allowed = table.find(file.folder);
    ASSERT_NE(allowed, table.end()) << file.path << ": folder src/" << file.folder
                                    << " is not in the table of docs/ARCHITECTURE.md";
    for (const std::string& line : file.lines) {
      if (!line.starts_with(kInclude)) continue;
      const size_t end = line.find('"', kInclude.size());
      const std::string header = line.substr(kInclude.size(), end - kInclude.size());
      const std::string target = fs::path(header).parent_path().string();
      EXPECT_TRUE(target == file.folder || allowed->second.contains(target))
          << file.path << " includes " << header << ": src/" << file.folder << " may not see src/"
          << target;
    }
  }
}

TEST(Tidy, LinesFitInAHundredColumns) {
  for (const SourceFile& file : sources()) {
    for (size_t i = 0; i < file.lines.size(); ++i) {
      EXPECT_LE(column_count(file.lines[i]), 100u) << file.path << ":" << i + 1;
    }
  }
}

TEST(Tidy, FilesHoldOneConcern) {
  constexpr size_t kLinesMax = 500;
  for (const SourceFile& file : sources()) {
    if (is_test(file)) continue;
    EXPECT_LE(file.lines.size(), kLinesMax) << file.path << ": split it by concern";
  }
}

TEST(Tidy, FunctionsFitOnAScreen) {
  constexpr size_t kLinesMax = 70;
  size_t found = 0;
  for (const SourceFile& file : sources()) {
    if (is_test(file)) continue;
    for (const auto& [begin, end] : functions_of(file.lines)) {
      ++found;
      EXPECT_LE(end - begin, kLinesMax)
          << file.path << ":" << begin + 1 << ": function of " << end - begin << " lines; split it";
    }
  }
  EXPECT_GT(found, 3000u);
}

TEST(Tidy, HeadersOpenWithTheirPurpose) {
  for (const SourceFile& file : sources()) {
    if (!file.path.ends_with(".h") && !file.path.ends_with(".cuh")) continue;
    ASSERT_FALSE(file.lines.empty()) << file.path;
    EXPECT_TRUE(file.lines[0].starts_with("// "))
        << file.path << ": the first line must say what the header is for";
    EXPECT_NE(std::find(file.lines.begin(), file.lines.end(), "#pragma once"), file.lines.end())
        << file.path << ": no #pragma once";
  }
}

TEST(Tidy, NoLeftOverMarks) {
  constexpr std::string_view kMarks[] = {"TODO", "FIXME", "XXX", "HACK"};
  for (const SourceFile& file : sources()) {
    if (file.path == "tests/tidy/tidy_test.cc") continue;
    for (size_t i = 0; i < file.lines.size(); ++i) {
      EXPECT_FALSE(std::ranges::any_of(
          kMarks, [&](std::string_view mark) { return has_word(file.lines[i], mark); }))
          << file.path << ":" << i + 1 << ": do it or delete the mark";
    }
  }
}

// Without them a kernel may be given more registers than a block of its threads can have, which
// nothing but a launch on a GPU tells.
TEST(Tidy, KernelsStateTheirLaunchBounds) {
  int kernels = 0;
  for (const SourceFile& file : sources()) {
    if (!file.path.starts_with("src/kernels/cuda/")) continue;
    for (size_t i = 0; i < file.lines.size(); ++i) {
      const std::string& code = file.code[i];
      if (!has_word(code, "__global__") || code.starts_with("#define")) continue;
      ++kernels;
      EXPECT_TRUE(has_word(code, "__launch_bounds__"))
          << file.path << ":" << i + 1 << ": state the threads of a block";
    }
  }
  EXPECT_GT(kernels, 50);
}

TEST(Tidy, BannedCallsHaveReplacements) {
  struct Ban {
    std::vector<std::string_view> words;
    const char* instead;
    std::string_view under = "";  // of these files alone
  };
  static const std::vector<Ban> kBans = {
      {{"throw"}, "return fail(…) (base/result.h)"},
      {{"assert("}, "JIGE_CHECK (base/check.h)"},
      {{"std::cout", "std::cerr"}, "log_info or fmt::print"},
      {{"fmt::print(stderr"}, "print_message (cli/output.h), which throws nothing", "src/"},
      {{"rand(", "std::mt19937", "std::mt19937_64", "random_device"}, "Rng (base/rng.h)"},
      {{"sprintf(", "strcpy(", "strcat("}, "fmt::format"},
      {{"using namespace"}, "the full name"},
  };
  for (const SourceFile& file : sources()) {
    if (file.path == "tests/tidy/tidy_test.cc") continue;
    for (size_t i = 0; i < file.lines.size(); ++i) {
      const std::string& code = file.code[i];
      for (const Ban& ban : kBans) {
        if (!file.path.starts_with(ban.under)) continue;
        for (const std::string_view word : ban.words) {
          EXPECT_FALSE(has_word(code, word))
              << file.path << ":" << i + 1 << ": use " << ban.instead;
        }
      }
    }
  }
}

}  // namespace
}  // namespace jige
