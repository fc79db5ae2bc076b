// AdamW over the trained parameters of one device: moments, clipping by the global norm, and the
// refusal of gradients that are not finite.
//
// B of adapters moves lora_b_rate times as fast as all else (LoRA+, Hayou et al., 2024).
// Decoupled weight decay falls on parameters whose ParamSpec says so (matrices). Clipping scales
// all gradients by clip / (norm + 1e-6) where the norm is above clip, as PyTorch does. A step with
// a gradient that is not finite changes nothing: weights, moments and the count of updates stay.
// The norm adds the sums of squares of the parameters in the order of the model's graph, in double:
// its bits depend on the gradients only.
//
// Of several ranks that share it (optimizer_shares.h) each holds moments, and masters of what
// stands in gradients, of its part of every parameter, and updates that part only; the rest is
// sharded_update.h's.
//
// step() does all of it. A schedule that updates blocks one by one puts it together from its parts:
// ops::sums_of_squares, decide(), update() per parameter, set_update_count().
// Threads: one thread at a time, but update() of different parameters may run at once; the moments
// belong to the arenas.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "model/weights.h"
#include "ops/adamw.h"
#include "ops/linear_rows.h"
#include "tensor/arena.h"
#include "train/optimizer_shares.h"
#include "train/options.h"

namespace jige::train {

struct OptimizerStep {
  double learning_rate = 0;
  bool refuse = false;  // counts as not finite whatever the gradients, for a loss that is not
  // Whether packed forms (NamedParam::packs) are renewed with the values; the rest is the caller's.
  bool renew_packed = false;
  // Of each parameter the rows that are updated, null: all; moments and weights of the others stay.
  // Or empty: all of all. REQUIRES: moments in f32, whole ones.
  std::span<const std::vector<ops::RowRange>* const> rows = {};
};

// What an update of one parameter needs besides its gradient.
struct OptimizerUpdate {
  double learning_rate = 0;
  double grad_scale = 1;
  int64_t update = 1;         // the t of Adam's bias correction, this update included
  bool renew_packed = false;  // as in OptimizerStep
};

struct OptimizerReport {
  double grad_norm = 0;   // before clipping
  double grad_scale = 1;  // what clipping multiplied with
  bool applied = false;   // false: not finite, nothing changed
};

class Optimizer {
 public:
  // Allocates moments of zero for every parameter, in the format of the options. The parameters'
  // memory must outlive the optimizer. Fails with kExhausted.
  static Result<Optimizer> create(Arena& arena, std::span<const model::NamedParam> params,
                                  const OptimizerOptions& options);
  // The same with an arena for each node of the model.
  static Result<Optimizer> create(std::span<Arena* const> arenas,
                                  std::span<const model::NamedParam> params,
                                  const OptimizerOptions& options);
  // The part of a rank. REQUIRES: shares for moments of the options' format.
  static Result<Optimizer> create_share(Arena& arena, std::span<const model::NamedParam> params,
                                        const OptimizerOptions& options,
                                        const OptimizerShares& shares, int rank);

  // Updates all values from the gradients; packed forms are the caller's to renew, but for those of
  // renew_packed.
  OptimizerReport step(Stream& stream, const OptimizerStep& args);

  // The second half of step(), with the sums of squares of all gradients, one for each parameter.
  OptimizerReport apply(Stream& stream, std::span<const double> squares, const OptimizerStep& args);

  // Whether and how a step with these sums of squares, one for each parameter, is applied.
  OptimizerReport decide(std::span<const double> squares, bool refuse) const;
  // Updates params()[i], or the part that is held here, from the whole gradient.
  void update(Stream& stream, size_t i, const TensorView& grad, const OptimizerUpdate& args);

  std::span<const model::NamedParam> params() const { return params_; }
  // Null where all is held here.
  const OptimizerShares* shares() const { return shares_ ? &*shares_ : nullptr; }
  // What is held here of params()[i].
  const ElementRange& held(size_t i) const { return held_[i]; }
  // The master of that part, f32: in the value's memory, or apart where that is a gradient's.
  TensorView master(size_t i) const;
  bool master_is_apart(size_t i) const { return !masters_.empty() && bool{masters_[i]}; }

  // Of params()[i], or the part that is held here, as ops::moment_layout() has it; a checkpoint
  // reads and writes them.
  const TensorView& moment1(size_t i) const { return moments1_[i].view(); }
  const TensorView& moment2(size_t i) const { return moments2_[i].view(); }
  // Of a moment of params()[i] as a whole.
  ops::MomentLayout moment_layout(size_t i) const {
    return ops::moment_layout(options_.moments, params_[i].spec->shape);
  }
  // Updates so far: the t of Adam's bias correction.
  int64_t update_count() const { return update_count_; }
  void set_update_count(int64_t count) { update_count_ = count; }

 private:
  Optimizer(std::span<const model::NamedParam> params, const OptimizerOptions& options);
  ops::AdamW update_args(size_t i, const TensorView& grad, const OptimizerUpdate& args) const;

  std::vector<model::NamedParam> params_;
  OptimizerOptions options_;
  std::optional<OptimizerShares> shares_;
  std::vector<ElementRange> held_;
  std::vector<Tensor> masters_;  // of a share; empty where the value's memory is the master's
  std::vector<Tensor> moments1_;
  std::vector<Tensor> moments2_;
  int64_t update_count_ = 0;
};

}  // namespace jige::train
