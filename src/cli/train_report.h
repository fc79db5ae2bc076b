// What `jige train` shows while it runs: a progress bar for people, or the records of the step log
// as JSON lines for scripts.
//
// Threads: one thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/progress.h"
#include "cli/output.h"
#include "train/report.h"

namespace jige::cli {

class TrainReport {
 public:
  explicit TrainReport(const OutputFlags& output) : output_(output) {}

  // Callbacks that tell this object and look at the interrupt flag. It must outlive the run.
  train::TrainCallbacks callbacks();

  // The last words, when the run has ended or stopped.
  void finish(const train::TrainResult& result);

 private:
  bool on_data(const train::DataProgress& data);
  bool on_walk(int64_t done, int64_t total);
  bool on_measure(int64_t done, int64_t total);
  bool on_reference(int64_t done, int64_t total);
  bool on_held_out(int64_t done, int64_t total);
  void on_plan(const train::TrainPlan& plan);
  void on_step(const train::StepInfo& info);
  void on_eval(const train::EvalInfo& info);
  void on_checkpoint(const train::CheckpointInfo& info);
  void log_devices(const train::MemoryReport& memory) const;

  OutputFlags output_;
  std::unique_ptr<Progress> data_progress_;
  std::string data_file_;
  std::unique_ptr<Progress> walk_progress_;
  int64_t walk_total_ = 0;
  std::unique_ptr<Progress> measure_progress_;
  std::unique_ptr<Progress> reference_progress_;
  std::unique_ptr<Progress> step_progress_;
  int64_t step_first_ = 0;
  int64_t step_ = 0;
  std::vector<int> gpus_;  // of a pipeline; none: the processor's devices
  std::string eval_note_;
  std::string reward_note_;                    // of the last step, where rewards are learned from
  const char* no_loss_ = "it was not finite";  // why the last step has none, where it has none
  int64_t reward_steps_ = 0, silent_steps_ = 0;
};

// The plan as a table, with the time it is predicted to take.
std::string plan_text(const train::TrainPlan& plan, double seconds);

}  // namespace jige::cli
