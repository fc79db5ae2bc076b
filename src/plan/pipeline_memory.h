// What a schedule keeps in memory: every buffer of a step, with the tasks between which it lives.
//
// Buffers follow from the tasks and the costs alone, by these rules (d: device of the pass):
//   parameters   of a visit, from its fetch to its release; always, where parameters stay
//   boundary     a pass's input: from the pass that makes it, or the send that brings it, to the
//                pass that uses it last (W, where X or R works on it); what is sent also stays with
//                the sender until the send has ended
//   boundary gradient  the same for X: the gradient it starts from, until it has ended, and the one
//                it makes, while that waits to be sent
//   saved        what F, or R, keeps for X and W, until W
//   pending      gradients inside a stage, from X to W, and one boundary gradient where a stage has
//                several blocks
//   transient    what an F without memory needs while it runs: its largest block, and up to two
//                boundaries inside the stage; R's output, which nobody reads
//   gradient     of a stage, from its first X (the head's W may be part of it) to the end of its
//                offload or update; to the end of the step where an update on the device may have
//                to be made again
//   state        masters and moments, where the optimizer runs, always; on the host together with
//                the parameters and gradients there. Parameters beside it are without those that
//                passes read as the optimizer keeps them
//   undo         what speculative clipping keeps to undo an update, always
//   workspace    of each device, always; on the host what messages pass through, of all devices
// A send that brings a boundary occupies the receiver from its start, so no receive is without
// room.
//
// Invariant: for a schedule that verify_pipeline() accepts, a buffer's first task is before all its
// users and its last task behind them.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "plan/pipeline_costs.h"
#include "plan/pipeline_graph.h"
#include "plan/pipeline_schedule.h"

namespace jige::plan {

enum class BufferKind : uint8_t {
  kParameters,
  kBoundary,
  kBoundaryGradient,
  kSaved,
  kPending,
  kTransient,
  kGradient,
  kState,
  kUndo,
  kWorkspace,
};
inline constexpr int kBufferKindCount = 10;
inline constexpr int32_t kHostDevice = -1;

struct PipelineBuffer {
  BufferKind kind = BufferKind::kBoundary;
  int32_t device = kHostDevice;
  BlockRange blocks;
  int32_t micro_batch = -1;
  int64_t bytes = 0;
  int32_t first = -1;  // appears when this task starts; -1: always there
  int32_t last = -1;   // goes when this task has ended; -1: stays
  // The pass whose input, output or memory it is: F for `blocks.begin` of a boundary at its begin
  // (input), at its end (output) or between (a checkpoint); R for a received checkpoint; X for
  // boundary gradients, pending and gradient (that of micro-batch 0); the fetch for parameters of a
  // visit. -1: none. (kind, user, blocks) is unique where there is a user.
  int32_t user = -1;
};

std::string_view buffer_name(BufferKind kind);

// Whether sums over the buffers can be counted: at most kBuffersBytesMax together, not half of what
// an int64_t holds. Fails with kInvalidArgument, naming the limit.
inline constexpr double kBuffersBytesMax = 4e18;
Status check_buffer_bytes(const std::vector<PipelineBuffer>& buffers);

// All buffers of more than 0 bytes. REQUIRES: verify_pipeline(schedule), check_costs(costs).
std::vector<PipelineBuffer> pipeline_buffers(const PipelineSchedule& schedule,
                                             const PipelineCosts& costs);

}  // namespace jige::plan
