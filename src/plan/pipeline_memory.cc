#include "plan/pipeline_memory.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"
#include "plan/pipeline_passes.h"

namespace jige::plan {
namespace {

using enum TaskKind;

class BufferList {
 public:
  BufferList(const PipelineSchedule& schedule, const PipelineCosts& costs, PipelinePasses passes)
      : schedule_(schedule), costs_(costs), passes_(std::move(passes)) {}

  std::vector<PipelineBuffer> collect() {
    for (int32_t d = 0; d < schedule_.device_count; ++d) {
      add({BufferKind::kWorkspace, d, {}, -1, costs_.workspace_bytes, -1, -1});
    }
    for (int32_t i = 0; i < static_cast<int32_t>(schedule_.tasks.size()); ++i) {
      const TaskKind kind = at(i).kind;
      if (kind == kForward) add_forward(i);
      if (kind == kRecompute) add_recompute(i);
      if (kind == kBackwardInput) add_backward_input(i);
      if (kind == kBackwardInput && at(i).micro_batch == 0) add_gradient(i);
    }
    schedule_.host_parameters ? add_visits() : add_resident_parameters();
    add_state();
    add({BufferKind::kWorkspace,
         kHostDevice,
         {},
         -1,
         schedule_.device_count * costs_.staging_bytes,
         -1,
         -1});
    return std::move(buffers_);
  }

 private:
  const PipelineTask& at(int32_t task) const { return schedule_.tasks[static_cast<size_t>(task)]; }
  void add(const PipelineBuffer& buffer) {
    if (buffer.bytes > 0) buffers_.push_back(buffer);
  }
  int64_t boundary_bytes(int32_t block) const {
    return block < schedule_.block_count ? costs_.blocks[static_cast<size_t>(block)].input_bytes
                                         : 0;
  }
  // Boundaries inside a range, not those at its ends.
  int64_t inner_boundary_bytes(BlockRange range) const {
    return sum_blocks(costs_, {range.begin + 1, range.end}, &BlockCost::input_bytes);
  }
  int64_t largest_inner_boundary(BlockRange range) const {
    int64_t largest = 0;
    for (int32_t b = range.begin + 1; b < range.end; ++b) {
      largest = std::max(largest, boundary_bytes(b));
    }
    return largest;
  }

  // The task that stands for boundary b on a device, keeping it for the backward pass: W of the
  // stage that begins there, or the message to where that runs.
  int32_t keeper(int32_t b, int32_t m, int32_t device) const {
    const TaskKind source = schedule_.recompute ? kRecompute : kForward;
    const int32_t again = passes_.pass(source, b, m);
    if (at(again).blocks.begin != b) return -1;
    if (at(again).device == device) return passes_.pass(kBackwardWeight, b, m);
    return passes_.message(kCheckpointSend, b, m);
  }

  void add_forward(int32_t task) {
    const PipelineTask& f = at(task);
    const int32_t m = f.micro_batch;
    // Its input.
    const int32_t begin = f.blocks.begin;
    const int32_t kept = keeper(begin, m, f.device);
    int32_t maker = task;
    if (begin > 0) {
      const int32_t send = passes_.message(kSendActivation, begin, m);
      maker = send >= 0 ? send : passes_.pass(kForward, begin - 1, m);
    }
    add({BufferKind::kBoundary,
         f.device,
         {begin, begin},
         m,
         boundary_bytes(begin),
         maker,
         kept >= 0 ? kept : task,
         task});
    // Its output, while it waits to be sent.
    const int32_t end = f.blocks.end;
    if (end < schedule_.block_count) {
      const int32_t send = passes_.message(kSendActivation, end, m);
      if (send >= 0) {
        add({BufferKind::kBoundary,
             f.device,
             {end, end},
             m,
             boundary_bytes(end),
             task,
             send,
             task});
      }
    }
    if (!schedule_.recompute) {
      add_saved(task);
      return;
    }
    for (int32_t b = begin + 1; b < end; ++b) {
      const int32_t checkpoint = keeper(b, m, f.device);
      if (checkpoint < 0) continue;
      add({BufferKind::kBoundary, f.device, {b, b}, m, boundary_bytes(b), task, checkpoint, task});
    }
    int64_t largest = 0;
    for (int32_t b = begin; b < end; ++b) {
      largest = std::max(largest, costs_.blocks[static_cast<size_t>(b)].saved_bytes);
    }
    largest += std::min(f.blocks.size() - 1, 2) * largest_inner_boundary(f.blocks);
    add({BufferKind::kTransient, f.device, f.blocks, m, largest, task, task, task});
  }

  // What R makes again, its output included, which nobody reads.
  void add_recompute(int32_t task) {
    const PipelineTask& r = at(task);
    add_saved(task);
    add({BufferKind::kTransient, r.device, r.blocks, r.micro_batch, boundary_bytes(r.blocks.end),
         task, task, task});
  }

  // What W needs beside the stage's input; by R or a remembering F. A received checkpoint too.
  void add_saved(int32_t task) {
    const PipelineTask& pass = at(task);
    const int32_t m = pass.micro_batch;
    const int32_t begin = pass.blocks.begin;
    const int32_t weight = passes_.pass(kBackwardWeight, begin, m);
    add({BufferKind::kSaved, pass.device, pass.blocks, m,
         sum_blocks(costs_, pass.blocks, &BlockCost::saved_bytes) +
             inner_boundary_bytes(pass.blocks),
         task, weight, task});
    const int32_t send = begin > 0 ? passes_.message(kCheckpointSend, begin, m) : -1;
    if (send >= 0) {
      add({BufferKind::kBoundary,
           pass.device,
           {begin, begin},
           m,
           boundary_bytes(begin),
           send,
           weight,
           task});
    } else if (begin == 0 && at(passes_.pass(kForward, 0, m)).device != pass.device) {
      add({BufferKind::kBoundary, pass.device, {0, 0}, m, boundary_bytes(0), task, weight, task});
    }
  }

  void add_backward_input(int32_t task) {
    const PipelineTask& x = at(task);
    const int32_t m = x.micro_batch;
    const int32_t weight = passes_.pass(kBackwardWeight, x.blocks.begin, m);
    const int32_t end = x.blocks.end;
    if (end < schedule_.block_count) {
      const int32_t send = passes_.message(kSendGradient, end, m);
      const int32_t maker = send >= 0 ? send : passes_.pass(kBackwardInput, end, m);
      add({BufferKind::kBoundaryGradient,
           x.device,
           {end, end},
           m,
           boundary_bytes(end),
           maker,
           task,
           task});
    }
    const int32_t begin = x.blocks.begin;
    const int32_t send = begin > 0 ? passes_.message(kSendGradient, begin, m) : -1;
    if (send >= 0) {
      add({BufferKind::kBoundaryGradient,
           x.device,
           {begin, begin},
           m,
           boundary_bytes(begin),
           task,
           send,
           task});
    }
    add({BufferKind::kPending, x.device, x.blocks, m,
         sum_blocks(costs_, x.blocks, &BlockCost::pending_bytes) + largest_inner_boundary(x.blocks),
         task, weight, task});
  }

  void add_gradient(int32_t first_input) {
    const PipelineTask& x = at(first_input);
    const int32_t offload = passes_.offload(x.blocks.begin);
    // An update on the device that may have to be made again needs its gradient until then.
    const bool redone = offload < 0 && schedule_.clip == ClipMode::kSpeculate;
    const bool shared = schedule_.tied && x.blocks.end == schedule_.block_count;
    const int32_t update = passes_.update(shared ? 0 : x.blocks.begin);
    const int32_t last = offload >= 0 ? offload : redone ? -1 : update;
    add({BufferKind::kGradient, x.device, x.blocks, -1,
         sum_blocks(costs_, x.blocks, &BlockCost::gradient_bytes), first_input, last, first_input});
  }

  void add_visits() {
    std::map<std::pair<int32_t, BlockRange>, std::vector<size_t>> open;
    for (int32_t i = 0; i < static_cast<int32_t>(schedule_.tasks.size()); ++i) {
      if (at(i).kind != kFetch) continue;
      const int64_t bytes = sum_blocks(costs_, at(i).blocks, &BlockCost::parameter_bytes);
      if (bytes == 0) continue;
      open[{at(i).device, at(i).blocks}].push_back(buffers_.size());
      add({BufferKind::kParameters, at(i).device, at(i).blocks, -1, bytes, i, -1, i});
    }
    std::map<std::pair<int32_t, BlockRange>, size_t> released;
    for (int32_t i = 0; i < static_cast<int32_t>(schedule_.tasks.size()); ++i) {
      if (at(i).kind != kRelease) continue;
      const std::pair place{at(i).device, at(i).blocks};
      const auto visits = open.find(place);
      if (visits == open.end()) continue;
      const size_t index = released[place]++;
      if (index < visits->second.size()) buffers_[visits->second[index]].last = i;
    }
  }

  // Beside the optimizer's state, whose masters are not kept twice.
  int64_t beside_state_bytes(BlockRange blocks) const {
    return sum_blocks(costs_, blocks, &BlockCost::parameter_bytes) -
           sum_blocks(costs_, blocks, &BlockCost::master_bytes);
  }

  void add_resident_parameters() {
    const bool with_state = schedule_.optimizer == OptimizerMode::kDevice;
    for (int32_t i = 0; i < static_cast<int32_t>(schedule_.tasks.size()); ++i) {
      if (at(i).kind != kForward || at(i).micro_batch != 0) continue;
      const int64_t bytes = with_state
                                ? beside_state_bytes(at(i).blocks)
                                : sum_blocks(costs_, at(i).blocks, &BlockCost::parameter_bytes);
      add({BufferKind::kParameters, at(i).device, at(i).blocks, -1, bytes, -1, -1});
    }
  }

  void add_state() {
    for (int32_t i = 0; i < static_cast<int32_t>(schedule_.tasks.size()); ++i) {
      const PipelineTask& step = at(i);
      if (step.kind != kOptimizerStep) continue;
      const bool host = schedule_.optimizer != OptimizerMode::kDevice;
      const int32_t place = host ? kHostDevice : step.device;
      const int64_t parameters = sum_blocks(costs_, step.blocks, &BlockCost::parameters);
      add({BufferKind::kState, place, step.blocks, -1,
           parameters * costs_.state_bytes_per_parameter, -1, -1});
      if (schedule_.clip == ClipMode::kSpeculate) {
        add({BufferKind::kUndo, place, step.blocks, -1,
             parameters * costs_.undo_bytes_per_parameter, -1, -1});
      }
      if (!host) continue;
      add({BufferKind::kParameters, kHostDevice, step.blocks, -1, beside_state_bytes(step.blocks),
           -1, -1});
      add({BufferKind::kGradient, kHostDevice, step.blocks, -1,
           sum_blocks(costs_, step.blocks, &BlockCost::gradient_bytes), -1, -1});
    }
  }

  const PipelineSchedule& schedule_;
  const PipelineCosts& costs_;
  PipelinePasses passes_;
  std::vector<PipelineBuffer> buffers_;
};

}  // namespace

std::string_view buffer_name(BufferKind kind) {
  static constexpr std::string_view kNames[kBufferKindCount] = {
      "parameters",        "boundary activations", "boundary gradients",
      "saved activations", "pending gradients",    "transient",
      "weight gradients",  "optimizer state",      "undo images",
      "workspace"};
  return kNames[static_cast<size_t>(kind)];
}

Status check_buffer_bytes(const std::vector<PipelineBuffer>& buffers) {
  double total = 0;
  for (const PipelineBuffer& buffer : buffers) total += static_cast<double>(buffer.bytes);
  if (total <= kBuffersBytesMax) return {};
  return fail(Code::kInvalidArgument,
              "the buffers of a step have {:.3g} bytes together, {:g} at most can be counted; take "
              "fewer micro-batches or smaller blocks",
              total, kBuffersBytesMax);
}

std::vector<PipelineBuffer> pipeline_buffers(const PipelineSchedule& schedule,
                                             const PipelineCosts& costs) {
  Result<PipelinePasses> passes = PipelinePasses::create(schedule);
  JIGE_CHECK(passes.has_value(), "{}", passes.error().message);
  return BufferList(schedule, costs, std::move(*passes)).collect();
}

}  // namespace jige::plan
