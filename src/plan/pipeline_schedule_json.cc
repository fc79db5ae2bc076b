#include "plan/pipeline_schedule_json.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

namespace jige::plan {
namespace {

constexpr std::string_view kScheduleFormat = "jige.pipeline-schedule";
constexpr int64_t kScheduleVersion = 1;
constexpr int64_t kDevicesMax = 4096;
constexpr int64_t kCountMax = 1 << 20;

// The enumerator of this name among the first `count`.
template <typename Enum>
std::optional<Enum> by_name(std::string_view name, std::string_view (*name_of)(Enum), int count) {
  for (int i = 0; i < count; ++i) {
    if (name_of(static_cast<Enum>(i)) == name) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

Result<int32_t> ranged(const Json& json, std::string_view field, int64_t min, int64_t max,
                       std::string_view where) {
  JIGE_TRY(const int64_t value, get_int(json, field, where));
  if (value < min || value > max) {
    return fail(Code::kCorrupt, "{}: field \"{}\" is {}, must be {} to {}", where, field, value,
                min, max);
  }
  return static_cast<int32_t>(value);
}

Result<int32_t> ranged_or_none(const Json& json, std::string_view field, int64_t max,
                               std::string_view where) {
  if (!json.contains(field)) return -1;
  return ranged(json, field, 0, max, where);
}

template <typename Enum>
Result<Enum> named(const Json& json, std::string_view field, std::string_view (*name_of)(Enum),
                   int count, std::string_view where) {
  JIGE_TRY(const std::string name, get_string(json, field, where));
  const std::optional<Enum> found = by_name(name, name_of, count);
  if (!found) return fail(Code::kCorrupt, "{}: field \"{}\" is \"{}\"", where, field, name);
  return *found;
}

Result<BlockRange> read_blocks(const Json& json, TaskKind kind, int32_t block_count,
                               const std::string& where) {
  if (kind == TaskKind::kBarrier) return BlockRange{};
  const auto found = json.find("blocks");
  const bool pair = found != json.end() && found->is_array() && found->size() == 2 &&
                    (*found)[0].is_number_integer() && (*found)[1].is_number_integer();
  if (!pair) {
    return fail(Code::kCorrupt, "{}: field \"blocks\" must be two integers, first and end", where);
  }
  const auto begin = (*found)[0].get<int64_t>();
  const auto end = (*found)[1].get<int64_t>();
  const bool message = is_send(kind) || is_receive(kind);
  if (begin < 0 || end > block_count || (message ? end != begin : end <= begin)) {
    return fail(Code::kCorrupt, "{}: blocks [{}, {}) of a {} do not fit a model of {} blocks",
                where, begin, end, kind_name(kind), block_count);
  }
  return BlockRange{static_cast<int32_t>(begin), static_cast<int32_t>(end)};
}

Result<PipelineTask> read_task(const Json& json, const PipelineSchedule& schedule,
                               size_t task_count, const std::string& where) {
  if (!json.is_object()) return fail(Code::kCorrupt, "{}: must be an object", where);
  PipelineTask task;
  JIGE_TRY(task.kind, named(json, "kind", kind_name, kTaskKindCount, where));
  const int64_t last_device = schedule.device_count - 1;
  JIGE_TRY(task.device, ranged_or_none(json, "device", last_device, where));
  JIGE_TRY(task.peer, ranged_or_none(json, "peer", last_device, where));
  JIGE_TRY(task.micro_batch,
           ranged_or_none(json, "micro_batch", schedule.micro_batch_count - 1, where));
  if ((task.kind == TaskKind::kBarrier) != (task.device < 0)) {
    return fail(Code::kCorrupt, "{}: every task but a barrier has a device", where);
  }
  JIGE_TRY(task.blocks, read_blocks(json, task.kind, schedule.block_count, where));
  const auto after = json.find("after");
  if (after == json.end()) return task;
  if (!after->is_array()) return fail(Code::kCorrupt, "{}: field \"after\" must be a list", where);
  for (const Json& id : *after) {
    const int64_t value = id.is_number_integer() ? id.get<int64_t>() : -1;
    if (value < 0 || value >= static_cast<int64_t>(task_count)) {
      return fail(Code::kCorrupt, "{}: field \"after\" names task {}, there are {}", where,
                  dump_json(id), task_count);
    }
    task.after.push_back(static_cast<int32_t>(value));
  }
  return task;
}

}  // namespace

Json schedule_to_json(const PipelineSchedule& schedule) {
  Json json{{"format", kScheduleFormat},
            {"version", kScheduleVersion},
            {"name", schedule.name},
            {"devices", schedule.device_count},
            {"micro_batches", schedule.micro_batch_count},
            {"blocks", schedule.block_count},
            {"parameters", schedule.host_parameters ? "host" : "device"},
            {"recompute", schedule.recompute},
            {"optimizer", optimizer_name(schedule.optimizer)},
            {"clip", clip_name(schedule.clip)},
            {"tied", schedule.tied}};
  Json tasks = Json::array();
  for (const PipelineTask& task : schedule.tasks) {
    Json entry{{"kind", kind_name(task.kind)}};
    if (task.device >= 0) entry["device"] = task.device;
    if (task.kind != TaskKind::kBarrier) {
      entry["blocks"] = Json::array({task.blocks.begin, task.blocks.end});
    }
    if (task.micro_batch >= 0) entry["micro_batch"] = task.micro_batch;
    if (task.peer >= 0) entry["peer"] = task.peer;
    if (!task.after.empty()) entry["after"] = task.after;
    tasks.push_back(std::move(entry));
  }
  json["tasks"] = std::move(tasks);
  return json;
}

Result<PipelineSchedule> schedule_from_json(const Json& json, std::string_view where) {
  if (!json.is_object()) return fail(Code::kCorrupt, "{}: must be an object", where);
  JIGE_TRY(const std::string format, get_string(json, "format", where));
  JIGE_TRY(const int64_t version, get_int(json, "version", where));
  if (format != kScheduleFormat || version != kScheduleVersion) {
    return fail(Code::kUnsupported, "{}: is {} version {}, this program reads {} version {}", where,
                format, version, kScheduleFormat, kScheduleVersion);
  }
  PipelineSchedule schedule;
  JIGE_TRY(schedule.name, get_string(json, "name", where));
  JIGE_TRY(schedule.device_count, ranged(json, "devices", 1, kDevicesMax, where));
  JIGE_TRY(schedule.micro_batch_count, ranged(json, "micro_batches", 1, kCountMax, where));
  JIGE_TRY(schedule.block_count, ranged(json, "blocks", 1, kCountMax, where));
  JIGE_TRY(const std::string parameters, get_string(json, "parameters", where));
  if (parameters != "host" && parameters != "device") {
    return fail(Code::kCorrupt, "{}: field \"parameters\" is \"{}\", must be host or device", where,
                parameters);
  }
  schedule.host_parameters = parameters == "host";
  JIGE_TRY(schedule.recompute, get_bool_or(json, "recompute", false, where));
  JIGE_TRY(schedule.optimizer, named(json, "optimizer", optimizer_name, 3, where));
  JIGE_TRY(schedule.clip, named(json, "clip", clip_name, 3, where));
  JIGE_TRY(schedule.tied, get_bool_or(json, "tied", false, where));
  const auto tasks = json.find("tasks");
  if (tasks == json.end() || !tasks->is_array()) {
    return fail(Code::kCorrupt, "{}: field \"tasks\" must be a list", where);
  }
  if (static_cast<int64_t>(tasks->size()) > kPipelineTasksMax) {
    return fail(Code::kCorrupt, "{}: holds {} tasks, at most {} are read", where, tasks->size(),
                kPipelineTasksMax);
  }
  for (size_t i = 0; i < tasks->size(); ++i) {
    JIGE_TRY(PipelineTask task, read_task((*tasks)[i], schedule, tasks->size(),
                                          fmt::format("{}: tasks[{}]", where, i)));
    schedule.tasks.push_back(std::move(task));
  }
  return schedule;
}

}  // namespace jige::plan
