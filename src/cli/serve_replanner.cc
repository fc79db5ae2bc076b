#include "cli/serve_replanner.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/thread_priority.h"

namespace jige::cli {
namespace {

constexpr std::chrono::milliseconds kDriftLookEvery{200};
constexpr std::string_view kPlanPrefix = "plan-", kPlanSuffix = ".json";

// Of "plan-12.json"; 0 for other names.
int64_t plan_number(std::string_view name) {
  if (!name.starts_with(kPlanPrefix) || !name.ends_with(kPlanSuffix)) return 0;
  name.remove_prefix(kPlanPrefix.size());
  name.remove_suffix(kPlanSuffix.size());
  int64_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  return error == std::errc() && end == name.data() + name.size() && number < INT32_MAX ? number
                                                                                        : 0;
}

}  // namespace

Result<std::string> write_next_plan(const std::string& folder, const std::string& text) {
  int64_t number = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    number = std::max(number, plan_number(entry->path().filename().string()));
  }
  for (;;) {
    std::string path = fmt::format("{}/{}{}{}", folder, kPlanPrefix, ++number, kPlanSuffix);
    // Taken before it is written, since another server may write here, too.
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0 && errno == EEXIST) continue;
    if (fd < 0) return file_error(path, "create", errno);
    ::close(fd);
    Status written = write_file_atomic(path, text);
    if (written) return path;
    ::unlink(path.c_str());
    return tl::unexpected(std::move(written.error()));
  }
}

ServeReplanner::ServeReplanner(serve::Engine& engine, sim::ServePlanFile planned,
                               ServeReplanOptions options)
    : engine_(engine),
      planned_(std::move(planned)),
      options_(std::move(options)),
      policy_({.pause_s = options_.pause_s,
               .with_rate = planned_.rate_per_s > 0,
               .drift = engine.options().drift}),
      settings_(planned_.settings),
      thread_([this] { run(); }) {}

ServeReplanner::~ServeReplanner() { stop(); }

void ServeReplanner::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

plan::ReplanStatus ServeReplanner::status() const {
  const std::lock_guard lock(mutex_);
  plan::ReplanStatus status = status_;
  if (ended_ns_ > 0) status.age_s = seconds_between(ended_ns_, RealClock().now_ns());
  return status;
}

void ServeReplanner::run() {
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, kDriftLookEvery, [this] { return stopping_.load(); })) {
    lock.unlock();
    look();
    lock.lock();
  }
}

void ServeReplanner::look() {
  const serve::EngineStatus status = engine_.status();
  if (!status.drift || !status.recent_load) return;
  const double now_s = static_cast<double>(RealClock().now_ns()) * 1e-9;
  if (policy_.wants(*status.drift, *status.recent_load, now_s)) plan(*status.recent_load);
}

void ServeReplanner::plan(const plan::RecentLoad& recent) {
  {
    const std::lock_guard lock(mutex_);
    status_.planning = true;
  }
  log_info("planning again, for the last {} requests", recent.ended.size());
  const StopWatch watch;
  Result<sim::ServeReplan> found = make_plan(recent);
  if (stopping_) return;
  const double planning_s = watch.seconds();
  plan::PlannedLoad load = plan::planned_for(recent, planned_.rate_per_s > 0);
  auto outcome = plan::ReplanOutcome::kFailed;
  std::string text, file;
  Status status = found ? put_in_force(*found, load) : tl::unexpected(found.error());
  if (status) {
    outcome = found->outcome;
    text = found->text();
  } else {
    text = std::move(status.error().message);
  }
  if (outcome == plan::ReplanOutcome::kSwitched && !options_.folder.empty()) {
    Result<std::string> written =
        write_next_plan(options_.folder, dump_json(found->to_json(planned_), 2) + "\n");
    if (written) file = std::move(*written);
    if (!written) log_warn("the plan is in force and was not written: {}", written.error().message);
  }
  policy_.ended(outcome, std::move(load), static_cast<double>(RealClock().now_ns()) * 1e-9);
  tell(outcome, std::move(text), std::move(file), planning_s);
}

Result<sim::ServeReplan> ServeReplanner::make_plan(const plan::RecentLoad& recent) {
  const int64_t blocks = engine_.status().kv_blocks;
  std::optional<Result<sim::ServeReplan>> found;
  std::thread planner([&] {
    lower_thread_priority();
    found = sim::replan_serving({.planned = planned_,
                                 .recent = recent,
                                 .settings = settings_,
                                 .block_count = static_cast<int32_t>(blocks),
                                 .cancel = &stopping_});
  });
  planner.join();
  return std::move(*found);
}

Status ServeReplanner::put_in_force(const sim::ServeReplan& found, plan::PlannedLoad load) {
  sim::ServeSettings settings = settings_;
  if (found.outcome == plan::ReplanOutcome::kInfeasible) return {};
  if (found.outcome == plan::ReplanOutcome::kSwitched) settings = found.plan.chosen->settings;
  JIGE_DO(engine_.change_plan(settings, std::move(load)));
  settings_ = settings;
  return {};
}

void ServeReplanner::tell(plan::ReplanOutcome outcome, std::string text, std::string file,
                          double planning_s) {
  const bool came_to_something =
      outcome == plan::ReplanOutcome::kSwitched || outcome == plan::ReplanOutcome::kKept;
  const std::string line = fmt::format("planned again in {:.2g} s, {}: {}{}{}", planning_s,
                                       plan::replan_outcome_name(outcome), text,
                                       file.empty() ? "" : "; written to ", file);
  came_to_something ? log_info("{}", line) : log_warn("{}", line);
  const std::lock_guard lock(mutex_);
  status_.planning = false;
  ++status_.outcomes[static_cast<size_t>(outcome)];
  status_.outcome = plan::replan_outcome_name(outcome);
  status_.text = std::move(text);
  status_.file = std::move(file);
  status_.planning_s = planning_s;
  ended_ns_ = RealClock().now_ns();
}

}  // namespace jige::cli
