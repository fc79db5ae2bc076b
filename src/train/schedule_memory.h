// The buffers of a schedule on its devices: each is taken from its device's arena when its first
// task starts and given back when its last has ended, exactly as plan/pipeline_memory.h says. So
// what a run occupies is what was planned, and an arena's cap asserts it.
//
//   JIGE_DO(memory.acquire(task)); … memory.view(BufferKind::kSaved, task, begin) …;
//   memory.release(task);
//
// Invariant: a buffer exists between its first and its last task, and only then. Buffers whose
// place is elsewhere (the host's, and what the model's own weights and optimizer hold) are not kept
// here.
// Threads: acquire, view and release from any thread, for tasks in the order of the schedule.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "base/result.h"
#include "plan/pipeline_memory.h"
#include "tensor/arena.h"

namespace jige::train {

class ScheduleMemory {
 public:
  // `arenas` by device. Takes what is always there at once. Fails with kExhausted.
  static Result<ScheduleMemory> create(std::vector<plan::PipelineBuffer> buffers, size_t task_count,
                                       std::vector<Arena*> arenas);

  // Takes the buffers that begin with a task. Fails with kExhausted, which a verified schedule in
  // arenas of its planned peak never does.
  Status acquire(int32_t task);
  // Gives back those that end with it.
  void release(int32_t task);
  // After a failed run: gives back everything that is not always there.
  void release_all();

  // The bytes of a buffer by what it is, whose it is and its first block; empty where the schedule
  // has none. REQUIRES: it exists now.
  TensorView view(plan::BufferKind kind, int32_t user, int32_t block) const;
  // The buffer of a device that is always there: parameters of the stage at `block`, or workspace.
  TensorView lasting(plan::BufferKind kind, int32_t device, int32_t block) const;

 private:
  std::vector<plan::PipelineBuffer> buffers_;
  std::vector<Arena*> arenas_;
  std::vector<Tensor> tensors_;               // by buffer
  std::vector<std::vector<int32_t>> begins_;  // by task: buffers
  std::vector<std::vector<int32_t>> ends_;
  std::map<std::tuple<plan::BufferKind, int32_t, int32_t>, size_t> by_user_;
  std::map<std::tuple<plan::BufferKind, int32_t, int32_t>, size_t> lasting_;  // by device
};

}  // namespace jige::train
