#include "cli/cluster_demo.h"

#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <filesystem>

#include "base/file.h"
#include "base/log.h"
#include "base/process.h"
#include "cli/build_info.h"
#include "cli/shell_word.h"
#include "cluster/model_catalogue.h"
#include "cluster/traffic.h"

namespace jige::cli {
namespace {

namespace fs = std::filesystem;

constexpr double kStartLimit_s = 60;
constexpr double kStopLimit_s = 30;
constexpr double kSubmitLimit_s = 20;
// What a job waits in Slurm on free GPUs: the end of the job before is seen after 0.3 s, and from
// the release to its first line it takes 0.55 s (medians of docs/cluster.md).
constexpr double kStartWall_s = 0.85;
// What a preempted job loses in Slurm: its processes end, it is seen, released and started anew.
constexpr double kRestartWall_s = 2.5;

std::string own_program() {
  std::error_code error;
  const fs::path path = fs::read_symlink("/proc/self/exe", error);
  return error ? "jige" : path.string();
}

}  // namespace

Result<std::string> tool_path(const std::string& name) {
  std::vector<std::string> places;
  if (const char* tools = std::getenv("JIGE_TOOLS")) places.emplace_back(tools);
  places.emplace_back("tools");
  places.push_back(std::string(kSourceFolder) + "/tools");
  for (const std::string& place : places) {
    std::error_code error;
    if (fs::exists(place + "/" + name, error)) return fs::absolute(place + "/" + name).string();
  }
  return fail(Code::kNotFound, "{}: not in {}; run in the source folder, or set JIGE_TOOLS", name,
              fmt::join(places, ", "));
}

Result<DemoSlurm> DemoSlurm::start(const std::string& folder) {
  JIGE_TRY(const std::string script, tool_path("demo-slurm"));
  std::string place = folder;
  if (place.empty()) {
    place = temporary_pattern("/tmp/jige-demo-");
    if (!mkdtemp(place.data())) return fail(Code::kIo, "{}: cannot be made", place);
  }
  DemoSlurm slurm(place);
  JIGE_TRY(const ProcessOutcome outcome,
           run_process({script, "up", place, "8", "4", "4", fmt::format("{}", getpid())},
                       {.limit_s = kStartLimit_s}));
  if (outcome.exit_code != 0) {
    return fail(Code::kUnavailable, "demo-slurm: {}", outcome.err.substr(0, 400));
  }
  JIGE_TRY(const std::string mode, read_file(place + "/mode"));
  slurm.holds_ = mode.starts_with("plugin");
  setenv("SLURM_CONF", (place + "/slurm.conf").c_str(), 1);
  return slurm;
}

DemoSlurm::~DemoSlurm() {
  if (folder_.empty()) return;
  const Result<std::string> script = tool_path("demo-slurm");
  if (!script) return;
  const Result<ProcessOutcome> outcome =
      run_process({*script, "down", folder_}, {.limit_s = kStopLimit_s});
  if (!outcome || outcome->exit_code != 0) {
    log_warn("the Slurm in {} could not be ended: {}", folder_,
             outcome ? outcome->err : outcome.error().message);
  }
}

cluster::Workload demo_workload(const DemoOptions& options, const cluster::ClusterSpec& spec) {
  cluster::WorkloadOptions wanted{.job_count = options.jobs,
                                  .load = options.load,
                                  .sizes = {{1, 2}, {2, 2}, {4, 3}, {8, 2}},
                                  .fixed_share = 0.6,
                                  .lengths = {.a = options.length_s, .b = 0.6},
                                  .models = {0, 0, 1, 1, 2, 2, 0, 2, 1},
                                  .seed = static_cast<uint64_t>(options.seed)};
  cluster::Workload workload = cluster::make_workload(wanted, spec);
  for (cluster::Job& job : workload.jobs) {
    const double length_s = job.iterations * cluster::ideal_iteration_ns(job, spec) / 1e9;
    // Slurm is asked for so many nodes with equal shares.
    if (job.nodes == 0) job.nodes = (job.gpus + spec.gpus_per_node - 1) / spec.gpus_per_node;
    job.start_ns = static_cast<int64_t>(kStartWall_s * options.time_scale * cluster::kSecond);
    job.restart_ns = static_cast<int64_t>(kRestartWall_s * options.time_scale * cluster::kSecond);
    cluster::set_length(job, length_s, spec);
  }
  return workload;
}

Result<int64_t> submit_demo_job(const DemoOptions& options, const DemoSlurm& slurm,
                                const cluster::Workload& workload, size_t index,
                                const cluster::ClusterSpec& spec) {
  const cluster::Job& job = workload.jobs[index];
  const double alone_s = job.iterations * cluster::ideal_iteration_ns(job, spec) / 1e9;
  const std::string jobs = slurm.folder() + "/jobs";
  std::vector<std::string> words = {
      "sbatch",
      "--parsable",
      fmt::format("-N{}", job.nodes),
      fmt::format("--gres=gpu:{}", job.gpus / job.nodes),
      fmt::format("--job-name=demo{}", index),
      "--output=/dev/null",
      "--chdir=/tmp",
      "--open-mode=append",
      "--requeue",
      fmt::format("--comment=jige model={} length={:.3f} restart={:.3f} checkpoint={}/%j.marker",
                  workload.models[static_cast<size_t>(job.model)], alone_s,
                  static_cast<double>(job.restart_ns) / 1e9, jobs)};
  if (!slurm.holds()) words.emplace_back("--hold");
  words.push_back(
      fmt::format("--wrap=exec {} cluster demo-job --folder {} --state {} --work {:.0f}",
                  shell_word(own_program()), shell_word(slurm.folder()), shell_word(options.state),
                  alone_s / options.time_scale * 1e6));
  JIGE_TRY(const ProcessOutcome outcome, run_process(words, {.limit_s = kSubmitLimit_s}));
  if (outcome.exit_code != 0) return fail(Code::kUnavailable, "sbatch: {}", outcome.err);
  int64_t id = 0;
  const auto [end, error] =
      std::from_chars(outcome.out.data(), outcome.out.data() + outcome.out.size(), id);
  if (error != std::errc()) return fail(Code::kCorrupt, "sbatch says \"{}\"", outcome.out);
  return id;
}

}  // namespace jige::cli
