// Runs the tasks of a training step on one device: owns the activations, hands each task its views.
//
// Memory: the buffers of model/memory_plan.h for micro-batches of up to M tokens, all allocated at
// the start: the residual stream behind every node but the head (the inputs that W needs), `saved`
// of every node, one gradient of the residual stream that X changes in place, one `pending` (W
// follows X of the same node at once), one workspace, and the batch. Where sequences are divided
// among ranks, W of a node may come up to pending_count() - 1 nodes later.
// Threads: one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/exact_sum.h"
#include "base/result.h"
#include "model/memory_plan.h"
#include "model/weights.h"
#include "tensor/arena.h"
#include "train/batch_loader.h"
#include "train/expert_use.h"
#include "train/schedule_tasks.h"

namespace jige::train {

class Executor {
 public:
  // The arena and the weights must outlive the executor. Fails with kExhausted.
  static Result<Executor> create(Arena& arena, const model::ModelWeights& weights,
                                 int64_t micro_batch_tokens, int context_ranks = 1);

  // Makes a micro-batch the one that tasks see. What is given in place of tokens' embeddings stays
  // where it is, until the tasks are done; no gradient flows there. REQUIRES: at most
  // micro_batch_tokens rows, and one.
  void load(Stream& stream, const HostBatch& batch, const BatchTerms& terms);
  // Runs tasks of the loaded micro-batch, in order; gradients are added to the weights', or stored
  // there (a step's first micro-batch, see ModelWeights::start_gradients).
  void run(Stream& stream, std::span<const Task> tasks,
           model::GradientUse gradients = model::GradientUse::kAdd);
  // Where sequences are divided among ranks: of the loaded micro-batch each has some rows, and
  // attention of passes that run behind this gets the others from `exchange`.
  void divide(model::ContextExchange* exchange) { exchange_ = exchange; }
  // Runs a task of these of its rows alone: kHeadPass, which needs no others, or kBackwardWeight.
  void run_rows(Stream& stream, const Task& task, const model::RowRange& rows,
                model::GradientUse gradients);
  int64_t pending_count() const { return static_cast<int64_t>(pending_.size()); }
  // Losses without gradients: F of every node.
  void evaluate(Stream& stream);
  // Adds the losses of the loaded micro-batch, in nats, one a target. Waits for the stream.
  void add_losses(Stream& stream, ExactSum& sum);
  // Adds how the loaded micro-batch used its experts, behind X of every node. Waits.
  void add_expert_use(Stream& stream, ExpertMeter& meter) const;
  // The sum of the losses of each sequence of the loaded micro-batch, in their order. Waits.
  std::vector<double> sequence_losses(Stream& stream);
  // The loss of each row of the loaded micro-batch, valid until the next call. Waits.
  std::span<const float> token_losses(Stream& stream);
  // Gives each row's target a weight in the gradients of tasks that run behind this. Waits.
  // REQUIRES: a weight for every row of the loaded micro-batch.
  void weigh_tokens(Stream& stream, std::span<const float> weights);
  // Gives the targets of each sequence a weight in the gradients of tasks that run behind this.
  // Waits. REQUIRES: a weight for every sequence of the loaded micro-batch.
  void weigh_sequences(Stream& stream, std::span<const float> weights);

 private:
  explicit Executor(const model::ModelWeights& weights) : weights_(&weights) {}
  Status allocate(Arena& arena, const model::TrainingBuffers& buffers);
  void forward(Stream& stream, size_t node);
  void head_pass(Stream& stream, const model::RowRange& rows);
  void backward_input(Stream& stream, size_t node);
  void backward_weight(Stream& stream, size_t node);

  model::BlockContext context(Stream& stream) const;
  model::BlockMemory memory(size_t node) const;
  // The rows of the loaded micro-batch in a buffer for M of them.
  TensorView rows(const Tensor& tensor) const;
  // The input of a node: the output of the one before it, nothing for the first.
  TensorView source(size_t node) const;
  size_t head_node() const { return weights_->architecture().head_node(); }

  const model::ModelWeights* weights_;
  int64_t micro_batch_tokens_ = 0;
  std::vector<Tensor> outputs_;
  std::vector<Tensor> saved_;
  Tensor gradient_, workspace_, gathered_;
  std::vector<Tensor> pending_;  // of node i: i modulo their number
  Tensor tokens_, positions_, targets_, loss_weights_, losses_;
  model::Batch batch_;
  std::vector<model::GivenRow> given_;  // of the loaded micro-batch
  BatchLoader loader_;
  model::ContextExchange* exchange_ = nullptr;
  // Of the tasks that run.
  model::GradientUse gradients_ = model::GradientUse::kAdd;
  std::optional<model::RowRange> weight_rows_;
};

}  // namespace jige::train
