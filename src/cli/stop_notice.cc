#include "cli/stop_notice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/printable.h"
#include "base/progress.h"
#include "cli/interrupt.h"
#include "cli/output.h"

namespace jige::cli {

StopNotice::StopNotice(std::shared_ptr<const comm::AsyncGroup> group, Speaker speaker)
    : group_(std::move(group)), speaker_(speaker), thread_([this] { main(); }) {}

StopNotice::~StopNotice() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void StopNotice::main() {
  std::optional<StopWatch> asked;
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kSignalPoll, [&] { return over_; })) {
    if (interrupted() && !asked) asked.emplace();
    if (!asked || asked->seconds() < kPatienceSeconds) continue;
    say();
    return;
  }
}

void StopNotice::say() const {
  std::vector<std::string> silent;
  bool first = true;
  for (int r = 0; r < group_->size(); ++r) {
    const double seconds = r == group_->rank() ? 0 : group_->silent_seconds(r);
    if (seconds > kSilentSeconds) {
      silent.push_back(fmt::format("{} (for {:.0f} s)", group_->name(r), seconds));
    } else if (r < group_->rank()) {
      first = false;
    }
  }
  const bool together = speaker_ == Speaker::kFirstThere;
  if (together && !first) return;
  const std::string why = silent.empty()
                              ? "all ranks are there, and the step or its checkpoint goes on"
                              : fmt::format(
                                    "nothing is heard of {}, and the step waits for it until "
                                    "--rank-timeout",
                                    fmt::join(silent, ", "));
  const std::string text = fmt::format(
      "asked to stop, but {}; a second Ctrl-C ends {} at once, and the last complete "
      "checkpoint stays",
      why, together ? "all ranks" : "this rank");
  // Past the level of log lines: it answers who has just asked, and rank 0 may be the silent one.
  clear_progress_line();
  print_message(fmt::format("warning: {}\n", printable_lines(text, "  ")));
}

}  // namespace jige::cli
