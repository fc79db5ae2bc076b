#include "integration/tiny_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include "base/clock.h"
#include "formats/checkpoint.h"

namespace jige::integration {

std::vector<std::string> tiny_train_arguments(const std::string& data, int steps) {
  return {"train",
          "--data",
          data,
          "--width",
          "32",
          "--layers",
          "2",
          "--heads",
          "2",
          "--vocab-size",
          "320",
          "--context",
          "96",
          "--steps",
          std::to_string(steps),
          "--batch-tokens",
          "384",
          "--micro-batch-tokens",
          "192",
          "--lr",
          "0.003",
          "--warmup",
          "5",
          "--eval-every",
          "10",
          "--threads",
          "2"};
}

std::vector<pid_t> ranks_of(const Process& job) {
  std::vector<pid_t> children;
  const std::string task = std::to_string(job.pid());
  std::ifstream list("/proc/" + task + "/task/" + task + "/children");
  for (pid_t child = 0; list >> child;) children.push_back(child);
  return children;
}

KilledRank kill_rank(Process& job, const std::string& run, size_t rank_count, size_t rank) {
  wait_for_checkpoint(run, job);
  const std::vector<pid_t> ranks = ranks_of(job);
  EXPECT_EQ(ranks.size(), rank_count);
  if (ranks.size() != rank_count) job.send(SIGKILL);
  const StopWatch watch;
  if (rank < ranks.size()) {
    EXPECT_EQ(kill(ranks[rank], SIGKILL), 0);
  }
  KilledRank killed{.outcome = job.wait(), .seconds = watch.seconds()};
  EXPECT_EQ(killed.outcome.exit_code, 8) << killed.outcome.err;
  EXPECT_THAT(killed.outcome.err,
              ::testing::HasSubstr("is whole, and the same command goes on from it"));
  return killed;
}

TinyRun::TinyRun() {
  const Outcome corpus =
      run_jige({"corpus", "--documents", "400", "--questions", "12", "--out", folder_ / "data"});
  EXPECT_EQ(corpus.exit_code, 0) << corpus.err;
  std::vector<std::string> arguments = tiny_train_arguments(this->corpus(), 30);
  for (const char* more : {"--json", "--save-every", "10", "--out"}) arguments.push_back(more);
  arguments.push_back(run());
  training_ = run_jige(arguments);
  EXPECT_EQ(training_.exit_code, 0) << training_.err;
}

const TinyRun& TinyRun::get() {
  static const auto run = std::unique_ptr<const TinyRun>(new TinyRun());
  return *run;
}

std::string TinyRun::copy_model(const TestFolder& to) const {
  const std::string copy = to / "model";
  std::error_code error;
  std::filesystem::copy(model(), copy, std::filesystem::copy_options::recursive, error);
  EXPECT_FALSE(error) << model() << ": " << error.message();
  return copy;
}

void wait_for_checkpoint(const std::string& run, Process& process) {
  for (int i = 0; i < 6000 && process.running(); ++i) {
    if (!formats::list_checkpoints(run + "/checkpoints").empty()) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

uintmax_t logged_bytes(const std::string& out) {
  uintmax_t bytes = 0;
  std::error_code error;
  for (std::filesystem::recursive_directory_iterator at(out, error), end; !error && at != end;
       at.increment(error)) {
    std::error_code gone;  // a branch may be removed meanwhile
    const uintmax_t size = at->path().filename() == "log.jsonl" ? at->file_size(gone) : 0;
    if (!gone) bytes += size;
  }
  return bytes;
}

void wait_for_log(const std::string& out, uintmax_t bytes, Process& process) {
  while (process.running() && logged_bytes(out) < bytes) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void kill_behind_checkpoint(const std::vector<std::string>& words, const std::string& run) {
  const TestFolder streams;
  Process process(words, streams.path());
  wait_for_checkpoint(run, process);
  process.send(SIGKILL);
  EXPECT_EQ(process.wait().exit_code, 128 + SIGKILL) << "the run ended before it was killed";
}

std::string model_of(const std::string& run) {
  std::string bytes = read_text(run + "/model/model.safetensors");
  EXPECT_FALSE(bytes.empty()) << run << " has no model";
  return bytes;
}

}  // namespace jige::integration
