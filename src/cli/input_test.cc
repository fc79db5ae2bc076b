#include "cli/input.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/file.h"
#include "cli/random_model.h"

namespace jige::cli {
namespace {

constexpr uid_t kNobody = 65534;

// Not root, while this lives.
class SomebodyElse {
 public:
  SomebodyElse() : root_(geteuid() == 0 && seteuid(kNobody) == 0) {}
  ~SomebodyElse() {
    if (!root_) return;
    EXPECT_EQ(seteuid(0), 0);
  }
  SomebodyElse(const SomebodyElse&) = delete;
  SomebodyElse& operator=(const SomebodyElse&) = delete;

 private:
  bool root_;
};

template <typename T>
void expect_denied(const Result<T>& found, const std::string& path) {
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, Code::kIo);
  EXPECT_EQ(found.error().message, path + ": Permission denied");
}

TEST(Input, AFolderThatMayNotBeLookedIntoIsNotCalledEmptyOrAbsent) {
  const auto folder = TemporaryFolder::make();
  ASSERT_TRUE(folder);
  const std::string run = folder->path() + "/run";
  ASSERT_TRUE(make_folders(run + "/model"));
  for (const char* name : {"config.json", "log.jsonl", "tokenizer.json", "model/config.json"}) {
    ASSERT_TRUE(write_file_atomic(run + "/" + name, "{}"));
  }
  ASSERT_EQ(chmod(folder->path().c_str(), 0), 0);
  bool denied = false;
  {
    const SomebodyElse here;
    denied = geteuid() != 0;
  }
  if (denied) {
    const SomebodyElse here;
    expect_denied(find_model_folder(run), run + "/config.json");
    expect_denied(find_model_folder(run + "/model"), run + "/model/config.json");
    expect_denied(find_tokenizer_folder(run), run + "/tokenizer.json");
    expect_denied(Result<void>(check_run_folder(run)), run + "/log.jsonl");
    expect_denied(Result<void>(check_file("--plan", run + "/plan.json", "a plan")),
                  run + "/plan.json");
  }
  ASSERT_EQ(chmod(folder->path().c_str(), 0700), 0);
  if (!denied) GTEST_SKIP() << "this user may look at everything";
}

// What is known so far can be shown to whoever waits for it before writing more.
TEST(Input, SaysWhenItWaitsForMoreLines) {
  const std::string path = ::testing::TempDir() + "jige_fifo." + std::to_string(getpid());
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  std::atomic<bool> answered = false;
  std::thread writer([&] {
    std::ofstream pipe(path);
    pipe << "one\ntwo\n" << std::flush;
    for (int i = 0; i < 500 && !answered; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    pipe << "three";
  });
  std::vector<std::string> events;
  const auto body = [&](std::string_view line, int64_t) -> Result<bool> {
    events.emplace_back(line);
    return true;
  };
  const auto idle = [&]() -> Status {
    if (!events.empty() && events.back() == "two") {
      events.emplace_back("idle");
      answered = true;
    }
    return {};
  };
  EXPECT_TRUE(for_each_line(path, body, idle));
  writer.join();
  unlink(path.c_str());
  EXPECT_EQ(events, (std::vector<std::string>{"one", "two", "idle", "three"}));
}

TEST(Input, LinesHaveNoByteOrderMarkAndPackedFilesNone) {
  const std::string path = ::testing::TempDir() + "jige_lines." + std::to_string(getpid());
  std::vector<std::string> lines;
  const auto read = [&](std::string_view content) {
    lines.clear();
    std::ofstream(path) << content;
    return for_each_line(path, [&](std::string_view line, int64_t) -> Result<bool> {
      lines.emplace_back(line);
      return true;
    });
  };
  EXPECT_TRUE(read("\xef\xbb\xbfone\n\xef\xbb\xbftwo"));
  EXPECT_EQ(lines, (std::vector<std::string>{"one", "\xef\xbb\xbftwo"}));
  const Status packed = read("PK\x03\x04\n");
  ASSERT_FALSE(packed);
  EXPECT_EQ(packed.error().code, Code::kUnsupported);
  EXPECT_EQ(packed.error().message, path + ": is a packed file; unpack it first");
  EXPECT_TRUE(lines.empty());
  unlink(path.c_str());
}

}  // namespace
}  // namespace jige::cli
