// What to do so that Slurm comes to run what is wanted: one step a job, from what was last seen.
//
//   seen        wanted        step
//   held        on P          place on P, when all of P is free as seen and not promised, and some
//                             time has passed since a stop (kRestartPause_s)
//   released    elsewhere     hold (it has not started)
//   released    there         wait; after start_limit_s give up and hold
//   running     elsewhere     ask for a checkpoint where it has a marker, then requeue held
//   an array    its tasks     split: one task becomes a job
//   else                      nothing
//
// A job with a marker is requeued when that has changed since it was asked, or after
// checkpoint_wait_s. One without is not asked, nor is one that has not run for signal_after_s and
// may not have set its handler: a signal that it does not expect would end it.
// Requeue is asked for again after repeat_s. Steps are safe to repeat, so nothing
// has to be remembered but times; after a crash the same table applies to what is seen then.
//
// Invariants: places given in one call, those that are under way and what was seen together never
// take more GPUs, CPUs or memory of a node than it has in service. A partition that is closed gets
// no job. Threads: one thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "slurm/live_cluster.h"

namespace jige::slurm {

enum class Step : uint8_t { kPlace, kHold, kCheckpoint, kRequeue, kSplit };
std::string_view step_name(Step step);

struct Action {
  Step step = Step::kPlace;
  int64_t job = 0;
  cluster::Placement placement;  // of kPlace
  int64_t task = -1;             // of kSplit
};

struct ReconcileOptions {
  double start_limit_s = 15;
  double checkpoint_wait_s = 30;
  double signal_after_s = 30;
  double repeat_s = 15;
};

// `marker_changed` says whether the file has changed since that moment of the monotonic clock.
using MarkerChanged = std::function<bool(const std::string& path, int64_t since_wall_ns)>;

// Jobs that are given up are changed in `live`.
std::vector<Action> plan_actions(LiveCluster& live, const Moment& now,
                                 const ReconcileOptions& options,
                                 const MarkerChanged& marker_changed);

// Notes what became of an action between two moments, so that the next plan goes on from there.
void note_outcome(LiveCluster& live, const Action& action, const Status& status,
                  const Moment& begun, const Moment& ended);

}  // namespace jige::slurm
