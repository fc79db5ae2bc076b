// A logical device of the pipeline: an arena with a hard cap, a stream for each queue, threads for
// what the processor does, and the ids of a step's micro-batches.
//
// On the CPU the streams run inline: a queue's thread does the work of its stream. Passes use the
// device's compute team; copies and optimizer steps have teams of their own, so that they never
// wait for a pass. On a GPU, of whose memory it has a part, passes and copies have streams there,
// and run beside one another; optimizer steps are the processor's as well.
// Threads: each stream belongs to one queue; load() while no task runs.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/exact_sum.h"
#include "base/result.h"
#include "model/architecture.h"
#include "model/weights.h"
#include "tensor/arena.h"
#include "tensor/cpu_device.h"
#include "train/batch_loader.h"

namespace jige::train {

// What a device must have room for at once.
struct DeviceBatches {
  int64_t micro_batch_tokens = 0;
  int32_t micro_batches = 0;
  int64_t position_count = 0;  // rows of the rope table: the longest sequence
};

// Scratch of the largest task, rope table, and ids, weights and losses of all micro-batches.
int64_t device_workspace_bytes(const model::Architecture& architecture, DType compute,
                               const DeviceBatches& batches);

// The place in a list of GPUs of which device d is a part: they take turns. So each GPU has work as
// soon as a step fills its first devices, and is idle alone at the ends; in blocks of neighbours
// the last GPU would wait for all devices of the others. What it costs is small: every boundary
// goes from GPU to GPU. REQUIRES: a GPU.
inline size_t gpu_in_turn(size_t gpu_count, int32_t d) {
  return static_cast<size_t>(d) % gpu_count;
}

struct LogicalDeviceOptions {
  std::string name = "device0";
  Device* gpu = nullptr;  // that computes, and outlives the logical device; null: the processor
  int64_t capacity_bytes = kUnlimitedBytes;
  int compute_threads = 1;  // where the processor computes
  int optimizer_threads = 1;
};

class LogicalDevice {
 public:
  static Result<std::unique_ptr<LogicalDevice>> create(const LogicalDeviceOptions& options);

  // Divides the workspace (device_workspace_bytes()); before the first load().
  void use_workspace(const model::Architecture& architecture, DType compute,
                     const DeviceBatches& batches, const TensorView& buffer);
  // Takes a step's micro-batches, all of them; those without tokens are passed over by the tasks.
  // The terms are those of the step's first token.
  void load(std::span<const HostBatch> batches, const BatchTerms& terms);

  const model::Batch& batch(int32_t m) const { return batches_[static_cast<size_t>(m)]; }
  int64_t token_count(int32_t m) const;
  const TensorView& rope_table() const { return rope_table_; }
  const TensorView& workspace() const { return workspace_; }
  // [T] f32, for the losses of one micro-batch.
  TensorView losses(int32_t m) const { return losses_.row_range(0, token_count(m)); }
  // Adds the losses of a micro-batch, after its head has run.
  void add_losses(int32_t m, ExactSum& sum);

  Arena& arena() { return *arena_; }
  Stream& compute() { return *compute_; }
  Stream& fetch() { return *fetch_; }
  Stream& offload() { return *offload_; }
  Stream& send() { return *send_; }
  Stream& optimizer() { return *optimizer_; }

 private:
  LogicalDevice() = default;

  std::unique_ptr<CpuDevice> cpu_, copies_;  // null on a GPU
  std::unique_ptr<CpuDevice> host_;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<Stream> compute_, fetch_, offload_, send_, optimizer_;
  TensorView workspace_, rope_table_, losses_;
  TensorView ids_;  // [4 · micro-batches, tokens]: tokens, positions, targets, weights
  std::vector<model::Batch> batches_;
  BatchLoader loader_;
};

}  // namespace jige::train
