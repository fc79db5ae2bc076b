#include "plan/pipeline_passes.h"

#include "plan/pipeline_limits.h"

namespace jige::plan {
namespace {

// What is wrong with the fields of one task, or nothing.
std::string_view field_fault(const PipelineSchedule& schedule, const PipelineTask& task) {
  const bool message = is_send(task.kind) || is_receive(task.kind);
  const bool barrier = task.kind == TaskKind::kBarrier;
  if (barrier) return task.device == -1 ? "" : "a barrier has no device";
  if (task.device < 0 || task.device >= schedule.device_count) return "there is no such device";
  if (task.blocks.begin < 0 || task.blocks.end > schedule.block_count) {
    return "there are no such blocks";
  }
  if (message ? task.blocks.size() != 0 : task.blocks.size() <= 0) {
    return message ? "a message carries one boundary" : "it has no blocks";
  }
  if (message && (task.blocks.begin == 0 || task.blocks.begin >= schedule.block_count)) {
    return "only boundaries between blocks are sent";
  }
  const bool has_peer =
      task.peer >= 0 && task.peer < schedule.device_count && task.peer != task.device;
  if (message && !has_peer) return "a message needs another device";
  const bool numbered = task.micro_batch >= 0 && task.micro_batch < schedule.micro_batch_count;
  if ((message || is_pass(task.kind)) && !numbered) return "there is no such micro-batch";
  return "";
}

}  // namespace

Status check_fields(const PipelineSchedule& schedule) {
  if (schedule.device_count < 1 || schedule.micro_batch_count < 1 || schedule.block_count < 1) {
    return fail(Code::kCorrupt, "{} devices, {} micro-batches and {} blocks; each must be above 0",
                schedule.device_count, schedule.micro_batch_count, schedule.block_count);
  }
  if (int64_t{schedule.block_count} * schedule.micro_batch_count > kPipelineBlockPassesMax) {
    return fail(Code::kCorrupt, "{} blocks and {} micro-batches; their product may be {} at most",
                schedule.block_count, schedule.micro_batch_count, kPipelineBlockPassesMax);
  }
  for (size_t i = 0; i < schedule.tasks.size(); ++i) {
    const std::string_view fault = field_fault(schedule, schedule.tasks[i]);
    if (fault.empty()) continue;
    return fail(Code::kCorrupt, "{}: {}", describe_task(schedule, static_cast<int32_t>(i)), fault);
  }
  return {};
}

Result<PipelinePasses> PipelinePasses::create(const PipelineSchedule& schedule) {
  PipelinePasses tables;
  tables.micro_batches_ = schedule.micro_batch_count;
  const auto blocks = static_cast<size_t>(schedule.block_count);
  for (auto& table : tables.passes_) {
    table.assign(blocks * static_cast<size_t>(schedule.micro_batch_count), -1);
  }
  tables.offloads_.assign(blocks, -1);
  tables.updates_.assign(blocks, -1);
  const auto claim = [&](int32_t& entry, int32_t task) -> Status {
    if (entry >= 0) {
      return fail(Code::kCorrupt, "{} and {} do the same; one must go",
                  describe_task(schedule, entry), describe_task(schedule, task));
    }
    entry = task;
    return {};
  };
  for (int32_t id = 0; id < static_cast<int32_t>(schedule.tasks.size()); ++id) {
    const PipelineTask& task = schedule.tasks[static_cast<size_t>(id)];
    if (is_send(task.kind) || is_receive(task.kind)) {
      const auto entry =
          tables.messages_.try_emplace({task.kind, task.blocks.begin, task.micro_batch}, -1).first;
      JIGE_DO(claim(entry->second, id));
      continue;
    }
    for (int32_t b = task.blocks.begin; b < task.blocks.end; ++b) {
      if (is_pass(task.kind)) {
        JIGE_DO(claim(tables.passes_[slot(task.kind)][tables.at(b, task.micro_batch)], id));
      } else if (task.kind == TaskKind::kGradientOffload) {
        JIGE_DO(claim(tables.offloads_[static_cast<size_t>(b)], id));
      } else if (task.kind == TaskKind::kOptimizerStep) {
        JIGE_DO(claim(tables.updates_[static_cast<size_t>(b)], id));
      }
    }
  }
  return tables;
}

}  // namespace jige::plan
