#include "train/pipeline_record.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/file.h"
#include "plan/pipeline_memory.h"
#include "plan/pipeline_schedule_json.h"
#include "plan/pipeline_verify.h"

namespace jige::train {
namespace {

constexpr std::string_view kFormat = "jige.pipeline-record";
constexpr int64_t kVersion = 1;

// Schedules in files of runs are small; this keeps a wrong file from filling the memory.
constexpr size_t kFileBytesMax = size_t{1} << 28;

Result<TaskSpan> read_span(const Json& json, const std::string& where) {
  const bool pair = json.is_array() && json.size() == 2 && json[0].is_number_integer() &&
                    json[1].is_number_integer();
  if (!pair) return fail(Code::kCorrupt, "{}: must be two integers, start and end", where);
  const TaskSpan span{.start_ns = json[0].get<int64_t>(), .end_ns = json[1].get<int64_t>()};
  if (0 <= span.start_ns && span.start_ns <= span.end_ns) return span;
  return fail(Code::kCorrupt, "{}: starts at {} and ends at {}", where, span.start_ns, span.end_ns);
}

Result<MeasuredStep> read_step(const Json& json, size_t task_count, const std::string& where) {
  if (!json.is_object()) return fail(Code::kCorrupt, "{}: must be an object", where);
  MeasuredStep step;
  JIGE_TRY(step.step, get_int(json, "step", where));
  const auto spans = json.find("spans_ns");
  if (spans == json.end() || !spans->is_array() || spans->size() != task_count) {
    return fail(Code::kCorrupt, "{}: field \"spans_ns\" must be a list of {} spans, one a task",
                where, task_count);
  }
  for (size_t i = 0; i < task_count; ++i) {
    JIGE_TRY(const TaskSpan span,
             read_span((*spans)[i], fmt::format("{}: spans_ns[{}]", where, i)));
    step.spans.push_back(span);
  }
  return step;
}

Result<int64_t> read_bytes(const Json& json, std::string_view field, const std::string& where) {
  JIGE_TRY(const int64_t bytes, get_int_or(json, field, 0, where));
  if (bytes >= 0) return bytes;
  return fail(Code::kCorrupt, "{}: field \"{}\" is {}, must be 0 or more", where, field, bytes);
}

Result<std::vector<int64_t>> read_device_bytes(const Json& json, std::string_view field,
                                               int32_t device_count, const std::string& where) {
  const auto found = json.find(field);
  std::vector<int64_t> bytes;
  if (found != json.end() && found->is_array()) {
    for (const Json& entry : *found) {
      if (entry.is_number_integer() && entry.get<int64_t>() >= 0) {
        bytes.push_back(entry.get<int64_t>());
      }
    }
  }
  if (bytes.size() == static_cast<size_t>(device_count)) return bytes;
  return fail(Code::kCorrupt,
              "{}: field \"{}\" must be a list of bytes, one for each of {} devices", where, field,
              device_count);
}

// Records from before devices could be unequal have one number for all.
Result<std::vector<int64_t>> read_budgets(const Json& json, int32_t device_count,
                                          const std::string& where) {
  constexpr std::string_view kField = "device_budget_bytes";
  const auto found = json.find(kField);
  const bool listed = found != json.end() && found->is_array();
  if (listed) return read_device_bytes(json, kField, device_count, where);
  JIGE_TRY(const int64_t each, read_bytes(json, kField, where));
  return std::vector<int64_t>(static_cast<size_t>(device_count), each);
}

Result<PipelineMemoryRecord> read_memory(const Json& json, int32_t device_count,
                                         const std::string& where) {
  if (!json.is_object()) return fail(Code::kCorrupt, "{}: must be an object", where);
  PipelineMemoryRecord memory;
  JIGE_TRY(memory.device_budget_bytes, read_budgets(json, device_count, where));
  JIGE_TRY(memory.host_budget_bytes, read_bytes(json, "host_budget_bytes", where));
  JIGE_TRY(memory.device_planned_bytes,
           read_device_bytes(json, "device_planned_bytes", device_count, where));
  JIGE_TRY(memory.device_peak_bytes,
           read_device_bytes(json, "device_peak_bytes", device_count, where));
  JIGE_TRY(memory.host_planned_bytes, read_bytes(json, "host_planned_bytes", where));
  JIGE_TRY(memory.host_peak_bytes, read_bytes(json, "host_peak_bytes", where));
  return memory;
}

Json schedule_memory_json(const PipelineMemoryRecord& memory) {
  const bool limited = !memory.device_budget_bytes.empty();
  return {{"device_budget_bytes", limited ? Json(memory.device_budget_bytes) : Json(0)},
          {"host_budget_bytes", memory.host_budget_bytes},
          {"device_planned_bytes", memory.device_planned_bytes},
          {"device_peak_bytes", memory.device_peak_bytes},
          {"host_planned_bytes", memory.host_planned_bytes},
          {"host_peak_bytes", memory.host_peak_bytes}};
}

}  // namespace

void PipelineRecord::add_step(int64_t step, std::span<const TaskSpan> spans, size_t kept) {
  steps.push_back({.step = step, .spans = {spans.begin(), spans.end()}});
  if (steps.size() > kept) steps.erase(steps.begin());
}

plan::PipelineTimes measured_times(const plan::PipelineSchedule& schedule,
                                   std::span<const TaskSpan> spans) {
  plan::PipelineTimes times;
  for (size_t i = 0; i < spans.size(); ++i) {
    const plan::TaskKind kind = schedule.tasks[i].kind;
    const bool waits = kind == plan::TaskKind::kRelease || kind == plan::TaskKind::kBarrier ||
                       plan::is_receive(kind);
    times.end.push_back(static_cast<double>(spans[i].end_ns) * 1e-9);
    times.start.push_back(waits ? times.end.back() : static_cast<double>(spans[i].start_ns) * 1e-9);
    times.step_s = std::max(times.step_s, times.end.back());
  }
  return times;
}

Json pipeline_record_json(const PipelineRecord& record) {
  Json json{{"format", kFormat},
            {"version", kVersion},
            {"schedule", plan::schedule_to_json(record.schedule)},
            {"costs", plan::costs_to_json(record.costs)}};
  if (const auto graph = plan::PipelineGraph::create(record.schedule)) {
    json["predicted_step_s"] = plan::time_tasks(record.schedule, *graph, record.costs).step_s;
  }
  Json steps = Json::array();
  for (const MeasuredStep& step : record.steps) {
    Json spans = Json::array();
    for (const TaskSpan& span : step.spans) {
      spans.push_back(Json::array({span.start_ns, span.end_ns}));
    }
    steps.push_back(Json{{"step", step.step}, {"spans_ns", std::move(spans)}});
  }
  json["steps"] = std::move(steps);
  json["memory"] = schedule_memory_json(record.memory);
  return json;
}

Result<PipelineRecord> pipeline_record_from_json(const Json& json, std::string_view where) {
  if (!json.is_object()) return fail(Code::kCorrupt, "{}: must be an object", where);
  JIGE_TRY(const std::string format, get_string(json, "format", where));
  JIGE_TRY(const int64_t version, get_int(json, "version", where));
  if (format != kFormat || version != kVersion) {
    return fail(Code::kUnsupported, "{}: is {} version {}, this program reads {} version {}", where,
                format, version, kFormat, kVersion);
  }
  for (const char* field : {"schedule", "costs", "steps", "memory"}) {
    if (!json.contains(field)) return fail(Code::kNotFound, "{}: field \"{}\"", where, field);
  }
  PipelineRecord record;
  JIGE_TRY(record.schedule,
           plan::schedule_from_json(json["schedule"], fmt::format("{}: schedule", where)));
  JIGE_TRY(record.costs, plan::costs_from_json(json["costs"], fmt::format("{}: costs", where)));
  if (const Status fit = plan::check_costs(record.costs, record.schedule.block_count); !fit) {
    return with_context(fit.error(), "{}: costs", where);
  }
  if (const Status one_each = plan::check_paces(record.costs, record.schedule.device_count);
      !one_each) {
    return with_context(one_each.error(), "{}: costs", where);
  }
  if (const Status sound = plan::verify_pipeline(record.schedule); !sound) {
    return with_context(sound.error(), "{}: schedule", where);
  }
  const auto buffers = plan::pipeline_buffers(record.schedule, record.costs);
  if (const Status counted = plan::check_buffer_bytes(buffers); !counted) {
    return with_context(counted.error(), "{}: costs", where);
  }
  const Json& steps = json["steps"];
  if (!steps.is_array()) {
    return fail(Code::kCorrupt, "{}: field \"steps\" must be a list", where);
  }
  for (size_t i = 0; i < steps.size(); ++i) {
    JIGE_TRY(MeasuredStep step, read_step(steps[i], record.schedule.tasks.size(),
                                          fmt::format("{}: steps[{}]", where, i)));
    record.steps.push_back(std::move(step));
  }
  JIGE_TRY(record.memory, read_memory(json["memory"], record.schedule.device_count,
                                      fmt::format("{}: memory", where)));
  return record;
}

Status write_pipeline_record(const std::string& path, const PipelineRecord& record) {
  return write_file_atomic(path, dump_json(pipeline_record_json(record)) + "\n");
}

Result<PipelineRecord> read_pipeline_record(const std::string& path) {
  JIGE_TRY(const std::string text, read_file(path, kFileBytesMax));
  JIGE_TRY(const Json json, parse_json(text, path));
  return pipeline_record_from_json(json, path);
}

}  // namespace jige::train
