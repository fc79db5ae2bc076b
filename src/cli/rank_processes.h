// Ranks that a command starts as processes of its own, and looks after until they have ended.
//
// A signal to the command goes to every rank, once; they leave its process group, so that those of
// a terminal come by it alone. Stragglers behind a failure, and behind a signal where ranks are
// given a time for that, are killed: behind a failure a rank that writes is waited for, and its
// time begins when it has written, while one that was stopped (SIGSTOP) and does not write has no
// more of it than other ranks, for it can end nothing. What a rank could not print is its error,
// and a closed pipe that ended rank 0 ends the command, too.
// Threads: one; call it in a process of one thread, since it forks.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <vector>

#include "base/result.h"

namespace jige::cli {

struct RankProcessOptions {
  int count = 1;
  // For ranks to end by themselves once one has failed, rank 0 and the others. A rank that was
  // stopped in the midst of writing has that of rank 0.
  double farewell_s_rank_0 = 2;
  double farewell_s = 2;
  // The same once a signal came; none: as long as they take.
  std::optional<double> signal_s;
};

// How a rank has ended.
struct RankEnd {
  std::optional<Error> error;  // none where all went well
  bool told = false;           // the error is its own word, not what its end shows
};

// `writing` is to be set while the rank writes what must not be cut off.
using RankBody = std::function<Status(int rank, std::atomic<bool>& writing)>;

// Runs the body in each, until all have ended; their ends by rank. REQUIRES: an InterruptScope
// lives. Fails with kExhausted where they cannot be started.
Result<std::vector<RankEnd>> run_rank_processes(const RankProcessOptions& options,
                                                const RankBody& body);

// The cause among the errors of a group: what ranks tell counts more than how others ended.
Status first_cause(const std::vector<RankEnd>& ends);

}  // namespace jige::cli
