// What a sweep is of and how far it is: OUT/sweep.json, for people, scripts and the sweep itself,
// which goes on by it.
//
//   {"format": "jige-sweep", "version": 1,
//    "flags": [what all trials have, as words of a command line],
//    "steps": {"all": 12000, "run": 7400},     of all trials; what is left of them with sharing, at
//                                              most where trials are compared
//    "branches_at_once": 2,                    checkpoints kept for other trials, at most
//    "halving": {"factor": 3, "rungs": [200, 600]},   steps behind which trials are compared, and
//                                              one of how many goes on; null: all run to the end
//    "best": "lr=2e-3",                        null where no trial has ended
//    "trials": [{"name", "folder",             the folder under OUT, a run as of `jige train`
//                "settings": {"lr": "2e-3"}, "steps",
//                "inputs",                     checksum of what it reads: data, tokenizer, model
//                "shared_steps",               that an earlier trial makes, 0: none
//                "shared_with",                which, or null
//                "state": "waiting", "done", "dropped" or "diverged",
//                "rung_losses": [2.31],        held-out losses by which it was compared
//                "loss",                       of the last step
//                "held_out", "held_out_best", "held_out_best_step",   null where nothing is
//                "seconds",                    of its training, with shared steps
//                "error"}]}                    of one that diverged
//
// Threads: values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace jige::train {

inline constexpr size_t kSweepTrialsMax = 4096;

// Dropped: others were better where they were compared.
enum class TrialState { kWaiting, kDone, kDropped, kDiverged };
std::string_view trial_state_name(TrialState state);

struct TrialRecord {
  std::string name;
  std::vector<std::pair<std::string, std::string>> settings;  // flags without dashes, values
  int64_t steps = 0;
  std::string inputs;
  int64_t shared_steps = 0;
  std::string shared_with;
  TrialState state = TrialState::kWaiting;
  std::vector<double> rung_losses;  // NaN: it was no number
  std::optional<double> loss;
  std::optional<double> held_out, held_out_best;
  int64_t held_out_step = 0;  // of held_out; not in the file
  int64_t held_out_best_step = 0;
  double seconds = 0;
  std::string error;

  std::string folder() const { return "trials/" + name; }
  Json to_json() const;
};

struct SweepRecord {
  std::vector<std::string> flags;
  int64_t steps_all = 0;
  int64_t steps_run = 0;
  int64_t branches_at_once = 0;
  int64_t halving_factor = 0;  // 0: all trials run to their end
  std::vector<int64_t> rungs;
  std::vector<TrialRecord> trials;

  Json to_json() const;
  // Fails with kNotFound, kInvalidArgument, kCorrupt or kUnsupported naming the field.
  static Result<SweepRecord> from_json(const Json& json, const std::string& where);
};

// By held-out loss; then those of which nothing was held out, by that of the last step, which is
// another measure; then those that were dropped, the last ones first; then those that diverged,
// then those that wait.
std::vector<size_t> trials_by_loss(const SweepRecord& record);
// The first of them; none where no trial has ended with a loss.
std::optional<size_t> best_trial(const SweepRecord& record);

// OUT/sweep.json. Reading gives nothing where there is none.
Result<std::optional<SweepRecord>> read_sweep_record(const std::string& out_folder);
Status write_sweep_record(const std::string& out_folder, const SweepRecord& record);

}  // namespace jige::train
