// For tests: a scheduler in a folder of its own, beside a Slurm in memory (fake_slurm.h).
//
// Threads: one thread.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "base/file.h"
#include "base/log.h"
#include "base/log_file.h"
#include "base/test_path.h"
#include "cluster/policy_list.h"
#include "slurm/fake_slurm.h"
#include "slurm/scheduler.h"

namespace jige::slurm {

inline constexpr double kStep_s = 0.25;

// A fake Slurm of 2 leaves of 4 nodes with 4 GPUs, and a scheduler in a folder of its own.
class SchedulerRig {
 public:
  explicit SchedulerRig(std::string policy, uint64_t seed = 1)
      : slurm(8, 4, clock, seed), policy_(std::move(policy)) {
    folder = temporary_pattern(test_root() + "slurm-");
    if (!mkdtemp(folder.data())) ADD_FAILURE() << "no folder at " << folder;
    set_log_level(LogLevel::kError);
  }
  ~SchedulerRig() {
    scheduler.reset();
    std::filesystem::remove_all(folder);
  }

  void start(bool dry_run = false) {
    const Status started = try_start(dry_run);
    ASSERT_TRUE(started) << started.error().message;
  }

  Status try_start(bool dry_run = false) {
    scheduler.reset();
    JIGE_TRY(Layout layout, Layout::create(slurm.nodes(), "jige", slurm.topology_text, {}));
    SchedulerParts parts;
    parts.policy = [this] { return std::move(*cluster::make_policy(policy_, "test", {})); };
    parts.contention = [](const Layout& used) {
      return cluster::make_link_contention(used.spec(), {});
    };
    SchedulerOptions options{.folder = folder};
    options.live.partition = "jige";
    options.live.time_scale = 20;
    options.live.jobs_max = jobs_max;
    options.reconcile.checkpoint_wait_s = 2 * kStep_s;
    options.reconcile.signal_after_s = 1;
    options.notes = notes;
    options.dry_run = dry_run;
    options.log_bytes_max = log_bytes_max;
    JIGE_TRY(scheduler,
             Scheduler::create(slurm, clock, std::move(layout), options, std::move(parts)));
    return {};
  }

  // Steps until nothing is left; whether that came about.
  bool run_out(int steps_max) {
    for (int i = 0; i < steps_max && slurm.unfinished() > 0; ++i) step();
    return slurm.unfinished() == 0;
  }
  void step() {
    const Status status = scheduler->step();
    ASSERT_TRUE(status) << status.error().message;
    check();
    slurm.tick(kStep_s);
  }
  void steps(int count) {
    for (int i = 0; i < count; ++i) step();
  }
  // What is wanted never gives a GPU twice, and no live job is forgotten.
  void check() {
    std::map<int32_t, int32_t> wanted;
    for (const auto& [id, job] : scheduler->live().jobs()) {
      if (const auto place = scheduler->live().wanted(job)) {
        for (const auto& share : *place) wanted[share.node] += share.gpus;
      }
    }
    for (const auto& [node, gpus] : wanted) {
      ASSERT_LE(gpus, scheduler->live().layout().gpus_of(node)) << "node " << node;
    }
  }
  std::string log() { return *read_log(folder + "/decisions.jsonl"); }

  VirtualClock clock;
  FakeSlurm slurm;
  std::string folder;
  std::unique_ptr<Scheduler> scheduler;
  int32_t jobs_max = 1000;
  int64_t log_bytes_max = 1 << 20;
  NoteOptions notes;

 private:
  std::string policy_;
};

}  // namespace jige::slurm
