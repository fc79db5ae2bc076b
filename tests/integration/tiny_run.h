// A model trained once for all tests of the program, by the binary: a few steps on a small corpus.
//
// Threads: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "integration/process.h"

namespace jige::integration {

// Arguments of a run that takes about a second: data, shape and steps; without --out.
std::vector<std::string> tiny_train_arguments(const std::string& data, int steps);

// Waits until a run has written its first checkpoint, or ends.
void wait_for_checkpoint(const std::string& run, Process& process);
// Bytes that all runs below a folder have logged so far.
uintmax_t logged_bytes(const std::string& out);
// Waits until they have logged so many, or the process ends.
void wait_for_log(const std::string& out, uintmax_t bytes, Process& process);
// Starts the command that makes `run` and kills it behind the first checkpoint; fails the test
// where it ended before.
void kill_behind_checkpoint(const std::vector<std::string>& words, const std::string& run);
// The bytes of the model's file that a run has written; fails the test where there is none.
std::string model_of(const std::string& run);

// The processes that a job of several ranks has started, by rank.
std::vector<pid_t> ranks_of(const Process& job);
// What becomes of a job of which one rank was killed.
struct KilledRank {
  Outcome outcome;
  double seconds = 0;  // from the kill to the end
};
// Kills a rank of the job that makes `run` behind its first checkpoint; expects that all end then,
// and can go on.
KilledRank kill_rank(Process& job, const std::string& run, size_t rank_count, size_t rank);

class TinyRun {
 public:
  // Trains on first use. Tests that need it fail when that failed.
  static const TinyRun& get();

  std::string corpus() const { return folder_ / "data/train.jsonl"; }
  std::string questions() const { return folder_ / "data/questions.jsonl"; }
  std::string run() const { return folder_ / "run"; }
  std::string model() const { return folder_ / "run/model"; }
  const Outcome& training() const { return training_; }

  // A copy of the model folder, to be damaged.
  std::string copy_model(const TestFolder& to) const;

 private:
  TinyRun();
  TestFolder folder_;
  Outcome training_;
};

}  // namespace jige::integration
