#include "train/sweep_record.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <tuple>

#include "base/file.h"
#include "formats/json_file.h"

namespace jige::train {
namespace {

constexpr size_t kSweepBytesMax = size_t{64} << 20;

std::string sweep_path(const std::string& out_folder) { return out_folder + "/sweep.json"; }

Json number_or_null(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? Json(*value) : Json(nullptr);
}

Result<std::optional<double>> read_optional(const Json& json, const char* field,
                                            const std::string& where) {
  if (find_field(json, field) == nullptr) return std::nullopt;
  JIGE_TRY(const double value, get_number(json, field, where));
  return std::optional(value);
}

Result<int64_t> read_count(const Json& json, const char* field, const std::string& where) {
  JIGE_TRY(const int64_t value, get_int(json, field, where));
  if (value >= 0) return value;
  return fail(Code::kInvalidArgument, "{}: field \"{}\" is {}, below 0", where, field, value);
}

Result<const Json*> read_part(const Json& json, const char* field, Json::value_t type,
                              const std::string& where) {
  const Json* const part = find_field(json, field);
  if (part == nullptr) return fail(Code::kNotFound, "{}: field \"{}\" is missing", where, field);
  if (part->type() == type) return part;
  return fail(Code::kInvalidArgument, "{}: field \"{}\" is no {}", where, field,
              type == Json::value_t::array ? "list" : "object");
}

Result<TrialState> read_state(const Json& json, const std::string& where) {
  JIGE_TRY(const std::string name, get_string(json, "state", where));
  for (const TrialState state :
       {TrialState::kWaiting, TrialState::kDone, TrialState::kDropped, TrialState::kDiverged}) {
    if (trial_state_name(state) == name) return state;
  }
  return fail(Code::kInvalidArgument,
              "{}: field \"state\" is \"{}\", not waiting, done, dropped or diverged", where, name);
}

Status read_rung_losses(const Json& json, TrialRecord& trial, const std::string& where) {
  if (find_field(json, "rung_losses") == nullptr) return {};
  JIGE_TRY(const Json* const losses, read_part(json, "rung_losses", Json::value_t::array, where));
  for (const Json& loss : *losses) {
    if (!loss.is_number() && !loss.is_null()) {
      return fail(Code::kInvalidArgument, "{}: field \"rung_losses\" holds what is no number",
                  where);
    }
    trial.rung_losses.push_back(loss.is_null() ? NAN : loss.get<double>());
  }
  return {};
}

Status read_halving(const Json& json, SweepRecord& record, const std::string& where) {
  if (find_field(json, "halving") == nullptr) return {};
  JIGE_TRY(const Json* const halving, read_part(json, "halving", Json::value_t::object, where));
  JIGE_TRY(record.halving_factor, read_count(*halving, "factor", where));
  if (record.halving_factor < 2) {
    return fail(Code::kInvalidArgument, "{}: halving: field \"factor\" is {}, below 2", where,
                record.halving_factor);
  }
  JIGE_TRY(const Json* const rungs, read_part(*halving, "rungs", Json::value_t::array, where));
  for (const Json& step : *rungs) {
    if (!step.is_number_integer()) {
      return fail(Code::kInvalidArgument, "{}: field \"rungs\" holds what is no step", where);
    }
    record.rungs.push_back(step.get<int64_t>());
  }
  return {};
}

Result<TrialRecord> read_trial(const Json& json, const std::string& where) {
  TrialRecord trial;
  JIGE_TRY(trial.name, get_string(json, "name", where));
  JIGE_TRY(const Json* const settings, read_part(json, "settings", Json::value_t::object, where));
  for (const auto& [flag, value] : settings->items()) {
    if (!value.is_string()) {
      return fail(Code::kInvalidArgument, "{}: settings: \"{}\" is no text", where, flag);
    }
    trial.settings.emplace_back(flag, value.get<std::string>());
  }
  JIGE_TRY(trial.steps, read_count(json, "steps", where));
  JIGE_TRY(trial.inputs, get_string_or(json, "inputs", "", where));
  JIGE_TRY(trial.shared_steps, read_count(json, "shared_steps", where));
  JIGE_TRY(trial.shared_with, get_string_or(json, "shared_with", "", where));
  JIGE_TRY(trial.state, read_state(json, where));
  JIGE_DO(read_rung_losses(json, trial, where));
  JIGE_TRY(trial.loss, read_optional(json, "loss", where));
  JIGE_TRY(trial.held_out, read_optional(json, "held_out", where));
  JIGE_TRY(trial.held_out_best, read_optional(json, "held_out_best", where));
  JIGE_TRY(trial.held_out_best_step, get_int_or(json, "held_out_best_step", 0, where));
  JIGE_TRY(trial.seconds, get_number_or(json, "seconds", 0, where));
  JIGE_TRY(trial.error, get_string_or(json, "error", "", where));
  return trial;
}

// What trials are compared by; infinite where there is no number.
double loss_of(const TrialRecord& trial) {
  const double loss = trial.held_out.value_or(trial.loss.value_or(NAN));
  return std::isnan(loss) ? std::numeric_limits<double>::infinity() : loss;
}

int64_t place_of(const TrialRecord& trial) {
  switch (trial.state) {
    case TrialState::kDone:
      return INT64_MIN;
    case TrialState::kDropped:
      return -std::ssize(trial.rung_losses);
    case TrialState::kDiverged:
      return 1;
    case TrialState::kWaiting:
      return 2;
  }
  return 2;
}

}  // namespace

std::string_view trial_state_name(TrialState state) {
  switch (state) {
    case TrialState::kWaiting:
      return "waiting";
    case TrialState::kDone:
      return "done";
    case TrialState::kDropped:
      return "dropped";
    case TrialState::kDiverged:
      return "diverged";
  }
  return "waiting";
}

Json TrialRecord::to_json() const {
  Json flags = Json::object();
  for (const auto& [flag, value] : settings) flags[flag] = value;
  Json compared = Json::array();
  for (const double rung : rung_losses) compared.push_back(number_or_null(rung));
  Json json = {{"name", name},
               {"folder", folder()},
               {"settings", std::move(flags)},
               {"steps", steps},
               {"inputs", inputs},
               {"shared_steps", shared_steps},
               {"shared_with", shared_with.empty() ? Json(nullptr) : Json(shared_with)},
               {"state", trial_state_name(state)},
               {"rung_losses", std::move(compared)},
               {"loss", number_or_null(loss)},
               {"held_out", number_or_null(held_out)},
               {"held_out_best", number_or_null(held_out_best)},
               {"held_out_best_step", held_out_best ? Json(held_out_best_step) : Json(nullptr)},
               {"seconds", seconds}};
  if (!error.empty()) json["error"] = error;
  return json;
}

Json SweepRecord::to_json() const {
  const auto best = best_trial(*this);
  Json json = {
      {"format", "jige-sweep"},
      {"version", 1},
      {"flags", flags},
      {"steps", {{"all", steps_all}, {"run", steps_run}}},
      {"branches_at_once", branches_at_once},
      {"halving",
       halving_factor == 0 ? Json(nullptr) : Json{{"factor", halving_factor}, {"rungs", rungs}}},
      {"best", best ? Json(trials[*best].name) : Json(nullptr)},
      {"trials", Json::array()}};
  for (const TrialRecord& trial : trials) json["trials"].push_back(trial.to_json());
  return json;
}

Result<SweepRecord> SweepRecord::from_json(const Json& json, const std::string& where) {
  JIGE_TRY(const std::string format, get_string(json, "format", where));
  if (format != "jige-sweep") {
    return fail(Code::kCorrupt, "{}: field \"format\" is \"{}\", not \"jige-sweep\"", where,
                format);
  }
  JIGE_TRY(const int64_t version, get_int(json, "version", where));
  if (version != 1) {
    return fail(Code::kUnsupported, "{}: is of version {} of the format; this Jige reads version 1",
                where, version);
  }
  SweepRecord record;
  JIGE_TRY(const Json* const flags, read_part(json, "flags", Json::value_t::array, where));
  for (const Json& word : *flags) {
    if (!word.is_string()) {
      return fail(Code::kInvalidArgument, "{}: field \"flags\" holds what is no text", where);
    }
    record.flags.push_back(word.get<std::string>());
  }
  JIGE_TRY(const Json* const steps, read_part(json, "steps", Json::value_t::object, where));
  JIGE_TRY(record.steps_all, read_count(*steps, "all", where));
  JIGE_TRY(record.steps_run, read_count(*steps, "run", where));
  JIGE_TRY(record.branches_at_once, read_count(json, "branches_at_once", where));
  JIGE_DO(read_halving(json, record, where));
  JIGE_TRY(const Json* const trials, read_part(json, "trials", Json::value_t::array, where));
  if (trials->size() > kSweepTrialsMax) {
    return fail(Code::kInvalidArgument, "{}: has {} trials; at most {}", where, trials->size(),
                kSweepTrialsMax);
  }
  std::set<std::string> names;
  for (const Json& entry : *trials) {
    const std::string place = fmt::format("{}: trials[{}]", where, record.trials.size());
    JIGE_TRY(TrialRecord trial, read_trial(entry, place));
    const bool dropped = trial.state == TrialState::kDropped;
    if (trial.rung_losses.size() > record.rungs.size() || (dropped && trial.rung_losses.empty())) {
      return fail(Code::kInvalidArgument, "{}: is {} and has {} rung_losses; there are {} rungs",
                  place, trial_state_name(trial.state), trial.rung_losses.size(),
                  record.rungs.size());
    }
    if (!names.insert(trial.name).second) {
      return fail(Code::kInvalidArgument, "{}: \"{}\" is there twice", place, trial.name);
    }
    record.trials.push_back(std::move(trial));
  }
  return record;
}

std::vector<size_t> trials_by_loss(const SweepRecord& record) {
  std::vector<size_t> order(record.trials.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t one, size_t other) {
    const TrialRecord& a = record.trials[one];
    const TrialRecord& b = record.trials[other];
    return std::tuple(place_of(a), !a.held_out, loss_of(a)) <
           std::tuple(place_of(b), !b.held_out, loss_of(b));
  });
  return order;
}

std::optional<size_t> best_trial(const SweepRecord& record) {
  const std::vector<size_t> order = trials_by_loss(record);
  if (order.empty()) return std::nullopt;
  const TrialRecord& first = record.trials[order.front()];
  const bool known = first.state == TrialState::kDone && std::isfinite(loss_of(first));
  return known ? std::optional(order.front()) : std::nullopt;
}

Result<std::optional<SweepRecord>> read_sweep_record(const std::string& out_folder) {
  const std::string path = sweep_path(out_folder);
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::nullopt;
  JIGE_TRY(const Json json, formats::load_json_object(path, kSweepBytesMax));
  JIGE_TRY(SweepRecord record, SweepRecord::from_json(json, path));
  return std::optional(std::move(record));
}

Status write_sweep_record(const std::string& out_folder, const SweepRecord& record) {
  return write_file_atomic(sweep_path(out_folder), dump_json(record.to_json(), 1) + "\n");
}

}  // namespace jige::train
