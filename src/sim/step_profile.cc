#include "sim/step_profile.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/file.h"
#include "sim/json_fields.h"

namespace jige::sim {
namespace {

constexpr std::string_view kFormat = "jige.step-profile";
constexpr int64_t kVersion = 2;
constexpr size_t kFileBytesMax = size_t{1} << 24;
constexpr size_t kCellsMax = 100'000;
constexpr size_t kSegmentsMax = 1000;
constexpr int64_t kRowsMax = 1 << 20;
constexpr int64_t kCountMax = int64_t{1} << 50;
// A day, and more than any iteration has of anything: sums and products stay finite.
constexpr double kSecondsMax = 86'400;
constexpr double kFeatureMax = 1e15;
constexpr double kRatioMax = 1e6;

template <typename T>
struct Field {
  const char* name;
  T member;
};

constexpr Field<double StepTime::*> kStepTerms[] = {
    {"base_s", &StepTime::base_s},         {"token_s", &StepTime::token_s},
    {"kv_token_s", &StepTime::kv_token_s}, {"decode_key_s", &StepTime::decode_key_s},
    {"pair_s", &StepTime::pair_s},         {"sequence_s", &StepTime::sequence_s},
    {"sampling_s", &StepTime::sampling_s}, {"sampled_row_s", &StepTime::sampled_row_s}};
constexpr Field<std::vector<StepSegment> StepTime::*> kStepSegments[] = {
    {"row_segments", &StepTime::row_segments},
    {"sampled_row_segments", &StepTime::sampled_row_segments},
    {"decode_key_segments", &StepTime::decode_key_segments}};
constexpr Field<double StepFeatures::*> kFeatures[] = {
    {"rows", &StepFeatures::rows},
    {"sampled_rows", &StepFeatures::sampled_rows},
    {"sequences", &StepFeatures::sequences},
    {"kv_tokens", &StepFeatures::kv_tokens},
    {"decode_keys", &StepFeatures::decode_keys},
    {"pairs", &StepFeatures::pairs}};
constexpr Field<double StepCell::*> kCellTimes[] = {
    {"seconds", &StepCell::seconds}, {"low_s", &StepCell::low_s}, {"high_s", &StepCell::high_s}};

Result<std::vector<StepSegment>> read_segments(const Json& json, std::string_view name,
                                               std::string_view where) {
  JIGE_TRY(const Json* const list, list_in(json, name, where));
  if (list->size() > kSegmentsMax) {
    return fail(Code::kInvalidArgument, "{}: {} has {} segments, at most {}", where, name,
                list->size(), kSegmentsMax);
  }
  const std::string place = fmt::format("{}: {}", where, name);
  std::vector<StepSegment> segments;
  double begin = 0;
  for (const Json& one : *list) {
    StepSegment segment;
    JIGE_TRY(segment.end, number_in(one, "end", kFeatureMax, place));
    JIGE_TRY(segment.unit_s, number_in(one, "unit_s", kSecondsMax, place));
    if (!(segment.end > begin)) {
      return fail(Code::kInvalidArgument, "{}: end is {}; it must be above {}, the one before",
                  place, segment.end, begin);
    }
    begin = segment.end;
    segments.push_back(segment);
  }
  return segments;
}

Json noise_json(const StepNoise& noise) {
  Json list = Json::array();
  for (const NoiseGroup& group : noise.groups) {
    list.push_back({{"end_s", group.end_s}, {"quantiles", group.quantiles}});
  }
  return list;
}

Result<std::vector<double>> read_quantiles(const Json& json, const std::string& where) {
  JIGE_TRY(const Json* const list, list_in(json, "quantiles", where));
  const size_t count = noise_shares().size();
  std::vector<double> quantiles;
  for (const Json& value : *list) {
    const double ratio = value.is_number() ? value.get<double>() : -1;
    if (!(ratio > 0 && ratio <= kRatioMax) || (!quantiles.empty() && ratio < quantiles.back())) {
      return fail(Code::kInvalidArgument,
                  "{}: quantiles has {}; they must be numbers above 0, up to {}, and ascend", where,
                  value.dump(), kRatioMax);
    }
    quantiles.push_back(ratio);
  }
  if (quantiles.size() == count) return quantiles;
  return fail(Code::kInvalidArgument, "{}: quantiles are {}; they must be {}", where,
              quantiles.size(), count);
}

Result<StepNoise> read_noise(const Json& json, std::string_view where) {
  JIGE_TRY(const Json* const list, list_in(json, "noise", where));
  const std::string place = fmt::format("{}: noise", where);
  StepNoise noise;
  double begin_s = 0;
  for (const Json& one : *list) {
    NoiseGroup group;
    JIGE_TRY(group.end_s, number_in(one, "end_s", kSecondsMax, place));
    if (!(group.end_s > begin_s)) {
      return fail(Code::kInvalidArgument, "{}: end_s is {}; it must be above {}, the one before",
                  place, group.end_s, begin_s);
    }
    begin_s = group.end_s;
    JIGE_TRY(group.quantiles, read_quantiles(one, place));
    noise.groups.push_back(std::move(group));
  }
  return noise;
}

Json error_json(const StepError& error) {
  return {{"cells", error.cells},
          {"mean", error.mean},
          {"worst", error.worst},
          {"slower", error.slower}};
}

Result<StepError> read_error(const Json& json, const std::string& where) {
  StepError error;
  JIGE_TRY(error.cells, count_in(json, "cells", 0, kCountMax, where));
  JIGE_TRY(error.mean, number_in(json, "mean", kFeatureMax, where));
  JIGE_TRY(error.worst, get_number(json, "worst", where));
  JIGE_TRY(error.slower, number_in(json, "slower", kFeatureMax, where));
  return error;
}

Json errors_json(const StepErrors& errors) {
  Json json{{"all", error_json(errors.all)}};
  for (const auto& [kind, error] : errors.kinds) json[kind] = error_json(error);
  return json;
}

Status read_errors(const Json& json, std::string_view where, StepErrors& errors) {
  JIGE_TRY(const Json* const found, object_in(json, "held_out", where));
  JIGE_TRY(const Json* const all, object_in(*found, "all", where));
  JIGE_TRY(errors.all, read_error(*all, fmt::format("{}: held_out: all", where)));
  for (const auto& [kind, error] : found->items()) {
    if (kind == "all") continue;
    JIGE_TRY(errors.kinds[kind], read_error(error, fmt::format("{}: held_out: {}", where, kind)));
  }
  return {};
}

Json cell_json(const StepCell& cell) {
  Json json{{"kind", cell.kind}};
  for (const auto& feature : kFeatures) json[feature.name] = cell.features.*feature.member;
  for (const auto& time : kCellTimes) json[time.name] = cell.*time.member;
  json["runs"] = cell.runs;
  json["disturbed"] = cell.disturbed;
  return json;
}

Result<StepCell> read_cell(const Json& json, const std::string& where) {
  StepCell cell;
  JIGE_TRY(cell.kind, get_string(json, "kind", where));
  for (const auto& feature : kFeatures) {
    JIGE_TRY(cell.features.*feature.member, number_in(json, feature.name, kFeatureMax, where));
  }
  for (const auto& time : kCellTimes) {
    JIGE_TRY(cell.*time.member, number_in(json, time.name, kSecondsMax, where));
  }
  if (!(cell.seconds > 0)) {
    return fail(Code::kInvalidArgument, "{}: seconds is {}; it must be above 0", where,
                cell.seconds);
  }
  JIGE_TRY(cell.runs, count_in(json, "runs", 1, kCountMax, where));
  JIGE_TRY(cell.disturbed, count_in(json, "disturbed", 0, cell.runs, where));
  return cell;
}

}  // namespace

Json step_time_to_json(const StepTime& step) {
  Json json = Json::object();
  for (const auto& term : kStepTerms) json[term.name] = step.*term.member;
  for (const auto& segments : kStepSegments) {
    Json list = Json::array();
    for (const StepSegment& segment : step.*segments.member) {
      list.push_back({{"end", segment.end}, {"unit_s", segment.unit_s}});
    }
    json[segments.name] = std::move(list);
  }
  json["noise"] = noise_json(step.noise);
  return json;
}

Status read_step_time(const Json& json, std::string_view where, StepTime& step) {
  JIGE_TRY(const Json* const found, object_in(json, "step", where));
  const std::string place = fmt::format("{}: step", where);
  for (const auto& term : kStepTerms) {
    JIGE_TRY(step.*term.member, number_in(*found, term.name, kSecondsMax, place));
  }
  for (const auto& segments : kStepSegments) {
    JIGE_TRY(step.*segments.member, read_segments(*found, segments.name, place));
  }
  JIGE_TRY(step.noise, read_noise(*found, place));
  StepFeatures least;
  least.add(0, 1, 0);
  if (step.forward_seconds(least) > 0) return {};
  return fail(Code::kInvalidArgument, "{}: a row takes no time; an iteration must take some",
              place);
}

Json step_profile_to_json(const StepProfile& profile) {
  Json cells = Json::array();
  for (const StepCell& cell : profile.cells) cells.push_back(cell_json(cell));
  Json json{{"format", kFormat},
            {"version", kVersion},
            {"limits",
             {{"rows", profile.step.limits.rows_max},
              {"sampled_rows", profile.step.limits.sample_rows_max}}},
            {"step", step_time_to_json(profile.step)},
            {"held_out", errors_json(profile.held_out)},
            {"cells", std::move(cells)}};
  add_subject(profile.subject, json);
  return json;
}

Result<StepProfile> step_profile_from_json(const Json& json, std::string_view where) {
  JIGE_TRY(const std::string format, get_string_or(json, "format", "no format", where));
  JIGE_TRY(const int64_t version, get_int_or(json, "version", 0, where));
  if (format != kFormat || version != kVersion) {
    return fail(Code::kUnsupported,
                "{}: is \"{}\" version {}, this program reads \"{}\" version {}, as `jige profile "
                "serve -o` writes it",
                where, format, version, kFormat, kVersion);
  }
  StepProfile profile;
  JIGE_TRY(profile.subject, subject_in(json, where));
  JIGE_TRY(const Json* const limits, object_in(json, "limits", where));
  plan::ForwardLimits& most = profile.step.limits;
  JIGE_TRY(most.rows_max, count_in(*limits, "rows", 1, kRowsMax, where));
  JIGE_TRY(most.sample_rows_max, count_in(*limits, "sampled_rows", 1, kRowsMax, where));
  JIGE_DO(read_step_time(json, where, profile.step));
  JIGE_DO(read_errors(json, where, profile.held_out));
  JIGE_TRY(const Json* const cells, list_in(json, "cells", where));
  if (cells->size() > kCellsMax) {
    return fail(Code::kInvalidArgument, "{}: {} cells, at most {}", where, cells->size(),
                kCellsMax);
  }
  for (size_t i = 0; i < cells->size(); ++i) {
    JIGE_TRY(StepCell cell, read_cell((*cells)[i], fmt::format("{}: cells[{}]", where, i)));
    profile.cells.push_back(std::move(cell));
  }
  return profile;
}

Result<StepProfile> load_step_profile(const std::string& path) {
  JIGE_TRY(const std::string text, read_file(path, kFileBytesMax));
  JIGE_TRY(const Json json, parse_json(text, path));
  return step_profile_from_json(json, path);
}

}  // namespace jige::sim
