#include "cli/sweep_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "cli/shell_word.h"
#include "train/sweep_record.h"

namespace jige::cli {
namespace {

namespace fs = std::filesystem;

// The record of the sweep in a folder; none where it is that of no sweep, or cannot be read.
std::optional<train::SweepRecord> record_in(const fs::path& folder) {
  auto record = train::read_sweep_record(folder.string());
  return record ? std::move(*record) : std::nullopt;
}

// The `jige train` that makes a trial by itself.
std::string train_line(const train::SweepRecord& sweep, const train::TrialRecord& trial) {
  std::string line = "jige train";
  for (const std::string& word : sweep.flags) line += " " + shell_word(word);
  for (const auto& [flag, value] : trial.settings) {
    line += fmt::format(" --{} {}", flag, shell_word(value));
  }
  return line + " --out FOLDER";
}

}  // namespace

std::string sweep_note(const std::string& folder) {
  std::error_code error;
  fs::path path = fs::absolute(folder, error).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  if (const auto sweep = record_in(path)) {
    const auto best = train::best_trial(*sweep);
    return fmt::format(
        "; it is that of a sweep: give the folder of a trial{}",
        best ? ", such as the best, " + folder + "/" + sweep->trials[*best].folder() : "");
  }
  if (path.parent_path().filename() != "trials") return "";
  const auto sweep = record_in(path.parent_path().parent_path());
  if (!sweep) return "";
  const auto trial =
      std::ranges::find(sweep->trials, path.filename().string(), &train::TrialRecord::name);
  if (trial == sweep->trials.end() || trial->state != train::TrialState::kDropped) return "";
  return fmt::format(
      "; its sweep dropped it, and keeps a checkpoint of such trials with --keep all; this makes "
      "it from the beginning: {}",
      train_line(*sweep, *trial));
}

}  // namespace jige::cli
