#include "integration/ended_by_signal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "integration/process.h"

namespace jige::integration {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kPatience{20};

struct Running {
  pid_t pid = -1, parent = -1;
  char state = '?';
};

// Of /proc/PID/stat; the name in it may hold blanks and brackets.
Running read_running(const std::filesystem::path& folder) {
  std::ifstream file(folder / "stat");
  std::string text;
  std::getline(file, text);
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return {};
  std::istringstream rest(text.substr(name_end + 1));
  Running found{.pid = std::stoi(folder.filename().string())};
  rest >> found.state >> found.parent;
  return found;
}

// Those below a process, at any depth, that have not ended.
std::vector<pid_t> below(pid_t top) {
  std::vector<Running> all;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (std::ranges::all_of(name, [](unsigned char c) { return std::isdigit(c) != 0; })) {
      all.push_back(read_running(entry.path()));
    }
  }
  std::vector<pid_t> found = {top};
  for (size_t i = 0; i < found.size(); ++i) {
    for (const Running& p : all) {
      if (p.parent == found[i] && p.state != 'Z') found.push_back(p.pid);
    }
  }
  found.erase(found.begin());
  return found;
}

bool runs(pid_t pid) {
  const Running found = read_running(std::filesystem::path("/proc") / std::to_string(pid));
  return found.pid == pid && found.state != 'Z';
}

}  // namespace

void expect_signal_ends(const std::vector<std::string>& words, int signal, size_t processes) {
  const TestFolder folder;
  Process process(words, folder.path());
  std::vector<pid_t> started;
  const Clock::time_point start = Clock::now();
  while (process.running() && started.size() < processes && Clock::now() - start < kPatience) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    started = below(process.pid());
  }
  EXPECT_GE(started.size(), processes) << "it started fewer";
  const bool heard = signal != SIGKILL;
  if (heard) process.await_handler(signal);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // into the first set
  process.send(signal);
  const Outcome ended = process.wait();
  EXPECT_EQ(ended.exit_code, heard ? 130 : 128 + signal) << ended.err;
  EXPECT_THAT(ended.err, ::testing::HasSubstr(heard ? "interrupted" : ""));
  const Clock::time_point end = Clock::now();
  while (std::ranges::any_of(started, runs) && Clock::now() - end < kPatience) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  for (const pid_t pid : started) EXPECT_FALSE(runs(pid)) << "left behind: process " << pid;
}

}  // namespace jige::integration
