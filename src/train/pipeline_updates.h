// The optimizer's part of a pipeline step: gradients to where the optimizer is, the global norm,
// updates block by block, and what is taken back.
//
// exact      updates come behind a barrier at which the norm is known (schedules with clipping
//            `exact`, or optimizer `sync`)
// speculate  updates go ahead as if nothing had to be clipped, keeping images; at the end of the
//            step a norm above the bound makes them again with its scale, and a loss or gradient
//            that is not finite takes them back. The bits are those of `exact`.
// A head that reads the embedding's table has its part of the gradient added to the table's once
// both are complete; the table's update renews the head's packed form.
// Threads: gather(), take() and update() of different stages may run at once; the rest while none
// does.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "model/weights.h"
#include "plan/pipeline_schedule.h"
#include "train/optimizer.h"
#include "train/pipeline_weights.h"
#include "train/undo_images.h"

namespace jige::train {

class PipelineUpdates {
 public:
  // Everything must outlive it. `undo`: for schedules that speculate.
  PipelineUpdates(const plan::PipelineSchedule& schedule, model::ModelWeights& weights,
                  Optimizer& optimizer, const PipelineWeights& places,
                  std::optional<UndoImages> undo);

  // At the start of a step.
  void begin(double learning_rate);
  // Once a stage's gradient is complete: its sums of squares; for an optimizer on the host, taking
  // it there from the device.
  void gather(Stream& stream, plan::BlockRange blocks);
  // The copy of gather() alone. REQUIRES: an optimizer on the host.
  void take(Stream& stream, plan::BlockRange blocks);
  // At the barrier before the updates: decides, from all gradients and the loss of the step.
  // The streams here and below are those of the nodes' state.
  void decide(const model::NodeStreams& streams, bool loss_finite);
  // One stage's parameters, and their packed forms.
  void update(Stream& stream, plan::BlockRange blocks);
  // At the end of a step. Says how the step was applied; `redone` whether updates were made again
  // or taken back, so that copies on devices are old.
  struct Outcome {
    OptimizerReport report;
    bool redone = false;
  };
  Outcome finish(const model::NodeStreams& streams, bool loss_finite);
  // After a failed run: a step that never was.
  void abandon(const model::NodeStreams& streams);

 private:
  bool on_host() const { return schedule_->optimizer != plan::OptimizerMode::kDevice; }
  TensorView gradient(size_t param) const;
  std::span<const size_t> params_of(int32_t block) const {
    return params_of_[static_cast<size_t>(block)];
  }
  void update_param(Stream& stream, size_t param, double grad_scale);
  bool is_table(size_t param) const;
  void merge_tied(Stream& stream);
  // Of the packed forms what no update renews.
  void pack_others(Stream& stream, plan::BlockRange blocks);
  void take_back(const model::NodeStreams& streams);

  const plan::PipelineSchedule* schedule_;
  model::ModelWeights* weights_;
  Optimizer* optimizer_;
  const PipelineWeights* places_;
  std::optional<UndoImages> undo_;
  std::vector<std::vector<size_t>> params_of_;  // by block: indices of the optimizer's parameters
  std::vector<double> squares_;                 // by parameter
  std::vector<uint8_t> updated_;                // by parameter: changed in this step
  double learning_rate_ = 0;
  std::optional<OptimizerReport> decision_;  // once taken
  bool tied_ = false;                        // the head's matrix is the embedding's table
  bool merged_ = false;                      // their gradients have been added in this step
};

}  // namespace jige::train
