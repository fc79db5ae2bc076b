#include "train/trace.h"

#include <fmt/format.h>

#include <algorithm>

namespace jige::train {

using plan::PipelineSchedule;
using plan::PipelineTask;
using plan::QueueKind;

namespace {

constexpr size_t kFlushBytes = size_t{1} << 20;

// Processes: 0 the host, then the devices. Rows: a queue's kind, and the sender for receives.
int32_t process_of(const PipelineTask& task) { return task.device + 1; }

int32_t row_of(const PipelineSchedule& schedule, const PipelineTask& task) {
  const QueueKind queue = plan::queue_of(schedule, task.kind);
  const auto kind = static_cast<int32_t>(queue);
  return queue == QueueKind::kReceive ? 100 + task.peer : kind;
}

std::string row_name(const PipelineSchedule& schedule, const PipelineTask& task) {
  const QueueKind queue = plan::queue_of(schedule, task.kind);
  if (queue != QueueKind::kReceive) return std::string(plan::queue_name(queue));
  return fmt::format("{} from device {}", plan::queue_name(queue), task.peer);
}

std::string meta_event(std::string_view what, int32_t process, int32_t row,
                       const std::string& name) {
  return fmt::format(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{"name":"{}"}}}})", what,
                     process, row, name);
}

std::string task_event(int64_t step, const PipelineSchedule& schedule, const PipelineTask& task,
                       const TaskSpan& span, int64_t offset_ns) {
  const auto us = [](int64_t ns) { return static_cast<double>(ns) * 1e-3; };
  std::string name(plan::kind_name(task.kind));
  if (task.micro_batch >= 0) name += fmt::format(" {}", task.micro_batch);
  std::string args = fmt::format("\"step\":{}", step);
  if (task.blocks.size() > 0) {
    args +=
        fmt::format(R"(,"first_block":{},"last_block":{})", task.blocks.begin, task.blocks.end - 1);
  } else if (task.device >= 0) {
    args += fmt::format(",\"boundary\":{}", task.blocks.begin);
  }
  if (task.micro_batch >= 0) args += fmt::format(",\"micro_batch\":{}", task.micro_batch);
  if (task.peer >= 0) args += fmt::format(",\"peer\":{}", task.peer);
  return fmt::format(
      R"({{"ph":"X","name":"{}","cat":"{}","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},)"
      R"("args":{{{}}}}})",
      name, plan::kind_name(task.kind), process_of(task), row_of(schedule, task),
      us(offset_ns + span.start_ns), us(span.end_ns - span.start_ns), args);
}

}  // namespace

Result<TraceWriter> TraceWriter::create(const std::string& path, const TraceLimits& limits) {
  JIGE_TRY(AtomicFile file, AtomicFile::create(path));
  TraceWriter writer(std::move(file), limits);
  writer.pending_ = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
  return writer;
}

Status TraceWriter::add_event(std::string event) {
  pending_ += event_count_++ == 0 ? "\n" : ",\n";
  pending_ += event;
  return pending_.size() < kFlushBytes ? Status{} : flush();
}

Status TraceWriter::flush() {
  JIGE_DO(file_->write(pending_.data(), pending_.size()));
  pending_.clear();
  return {};
}

Status TraceWriter::name_places(const PipelineSchedule& schedule) {
  for (const PipelineTask& task : schedule.tasks) {
    const int32_t process = process_of(task);
    const int32_t row = row_of(schedule, task);
    if (named_.insert({process, -1}).second) {
      JIGE_DO(
          add_event(meta_event("process_name", process, 0,
                               task.device < 0 ? "host" : fmt::format("device {}", task.device))));
    }
    if (named_.insert({process, row}).second) {
      JIGE_DO(add_event(meta_event("thread_name", process, row, row_name(schedule, task))));
    }
  }
  return {};
}

Status TraceWriter::add_step(int64_t step, const PipelineSchedule& schedule,
                             std::span<const TaskSpan> spans) {
  if (spans.size() != schedule.tasks.size()) {
    return fail(Code::kInvalidArgument, "{} spans for a schedule of {} tasks", spans.size(),
                schedule.tasks.size());
  }
  if (complete()) return {};
  if (event_count_ + static_cast<int64_t>(spans.size()) > limits_.events) return finish();
  JIGE_DO(name_places(schedule));
  int64_t end_ns = 0;
  for (size_t i = 0; i < spans.size(); ++i) {
    JIGE_DO(add_event(task_event(step, schedule, schedule.tasks[i], spans[i], offset_ns_)));
    end_ns = std::max(end_ns, spans[i].end_ns);
  }
  offset_ns_ += end_ns;
  return ++step_count_ < limits_.steps ? Status{} : finish();
}

Status TraceWriter::finish() {
  if (complete()) return {};
  pending_ += "\n]}\n";
  JIGE_DO(flush());
  JIGE_DO(file_->commit());
  file_.reset();
  return {};
}

}  // namespace jige::train
