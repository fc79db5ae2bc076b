#include "train/trial_start.h"

#include <functional>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/file.h"
#include "formats/checkpoint.h"
#include "train/run_state.h"

namespace jige::train {
namespace {

// Hands every line of a log to `take`, with its line feed, and the kind of its record. A last line
// that is half-written is left out.
Status for_each_line(std::string_view text, const std::string& path,
                     const std::function<void(std::string_view line, const Json& record)>& take) {
  while (!text.empty()) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos) return {};
    const std::string_view line = text.substr(0, end + 1);
    JIGE_TRY(const Json record, parse_json(line, path));
    take(line, record);
    text.remove_prefix(line.size());
  }
  return {};
}

bool is_kind(const Json& record, std::string_view kind) {
  const Json* const found = record.is_object() ? find_field(record, "kind") : nullptr;
  return found != nullptr && found->is_string() && found->get<std::string>() == kind;
}

std::optional<double> number_in(const Json& record, const char* field) {
  const Json* const found = find_field(record, field);
  return found != nullptr && found->is_number() ? std::optional(found->get<double>())
                                                : std::nullopt;
}

}  // namespace

Status start_trial(const TrialStart& from, const TrainOptions& options) {
  JIGE_TRY(const auto branch, formats::CheckpointReader::open_latest(from.branch));
  Json state = branch.state();
  const std::string where = branch.folder() + "/state.json";
  for (const char* part : {"run", "identity"}) {
    if (find_field(state, part) != nullptr && state.at(part).is_object()) continue;
    return fail(Code::kCorrupt, "{}: field \"{}\" is no object", where, part);
  }
  JIGE_TRY(RunState run, RunState::from_json(state.at("run"), where));

  JIGE_TRY(const std::string log, read_file(from.log));
  const auto length = static_cast<size_t>(run.log_bytes);
  if (log.size() < length) {
    return fail(Code::kCorrupt, "{}: has {} bytes; the checkpoint {} was made behind {}", from.log,
                log.size(), branch.folder(), length);
  }
  std::string kept;
  JIGE_DO(for_each_line(std::string_view(log).substr(0, length), from.log,
                        [&](std::string_view line, const Json& record) {
                          if (is_kind(record, "step") || is_kind(record, "eval")) kept += line;
                        }));
  JIGE_DO(make_folders(options.out_folder));
  JIGE_DO(write_file_atomic(options.out_folder + "/log.jsonl", kept));

  run.log_bytes = std::ssize(kept);
  state["run"] = run.to_json();
  const Json own = identity_json(options);
  for (const char* field : {"schedule", "steps", "epochs"}) {
    state["identity"][field] = own.at(field);
  }
  return formats::link_checkpoint(branch, options.out_folder + "/checkpoints", state);
}

Status read_losses(const std::string& log_path, TrialRecord& trial) {
  JIGE_TRY(const std::string log, read_file(log_path));
  bool any_step = false;
  trial.loss = trial.held_out = trial.held_out_best = std::nullopt;
  JIGE_DO(for_each_line(log, log_path, [&](std::string_view, const Json& record) {
    if (is_kind(record, "step")) {
      any_step = true;
      trial.loss = number_in(record, "loss");
      trial.seconds = number_in(record, "run_seconds").value_or(0);
    }
    if (!is_kind(record, "eval")) return;
    trial.held_out = number_in(record, "loss");
    trial.held_out_step = get_int_or(record, "step", 0, log_path).value_or(0);
    const bool better =
        trial.held_out && (!trial.held_out_best || *trial.held_out < *trial.held_out_best);
    if (!better) return;
    trial.held_out_best = trial.held_out;
    trial.held_out_best_step = trial.held_out_step;
  }));
  if (any_step) return {};
  return fail(Code::kCorrupt, "{}: holds no step of the run", log_path);
}

}  // namespace jige::train
