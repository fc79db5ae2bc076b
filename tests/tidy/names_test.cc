// Sources of a folder are compiled several at a time (cmake/fast_builds.cmake, kernels for GPUs:
// cmake/cuda.cmake): what they name in unnamed namespaces stands beside each other.

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "source_tree.h"

namespace jige {
namespace {

// A line, and of a kernel all up to its name without what bounds its launches.
std::string head_of(const std::vector<std::string>& lines, size_t index) {
  static const std::string kBounds = "__launch_bounds__(";
  std::string head = lines[index];
  const size_t begin = head.find(kBounds);
  if (begin == std::string::npos) return head;
  for (size_t next = index + 1; next < std::min(index + 3, lines.size()); ++next) {
    head += " " + lines[next];
  }
  size_t end = begin + kBounds.size();
  for (int open = 1; open > 0 && end < head.size(); ++end) {
    if (head[end] == '(') ++open;
    if (head[end] == ')') --open;
  }
  return head.erase(begin, end - begin);
}

// What a line defines that begins in the first column, within an unnamed namespace.
std::optional<std::string> defined_name(const std::string& line) {
  static const std::regex kType(
      R"(^(?:class|struct|enum class|enum|union) (\w+)(?:[^;]*|.*\{.*)$)");
  static const std::regex kAlias(R"(^using (\w+) =.*$)");
  static const std::regex kConstant(
      R"(^(?:constexpr|const|thread_local|constinit) [^(=]*\b(\w+)(?:\[[^\]]*\])* = .*$)");
  static const std::regex kFunction(R"(^[\w:].*?[ &*>](\w+)\(.*$)");
  static const std::set<std::string> kNone = {"TEST",          "TEST_F",  "TEST_P",
                                              "static_assert", "MATCHER", "MATCHER_P"};
  std::smatch match;
  if (std::regex_match(line, match, kType) || std::regex_match(line, match, kAlias) ||
      std::regex_match(line, match, kConstant)) {
    return match[1].str();
  }
  if (line.starts_with("using ") || line.starts_with("TEST") || line.starts_with("template"))
    return std::nullopt;
  const size_t open = line.find('(');
  if (open == std::string::npos || line.find("::", line.rfind(' ', open) + 1) < open) {
    return std::nullopt;  // nothing, or a member of a class
  }
  if (!std::regex_match(line, match, kFunction) || kNone.contains(match[1].str())) {
    return std::nullopt;
  }
  return match[1].str();
}

TEST(Names, AreFoundWhereTheyAreDefined) {
  EXPECT_EQ(defined_name("int64_t divide_up(int64_t value, int64_t by) {"), "divide_up");
  EXPECT_EQ(defined_name("std::vector<int> rows_of("), "rows_of");
  EXPECT_EQ(defined_name("const Json& part(const Json& json) {"), "part");
  EXPECT_EQ(defined_name("constexpr size_t kRowsMax = size_t{1} << 20;"), "kRowsMax");
  EXPECT_EQ(defined_name("constexpr const char* kColors[] = {\"red\","), "kColors");
  EXPECT_EQ(defined_name("struct Blocking {"), "Blocking");
  EXPECT_EQ(defined_name("class Step final : public Normalizer::Step {"), "Step");
  EXPECT_EQ(defined_name("Status SharedTransport::wait(Deadline deadline) {"), std::nullopt);
  EXPECT_EQ(defined_name("using Rows = std::vector<int>;"), "Rows");
  EXPECT_EQ(defined_name("using cluster::Job;"), std::nullopt);
  EXPECT_EQ(defined_name("TEST(Names, AreFound) {"), std::nullopt);
  EXPECT_EQ(defined_name("}  // namespace"), std::nullopt);
  EXPECT_EQ(defined_name("enum Source { kValue, kMemory };"), "Source");
  EXPECT_EQ(defined_name("struct Count {};"), "Count");
  EXPECT_EQ(defined_name("struct Count;"), std::nullopt);
  EXPECT_EQ(defined_name("template <typename Plan>"), std::nullopt);
  EXPECT_EQ(defined_name("__device__ uint4* slot_of("), "slot_of");
  EXPECT_EQ(defined_name("enum class Wait : uint8_t { kNone, kBlock };"), "Wait");
  const auto name_of = [](const std::vector<std::string>& lines) {
    return defined_name(head_of(lines, 0));
  };
  EXPECT_EQ(name_of({"__global__ void __launch_bounds__(kWarps* kWarp) add(Sums sums) {", "}"}),
            "add");
  EXPECT_EQ(name_of({"__global__ __launch_bounds__(threads(kRows), 2) void copy(Rows rows,",
                     "                                                         int count) {"}),
            "copy");
  EXPECT_EQ(name_of({"__global__ void __launch_bounds__(Plan::kThreads)", "    turn(Rows rows) {"}),
            "turn");
  EXPECT_EQ(name_of({"__global__ __launch_bounds__(kThreads,", "    V::kBlocks) void",
                     "    turn(Rows rows) {"}),
            "turn");
}

TEST(Names, OfUnnamedNamespacesStandInOneFileOfAFolder) {
  std::map<std::pair<std::string, std::string>, std::string> first;  // (program, name) -> file
  for (const SourceFile& file : sources()) {
    const char* const suffixes[] = {"_simd.cc", "_tiles.cc", "_avx2.cc",
                                    "_vnni.cc", "_bf16.cc",  "_amx.cc"};
    const bool alone = std::any_of(std::begin(suffixes), std::end(suffixes),
                                   [&](const char* end) { return file.path.ends_with(end); });
    const bool program_of_its_own =
        file.path.starts_with("bench/") || file.path.starts_with("tests/fakes/");
    const bool compiled = file.path.ends_with(".cc") || file.path.ends_with(".cu");
    if (!compiled || alone || program_of_its_own) continue;
    const std::string folder = file.path.substr(0, file.path.rfind('/'));
    const std::string program = folder + (file.path.ends_with("_test.cc") ? " tests" : "");
    bool unnamed = false;
    for (size_t i = 0; i < file.lines.size(); ++i) {
      const std::string& line = file.lines[i];
      if (line == "namespace {") unnamed = true;
      if (line == "}  // namespace") unnamed = false;
      if (!unnamed || line.empty() || line.front() == ' ' || line.front() == '/') continue;
      const auto name = defined_name(head_of(file.lines, i));
      if (!name) continue;
      const auto [before, is_new] = first.try_emplace({program, *name}, file.path);
      EXPECT_TRUE(is_new || before->second == file.path)
          << file.path << ": " << *name << " is also in the unnamed namespace of " << before->second
          << "; share it, or give it another name";
    }
  }
}

// Such a name would mean another thing, or two, to the file that comes next.
TEST(Names, OfOtherFoldersAreUsedOnlyWhereTheFolderHasNoneLikeThem) {
  static const std::regex kType(R"(^(?:class|struct|enum class|union) (\w+)(?:[^;]*|.*\{.*)$)");
  static const std::regex kUsing(R"(^using (\w+)::(\w+);$)");
  std::set<std::pair<std::string, std::string>> declared;  // (folder, name)
  std::set<std::string> folders;
  std::smatch match;
  for (const SourceFile& file : sources()) {
    folders.insert(file.folder);
    if (!file.path.ends_with(".h")) continue;
    for (const std::string& line : file.lines) {
      if (std::regex_match(line, match, kType)) declared.insert({file.folder, match[1].str()});
    }
  }
  EXPECT_TRUE(declared.contains({"train", "ScheduleKind"}));
  for (const SourceFile& file : sources()) {
    if (!file.path.ends_with(".cc")) continue;
    for (const std::string& line : file.lines) {
      if (!line.starts_with("using ") || !std::regex_match(line, match, kUsing)) continue;
      EXPECT_FALSE(folders.contains(match[1].str()) &&
                   declared.contains({file.folder, match[2].str()}))
          << file.path << ": \"" << line << "\", but this folder has a " << match[2]
          << " of its own; write the namespace where it is used";
    }
  }
}

}  // namespace
}  // namespace jige
