#include "plan/pipeline_costs.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace jige::plan {
namespace {

constexpr int64_t kBlocksMax = 1024;

struct NumberField {
  const char* name;
  double BlockCost::*field;
};
struct CountField {
  const char* name;
  int64_t BlockCost::*field;
};
struct RateField {
  const char* name;
  double PipelineRates::*field;
};
struct CostsField {
  const char* name;
  int64_t PipelineCosts::*field;
};

constexpr NumberField kTimes[] = {{"forward_s", &BlockCost::forward_s},
                                  {"recompute_s", &BlockCost::recompute_s},
                                  {"backward_input_s", &BlockCost::backward_input_s},
                                  {"backward_weight_s", &BlockCost::backward_weight_s}};
constexpr CountField kCounts[] = {
    {"parameters", &BlockCost::parameters},      {"parameter_bytes", &BlockCost::parameter_bytes},
    {"master_bytes", &BlockCost::master_bytes},  {"gradient_bytes", &BlockCost::gradient_bytes},
    {"input_bytes", &BlockCost::input_bytes},    {"saved_bytes", &BlockCost::saved_bytes},
    {"pending_bytes", &BlockCost::pending_bytes}};
constexpr RateField kRates[] = {
    {"fetch_bytes_per_s", &PipelineRates::fetch_bytes_per_s},
    {"offload_bytes_per_s", &PipelineRates::offload_bytes_per_s},
    {"link_bytes_per_s", &PipelineRates::link_bytes_per_s},
    {"host_parameters_per_s", &PipelineRates::host_parameters_per_s},
    {"device_parameters_per_s", &PipelineRates::device_parameters_per_s}};

constexpr CostsField kDeviceBytes[] = {{"workspace_bytes", &PipelineCosts::workspace_bytes},
                                       {"staging_bytes", &PipelineCosts::staging_bytes}};

// A name that is misspelt would be one that takes no time.
Status check_names(const Json& object, const std::vector<std::string_view>& known,
                   std::string_view where) {
  if (!object.is_object()) return fail(Code::kCorrupt, "{}: must be an object", where);
  for (const auto& [name, value] : object.items()) {
    if (std::ranges::find(known, name) != known.end()) continue;
    return fail(Code::kInvalidArgument, "{}: field \"{}\" is not known; there are {}", where, name,
                fmt::join(known, ", "));
  }
  return {};
}

// Far above any machine, and small enough that sums over the blocks fit; of sums over a schedule
// check_buffer_bytes() says whether they do.
constexpr int64_t kBytesMax = int64_t{1} << 40;
// And times and rates: sums of these stay finite.
constexpr double kSecondsMax = 1e12, kRateMin = 1e-9, kPaceMax = 1e6;

}  // namespace

Status check_costs(const PipelineCosts& costs, int32_t block_count) {
  if (static_cast<int64_t>(costs.blocks.size()) != block_count) {
    return fail(Code::kInvalidArgument, "costs of {} blocks for a model of {}", costs.blocks.size(),
                block_count);
  }
  for (size_t b = 0; b < costs.blocks.size(); ++b) {
    for (const NumberField& time : kTimes) {
      const double value = costs.blocks[b].*time.field;
      if (value >= 0 && value <= kSecondsMax) continue;
      return fail(Code::kInvalidArgument, "block {}: {} is {}, must be a time of 0 to {} s", b,
                  time.name, value, kSecondsMax);
    }
    for (const CountField& count : kCounts) {
      const int64_t value = costs.blocks[b].*count.field;
      if (value >= 0 && value <= kBytesMax) continue;
      return fail(Code::kInvalidArgument, "block {}: {} is {}, must be 0 to {}", b, count.name,
                  value, kBytesMax);
    }
    const BlockCost& block = costs.blocks[b];
    if (block.master_bytes <= block.parameter_bytes) continue;
    return fail(Code::kInvalidArgument, "block {}: master_bytes is {}, more than parameter_bytes",
                b, block.master_bytes);
  }
  for (const RateField& rate : kRates) {
    if (costs.rates.*rate.field >= kRateMin) continue;
    return fail(Code::kInvalidArgument, "{} is {}, must be above 0", rate.name,
                costs.rates.*rate.field);
  }
  if (!(costs.rates.link_latency_s >= 0) || costs.rates.link_latency_s > kSecondsMax) {
    return fail(Code::kInvalidArgument, "link_latency_s is {}, must be 0 to {} s",
                costs.rates.link_latency_s, kSecondsMax);
  }
  for (const int64_t bytes : {costs.state_bytes_per_parameter, costs.undo_bytes_per_parameter}) {
    if (bytes < 0 || bytes > 64) {
      return fail(Code::kInvalidArgument, "{} bytes per parameter, must be 0 to 64", bytes);
    }
  }
  for (const CostsField& field : kDeviceBytes) {
    const int64_t bytes = costs.*field.field;
    if (bytes >= 0 && bytes <= kBytesMax) continue;
    return fail(Code::kInvalidArgument, "{} is {}, must be 0 to {}", field.name, bytes, kBytesMax);
  }
  for (const double pace : costs.device_paces) {
    if (pace >= 1 / kPaceMax && pace <= kPaceMax) continue;
    return fail(Code::kInvalidArgument, "device_paces has {}, must be {} to {}", pace, 1 / kPaceMax,
                kPaceMax);
  }
  return {};
}

Status check_paces(const PipelineCosts& costs, int32_t device_count) {
  const auto paces = std::ssize(costs.device_paces);
  if (paces == 0 || paces == device_count) return {};
  return fail(Code::kInvalidArgument, "device_paces has {} of them for {} devices", paces,
              device_count);
}

int64_t message_bytes_max(const PipelineCosts& costs) {
  int64_t most = 0;
  for (const BlockCost& block : costs.blocks) most = std::max(most, block.input_bytes);
  return most;
}

double task_seconds(const PipelineSchedule& schedule, const PipelineCosts& costs,
                    const PipelineTask& task) {
  const PipelineRates& rates = costs.rates;
  const auto bytes_of = [&](int64_t BlockCost::*field) {
    return static_cast<double>(sum_blocks(costs, task.blocks, field));
  };
  const auto passes_s = [&](double BlockCost::*field) {
    return sum_blocks(costs, task.blocks, field) * costs.pace(task.device);
  };
  switch (task.kind) {
    case TaskKind::kForward:
      return passes_s(&BlockCost::forward_s);
    case TaskKind::kRecompute:
      return passes_s(&BlockCost::recompute_s);
    case TaskKind::kBackwardInput:
      return passes_s(&BlockCost::backward_input_s);
    case TaskKind::kBackwardWeight:
      return passes_s(&BlockCost::backward_weight_s);
    case TaskKind::kFetch:
      return bytes_of(&BlockCost::parameter_bytes) / rates.fetch_bytes_per_s;
    case TaskKind::kGradientOffload:
      return bytes_of(&BlockCost::gradient_bytes) / rates.offload_bytes_per_s;
    case TaskKind::kOptimizerStep:
      return schedule.optimizer == OptimizerMode::kDevice
                 ? bytes_of(&BlockCost::parameters) / rates.device_parameters_per_s *
                       costs.pace(task.device)
                 : bytes_of(&BlockCost::parameters) / rates.host_parameters_per_s;
    case TaskKind::kSendActivation:
    case TaskKind::kSendGradient:
    case TaskKind::kCheckpointSend: {
      const BlockCost& behind = costs.blocks[static_cast<size_t>(task.blocks.begin)];
      return rates.link_latency_s +
             static_cast<double>(behind.input_bytes) / rates.link_bytes_per_s;
    }
    default:
      return 0;  // releases, receives and barriers wait, but take no time of their own
  }
}

StageTimes stage_times(const PipelineOrder& stages, const PipelineCosts& costs, bool recompute) {
  const auto seconds = [&](const PipelineStage& stage, double BlockCost::*field) {
    return sum_blocks(costs, stage.blocks, field) * costs.pace(stage.device);
  };
  StageTimes times;
  for (const PipelineStage& stage : stages.forward) {
    times.forward.push_back(seconds(stage, &BlockCost::forward_s));
  }
  for (const PipelineStage& stage : stages.backward) {
    times.backward_input.push_back(seconds(stage, &BlockCost::backward_input_s) +
                                   (recompute ? seconds(stage, &BlockCost::recompute_s) : 0));
    times.backward_weight.push_back(seconds(stage, &BlockCost::backward_weight_s));
  }
  times.link = costs.rates.link_latency_s;
  return times;
}

namespace {

Result<std::vector<double>> read_paces(const Json& json, std::string_view where) {
  std::vector<double> paces;
  const Json* const list = find_field(json, "device_paces");
  if (!list) return paces;
  if (!list->is_array()) {
    return fail(Code::kCorrupt, "{}: field \"device_paces\" must be a list of numbers", where);
  }
  for (const Json& pace : *list) {
    if (!pace.is_number()) {
      return fail(Code::kCorrupt, "{}: field \"device_paces\" must be a list of numbers", where);
    }
    paces.push_back(pace.get<double>());
  }
  return paces;
}

}  // namespace

Result<PipelineCosts> costs_from_json(const Json& json, std::string_view where) {
  PipelineCosts costs;
  const auto blocks = json.find("blocks");
  if (!json.is_object() || blocks == json.end() || !blocks->is_array() || blocks->empty()) {
    return fail(Code::kCorrupt, "{}: field \"blocks\" must be a list of block costs", where);
  }
  JIGE_DO(check_names(json,
                      {"blocks", "rates", "state_bytes_per_parameter", "undo_bytes_per_parameter",
                       "workspace_bytes", "staging_bytes", "tied", "device_paces"},
                      where));
  std::vector<std::string_view> block_names = {"count"}, rate_names = {"link_latency_s"};
  for (const NumberField& time : kTimes) block_names.push_back(time.name);
  for (const CountField& count : kCounts) block_names.push_back(count.name);
  for (const RateField& rate : kRates) rate_names.push_back(rate.name);
  for (size_t i = 0; i < blocks->size(); ++i) {
    const std::string place = fmt::format("{}: blocks[{}]", where, i);
    const Json& entry = (*blocks)[i];
    JIGE_DO(check_names(entry, block_names, place));
    BlockCost block;
    for (const NumberField& time : kTimes) {
      JIGE_TRY(block.*time.field, get_number_or(entry, time.name, 0, place));
    }
    for (const CountField& count : kCounts) {
      JIGE_TRY(block.*count.field, get_int_or(entry, count.name, 0, place));
    }
    JIGE_TRY(const int64_t repeat, get_int_or(entry, "count", 1, place));
    if (repeat < 1 || repeat > kBlocksMax - static_cast<int64_t>(costs.blocks.size())) {
      return fail(Code::kInvalidArgument, "{}: count is {}; there must be 1 to {} blocks", place,
                  repeat, kBlocksMax);
    }
    costs.blocks.insert(costs.blocks.end(), static_cast<size_t>(repeat), block);
  }
  if (const Json* rates = find_field(json, "rates")) {
    const std::string place = fmt::format("{}: rates", where);
    JIGE_DO(check_names(*rates, rate_names, place));
    for (const RateField& rate : kRates) {
      JIGE_TRY(costs.rates.*rate.field,
               get_number_or(*rates, rate.name, costs.rates.*rate.field, place));
    }
    JIGE_TRY(costs.rates.link_latency_s, get_number_or(*rates, "link_latency_s", 0, place));
  }
  JIGE_TRY(costs.state_bytes_per_parameter,
           get_int_or(json, "state_bytes_per_parameter", 12, where));
  JIGE_TRY(costs.undo_bytes_per_parameter, get_int_or(json, "undo_bytes_per_parameter", 12, where));
  for (const CostsField& field : kDeviceBytes) {
    JIGE_TRY(costs.*field.field, get_int_or(json, field.name, 0, where));
  }
  JIGE_TRY(costs.tied, get_bool_or(json, "tied", false, where));
  JIGE_TRY(costs.device_paces, read_paces(json, where));
  if (const Status sound = check_costs(costs, static_cast<int32_t>(costs.blocks.size())); !sound) {
    return with_context(sound.error(), "{}", where);
  }
  return costs;
}

Json costs_to_json(const PipelineCosts& costs) {
  Json blocks = Json::array();
  for (const BlockCost& block : costs.blocks) {
    Json entry = Json::object();
    for (const NumberField& time : kTimes) entry[time.name] = block.*time.field;
    for (const CountField& count : kCounts) entry[count.name] = block.*count.field;
    blocks.push_back(std::move(entry));
  }
  Json rates = Json::object();
  for (const RateField& rate : kRates) {
    if (std::isfinite(costs.rates.*rate.field)) rates[rate.name] = costs.rates.*rate.field;
  }
  rates["link_latency_s"] = costs.rates.link_latency_s;
  Json json{{"blocks", std::move(blocks)},
            {"rates", std::move(rates)},
            {"state_bytes_per_parameter", costs.state_bytes_per_parameter},
            {"undo_bytes_per_parameter", costs.undo_bytes_per_parameter},
            {"workspace_bytes", costs.workspace_bytes},
            {"staging_bytes", costs.staging_bytes},
            {"tied", costs.tied}};
  if (!costs.device_paces.empty()) json["device_paces"] = costs.device_paces;
  return json;
}

}  // namespace jige::plan
