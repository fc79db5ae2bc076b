// Runs another program to its end, within a time limit, and takes what it says.
//
//   JIGE_TRY(const ProcessOutcome out, run_process({"squeue", "--json"}, {.limit_s = 10}));
//   if (out.exit_code != 0) ...
//
// The program is found on PATH, reads nothing, and gets a process group of its own; past the limit
// the whole group is killed, so that no child of it keeps a pipe open. Output beyond `output_max`
// is an error, not a cut. Threads: any; SIGCHLD must not be ignored.
#pragma once

#include <atomic>
#include <cstddef>
#include <string>
#include <vector>

#include "base/result.h"

namespace jige {

struct ProcessOptions {
  double limit_s = 30;
  size_t output_max = size_t{256} << 20;      // of standard output
  const std::atomic<bool>* cancel = nullptr;  // looked at while waiting
};

struct ProcessOutcome {
  int exit_code = 0;  // 128 + signal where a signal ended it; 127 where it was not found
  std::string out;
  std::string err;
};

// Fails with kInvalidArgument on no words, kNotFound where the program is not on PATH,
// kUnavailable past the time limit, kExhausted past output_max, kCancelled, and kIo.
Result<ProcessOutcome> run_process(const std::vector<std::string>& words,
                                   const ProcessOptions& options = {});

}  // namespace jige
