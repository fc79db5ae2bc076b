// Another program that answers lines with lines: started once, asked many times.
//
//   JIGE_TRY(auto program, LineProcess::start("python3 judge.py"));
//   JIGE_TRY(const auto answers, program->exchange(questions, 60));
//
// The command is run by `sh -c` in a process group of its own, with our standard error. It may
// answer each line at once or read all before it answers; lines go out and come in at the same
// time. Whatever goes wrong, the group is killed and the program waited for, so that none is left
// behind; it is killed too when the thread that started it ends, as by a kill of this process.
// Invariant: behind exchange() nothing is under way; a line that nobody asked for is an error.
// Threads: one at a time. REQUIRES: SIGPIPE is ignored, SIGCHLD is not.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/go_on.h"
#include "base/result.h"

namespace jige {

inline constexpr size_t kAnswerLineBytesMax = size_t{1} << 16;

class LineProcess {
 public:
  // Fails with kIo. What the shell cannot find ends at once, which exchange() tells.
  // `end_seconds`: that it has to end by itself once its input or output is closed.
  static Result<std::unique_ptr<LineProcess>> start(const std::string& command,
                                                    double end_seconds = 1);
  // Closes its input and waits for its end, or kills it.
  ~LineProcess();
  LineProcess(const LineProcess&) = delete;
  LineProcess& operator=(const LineProcess&) = delete;

  // Sends lines, without newlines in them, and takes as many back, in their order. Fails with
  // kUnavailable where it ends, or brings no line for `line_limit_s` seconds, and with kCorrupt on
  // a line of more than kAnswerLineBytesMax and on more lines than were asked for; the program is
  // over then, as where `go_on` gives an error.
  Result<std::vector<std::string>> exchange(std::span<const std::string> lines, double line_limit_s,
                                            const GoOn& go_on = {});

  pid_t pid() const { return pid_; }

 private:
  LineProcess(std::string command, double end_seconds, pid_t pid, int to_fd, int from_fd)
      : command_(std::move(command)),
        end_seconds_(end_seconds),
        pid_(pid),
        to_fd_(to_fd),
        from_fd_(from_fd) {}
  Result<std::vector<std::string>> try_exchange(std::span<const std::string> lines,
                                                double line_limit_s, const GoOn& go_on);
  // Takes what is there, and whole lines of it; false at the end of its output.
  Result<bool> take(std::vector<std::string>& answers, size_t wanted);
  // The error of a program that has ended.
  tl::unexpected<Error> ended(size_t answered, size_t asked);
  void close_input();
  void kill_group();
  // Whether it was seen to end within end_seconds.
  bool wait_end();

  std::string command_;
  double end_seconds_;
  pid_t pid_;
  int to_fd_, from_fd_;
  std::string pending_;  // of a line that is not whole yet
  int status_ = 0;
  bool gone_ = false;  // waited for
};

}  // namespace jige
