// What a run folder looks like after the worst moment to die, and after the disk is full.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/rng.h"
#include "formats/checkpoint.h"
#include "formats/tensor_folder.h"
#include "formats/test_support.h"
#include "formats/token_bin.h"

namespace jige::formats {
namespace {

constexpr int kExitSkip = 77;
constexpr int64_t kElements = 40'000;  // 160 kB a tensor: long enough to die in the middle

// Writes a checkpoint whose every number is its step.
Status write_large_step(const std::string& run, int64_t step, int64_t elements = kElements) {
  std::vector<float> weight(static_cast<size_t>(elements), static_cast<float>(step));
  CheckpointWriter writer(run, step);
  for (const char* file : {"params", "adam_m", "adam_v"}) {
    writer.add(file, "w", TensorView::of(weight.data(), DType::kF32, {elements}));
  }
  return writer.commit({{"step", step}}, {.newest = 2});
}

// The step of an intact checkpoint whose content fits it; -1 otherwise.
int64_t intact_step(const std::string& run, int64_t elements = kElements) {
  const auto reader = CheckpointReader::open_latest(run);
  if (!reader) return -1;
  if (reader->state().at("step") != reader->step()) return -1;
  for (const char* file : {"params", "adam_m", "adam_v"}) {
    const auto view = reader->tensor(file, "w");
    if (!view || view->count() != elements) return -1;
    for (int64_t i = 0; i < view->count(); ++i) {
      if (view->as<float>()[i] != static_cast<float>(reader->step())) return -1;
    }
  }
  return reader->step();
}

// Writes checkpoints until killed and reports each finished step to the pipe.
[[noreturn]] void write_for_ever(const std::string& run, int64_t first_step, int pipe) {
  for (int64_t step = first_step;; ++step) {
    if (!write_large_step(run, step)) ::_exit(1);
    if (::write(pipe, &step, sizeof step) != sizeof step) ::_exit(1);
  }
}

TEST(CheckpointCrash, AKilledWriterNeverHarmsTheLastCompleteCheckpoint) {
  const ScratchFolder scratch;
  ASSERT_TRUE(write_large_step(scratch.path(), 0));
  Rng rng(derive_key(20240601, "kill"));
  int64_t step = 0;
  int killed_inside = 0;
  for (int round = 0; round < 24; ++round) {
    int pipe[2];
    ASSERT_EQ(::pipe2(pipe, O_CLOEXEC), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) write_for_ever(scratch.path(), step + 1, pipe[1]);
    ::close(pipe[1]);
    ::usleep(static_cast<useconds_t>(rng.below(12'000)));
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "round " << round << ": the writer failed by itself";
    int64_t finished = step;
    int64_t report = 0;
    while (::read(pipe[0], &report, sizeof report) == sizeof report) finished = report;
    ::close(pipe[0]);

    for (const std::string& name : folder_entries(scratch.path())) {
      killed_inside += name.starts_with(".write-");
    }
    const int64_t loaded = intact_step(scratch.path());
    // The step after the last reported one may be there as well: it died before it could tell.
    ASSERT_GE(loaded, finished) << "round " << round;
    ASSERT_LE(loaded, finished + 1) << "round " << round;
    step = loaded;
  }
  EXPECT_GT(killed_inside, 0) << "no writer died inside a write; the test shows nothing";
  ASSERT_TRUE(write_large_step(scratch.path(), step + 1));
  EXPECT_EQ(intact_step(scratch.path()), step + 1);
  EXPECT_LE(folder_entries(scratch.path()).size(), 4u);  // latest, two kept, at most one ahead
  for (const std::string& name : folder_entries(scratch.path())) {
    EXPECT_FALSE(name.starts_with(".")) << name;
  }
}

// Runs a body in a child process, whose limits and mounts vanish with it. The child's expectations
// count as this test's; true unless it asked to be skipped.
bool run_in_child(const std::function<int()>& body) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    const int code = body();
    std::fflush(nullptr);
    ::_exit(code != 0 ? code : testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kExitSkip) return false;
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "see the failures above";
  return true;
}

void write_text(const char* path, const std::string& text) { std::ofstream(path) << text; }

// A file system of 1 MiB at `folder`, seen by this process only. False where that is not permitted.
bool mount_small_disk(const std::string& folder) {
  const std::string user = std::to_string(::getuid());
  const std::string group = std::to_string(::getgid());
  if (::unshare(CLONE_NEWNS) != 0) {
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
    write_text("/proc/self/setgroups", "deny");
    write_text("/proc/self/uid_map", "0 " + user + " 1");
    write_text("/proc/self/gid_map", "0 " + group + " 1");
  }
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return false;
  return ::mount("tmpfs", folder.c_str(), "tmpfs", 0, "size=1m") == 0;
}

// A source that fills the disk while it is asked for its rows, as other jobs may.
TensorSource greedy_source(const std::string& filler_path, int64_t elements) {
  return {"w", DType::kF32, {elements}, [=](const RowSink& sink) -> Status {
            const std::string block(1 << 16, 'x');
            std::ofstream filler(filler_path);
            while (filler.write(block.data(), static_cast<std::streamsize>(block.size())).flush()) {
            }
            std::vector<float> rows(static_cast<size_t>(elements));
            return sink(TensorView::of(rows.data(), DType::kF32, {elements}));
          }};
}

int fill_small_disk(const std::string& disk) {
  if (!mount_small_disk(disk)) return kExitSkip;
  const std::string run = disk + "/run";
  constexpr int64_t kSmall = 10'000;
  EXPECT_TRUE(write_large_step(run, 1, kSmall));
  const auto before = folder_entries(run);

  // Too large to begin with: refused before a byte is written.
  const Status large = write_large_step(run, 2, 100'000);
  EXPECT_FALSE(large);
  if (!large) {
    EXPECT_EQ(large.error().code, Code::kExhausted) << large.error().message;
    EXPECT_NE(large.error().message.find("free"), std::string::npos) << large.error().message;
  }
  EXPECT_EQ(folder_entries(run), before);

  // The room vanishes in the middle.
  CheckpointWriter writer(run, 3);
  writer.add("params", greedy_source(disk + "/filler", 50'000));
  const Status full = writer.commit({});
  EXPECT_TRUE(!full && full.error().code == Code::kExhausted);
  EXPECT_EQ(folder_entries(run), before);
  EXPECT_EQ(intact_step(run, kSmall), 1);

  // The other writers on the disk that is now full.
  const TensorSource source = greedy_source(disk + "/filler2", 50'000);
  const Status folder = write_tensor_folder(disk, std::span(&source, 1));
  EXPECT_TRUE(!folder && folder.error().code == Code::kExhausted);
  auto tokens = TokenFileWriter::create(disk + "/tokens.bin", {.vocab_size = 100'000});
  EXPECT_TRUE(tokens);
  if (tokens) {
    const std::vector<int32_t> many(600'000, 7);
    Status appended = tokens->append(many);
    if (appended) appended = tokens->commit();
    EXPECT_TRUE(!appended && appended.error().code == Code::kExhausted);
    tokens = fail(Code::kCancelled, "given up");
  }
  EXPECT_EQ(folder_entries(disk), (std::vector<std::string>{"filler", "filler2", "run"}));

  std::filesystem::remove(disk + "/filler");
  EXPECT_TRUE(write_large_step(run, 4, kSmall));
  EXPECT_EQ(intact_step(run, kSmall), 4);
  return 0;
}

TEST(CheckpointCrash, AFullDiskLeavesTheOldCheckpointAndNoRemains) {
  const ScratchFolder scratch;
  if (!run_in_child([&] { return fill_small_disk(scratch.path()); })) {
    GTEST_SKIP() << "mounting a small disk is not permitted here";
  }
}

TEST(CheckpointCrash, AFileSizeLimitLeavesTheOldCheckpointAndNoRemains) {
  const ScratchFolder scratch;
  run_in_child([&] {
    EXPECT_TRUE(write_large_step(scratch.path(), 1, 1000));
    const auto before = folder_entries(scratch.path());
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1 << 16, RLIM_INFINITY};
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
    const Status full = write_large_step(scratch.path(), 2);
    EXPECT_TRUE(!full && full.error().code == Code::kExhausted);
    EXPECT_EQ(folder_entries(scratch.path()), before);
    EXPECT_EQ(intact_step(scratch.path(), 1000), 1);
    return 0;
  });
}

}  // namespace
}  // namespace jige::formats
