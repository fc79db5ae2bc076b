// A micro-batch on its way from host memory to a device: ids, positions, targets and weights into
// room that the device has for them, and its losses back. Angles of rows, which CPUs alone know,
// stay where they are.
//
// Both executors load through it, so that what a block sees is the same on one device and on many.
// Threads: one thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/exact_sum.h"
#include "model/block.h"
#include "tensor/device.h"
#include "train/step_plan.h"

namespace jige::train {

// What a training step's passes depend on besides its tokens. The default is that of evaluation.
struct BatchTerms {
  float loss_weight = 1;       // of every target in the gradient
  model::StepDropout dropout;  // token_begin: of the micro-batch's first row in the step
  float balance_weight = 0;    // model::Batch
};

// Room for the columns of a micro-batch, [M] each.
struct BatchRoom {
  TensorView tokens, positions, targets;  // i32
  TensorView loss_weights;                // f32
};

class BatchLoader {
 public:
  // Fills `batch` with views of the room. Waits: the host's memory may change from here on.
  // REQUIRES: the rows fit the room; the batch's sequences cover them.
  void load(Stream& stream, const BatchRoom& room, const HostBatch& host, const BatchTerms& terms,
            model::Batch& batch);
  // Adds losses [T] f32 of a device, in nats, one a target. Waits for the stream.
  void add_losses(Stream& stream, const TensorView& losses, ExactSum& sum);
  // The same, summed for each sequence of the batch that they are of.
  std::vector<double> sequence_losses(Stream& stream, const TensorView& losses,
                                      const model::Batch& batch);
  // The losses themselves, valid until the next call.
  std::span<const float> token_losses(Stream& stream, const TensorView& losses);
  // Writes the loss weights of all rows where `load` put them. Waits.
  // REQUIRES: a weight for each of the batch's rows.
  void weigh_tokens(Stream& stream, std::span<const float> weights, model::Batch& batch);
  // The same with one for every sequence's rows.
  // REQUIRES: a weight for each of the batch's sequences.
  void weigh_sequences(Stream& stream, std::span<const float> weights, model::Batch& batch);

 private:
  std::vector<float> host_floats_;
};

}  // namespace jige::train
