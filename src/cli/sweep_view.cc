#include "cli/sweep_view.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/counted.h"
#include "cli/sweep_trials.h"
#include "cli/table.h"

namespace jige::cli {
namespace {

std::string loss_cell(const std::optional<double>& loss) {
  return loss ? fmt::format("{:.4f}", *loss) : "-";
}

std::string best_cell(const train::TrialRecord& trial) {
  return trial.held_out_best
             ? fmt::format("{:.4f} at {}", *trial.held_out_best, trial.held_out_best_step)
             : "-";
}

}  // namespace

std::string sweep_plan_text(const train::SweepRecord& record) {
  const int64_t shared = record.steps_all - record.steps_run;
  std::string text = fmt::format("{}, {} in all", counted(std::ssize(record.trials), "trial"),
                                 counted(record.steps_all, "step"));
  if (!record.rungs.empty()) {
    return text +
           fmt::format(
               "; compared behind {} {}, where one of {} goes on, so at most {} ({:.0f} %) are "
               "run",
               record.rungs.size() == 1 ? "step" : "steps", fmt::join(record.rungs, ", "),
               record.halving_factor, record.steps_run,
               100.0 * static_cast<double>(record.steps_run) /
                   static_cast<double>(record.steps_all));
  }
  if (shared == 0) return text + "; no two trials begin alike, so no step is shared";
  return text + fmt::format(
                    "; {} are run, for {} ({:.0f} %) are shared; at most {} for other trials at "
                    "a time",
                    record.steps_run, shared,
                    100.0 * static_cast<double>(shared) / static_cast<double>(record.steps_all),
                    counted(record.branches_at_once, "checkpoint"));
}

Json sweep_plan_json(const train::SweepRecord& record) {
  Json json = {{"kind", "plan"}};
  json.update(record.to_json());
  return json;
}

std::string trial_text(const train::SweepPlace& place, const train::SweepRecord& record) {
  const train::TrialRecord& trial = record.trials[place.trial];
  std::string text =
      fmt::format("trial {} of {}, {}: ", place.number, place.count, settings_text(trial.settings));
  text += counted(trial.steps, "step");
  if (place.steps_until < trial.steps) {
    text += fmt::format(", now up to {}", place.steps_until);
  } else if (!trial.rung_losses.empty()) {
    text += ", now to its end";
  }
  if (trial.shared_steps > 0) {
    text += fmt::format(", {} of them with {}", trial.shared_steps, trial.shared_with);
  }
  if (place.seconds_left > 0) {
    text += fmt::format("; about {} left for all", format_duration(place.seconds_left));
  }
  return text;
}

Json trial_json(const train::SweepPlace& place, const train::SweepRecord& record) {
  Json json = {{"kind", "trial"}, {"number", place.number}, {"trials", place.count}};
  json.update(record.trials[place.trial].to_json());
  json["steps_done"] = place.steps_done;
  json["steps_until"] = place.steps_until;
  json["seconds_left"] = place.seconds_left > 0 ? Json(place.seconds_left) : Json(nullptr);
  return json;
}

std::string rung_text(const train::RungResult& rung, const train::SweepRecord& record) {
  const train::TrialRecord& first = record.trials[rung.compared.front()];
  const std::string who =
      rung.going_on == 1 ? fmt::format("the best of {} trials goes on alone", rung.compared.size())
                         : fmt::format("the best {} of {} trials go on, first", rung.going_on,
                                       rung.compared.size());
  return fmt::format("behind step {} {}: {}, held-out loss {}", rung.step, who,
                     settings_text(first.settings), loss_cell(first.held_out));
}

Json rung_json(const train::RungResult& rung, const train::SweepRecord& record) {
  Json json = {{"kind", "rung"}, {"step", rung.step}, {"trials", Json::array()}};
  for (const size_t place : rung.compared) {
    const train::TrialRecord& trial = record.trials[place];
    json["trials"].push_back({{"name", trial.name},
                              {"held_out", trial.held_out ? Json(*trial.held_out) : Json(nullptr)},
                              {"goes_on", trial.state != train::TrialState::kDropped}});
  }
  return json;
}

std::string sweep_table(const train::SweepRecord& record) {
  using enum Table::Align;
  std::vector<Table::Column> columns;
  if (!record.trials.empty()) {
    for (const auto& [flag, value] : record.trials.front().settings) {
      columns.push_back({flag, kRight});
    }
  }
  for (const char* title : {"held-out loss", "best", "loss", "steps", "shared"}) {
    columns.push_back({title, kRight});
  }
  columns.push_back({"folder"});
  Table table(std::move(columns));
  for (const size_t place : train::trials_by_loss(record)) {
    const train::TrialRecord& trial = record.trials[place];
    std::vector<std::string> cells;
    for (const auto& setting : trial.settings) cells.push_back(setting.second);
    const bool diverged = trial.state == train::TrialState::kDiverged;
    cells.push_back(diverged ? "diverged" : loss_cell(trial.held_out));
    cells.push_back(best_cell(trial));
    cells.push_back(loss_cell(trial.loss));
    const bool dropped = trial.state == train::TrialState::kDropped;
    cells.push_back(
        dropped ? fmt::format("{} of {}", record.rungs[trial.rung_losses.size() - 1], trial.steps)
                : fmt::format("{}", trial.steps));
    cells.push_back(fmt::format("{}", trial.shared_steps));
    cells.push_back(trial.folder());
    table.row(std::move(cells));
  }
  return table.render();
}

}  // namespace jige::cli
