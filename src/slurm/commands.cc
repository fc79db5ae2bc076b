#include "slurm/commands.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/clock.h"
#include "base/process.h"
#include "slurm/host_list.h"

namespace jige::slurm {
namespace {

constexpr size_t kShownMax = 300;  // of what a command says, in an error
constexpr double kPauseMax_s = 5;

std::string first_lines(const std::string& text) {
  std::string shown = text.substr(0, kShownMax);
  while (!shown.empty() && (shown.back() == '\n' || shown.back() == ' ')) shown.pop_back();
  std::ranges::replace(shown, '\n', ' ');
  return shown;
}

}  // namespace

bool means_unavailable(std::string_view text) {
  for (const std::string_view sign :
       {"Unable to contact slurm controller", "Socket timed out", "Connection refused",
        "Connection timed out", "Connection reset", "slurm_load", "Zero Bytes were transmitted",
        "Transport endpoint is not connected", "Protocol authentication error",
        "Resource temporarily unavailable", "Slurm backup controller in standby mode",
        "Communication connection failure", "Unexpected message received"}) {
    if (text.find(sign) != std::string_view::npos) return true;
  }
  return false;
}

Result<std::string> SlurmCommands::call(const std::vector<std::string>& words) {
  return call(words, options_.tries);
}

Result<std::string> SlurmCommands::call(const std::vector<std::string>& words, int tries) {
  double pause_s = options_.pause_s;
  for (int tried = 1;; ++tried) {
    Result<ProcessOutcome> outcome =
        run_process(words, {.limit_s = options_.limit_s, .cancel = options_.cancel});
    if (outcome && outcome->exit_code == 0) return std::move(outcome->out);
    Error error{Code::kUnavailable, ""};
    if (outcome) {
      error.message = fmt::format("{}: exit code {}: {}", fmt::join(words, " "), outcome->exit_code,
                                  first_lines(outcome->err + outcome->out));
      if (!means_unavailable(outcome->err + outcome->out)) error.code = Code::kInvalidArgument;
    } else {
      error = std::move(outcome.error());
    }
    if (error.code != Code::kUnavailable || tried >= tries) {
      return tl::unexpected<Error>(std::move(error));
    }
    ++retries_;
    std::this_thread::sleep_for(std::chrono::duration<double>(pause_s));
    pause_s = std::min(2 * pause_s, kPauseMax_s);
  }
}

Result<Snapshot> SlurmCommands::snapshot() {
  Snapshot snapshot;
  snapshot.taken_ns = RealClock().now_ns();
  JIGE_TRY(const std::string jobs, call({options_.squeue, "--json", "-t", "all"}));
  JIGE_TRY(snapshot.nodes, nodes());
  JIGE_TRY(snapshot.jobs, parse_jobs(jobs));
  JIGE_TRY(snapshot.closed, closed());
  arrays_.clear();
  ranges_.clear();
  delayed_.clear();
  const auto now_s = static_cast<int64_t>(unix_now_s());
  for (const SeenJob& job : snapshot.jobs) {
    if (job.node_count_max > job.node_count) ranges_.insert(job.id);
    if (job.begin_s > now_s) delayed_.insert(job.id);
    if (job.array.array > 0) arrays_[job.id] = job.array;
  }
  return snapshot;
}

Result<std::string> SlurmCommands::closed() {
  if (options_.partition.empty()) return std::string();
  JIGE_TRY(const std::string state,
           call({options_.sinfo, "-h", "-p", options_.partition, "-o", "%a"}));
  if (state.starts_with("down")) return std::string("down");
  if (state.starts_with("inact")) return std::string("inactive");
  return std::string();
}

std::string SlurmCommands::name_of(int64_t job) const {
  const auto part = arrays_.find(job);
  if (part == arrays_.end()) return fmt::format("{}", job);
  if (part->second.task >= 0) return fmt::format("{}_{}", part->second.array, part->second.task);
  // A list that was cut short says nothing.
  const std::string& tasks = part->second.tasks;
  if (tasks.find("...") != std::string::npos) return fmt::format("{}", job);
  return fmt::format("{}_[{}]", part->second.array, tasks);
}

Result<std::vector<SeenNode>> SlurmCommands::nodes() {
  if (!sinfo_groups_) {
    JIGE_TRY(const std::string text, call({options_.sinfo, "--json"}));
    Result<std::vector<SeenNode>> nodes = parse_nodes(text, "sinfo --json");
    if (nodes || nodes.error().code != Code::kUnsupported) return nodes;
    sinfo_groups_ = true;
  }
  JIGE_TRY(const std::string text, call({options_.scontrol, "--all", "--json", "show", "nodes"}));
  return parse_nodes(text, "scontrol --json show nodes");
}

Status SlurmCommands::place(int64_t job, const std::vector<std::string>& nodes,
                            const std::string& admin_comment) {
  // The release is a call of its own: with other fields in one update Slurm ignores the priority of
  // a held job.
  std::vector<std::string> update = {options_.scontrol, "update", "JobId=" + name_of(job)};
  if (ranges_.contains(job)) update.push_back(fmt::format("NumNodes={0}-{0}", nodes.size()));
  update.push_back("ReqNodeList=" + join_hosts(nodes));
  // A requeued job may not begin for two minutes unless its start time is set anew. Others are left
  // alone: "now" is now by this machine's clock, and where that is ahead the job would wait for it.
  if (delayed_.contains(job)) update.emplace_back("StartTime=now");
  update.push_back("AdminComment=" + admin_comment);
  JIGE_DO(call(update));
  JIGE_DO(call({options_.scontrol, "release", name_of(job)}));
  return {};
}

Status SlurmCommands::checkpoint(int64_t job) {
  // Without --batch the signal goes to steps alone, not to the script.
  JIGE_DO(call(
      {options_.scancel, fmt::format("--signal={}", options_.signal), "--batch", name_of(job)}));
  return {};
}

Status SlurmCommands::requeue_held(int64_t job) {
  JIGE_DO(call({options_.scontrol, "requeuehold", name_of(job)}));
  return {};
}

Status SlurmCommands::hold(int64_t job) {
  JIGE_DO(call({options_.scontrol, "hold", name_of(job)}));
  return {};
}

Status SlurmCommands::release(int64_t job, const std::string& admin_comment) {
  JIGE_DO(call({options_.scontrol, "update", "JobId=" + name_of(job),
                "ReqNodeList=", fmt::format("AdminComment={}", admin_comment)}));
  JIGE_DO(call({options_.scontrol, "release", name_of(job)}));
  return {};
}

Status SlurmCommands::kill(int64_t job) {
  JIGE_DO(call({options_.scancel, name_of(job)}));
  return {};
}

Status SlurmCommands::split(int64_t job, int64_t task) {
  const auto part = arrays_.find(job);
  const int64_t array = part == arrays_.end() ? job : part->second.array;
  JIGE_DO(call({options_.scontrol, "update", fmt::format("JobId={}_{}", array, task),
                fmt::format("AdminComment={}", kHoldMark)}));
  return {};
}

Status SlurmCommands::annotate(int64_t job, const std::string& admin_comment) {
  JIGE_DO(call(
      {options_.scontrol, "update", "JobId=" + name_of(job), "AdminComment=" + admin_comment}, 1));
  return {};
}

Result<std::string> SlurmCommands::topology() {
  Result<std::string> text = call({options_.scontrol, "show", "topology"});
  if (!text && text.error().code == Code::kInvalidArgument) return std::string();
  return text;
}

}  // namespace jige::slurm
