// DemoJob: a job of the demonstration (`jige cluster run --demo`, tests). It computes nothing, and
// gets on at the speed that the scheduler's network model gives it, as a share of what it would do
// alone. It says in its log what it has and how far it is, and keeps its progress over a requeue.
//
//   FOLDER/jobs/ID.log     "TIME start NODES GPUS RESTARTS FROM_US", "TIME stop DONE_US",
//                          "TIME end DONE_US"
//   FOLDER/jobs/ID.marker  the last checkpoint: microseconds done; replaced whole
//   FOLDER/jobs/ID.alive   written at every look: a run that was killed has its "stop" from there,
//                          when the next one starts
//   STATE/rates/ID         speed, such as 0.734521; 1 while there is none
//
// SIGTERM ends it with a "stop", SIGUSR1 makes it write a checkpoint. Both are blocked from the
// first line of run() on and taken one by one, so that none is lost and every start has its stop.
// Threads: run() on the only thread of its process.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace jige::slurm {

struct DemoJobOptions {
  std::string folder, state;
  int64_t id = 0;
  std::string nodes = "none", gpus = "none";
  int64_t restarts = 0;
  int64_t total_us = 0;  // of work alone
  int64_t checkpoint_every_us = 5'000'000;
};

class DemoJob {
 public:
  explicit DemoJob(DemoJobOptions options);

  // Works until the end or SIGTERM. Fails with kIo, naming the file.
  Status run();

 private:
  // Microseconds of work that the checkpoint holds; 0: there is none.
  Result<int64_t> saved_work() const;
  // The stop of a run before this one that could not say it.
  Status say_missing_stop() const;
  // A line of the log, stamped with the time.
  Status say(const std::string& text) const;
  Status checkpoint(int64_t done_us) const;
  double rate() const;

  DemoJobOptions options_;
  std::string log_, marker_, alive_, rates_;
};

}  // namespace jige::slurm
