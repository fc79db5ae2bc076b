#include "sim/serve_plan_file.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/file.h"
#include "sim/json_fields.h"
#include "sim/step_profile.h"

namespace jige::sim {
namespace {

constexpr std::string_view kPlanFormat = "jige.serve-plan";
constexpr int64_t kPlanVersion = 2;
constexpr size_t kPlanBytesMax = size_t{1} << 20;
constexpr int64_t kRequestsMax = int64_t{1} << 40;
constexpr double kFigureMax = 1e12;

struct BoundField {
  const char* name;
  std::optional<double> ServeBounds::*member;
};
constexpr BoundField kBoundFields[] = {{"ttft_ms", &ServeBounds::ttft_s},
                                       {"itl_ms", &ServeBounds::itl_s},
                                       {"tpot_ms", &ServeBounds::tpot_s},
                                       {"e2e_ms", &ServeBounds::e2e_s}};

struct FigureField {
  const char* name;
  ServeFigure ServePrediction::*member;
};
constexpr FigureField kFigureFields[] = {{"ttft_ms", &ServePrediction::ttft_s},
                                         {"itl_ms", &ServePrediction::itl_s},
                                         {"tpot_ms", &ServePrediction::tpot_s},
                                         {"e2e_ms", &ServePrediction::e2e_s}};

struct PartField {
  const char* name;
  double ServeFigure::*member;
};
constexpr PartField kFigureParts[] = {{"mean", &ServeFigure::mean},
                                      {"p50", &ServeFigure::p50},
                                      {"p90", &ServeFigure::p90},
                                      {"p99", &ServeFigure::p99}};

Json load_json(const ServeLoad& load, std::string_view iteration) {
  Json json = Json::object();
  if (load.users > 0) json["users"] = load.users;
  if (load.rate_per_s > 0) json["rate"] = load.rate_per_s;
  double prompt_tokens = 0, output_tokens = 0;
  std::vector<double> prompts, outputs;
  for (const RequestShape& shape : load.requests) {
    prompts.push_back(static_cast<double>(shape.prompt_tokens));
    outputs.push_back(static_cast<double>(shape.output_tokens));
    prompt_tokens += prompts.back();
    output_tokens += outputs.back();
  }
  const auto count = static_cast<double>(std::max<size_t>(load.requests.size(), 1));
  json["requests"] = load.requests.size();
  json["prompt_tokens_mean"] = prompt_tokens / count;
  json["output_tokens_mean"] = output_tokens / count;
  if (!prompts.empty()) {
    json["prompt_tokens"] = plan::length_quantiles(std::move(prompts));
    json["output_tokens"] = plan::length_quantiles(std::move(outputs));
  }
  json["kv_tokens"] = int64_t{load.pool.block_count} * load.pool.block_tokens;
  json["iteration"] = iteration;
  return json;
}

Json bounds_json(const ServeBounds& bounds) {
  Json json{{"quantile", bounds.quantile}, {"margin", bounds.margin}};
  for (const BoundField& field : kBoundFields) {
    if (const auto& bound = bounds.*field.member) json[field.name] = *bound * 1000;
  }
  return json;
}

Result<std::vector<double>> read_lengths(const Json& json, const char* name,
                                         const std::string& where) {
  JIGE_TRY(const Json* const list, list_in(json, name, where));
  std::vector<double> lengths;
  for (const Json& value : *list) {
    const double length = value.is_number() ? value.get<double>() : -1;
    if (!(length >= 0 && length <= kFigureMax) || (!lengths.empty() && length < lengths.back())) {
      return fail(Code::kInvalidArgument, "{}: {} has {}; they must be lengths that ascend", where,
                  name, value.dump());
    }
    lengths.push_back(length);
  }
  if (lengths.size() == plan::kLengthQuantiles) return lengths;
  return fail(Code::kInvalidArgument, "{}: {} has {} lengths; they must be {}", where, name,
              lengths.size(), plan::kLengthQuantiles);
}

Status read_load(const Json& json, const std::string& where, ServePlanFile& file) {
  if (find_field(json, "users")) {
    JIGE_TRY(file.users, count_in(json, "users", 1, kRequestsMax, where));
  }
  if (find_field(json, "rate")) {
    JIGE_TRY(file.rate_per_s, number_in(json, "rate", kFigureMax, where));
  }
  if (file.users > 0 && file.rate_per_s > 0) {
    return fail(Code::kInvalidArgument, "{}: users and rate are two loads; keep one", where);
  }
  JIGE_TRY(file.requests, count_in(json, "requests", 1, kRequestsMax, where));
  JIGE_TRY(file.prompt_tokens_mean, number_in(json, "prompt_tokens_mean", kFigureMax, where));
  JIGE_TRY(file.output_tokens_mean, number_in(json, "output_tokens_mean", kFigureMax, where));
  JIGE_TRY(file.lengths.prompt_tokens, read_lengths(json, "prompt_tokens", where));
  JIGE_TRY(file.lengths.answer_tokens, read_lengths(json, "output_tokens", where));
  file.lengths.rate_per_s = file.rate_per_s;
  file.lengths.requests = file.requests;
  JIGE_TRY(file.kv_tokens, count_in(json, "kv_tokens", 1, kRequestsMax, where));
  JIGE_TRY(file.iteration, get_string(json, "iteration", where));
  return {};
}

Json search_json(const ServePlanRequest& request) {
  Json policies = Json::array();
  for (const plan::ServePolicy policy : request.policies) {
    policies.push_back(plan::policy_name(policy));
  }
  Json json{{"policies", std::move(policies)},
            {"max_batch", request.batch_requests_max},
            {"batch_tokens", request.batch_tokens_max}};
  const plan::ForwardLimits& limits = request.load.step.limits;
  if (limits.rows_max < INT64_MAX) json["forward_rows"] = limits.rows_max;
  if (limits.sample_rows_max < INT64_MAX) json["forward_sampled_rows"] = limits.sample_rows_max;
  return json;
}

Result<ServeSearchSpace> read_search(const Json& json, std::string_view whole) {
  ServeSearchSpace space;
  JIGE_TRY(const Json* const found, object_in(json, "search", whole));
  const std::string where = fmt::format("{}: search", whole);
  JIGE_TRY(const Json* const policies, list_in(*found, "policies", where));
  for (const Json& one : *policies) {
    const auto policy = one.is_string() ? plan::find_policy(one.get<std::string>()) : std::nullopt;
    if (!policy || std::ranges::find(space.policies, *policy) != space.policies.end()) {
      return fail(Code::kInvalidArgument,
                  "{}: policies has {}; they must be of chunked, orca, static, rounds, each once",
                  where, one.dump());
    }
    space.policies.push_back(*policy);
  }
  if (space.policies.empty()) {
    return fail(Code::kInvalidArgument, "{}: policies has none; there must be one", where);
  }
  JIGE_TRY(const int64_t requests, count_in(*found, "max_batch", 1, 4096, where));
  JIGE_TRY(const int64_t tokens, count_in(*found, "batch_tokens", 16, 1 << 16, where));
  space.batch_requests_max = static_cast<int32_t>(requests);
  space.batch_tokens_max = static_cast<int32_t>(tokens);
  JIGE_DO(read_step_time(json, whole, space.step));
  for (const auto& [name, limit] :
       {std::pair{"forward_rows", &space.step.limits.rows_max},
        std::pair{"forward_sampled_rows", &space.step.limits.sample_rows_max}}) {
    if (!find_field(*found, name)) continue;
    JIGE_TRY(*limit, count_in(*found, name, 1, kRequestsMax, where));
  }
  return space;
}

Result<ServeBounds> read_bounds(const Json& json, const std::string& where) {
  ServeBounds bounds;
  JIGE_TRY(bounds.quantile, number_in(json, "quantile", 1, where));
  JIGE_TRY(bounds.margin, number_in(json, "margin", 1, where));
  for (const BoundField& field : kBoundFields) {
    if (!find_field(json, field.name)) continue;
    JIGE_TRY(const double bound_ms, number_in(json, field.name, kFigureMax, where));
    bounds.*field.member = bound_ms / 1000;
  }
  return bounds;
}

Result<ServePrediction> read_prediction(const Json& json, const std::string& where) {
  ServePrediction prediction;
  JIGE_TRY(prediction.requests_per_s, number_in(json, "requests_per_s", kFigureMax, where));
  JIGE_TRY(prediction.output_tokens_per_s,
           number_in(json, "output_tokens_per_s", kFigureMax, where));
  JIGE_TRY(const int64_t blocks, count_in(json, "kv_blocks_max", 0, INT32_MAX, where));
  prediction.kv_blocks_max = static_cast<int32_t>(blocks);
  for (const FigureField& field : kFigureFields) {
    JIGE_TRY(const Json* const figure, object_in(json, field.name, where));
    const std::string place = fmt::format("{}: {}", where, field.name);
    for (const PartField& part : kFigureParts) {
      JIGE_TRY(const double value_ms, number_in(*figure, part.name, kFigureMax, place));
      prediction.*field.member.*part.member = value_ms / 1000;
    }
  }
  return prediction;
}

}  // namespace

Json prediction_json(const ServePrediction& prediction) {
  Json json{{"requests_per_s", prediction.requests_per_s},
            {"output_tokens_per_s", prediction.output_tokens_per_s},
            {"kv_blocks_max", prediction.kv_blocks_max}};
  for (const FigureField& field : kFigureFields) {
    Json figure = Json::object();
    for (const PartField& part : kFigureParts) {
      figure[part.name] = prediction.*field.member.*part.member * 1000;
    }
    json[field.name] = std::move(figure);
  }
  return json;
}

Json serve_plan_to_json(const ServePlanRequest& request, const ServePlan& plan,
                        const PlannedIteration& iteration) {
  const auto both = [](const ServePrediction& one) {
    return Json{{"settings", settings_json(one.settings)}, {"prediction", prediction_json(one)}};
  };
  Json json{{"format", kPlanFormat},
            {"version", kPlanVersion},
            {"settings", settings_json(plan.chosen->settings)},
            {"load", load_json(request.load, iteration.text)},
            {"bounds", bounds_json(request.bounds)},
            {"binding", plan.binding},
            {"prediction", prediction_json(*plan.chosen)}};
  if (iteration.profiled) add_subject(*iteration.profiled, json);
  if (plan.runner_up) json["runner_up"] = both(*plan.runner_up);
  json["usual"] = both(plan.usual);
  json["search"] = search_json(request);
  json["step"] = step_time_to_json(request.load.step);
  return json;
}

Result<ServePlanFile> serve_plan_from_json(const Json& json, std::string_view where) {
  JIGE_TRY(const std::string format, get_string_or(json, "format", "no format", where));
  JIGE_TRY(const int64_t version, get_int_or(json, "version", 0, where));
  if (format != kPlanFormat || version != kPlanVersion) {
    return fail(
        Code::kUnsupported,
        "{}: is \"{}\" version {}, this program reads \"{}\" version {}, as `jige plan serve "
        "-o` writes it",
        where, format, version, kPlanFormat, kPlanVersion);
  }
  ServePlanFile file;
  const auto place = [&](const char* name) { return fmt::format("{}: {}", where, name); };
  JIGE_TRY(const Json* const settings, object_in(json, "settings", where));
  JIGE_TRY(file.settings, plan::settings_from_json(*settings, place("settings")));
  JIGE_TRY(const Json* const load, object_in(json, "load", where));
  JIGE_DO(read_load(*load, place("load"), file));
  JIGE_TRY(const Json* const bounds, object_in(json, "bounds", where));
  JIGE_TRY(file.bounds, read_bounds(*bounds, place("bounds")));
  if (find_field(json, "machine") || find_field(json, "model")) {
    JIGE_TRY(file.profiled, subject_in(json, where));
  }
  JIGE_TRY(file.binding, get_string(json, "binding", where));
  JIGE_TRY(const Json* const prediction, object_in(json, "prediction", where));
  JIGE_TRY(file.prediction, read_prediction(*prediction, place("prediction")));
  file.prediction.settings = file.settings;
  if (find_field(json, "search")) {
    JIGE_TRY(file.search, read_search(json, where));
  }
  return file;
}

Result<ServePlanFile> load_serve_plan(const std::string& path) {
  JIGE_TRY(const std::string text, read_file(path, kPlanBytesMax));
  JIGE_TRY(const Json json, parse_json(text, path));
  return serve_plan_from_json(json, path);
}

}  // namespace jige::sim
