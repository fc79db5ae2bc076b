#include "integration/process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/clock.h"
#include "base/file.h"

namespace jige::integration {
namespace {

namespace fs = std::filesystem;

constexpr int kSecondsMax = 120;

// In the child: connects the standard streams to files and becomes jige.
[[noreturn]] void become_jige(const std::vector<std::string>& arguments,
                              const std::string& folder) {
  const std::string binary = jige_binary();
  const auto connect = [&](const char* name, int target, int flags) {
    const int fd = open((folder + "/" + name).c_str(), flags, 0600);
    if (fd < 0 || dup2(fd, target) < 0) _exit(126);
  };
  signal(SIGHUP, SIG_DFL);  // a test run under nohup has it ignored, and children would have too
  connect("in", STDIN_FILENO, O_RDONLY);
  connect("out", STDOUT_FILENO, O_WRONLY | O_CREAT | O_TRUNC);
  connect("err", STDERR_FILENO, O_WRONLY | O_CREAT | O_TRUNC);
  std::vector<char*> argv = {const_cast<char*>("jige")};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  execv(binary.c_str(), argv.data());
  _exit(127);
}

}  // namespace

std::string jige_binary() {
  const char* other = std::getenv("JIGE_TEST_BINARY");
  return other ? other : JIGE_BINARY;
}

std::string shell_quoted(const std::string& word) { return "'" + word + "'"; }

Json Outcome::json() const {
  Result<Json> parsed = parse_json(out, "standard output");
  EXPECT_TRUE(parsed) << (parsed ? "" : parsed.error().message) << "\n" << out << err;
  return parsed ? *parsed : Json(nullptr);
}

JsonLines Outcome::json_lines() const {
  JsonLines lines;
  size_t begin = 0;
  while (begin < out.size()) {
    const size_t end = std::min(out.find('\n', begin), out.size());
    Result<Json> parsed = parse_json(out.substr(begin, end - begin), "standard output");
    EXPECT_TRUE(parsed) << out.substr(begin, end - begin);
    if (parsed) lines.push_back(*parsed);
    begin = end + 1;
  }
  return lines;
}

void expect_error(const Outcome& outcome, int exit_code, const std::vector<std::string>& parts) {
  EXPECT_EQ(outcome.exit_code, exit_code) << outcome.err;
  const size_t begin = outcome.err.rfind("error: ");
  ASSERT_NE(begin, std::string::npos) << outcome.err;
  const std::string line = outcome.err.substr(begin);
  for (const std::string& part : parts) EXPECT_THAT(line, ::testing::HasSubstr(part));
}

Outcome run_jige(const std::vector<std::string>& arguments, const std::string& input) {
  const TestFolder folder;
  write_text(folder / "in", input);
  Process process(arguments, folder.path());
  return process.wait();
}

Outcome run_with(std::vector<std::string> arguments, const std::vector<std::string>& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_jige(arguments);
}

Process::Process(const std::vector<std::string>& arguments, const std::string& folder)
    : folder_(folder) {
  if (!exists(folder + "/in")) write_text(folder + "/in", "");
  pid_ = fork();
  if (pid_ == 0) become_jige(arguments, folder);
}

Process::~Process() {
  if (ended_) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, &status_, 0);
}

void Process::send(int signal) { kill(pid_, signal); }

void Process::await_handler(int signal) {
  const std::string field = "SigCgt:";
  for (int i = 0; i < kSecondsMax * 200 && running(); ++i) {
    std::ifstream status("/proc/" + std::to_string(pid_) + "/status");
    for (std::string line; std::getline(status, line);) {
      if (!line.starts_with(field)) continue;
      const uint64_t caught = std::strtoull(line.c_str() + field.size(), nullptr, 16);
      if ((caught >> (signal - 1)) & 1) return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

bool Process::running() {
  if (!ended_) ended_ = waitpid(pid_, &status_, WNOHANG) == pid_;
  return !ended_;
}

void Process::wait_for_end() {
  for (int i = 0; i < kSecondsMax * 200 && running(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  if (running()) {
    ADD_FAILURE() << "jige did not end within " << kSecondsMax << " s";
    kill(pid_, SIGKILL);
    waitpid(pid_, &status_, 0);
    ended_ = true;
  }
}

Outcome Process::wait_without_output() {
  wait_for_end();
  Outcome outcome;
  outcome.exit_code = WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
  outcome.err = read_text(folder_ + "/err");
  return outcome;
}

Outcome Process::wait() {
  Outcome outcome = wait_without_output();
  outcome.out = read_text(folder_ + "/out");
  return outcome;
}

TestFolder::TestFolder() {
  const char* base = std::getenv("TMPDIR");
  std::string pattern = temporary_pattern(std::string(base ? base : "/tmp") + "/jige-test-");
  path_ = mkdtemp(pattern.data()) ? pattern : "";
  EXPECT_FALSE(path_.empty()) << "no folder could be made in " << (base ? base : "/tmp");
}

TestFolder::~TestFolder() {
  std::error_code error;
  fs::remove_all(path_, error);
}

void write_text(const std::string& path, const std::string& text) {
  const Status status = write_file_atomic(path, text);
  EXPECT_TRUE(status) << status.error().message;
}

bool gone(pid_t process) {
  for (const StopWatch watch; watch.seconds() < 10 && kill(process, 0) == 0;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return kill(process, 0) != 0;
}

std::string read_text(const std::string& path) {
  Result<std::string> text = read_file(path);
  EXPECT_TRUE(text) << (text ? "" : text.error().message);
  return text ? *text : "";
}

bool exists(const std::string& path) { return fs::exists(path); }

std::vector<std::string> list_tree(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    names.push_back(fs::relative(entry.path(), folder).string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string test_python() {
  const char* wanted = std::getenv("JIGE_TEST_PYTHON");
  return wanted ? wanted : "python3";
}

bool python_has(const std::string& packages) {
  return std::system((test_python() + " -c 'import " + packages + "' 2>/dev/null").c_str()) == 0;
}

int free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  close(fd);
  return ntohs(address.sin_port);
}

}  // namespace jige::integration
