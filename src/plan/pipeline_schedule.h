// The schedule of one training step: typed tasks over (blocks of the model, micro-batch), each on a
// queue of a device, with explicit dependencies. It is data: generators write it, the verifier
// proves it, the simulator times it, an executor runs it; it can be printed, saved and drawn.
//
//   JIGE_TRY(const PipelineSchedule schedule, generate_pipeline({.kind = ScheduleKind::kSPipe,
//   …})); JIGE_DO(verify_pipeline(schedule)); print(to_text(schedule));
//
// The model is a chain of blocks 0 … block_count-1 (embedding, layers, head). Boundary b is the
// input of block b. A task works on a range of blocks; a message carries one boundary.
//
// Order: tasks of one queue run one after the other, in the order of `tasks`. A task starts when
// the one before it in its queue and every task in `after` have ended. Queues:
//   compute     one a device: F, R, X, W, release, and the optimizer step where it runs there
//   fetch       one a device: parameters from the host
//   offload     one a device: gradients to the host
//   send        one a device: messages out; a send waits for its data alone, never for a receiver
//   receive     one for every pair of devices; messages arrive in the order they were sent
//   optimizer   one a device: optimizer steps on the host, for blocks whose backward the device
//   runs host        one altogether: barriers
// Invariants are what verify_pipeline() proves (plan/pipeline_verify.h).
// Threads: values.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace jige::plan {

enum class TaskKind : uint8_t {
  kFetch,              // parameters of the blocks become resident on the device
  kRelease,            // their device copy goes
  kForward,            // F
  kRecompute,          // R: F again, from a kept or received checkpoint, keeping what X and W need
  kBackwardInput,      // X
  kBackwardWeight,     // W
  kSendActivation,     // boundary = blocks.begin, to `peer`
  kReceiveActivation,  // from `peer`
  kSendGradient,
  kReceiveGradient,
  kCheckpointSend,  // the input of a backward stage, to the device that runs it
  kCheckpointReceive,
  kGradientOffload,  // gradients of all micro-batches, to the host
  kOptimizerStep,
  kBarrier,  // waits for every task in `after`; device -1
};
inline constexpr int kTaskKindCount = 15;

enum class QueueKind : uint8_t { kCompute, kFetch, kOffload, kSend, kReceive, kOptimizer, kHost };

// Where the optimizer runs, and when: on the device at the end of its list; on the host when all
// passes are over (sync); on the host as soon as a stage's gradient is there (async).
enum class OptimizerMode : uint8_t { kDevice, kSync, kAsync };

// How the global gradient norm is respected: not at all; updates wait for it; updates go ahead and
// are redone where it says so.
enum class ClipMode : uint8_t { kNone, kExact, kSpeculate };

// Blocks [begin, end); for messages begin == end, the boundary.
struct BlockRange {
  int32_t begin = 0;
  int32_t end = 0;
  int32_t size() const { return end - begin; }
  bool contains(int32_t block) const { return begin <= block && block < end; }
  auto operator<=>(const BlockRange&) const = default;
};

struct PipelineTask {
  TaskKind kind = TaskKind::kBarrier;
  int32_t device = -1;
  BlockRange blocks;
  int32_t micro_batch = -1;    // -1: of no micro-batch
  int32_t peer = -1;           // of messages: the other device
  std::vector<int32_t> after;  // indices of tasks
  bool operator==(const PipelineTask&) const = default;
};

struct PipelineSchedule {
  std::string name;  // of the generator, for people
  int32_t device_count = 1;
  int32_t micro_batch_count = 1;
  int32_t block_count = 1;
  bool host_parameters = false;  // parameters live on the host and are fetched
  bool recompute = false;
  OptimizerMode optimizer = OptimizerMode::kDevice;
  ClipMode clip = ClipMode::kNone;
  // The last block reads parameters of the first, such as a head tied to the embedding: its part of
  // their gradient is added to the first block's, whose update is that of both.
  bool tied = false;
  std::vector<PipelineTask> tasks;
  bool operator==(const PipelineSchedule&) const = default;
};

// More tasks than this are refused, from generators and from files.
inline constexpr int64_t kPipelineTasksMax = 1'000'000;

bool is_send(TaskKind kind);
bool is_receive(TaskKind kind);
// The receive that belongs to a send. REQUIRES: is_send(kind).
TaskKind receive_of(TaskKind send);
// F, R, X and W.
bool is_pass(TaskKind kind);

// The queue that a task of this kind runs on.
QueueKind queue_of(const PipelineSchedule& schedule, TaskKind kind);

std::string_view kind_name(TaskKind kind);  // "F", "fetch", "send-activation" …
std::string_view queue_name(QueueKind queue);
std::string_view optimizer_name(OptimizerMode mode);
std::string_view clip_name(ClipMode mode);

// "#12 F blocks 0-2, micro-batch 3 on device 1", with the last block named, for messages to people.
std::string describe_task(const PipelineSchedule& schedule, int32_t task);

// Every queue with its tasks, one a line.
std::string to_text(const PipelineSchedule& schedule);

}  // namespace jige::plan
