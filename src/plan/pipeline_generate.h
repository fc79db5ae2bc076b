// From a request to a schedule: which generator, how many devices, micro-batches and stages, where
// parameters and the optimizer are.
//
//   ScheduleRequest request{.kind = ScheduleKind::kSPipe, .devices = 4, .micro_batches = 8,
//                           .block_count = 26, .forward_stages = 2, .backward_stages = 6,
//                           .host_parameters = true, .recompute = true,
//                           .optimizer = OptimizerMode::kAsync};
//   JIGE_TRY(const PipelineSchedule schedule, generate_pipeline(request));
//
// Generators (P devices, V = forward_stages on each device):
//   gpipe          one stage a device; all F, then all X and W
//   1f1b           one stage a device; F and X/W in turn, at most P micro-batches held
//   interleaved    1f1b with V stages a device, stage k on device k mod P; M a multiple of P
//   zb-h1          1f1b with W moved into the waits
//   zb-v           two stages a device in a V; W moved into the waits
//   breadth-first  V stages a device, every stage for all M before the next ("modulo allocation")
//   mobius         breadth-first with parameters on the host
//   zero-offload   no pipeline: one device, one micro-batch after the other, optimizer on the host
//   spipe          V forward stages and backward_stages backward stages a device, chosen apart;
//                  forward k on device k mod P, backward q on P-1-(q mod P), so that both passes
//                  walk the same ring; checkpoints go to the backward device; parameters on the
//                  host
// Out-of-order backward, over any of them: `fast_forward` sends the input gradient before W;
// `defer` moves W later (none, by one X, or into the waits). Either makes X and W two tasks.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "plan/pipeline_order.h"
#include "plan/pipeline_order_greedy.h"
#include "plan/pipeline_schedule.h"

namespace jige::plan {

enum class ScheduleKind : uint8_t {
  kGPipe,
  k1F1B,
  kInterleaved,
  kZbH1,
  kZbV,
  kBreadthFirst,
  kMobius,
  kZeroOffload,
  kSPipe,
};
inline constexpr int kScheduleKindCount = 9;

enum class WeightDefer : uint8_t { kNone, kOne, kUnbounded };

struct ScheduleRequest {
  ScheduleKind kind = ScheduleKind::k1F1B;
  int32_t devices = 1;
  int32_t micro_batches = 1;
  int32_t block_count = 1;
  int32_t forward_stages = 1;   // on each device
  int32_t backward_stages = 1;  // on each device; as many as forward stages but for spipe
  // First blocks of the stages, ascending from 0; empty cuts as evenly as possible.
  std::vector<int32_t> forward_cuts;
  std::vector<int32_t> backward_cuts;  // spipe only
  bool host_parameters = false;
  // With host_parameters: at most so many stages on a device at once, and as many gradients where
  // stages are done one after the other. 1 fetches nothing ahead, and is for the kinds that are
  // done with a stage before they go to the next (mobius, spipe).
  int32_t resident_stages = 2;
  bool recompute = false;
  OptimizerMode optimizer = OptimizerMode::kDevice;
  ClipMode clip = ClipMode::kNone;
  bool tied = false;      // the last block reads parameters of the first
  bool lockstep = false;  // spipe: passes wait for checkpoints on their way (pipeline_lockstep.h)
  bool fast_forward = false;
  WeightDefer defer = WeightDefer::kNone;
  // What a W that looks for a wait reckons with; empty: the same time for everything.
  StageTimes times;
};

std::string_view schedule_name(ScheduleKind kind);
std::string_view defer_name(WeightDefer defer);
// What a schedule is, in a line for help texts.
std::string_view schedule_summary(ScheduleKind kind);
// Whether this kind may have more than one stage a device.
bool has_stage_choice(ScheduleKind kind);
// The smallest set of departures that makes a request of this kind runnable: parameters on the host
// and recompute where the kind is made for them, stage counts it prescribes.
ScheduleRequest natural_request(ScheduleKind kind);

// First blocks of `stage_count` stages, sizes differing by one at most.
// REQUIRES: 1 <= stage_count <= block_count.
std::vector<int32_t> even_cuts(int32_t block_count, int32_t stage_count);

// Stages and their devices, without orders. Fails as generate_pipeline.
Result<PipelineOrder> pipeline_stages(const ScheduleRequest& request);
// With orders, out-of-order backward applied. Fails as generate_pipeline.
Result<PipelineOrder> pipeline_order(const ScheduleRequest& request);

// Fails with kInvalidArgument where the request contradicts itself or cannot run: more stages than
// blocks, M < P where the schedule needs M >= P, an optimizer on the device while parameters are on
// the host. The message says what to change.
Result<PipelineSchedule> generate_pipeline(const ScheduleRequest& request);

}  // namespace jige::plan
