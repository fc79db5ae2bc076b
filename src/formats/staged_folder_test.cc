#include "formats/staged_folder.h"

#include <gtest/gtest.h>

#include "formats/test_support.h"

namespace jige::formats {
namespace {

TEST(StagedFolder, AppearsWholeOnCommit) {
  const ScratchFolder scratch;
  auto staged = StagedFolder::create(scratch.file("target"));
  ASSERT_TRUE(staged) << staged.error().message;
  write_or_fail(staged->path() + "/a", "new");
  EXPECT_FALSE(std::filesystem::exists(scratch.file("target")));
  ASSERT_TRUE(staged->commit());
  EXPECT_EQ(folder_entries(scratch.path()), std::vector<std::string>{"target"});
  EXPECT_EQ(read_or_fail(scratch.file("target/a")), "new");
}

TEST(StagedFolder, VanishesWithoutCommit) {
  const ScratchFolder scratch;
  {
    auto staged = StagedFolder::create(scratch.file("target"));
    ASSERT_TRUE(staged);
    write_or_fail(staged->path() + "/a", "half");
    const StagedFolder moved = std::move(*staged);
    EXPECT_EQ(folder_entries(scratch.path()).size(), 1u);
  }
  EXPECT_TRUE(folder_entries(scratch.path()).empty());
  EXPECT_FAILS_WITH(StagedFolder::create(scratch.file("absent/target")), Code::kIo,
                    "cannot create folder");
}

TEST(StagedFolder, ReplacesAModelButNeverAPersonsOwnFiles) {
  const ScratchFolder scratch;
  const std::string target = scratch.file("model");
  std::filesystem::create_directory(target);
  for (const char* name : {"config.json", "model-00001-of-00002.safetensors", "tokenizer.json"}) {
    write_or_fail(target + "/" + name, "old");
  }
  EXPECT_TRUE(check_replaceable(target));
  auto staged = StagedFolder::create(target + "/");  // as shells complete it
  ASSERT_TRUE(staged) << staged.error().message;
  write_or_fail(staged->path() + "/config.json", "new");
  write_or_fail(target + "/notes.txt", "mine");  // appears meanwhile
  EXPECT_FAILS_WITH(staged->commit(), Code::kInvalidArgument, "\"notes.txt\"");
  EXPECT_FAILS_WITH(StagedFolder::create(target), Code::kInvalidArgument, "\"notes.txt\"");
  EXPECT_EQ(read_or_fail(target + "/config.json"), "old");
  std::filesystem::remove(target + "/notes.txt");
  write_or_fail(target + "/pytorch_model.bin", "read, but never written");
  EXPECT_FAILS_WITH(check_replaceable(target), Code::kInvalidArgument, "\"pytorch_model.bin\"");
  std::filesystem::remove(target + "/pytorch_model.bin");
  std::filesystem::create_directory(target + "/tokenizer.model");  // a folder in a known name
  EXPECT_FAILS_WITH(check_replaceable(target), Code::kInvalidArgument, "\"tokenizer.model\"");
  std::filesystem::remove(target + "/tokenizer.model");
  ASSERT_TRUE(staged->commit());
  EXPECT_EQ(folder_entries(scratch.path()), std::vector<std::string>{"model"});
  EXPECT_EQ(folder_entries(target), std::vector<std::string>{"config.json"});
  EXPECT_FAILS_WITH(StagedFolder::create(target + "/config.json"), Code::kInvalidArgument,
                    "is no folder");
}

TEST(StagedFolder, ReplacesAnOlderFolderWithOrWithoutExchange) {
  for (const bool exchange : {true, false}) {
    const ScratchFolder scratch;
    for (const char* name : {"old", "new"}) {
      std::filesystem::create_directory(scratch.file(name));
      write_or_fail(scratch.file(name) + "/content", name);
    }
    write_or_fail(scratch.file("old/more"), "");
    const Status replaced = replace_folder(
        {.from = scratch.file("new"), .to = scratch.file("old"), .exchange = exchange});
    ASSERT_TRUE(replaced) << replaced.error().message;
    EXPECT_EQ(folder_entries(scratch.path()), std::vector<std::string>{"old"});
    EXPECT_EQ(folder_entries(scratch.file("old")), std::vector<std::string>{"content"});
    EXPECT_EQ(read_or_fail(scratch.file("old/content")), "new");
  }
}

TEST(StagedFolder, RemovesAFolderWithItsContent) {
  const ScratchFolder scratch;
  std::filesystem::create_directories(scratch.file("a/b/c"));
  write_or_fail(scratch.file("a/b/file"), "x");
  ASSERT_TRUE(remove_folder(scratch.file("a")));
  EXPECT_TRUE(folder_entries(scratch.path()).empty());
}

}  // namespace
}  // namespace jige::formats
