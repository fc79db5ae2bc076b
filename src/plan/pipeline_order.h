// What every device computes and in which order: the part in which schedules differ. Everything
// else (messages, fetches, gradients, optimizer) follows from it (plan/pipeline_lower.h).
//
// The model is cut twice: into forward stages, and into backward stages, each a run of blocks with
// a device. Orders list F of forward stages, X and W of backward stages; recomputation is no entry
// of its own. `P` is the number of devices, `M` of micro-batches, `V` of stages on each device.
//
// Invariants of every order: micro-batches ascend in F, X and W of a stage; F before X before W.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/pipeline_schedule.h"

namespace jige::plan {

struct PipelineStage {
  BlockRange blocks;
  int32_t device = 0;
  bool operator==(const PipelineStage&) const = default;
};

struct OrderOp {
  TaskKind kind;  // F, X or W
  int32_t stage;  // of the forward stages for F, else of the backward stages
  int32_t micro_batch;
  bool operator==(const OrderOp&) const = default;
};

using DeviceOrder = std::vector<OrderOp>;

struct PipelineOrder {
  std::vector<PipelineStage> forward;   // ascending blocks
  std::vector<PipelineStage> backward;  // ascending blocks
  std::vector<DeviceOrder> devices;
  // The gradient leaves behind W, as where X and W are one task; else as soon as X is done.
  bool fused = true;
};

struct DevicesAndMicroBatches {
  int32_t devices = 1;        // P
  int32_t micro_batches = 1;  // M
};

// All F, stage after stage, then all X and W from the last stage down, each stage for all M before
// the next: GPipe with one stage a device; breadth-first, Mobius and SPipe with several.
std::vector<DeviceOrder> looped_orders(const PipelineOrder& stages, DevicesAndMicroBatches size);

// One F, one X and W in turn as soon as the pipeline is full; stage d on device d.
std::vector<DeviceOrder> one_f_one_b_orders(DevicesAndMicroBatches size);

// The same with V stages a device, stage k on device k mod P, in groups of P micro-batches.
// REQUIRES: M is a multiple of P.
std::vector<DeviceOrder> interleaved_orders(DevicesAndMicroBatches size, int32_t stages_per_device);

// One-F-one-B whose device d runs W of a micro-batch d micro-batches late: the W fill the waits for
// gradients, and no device holds more than P micro-batches (Qi et al., Zero Bubble, ZB-H1).
std::vector<DeviceOrder> zb_h1_orders(DevicesAndMicroBatches size);

}  // namespace jige::plan
