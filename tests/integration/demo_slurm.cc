#include "integration/demo_slurm.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "base/clock.h"
#include "base/file.h"

namespace jige::integration {
namespace {

const std::string kTool = std::string(JIGE_SOURCE_DIR) + "/tools/demo-slurm";

}  // namespace

ProcessOutcome must_run(const std::vector<std::string>& words, double limit_s) {
  Result<ProcessOutcome> outcome = run_process(words, {.limit_s = limit_s});
  EXPECT_TRUE(outcome) << (outcome ? "" : outcome.error().message);
  if (!outcome) return {.exit_code = -1};
  EXPECT_EQ(outcome->exit_code, 0) << words[0] << " " << words[1] << ": " << outcome->err;
  return *outcome;
}

std::string missing_for_slurm() {
  const Result<ProcessOutcome> outcome = run_process({kTool, "check"});
  if (!outcome) return outcome.error().message;
  return outcome->exit_code == 0 ? "" : outcome->err;
}

bool wait_for(double seconds, const std::function<bool()>& condition) {
  const StopWatch watch;
  while (!condition()) {
    if (watch.seconds() > seconds) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return true;
}

int64_t processes_of(const std::string& folder) {
  int64_t count = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    std::error_code none;
    const std::string place = std::filesystem::read_symlink(entry.path() / "cwd", none).string();
    const Result<std::string> text = read_file(entry.path().string() + "/environ");
    count += place.starts_with(folder + "/") ||
             (text && text->find("JIGE_DEMO_SLURM=" + folder + '\0') != std::string::npos);
  }
  return count;
}

DemoSlurm::DemoSlurm(const TestFolder& folder)
    : folder_(folder / "slurm"), state_(folder / "state") {
  // Users of the cluster have to find its configuration.
  std::filesystem::permissions(folder.path(), std::filesystem::perms(0755));
  must_run({kTool, "up", folder_, "8", "4", "4", std::to_string(getpid())});
  setenv("SLURM_CONF", (folder_ + "/slurm.conf").c_str(), 1);
}

DemoSlurm::~DemoSlurm() {
  must_run({kTool, "down", folder_});
  EXPECT_EQ(processes_of(folder_), 0);
  unsetenv("SLURM_CONF");
}

void DemoSlurm::control(const std::vector<std::string>& words) {
  std::vector<std::string> call = {kTool, words[0], folder_};
  call.insert(call.end(), words.begin() + 1, words.end());
  must_run(call);
}

int64_t DemoSlurm::submit(int nodes, int gpus, double seconds) {
  const ProcessOutcome outcome = must_run(
      {"sbatch", "--parsable", "-N" + std::to_string(nodes), "--gres=gpu:" + std::to_string(gpus),
       "--requeue", "--output=/dev/null", "--chdir=/tmp",
       "--comment=jige length=" + std::to_string(seconds) + " restart=2 checkpoint=" + folder_ +
           "/jobs/%j.marker",
       "--wrap=exec '" + jige_binary() + "' cluster demo-job --folder '" + folder_ + "' --state '" +
           state_ + "' --work " + std::to_string(static_cast<int64_t>(seconds * 1e6)) +
           " --checkpoint-every 500000"});
  const int64_t id = std::atoll(outcome.out.c_str());
  gpus_[id] = gpus;
  return id;
}

std::vector<std::string> DemoSlurm::run_words() const {
  return {"cluster",
          "run",
          "--state",
          state_,
          "--policy",
          "srtf",
          "--until-empty",
          "--json",
          "--emulate",
          "--interval",
          "0.2",
          "--dead-man",
          "0",
          "--signal-after",
          "1",
          "--command-limit",
          "3"};
}

std::string DemoSlurm::log(int64_t id) const {
  const Result<std::string> text = read_file(folder_ + "/jobs/" + std::to_string(id) + ".log");
  return text ? *text : "";
}

int64_t DemoSlurm::running() const {
  const ProcessOutcome outcome = must_run({"squeue", "-h", "-t", "R", "-o", "%i"});
  return std::count(outcome.out.begin(), outcome.out.end(), '\n');
}

int64_t DemoSlurm::submit_sleep(double seconds, const std::vector<std::string>& words) {
  std::vector<std::string> call = {"sbatch", "--parsable", "--output=/dev/null", "--chdir=/tmp"};
  call.insert(call.end(), words.begin(), words.end());
  call.push_back("--wrap=sleep " + std::to_string(seconds));
  return std::atoll(must_run(call).out.c_str());
}

std::string DemoSlurm::state_of(int64_t id) const {
  std::string text =
      must_run({"squeue", "-h", "-t", "all", "-j", std::to_string(id), "-o", "%T %N"}).out;
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

std::string DemoSlurm::decisions() const {
  const Result<std::string> text = read_file(state_ + "/decisions.jsonl");
  return text ? *text : "";
}

}  // namespace jige::integration
