// What a disk that fills up leaves behind: what was whole before, and no half of anything.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "integration/tiny_run.h"

namespace jige::integration {
namespace {

using ::testing::HasSubstr;

// A file system of its own, so small that it fills.
class SmallDisk {
 public:
  explicit SmallDisk(const char* options) {
    mounted_ = mount("jige-test", folder_.path().c_str(), "tmpfs", 0, options) == 0;
  }
  ~SmallDisk() {
    if (mounted_) umount(folder_.path().c_str());
  }
  bool mounted() const { return mounted_; }
  std::string operator/(const std::string& name) const { return folder_ / name; }
  const std::string& path() const { return folder_.path(); }

 private:
  TestFolder folder_;
  bool mounted_ = false;
};

TEST(FullDisk, KeepsTheLastCheckpoint) {
  const SmallDisk disk("size=1500k");
  if (!disk.mounted()) GTEST_SKIP() << "mounting a small file system is not allowed here";
  // Each checkpoint is about 400 KiB: the second or third does not fit beside the others.
  std::vector<std::string> arguments = tiny_train_arguments(TinyRun::get().corpus(), 5);
  arguments.erase(std::find(arguments.begin(), arguments.end(), "--vocab-size"),
                  std::find(arguments.begin(), arguments.end(), "--context"));
  arguments.insert(arguments.end(), {"--tokenizer", TinyRun::get().model(), "--out", disk / "run",
                                     "--steps", "100", "--save-every", "2", "--keep", "50"});
  const Outcome full = run_jige(arguments);
  expect_error(full, 6, {"checkpoint"});
  for (const std::string& name : list_tree(disk.path())) {
    EXPECT_THAT(name, ::testing::Not(HasSubstr("tmp"))) << "left behind";
  }
  // With room again the run goes on from the checkpoint that was complete.
  ASSERT_EQ(mount("jige-test", disk.path().c_str(), "tmpfs", MS_REMOUNT, "size=100m"), 0);
  arguments[arguments.size() - 1] = "2";
  const Outcome again = run_jige(arguments);
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("done"));
}

// Runs a command on larger and larger disks: what it is to make is there with all its files, or not
// at all, and nothing else is left.
void expect_whole_or_nothing(std::vector<std::string> arguments,
                             const std::vector<std::string>& wanted) {
  int failed = 0;
  bool done = false;
  for (int kib = 4; kib <= 1024 && !done; kib += kib < 64 ? 4 : 64) {
    SCOPED_TRACE(std::to_string(kib) + " KiB");
    const SmallDisk disk(("size=" + std::to_string(kib) + "k").c_str());
    if (!disk.mounted()) GTEST_SKIP() << "mounting a small file system is not allowed here";
    arguments.back() = disk / "out";
    const Outcome outcome = run_jige(arguments);
    std::vector<std::string> there = list_tree(disk.path());
    std::erase(there, "out");
    done = outcome.exit_code == 0;
    if (done) {
      EXPECT_EQ(there, wanted);
    } else {
      expect_error(outcome, 6, {disk.path()});
      EXPECT_TRUE(there.empty()) << there[0];
      ++failed;
    }
  }
  EXPECT_TRUE(done);
  EXPECT_GT(failed, 2);
}

TEST(FullDisk, TokenizersAreWholeOrNotThere) {
  expect_whole_or_nothing(
      {"tokenizer", "train", TinyRun::get().corpus(), "--vocab-size", "320", "--out", ""},
      {"out/special_tokens_map.json", "out/tokenizer.json", "out/tokenizer_config.json"});
}

// Of a limit on the size of files, as of a disk that is full, nothing half-written remains.
TEST(FullDisk, FilesThatMayNotGrowAreAnErrorToo) {
  const TestFolder folder;
  const auto limited = [&](const std::string& words) {
    const std::string command = "ulimit -f 1; " + shell_quoted(jige_binary()) + " " + words +
                                " 2>" + shell_quoted(folder / "err");
    return WEXITSTATUS(std::system(command.c_str()));
  };
  const std::string run = shell_quoted(TinyRun::get().run());
  EXPECT_EQ(limited("export " + run + " " + shell_quoted(folder / "out")), 6);
  EXPECT_THAT(read_text(folder / "err"), HasSubstr("File too large"));
  EXPECT_EQ(limited("inspect " + run + " --tensors >" + shell_quoted(folder / "list")), 6);
  EXPECT_THAT(read_text(folder / "err"), HasSubstr("standard output: File too large"));
  EXPECT_EQ(list_tree(folder.path()), (std::vector<std::string>{"err", "list"}));
}

TEST(FullDisk, ExportedModelsAreWholeOrNotThere) {
  expect_whole_or_nothing(
      {"export", TinyRun::get().run(), ""},
      {"out/config.json", "out/generation_config.json", "out/model.safetensors",
       "out/special_tokens_map.json", "out/tokenizer.json", "out/tokenizer_config.json"});
}

}  // namespace
}  // namespace jige::integration
