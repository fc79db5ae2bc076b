#include "formats/folder_digest.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "base/test_path.h"

namespace jige::formats {
namespace {

namespace fs = std::filesystem;

class FolderDigest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = temporary_pattern(test_root() + "jige_digest_");
    path_ = mkdtemp(pattern.data());
    fs::copy(std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/model/mistral", path_,
             fs::copy_options::recursive | fs::copy_options::overwrite_existing);
    first_ = *folder_digest(path_);
  }
  void TearDown() override { fs::remove_all(path_); }

  void change(const std::string& name, std::streamoff from_end) {
    std::fstream file(path_ + "/" + name, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(from_end, std::ios::end);
    const int old = file.get();
    file.seekp(from_end, std::ios::end);
    file.put(static_cast<char>(old ^ 1));
  }

  std::string path_, first_;
};

TEST_F(FolderDigest, IsThatOfACopyAndDependsOnNeitherPathNorTime) {
  EXPECT_EQ(*folder_digest(std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/model/mistral"), first_);
  EXPECT_EQ(first_.size(), 16u);
}

TEST_F(FolderDigest, ChangesWithWeightsAndConfiguration) {
  change("model.safetensors", -1);  // of a small tensor, which is read wholly
  const std::string second = *folder_digest(path_);
  EXPECT_NE(second, first_);
  std::ofstream(path_ + "/config.json", std::ios::app) << "\n";
  EXPECT_NE(*folder_digest(path_), second);
}

TEST_F(FolderDigest, FailsWhereAFileIsMissing) {
  fs::remove(path_ + "/model.safetensors");
  EXPECT_EQ(folder_digest(path_).error().code, Code::kNotFound);
  fs::remove(path_ + "/config.json");
  EXPECT_EQ(folder_digest(path_).error().code, Code::kNotFound);
}

}  // namespace
}  // namespace jige::formats
