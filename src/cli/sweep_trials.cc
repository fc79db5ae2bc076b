#include "cli/sweep_trials.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "base/ascii.h"
#include "base/split.h"
#include "cli/build_info.h"
#include "cli/flags.h"
#include "cli/output.h"
#include "cli/train_checks.h"
#include "cli/train_rank_flags.h"

namespace jige::cli {
namespace {

using Settings = std::vector<std::pair<std::string, std::string>>;

constexpr size_t kTrialNameBytesMax = 120;

// What `jige train` is given, as it reads it.
struct TrainWords {
  Flags flags{"train"};
  TrainFlags train;
  TrainRankFlags ranks;
  DeviceFlags device;
  bool plan_only = false;
  OutputFlags output;

  TrainWords() {
    train.declare(flags);
    ranks.declare(flags);
    device.declare(flags);
    flags.toggle("--plan-only", plan_only, "");
    output.declare(flags, "");
  }
};

Status refuse_what_is_not_of_trials(const TrainWords& words) {
  const Flags& flags = words.flags;
  if (flags.help_asked()) {
    return fail(Code::kInvalidArgument, "--help behind --: see `jige train --help`");
  }
  JIGE_DO(flags.refuse({"--out", "--plan-only", "--json", "--quiet"},
                       "is the sweep's own: give it before --"));
  JIGE_DO(flags.refuse({"--resume", "--fresh"},
                       "is of one run, and a sweep goes on by itself where it was: leave it out"));
  JIGE_DO(flags.refuse({"--ranks", "--rank", "--world", "--rendezvous", "--gradient-sum",
                        "--shard-optimizer", "--split-context", "--no-overlap", "--transport",
                        "--bind", "--congestion", "--ring", "--rank-timeout"},
                       "is of runs in several processes, which are not supported in a sweep: leave "
                       "it out"));
  if (words.device.kind() != DeviceKind::kCpu) {
    return fail(Code::kUnsupported,
                "--device {}: a sweep trains on the processor; leave it out, or give each run to "
                "`jige train`",
                words.device.device);
  }
  if (!words.train.rewards.grpo) return {};
  return fail(Code::kUnsupported,
              "--grpo is not supported in a sweep: give each run to `jige train`");
}

// Flags as `jige train` would take them.
Result<TrialRequest> read_trial(const std::vector<std::string>& words,
                                const std::string& out_folder) {
  const auto read = std::make_unique<TrainWords>();
  JIGE_DO(read->flags.parse(words));
  JIGE_DO(refuse_what_is_not_of_trials(*read));
  read->train.options.out_folder = out_folder;
  TrialRequest request;
  JIGE_TRY(request.trial.options, read->train.to_options(read->flags));
  train::TrainOptions& options = request.trial.options;
  if (options.pipeline) {
    return fail(Code::kUnsupported,
                "several devices (--devices, --device-memory, --plan and their kin) are not "
                "supported in a sweep: leave them out");
  }
  JIGE_DO(check_data_files(options.data));
  options.thread_count = static_cast<int>(read->device.threads);
  options.memory_limit_bytes = read->device.memory_limit_bytes;
  options.program_version = kVersion;
  request.flags = read->train;
  request.device = read->device;
  return request;
}

// A name for a folder that a shell takes as it stands.
std::string trial_name(const Settings& settings, size_t place, const std::set<std::string>& taken) {
  std::string name;
  for (const auto& [flag, value] : settings) {
    name += fmt::format("{}{}={}", name.empty() ? "" : ",", flag, value);
  }
  for (char& c : name) {
    if (!is_ascii_alphanumeric(c) && std::string_view("=,.+-_").find(c) == std::string_view::npos) {
      c = '_';
    }
  }
  if (name.size() > kTrialNameBytesMax || taken.contains(name))
    name = fmt::format("trial-{}", place + 1);
  return name;
}

// The settings of a trial, the last flag of the grid changing first.
Settings settings_of(const std::vector<GridFlag>& grid, size_t place) {
  Settings settings;
  for (auto flag = grid.rbegin(); flag != grid.rend(); ++flag) {
    settings.emplace_back(flag->flag, flag->values[place % flag->values.size()]);
    place /= flag->values.size();
  }
  std::ranges::reverse(settings);
  return settings;
}

Result<size_t> count_trials(const std::vector<GridFlag>& grid) {
  size_t count = 1;
  for (const GridFlag& flag : grid) {
    count *= std::min(flag.values.size(), train::kSweepTrialsMax + 1);
    if (count > train::kSweepTrialsMax) {
      return fail(Code::kInvalidArgument, "--grid: more than {} trials; give fewer values",
                  train::kSweepTrialsMax);
    }
  }
  return count;
}

}  // namespace

Result<std::vector<GridFlag>> read_grid(const std::vector<std::string>& words) {
  if (words.empty()) {
    return fail(Code::kInvalidArgument,
                "--grid is missing: name a flag of `jige train` and its values, as in --grid "
                "lr=1e-3,2e-3");
  }
  std::vector<GridFlag> grid;
  for (const std::string& word : words) {
    const size_t equals = word.find('=');
    GridFlag read{.flag = word.substr(0, equals)};
    if (read.flag.starts_with("--")) read.flag = read.flag.substr(2);
    const bool named =
        !read.flag.empty() && read.flag.front() != '-' &&
        std::ranges::all_of(read.flag, [](char c) { return is_ascii_alphanumeric(c) || c == '-'; });
    if (!named || equals == std::string::npos) {
      return fail(Code::kInvalidArgument,
                  "--grid: \"{}\" is not FLAG=VALUE,VALUE…, as in lr=1e-3,2e-3", word);
    }
    for (const auto value : split_at(std::string_view(word).substr(equals + 1), ',')) {
      if (value.empty()) {
        return fail(Code::kInvalidArgument, "--grid: \"{}\" has an empty value", word);
      }
      if (std::ranges::find(read.values, value) != read.values.end()) {
        return fail(Code::kInvalidArgument, "--grid: \"{}\" has {} twice", word, value);
      }
      read.values.emplace_back(value);
    }
    if (std::ranges::find(grid, read.flag, &GridFlag::flag) != grid.end()) {
      return fail(Code::kInvalidArgument, "--grid: {} is given twice; give all its values in one",
                  read.flag);
    }
    grid.push_back(std::move(read));
  }
  return grid;
}

Result<std::vector<TrialRequest>> make_trials(const std::vector<GridFlag>& grid,
                                              const std::vector<std::string>& words,
                                              const std::string& out_folder) {
  JIGE_TRY(const size_t count, count_trials(grid));
  // What is wrong with the flags of all is said without a trial.
  const auto common = std::make_unique<TrainWords>();
  JIGE_DO(common->flags.parse(words));
  JIGE_DO(refuse_what_is_not_of_trials(*common));
  std::set<std::string> names;
  std::vector<TrialRequest> trials;
  for (size_t place = 0; place < count; ++place) {
    const Settings settings = settings_of(grid, place);
    std::vector<std::string> own = words;
    for (const auto& [flag, value] : settings) own.push_back(fmt::format("--{}={}", flag, value));
    auto request = read_trial(own, out_folder);
    if (!request) {
      return with_context(std::move(request.error()), "trial {}", settings_text(settings));
    }
    // Every flag of the grid is one of `jige train`, since it was read.
    for (const auto& [flag, value] : settings) {
      if (common->flags.given("--" + flag)) {
        return fail(Code::kInvalidArgument,
                    "--{} is in the grid and behind --; leave one of them out", flag);
      }
    }
    request->trial.settings = settings;
    request->trial.name = trial_name(settings, place, names);
    names.insert(request->trial.name);
    trials.push_back(std::move(*request));
  }
  return trials;
}

std::string settings_text(const Settings& settings) {
  std::string text;
  for (const auto& [flag, value] : settings) {
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", flag, value);
  }
  return text;
}

}  // namespace jige::cli
