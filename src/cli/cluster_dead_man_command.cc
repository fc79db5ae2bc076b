// jige cluster dead-man: releases held jobs when their scheduler gives no sign any more.
#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/counted.h"
#include "base/file.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "slurm/commands.h"
#include "slurm/dead_man.h"

namespace jige::cli {
namespace {

constexpr std::chrono::milliseconds kLook(200);

class ClusterDeadManCommand final : public Command {
 public:
  void declare(Flags& flags) override {
    flags.about(
        "Watches the heartbeat of a `jige cluster run`, and releases the jobs of the partition "
        "without nodes when it stands still, so that Slurm schedules them by itself. Ends after "
        "that, and when the scheduler has ended with nothing left to do. `jige cluster run` "
        "starts one beside itself.");
    flags.text("--state FOLDER", state_, "of the scheduler");
    flags.text("--partition NAME", partition_, "whose held jobs are released");
    flags.number("--after S", after_s_, {.min = 0.5, .max = 86400}, "without a heartbeat");
    flags.integer(
        "--epoch N", epoch_, {},
        "of the scheduler that started it: end when a later one, with a timer of its own, "
        "has begun");
    output_.declare(flags, "print one JSON object");
    flags.example("jige cluster dead-man --state /var/lib/jige --partition gpu");
    flags.example("jige cluster dead-man --state /var/lib/jige --after 300");
  }

  Status run() override {
    output_.apply();
    // A folder named by mistake has no heartbeat either: jobs would be released whose scheduler is
    // well.
    if (!epoch_) {
      JIGE_DO(check_file("--state", state_ + "/heartbeat", "the folder of a jige cluster run"));
    }
    outlive_readers();
    const InterruptScope interrupts;
    const RealClock clock;
    slurm::DeadManTimer timer(after_s_, epoch_, clock.now_ns());
    slurm::SlurmCommands backend({.cancel = &interrupt_flag()});
    while (!interrupted()) {
      const Result<std::string> heartbeat = read_file(state_ + "/heartbeat");
      const auto verdict = timer.look(heartbeat ? *heartbeat : "", clock.now_ns());
      if (verdict == slurm::DeadManTimer::Verdict::kEnded) return say(0, "the scheduler has ended");
      if (verdict == slurm::DeadManTimer::Verdict::kFollowed) {
        return say(0, "a later scheduler has begun");
      }
      if (verdict == slurm::DeadManTimer::Verdict::kDead) {
        const Result<int64_t> released = slurm::release_held(backend, partition_);
        if (released) return say(*released, "no heartbeat");
        if (interrupted()) return {};
        log_warn("{}", released.error().message);
      }
      std::this_thread::sleep_for(kLook);
    }
    return {};
  }

 private:
  Status say(int64_t released, const std::string& why) const {
    if (output_.json) {
      print_json({{"released", released}, {"why", why}});
    } else {
      print_text(fmt::format("{}: {} released\n", why, counted(released, "job")));
    }
    return {};
  }

  std::string state_ = "jige-slurm", partition_ = "jige";
  double after_s_ = 60;
  std::optional<int64_t> epoch_;
  OutputFlags output_;
};

}  // namespace

std::unique_ptr<Command> make_cluster_dead_man_command() {
  return std::make_unique<ClusterDeadManCommand>();
}

}  // namespace jige::cli
