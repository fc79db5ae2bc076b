// `jige cluster demo-job` as Slurm runs it: no end without its word, no work lost or counted twice.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "base/rng.h"
#include "integration/process.h"

namespace jige::integration {
namespace {

using ::testing::HasSubstr;

class DemoJob : public ::testing::Test {
 protected:
  DemoJob() {
    std::filesystem::create_directories(folder_ / "jobs");
    std::filesystem::create_directories(folder_ / "rates");
    setenv("SLURM_JOB_ID", "7", 1);
    setenv("SLURM_JOB_NODELIST", "n[1-2]", 1);
  }
  ~DemoJob() override {
    unsetenv("SLURM_JOB_ID");
    unsetenv("SLURM_JOB_NODELIST");
  }

  std::vector<std::string> words(int64_t work_us) const {
    return {"cluster",
            "demo-job",
            "--folder",
            folder_.path(),
            "--state",
            folder_.path(),
            "--work",
            std::to_string(work_us),
            "--checkpoint-every",
            "20000"};
  }
  // The words of each line of the log, without its time.
  std::vector<std::vector<std::string>> log() const {
    std::vector<std::vector<std::string>> lines;
    const Result<std::string> text = read_file(folder_ / "jobs/7.log");
    std::istringstream rest(text ? *text : "");
    for (std::string line; std::getline(rest, line);) {
      std::istringstream cells(line);
      std::string cell;
      cells >> cell;
      std::vector<std::string>& words = lines.emplace_back();
      while (cells >> cell) words.push_back(cell);
    }
    return lines;
  }
  int64_t saved_us() const {
    const Result<std::string> text = read_file(folder_ / "jobs/7.marker");
    return text ? std::atoll(text->c_str()) : -1;
  }
  bool comes(const std::function<bool()>& condition) const {
    for (const StopWatch watch; watch.seconds() < 20;) {
      if (condition()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return false;
  }

  TestFolder folder_;
};

TEST_F(DemoJob, WorksAtTheSpeedItIsGiven) {
  ASSERT_TRUE(write_file_atomic(folder_ / "rates/7", "0.250000\n"));
  const StopWatch watch;
  const Outcome outcome = run_jige(words(50'000));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_GE(watch.seconds(), 0.2);
  ASSERT_EQ(log().size(), 2u);
  EXPECT_EQ(log()[0], (std::vector<std::string>{"start", "n[1-2]", "none", "0", "0"}));
  EXPECT_EQ(log()[1][0], "end");
  EXPECT_GE(std::atoll(log()[1][1].c_str()), 50'000);
}

// A stop at any moment: before the first line nothing is said, from then on always.
TEST_F(DemoJob, NoStartIsWithoutAStop) {
  Process first(words(60'000'000), folder_.path());
  const StopWatch watch;
  ASSERT_TRUE(comes([&] { return !log().empty(); }));
  const auto start_us = static_cast<uint64_t>(watch.seconds() * 1e6);
  first.send(SIGTERM);
  first.wait();
  Rng rng(7);
  int started = 0;
  for (int round = 0; round < 40; ++round) {
    std::filesystem::remove(folder_ / "jobs/7.log");
    Process job(words(60'000'000), folder_.path());
    std::this_thread::sleep_for(std::chrono::microseconds(rng.below(3 * start_us)));
    job.send(SIGTERM);
    const Outcome outcome = job.wait();
    const auto lines = log();
    if (lines.empty()) continue;
    ++started;
    ASSERT_EQ(lines.size(), 2u);
    EXPECT_EQ(lines[0][0], "start");
    EXPECT_EQ(lines[1][0], "stop");
    EXPECT_EQ(outcome.exit_code, 0);
  }
  EXPECT_GT(started, 0);
}

TEST_F(DemoJob, WritesACheckpointWhenToldAndGoesOnFromIt) {
  Process job(words(60'000'000), folder_.path());
  ASSERT_TRUE(comes([&] { return saved_us() > 0; }));
  const int64_t before_us = saved_us();
  job.send(SIGUSR1);
  ASSERT_TRUE(comes([&] { return saved_us() > before_us; }));
  job.send(SIGKILL);
  EXPECT_EQ(job.wait().exit_code, 128 + SIGKILL);
  const int64_t saved = saved_us();

  // The next run says the stop that the killed one could not, and begins with what was saved.
  const Outcome outcome = run_jige(words(saved + 10'000));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto lines = log();
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[1][0], "stop");
  EXPECT_GE(std::atoll(lines[1][1].c_str()), saved);
  EXPECT_EQ(lines[2].back(), std::to_string(saved));
  EXPECT_EQ(lines[3][0], "end");
}

TEST_F(DemoJob, RefusesACheckpointThatIsNone) {
  ASSERT_TRUE(write_file_atomic(folder_ / "jobs/7.marker", "soon\n"));
  const Outcome outcome = run_jige(words(10'000));
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_THAT(outcome.err, HasSubstr("7.marker"));
  EXPECT_THAT(outcome.err, HasSubstr("soon"));
}

TEST_F(DemoJob, IsStartedBySlurmAlone) {
  unsetenv("SLURM_JOB_ID");
  const Outcome outcome = run_jige(words(10'000));
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_THAT(outcome.err, HasSubstr("SLURM_JOB_ID"));
}

}  // namespace
}  // namespace jige::integration
