// Runs the binary `jige` as a user does and looks at what it says, returns and leaves behind.
//
//   const Outcome outcome = run_jige({"inspect", folder, "--json"});
//   EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
//
// Threads: one thread per Process.
#pragma once

#include <sys/types.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"

namespace jige::integration {

// Lines of output, each as JSON. Asking for one that is not there fails the running test alone: it
// ends with the exception of a list that is too short.
class JsonLines {
 public:
  void push_back(Json line) { lines_.push_back(std::move(line)); }
  size_t size() const { return lines_.size(); }
  bool empty() const { return lines_.empty(); }
  auto begin() const { return lines_.begin(); }
  auto end() const { return lines_.end(); }
  const Json& operator[](size_t index) const { return lines_.at(index); }
  const Json& front() const { return lines_.at(0); }
  const Json& back() const { return lines_.at(lines_.size() - 1); }

 private:
  std::vector<Json> lines_;
};

struct Outcome {
  int exit_code = -1;  // 128 + signal where a signal ended the process
  std::string out;
  std::string err;

  // Standard output as one JSON value; a failed expectation and null where it is none.
  Json json() const;
  // Its lines, each as JSON.
  JsonLines json_lines() const;
};

// Expects this exit code and an error, the last line that begins with "error: ", that says `parts`.
void expect_error(const Outcome& outcome, int exit_code, const std::vector<std::string>& parts);

// The binary under test: that of this build, or what JIGE_TEST_BINARY names.
std::string jige_binary();

// A word of a command line that a shell reads. REQUIRES: no single quote in it.
std::string shell_quoted(const std::string& word);

// Runs jige to its end. Ends it after two minutes.
Outcome run_jige(const std::vector<std::string>& arguments, const std::string& input = "");
// The same with more arguments behind them.
Outcome run_with(std::vector<std::string> arguments, const std::vector<std::string>& more);

// A jige that runs beside the test, to be ended by it.
class Process {
 public:
  // Output goes to files in `folder`.
  Process(const std::vector<std::string>& arguments, const std::string& folder);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void send(int signal);
  // Waits until the program handles the signal itself; one that has just begun does not.
  void await_handler(int signal);
  pid_t pid() const { return pid_; }
  // Waits for the end, two minutes at most.
  Outcome wait();
  // The same where standard output leads elsewhere.
  Outcome wait_without_output();
  bool running();

 private:
  void wait_for_end();

  pid_t pid_ = -1;
  int status_ = 0;
  bool ended_ = false;
  std::string folder_;
};

// A folder of its own for the running test, removed when the object goes.
class TestFolder {
 public:
  TestFolder();
  ~TestFolder();
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  const std::string& path() const { return path_; }
  // The path of something in it.
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// Whether a sanitizer takes memory of its own in each process, which nothing of ours predicts.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// A Python that may have packages of others: JIGE_TEST_PYTHON, else python3.
std::string test_python();
// Whether that has these packages, as import names them.
bool python_has(const std::string& packages);

// A port of this machine that was free a moment ago.
int free_port();

// Whether a process has ended, and was waited for, within ten seconds.
bool gone(pid_t process);

void write_text(const std::string& path, const std::string& text);
std::string read_text(const std::string& path);
bool exists(const std::string& path);
// Names of everything below a folder, sorted, relative to it.
std::vector<std::string> list_tree(const std::string& folder);

}  // namespace jige::integration
