#include "cli/vector_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/json.h"

namespace jige::cli {
namespace {

// Two vectors in a file of this name, read back.
std::string written(const std::string& name) {
  const std::string folder = testing::TempDir() + "/vector_file";
  std::filesystem::create_directories(folder);
  const std::string path = folder + "/" + name;
  auto file = VectorFile::create(path, 3);
  EXPECT_TRUE(file);
  const std::vector<float> first = {0.5f, -1.0f, 0.1f}, second = {2.0f, 3.0f, 4.0f};
  EXPECT_TRUE(file->add({.line = 1, .tokens = 7, .values = first}));
  EXPECT_TRUE(file->add({.line = 3, .tokens = 9, .truncated = true, .values = second}));
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_TRUE(file->commit());
  const std::string content = *read_file(path);
  std::filesystem::remove_all(folder);
  return content;
}

TEST(VectorFile, OfNumpyIsAHeaderAndTheNumbers) {
  const std::string content = written("a.npy");
  ASSERT_EQ(content.size(), 128u + 6 * 4);
  EXPECT_EQ(content.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
  EXPECT_EQ(static_cast<uint8_t>(content[8]) + 256 * static_cast<uint8_t>(content[9]), 118);
  EXPECT_EQ(content[127], '\n');
  const std::string text = content.substr(10, 117);
  EXPECT_EQ(text.substr(0, text.find_last_not_of(' ') + 1),
            "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }");
  const float want[] = {0.5f, -1.0f, 0.1f, 2.0f, 3.0f, 4.0f};
  EXPECT_EQ(std::memcmp(content.data() + 128, want, sizeof want), 0);
  EXPECT_EQ(npy_header(INT64_MAX, INT64_MAX).size(), 128u);
}

TEST(VectorFile, ElseHasALineForEachVector) {
  const std::string content = written("a.jsonl");
  const size_t end = content.find('\n');
  const Json first = *parse_json(content.substr(0, end), "first");
  EXPECT_EQ(first, (Json{{"line", 1}, {"tokens", 7}, {"embedding", {0.5f, -1.0f, 0.1f}}}));
  const Json second = *parse_json(content.substr(end + 1), "second");
  EXPECT_EQ(second.at("truncated"), true);
  EXPECT_EQ(second.at("line"), 3);
}

TEST(VectorFile, LeavesNothingWithoutCommit) {
  const std::string path = testing::TempDir() + "/vectors_never.npy";
  {
    auto file = VectorFile::create(path, 1);
    ASSERT_TRUE(file);
    EXPECT_TRUE(file->add({.values = std::vector<float>{1}}));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace jige::cli
