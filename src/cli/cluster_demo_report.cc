#include "cli/cluster_demo_report.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/log_file.h"
#include "cli/cluster_view.h"
#include "cli/table.h"
#include "cluster/schedule_report.h"
#include "cluster/simulation.h"

namespace jige::cli {
namespace {

using cluster::kSecond;

double mean_value(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

double quantile_of(std::vector<double> values, double share) {
  std::ranges::sort(values);
  return cluster::quantile(values, share);
}

Result<std::vector<DemoJob>> read_logs(const DemoScene& scene) {
  std::vector<DemoJob> jobs;
  for (size_t i = 0; i < scene.submitted.size(); ++i) {
    const cluster::Job& job = scene.workload.jobs[i];
    const std::string path =
        fmt::format("{}/jobs/{}.log", scene.slurm_folder, scene.submitted[i].id);
    DemoJob found{.id = scene.submitted[i].id, .gpus_per_node = job.gpus / job.nodes};
    Result<std::string> text = read_file(path);
    if (text) {
      JIGE_TRY(found.stints, read_job_log(*text, path));
    } else if (text.error().code != Code::kNotFound) {
      return tl::unexpected<Error>(std::move(text.error()));
    }
    jobs.push_back(std::move(found));
  }
  return jobs;
}

// Seconds of the cluster from arrival to end; below 0 where it has not ended.
std::vector<double> simulated_jct_s(const cluster::SimulationResult& result) {
  std::vector<double> jct_s;
  for (const cluster::JobOutcome& outcome : result.outcomes) {
    const int64_t took_ns =
        outcome.finish_ns < 0 ? -kSecond : outcome.finish_ns - outcome.arrival_ns;
    jct_s.push_back(static_cast<double>(took_ns) / kSecond);
  }
  return jct_s;
}

Result<cluster::SimulationResult> simulate_submitted(const DemoScene& scene,
                                                     std::unique_ptr<cluster::Contention> model,
                                                     cluster::Policy& policy) {
  cluster::Workload workload = scene.workload;
  workload.jobs.resize(scene.submitted.size());
  for (size_t i = 0; i < workload.jobs.size(); ++i) {
    const double since_s = scene.submitted[i].unix_s - scene.submitted[0].unix_s;
    workload.jobs[i].arrival_ns =
        static_cast<int64_t>(since_s * scene.options.time_scale * kSecond);
  }
  return cluster::simulate(scene.spec, workload, std::move(model), policy, {});
}

}  // namespace

Result<DemoReport> make_demo_report(const DemoScene& scene,
                                    std::unique_ptr<cluster::Contention> contention,
                                    cluster::Policy& policy, double end_unix_s) {
  DemoReport report{.jobs = std::ssize(scene.submitted)};
  if (scene.submitted.empty()) return report;
  report.seconds = end_unix_s - scene.submitted[0].unix_s;
  JIGE_TRY(const std::vector<DemoJob> jobs, read_logs(scene));
  report.findings = check_demo_jobs(jobs, scene.spec.gpus_per_node, end_unix_s);
  JIGE_TRY(const cluster::SimulationResult result,
           simulate_submitted(scene, std::move(contention), policy));
  const std::vector<double> simulated_s = simulated_jct_s(result);
  std::vector<double> both_slurm_s, both_simulated_s, errors;
  for (size_t i = 0; i < jobs.size(); ++i) {
    report.starts += std::ssize(jobs[i].stints);
    if (!jobs[i].stints.empty()) report.restarts += std::ssize(jobs[i].stints) - 1;
    if (jobs[i].stints.empty() || !jobs[i].stints.back().ended || simulated_s[i] < 0) continue;
    const double took_s = jobs[i].stints.back().to_s - scene.submitted[i].unix_s;
    both_slurm_s.push_back(took_s * scene.options.time_scale);
    both_simulated_s.push_back(simulated_s[i]);
    errors.push_back(std::fabs(both_slurm_s.back() / std::max(1.0, simulated_s[i]) - 1));
  }
  report.jct_mean_s = mean_value(both_slurm_s);
  report.jct_p99_s = quantile_of(both_slurm_s, 0.99);
  report.simulated_jct_mean_s = mean_value(both_simulated_s);
  report.simulated_jct_p99_s = quantile_of(both_simulated_s, 0.99);
  report.jct_error_mean = mean_value(errors);
  JIGE_TRY(const std::string decisions, read_log(scene.options.state + "/decisions.jsonl"));
  JIGE_TRY(const std::vector<double> latencies, start_latencies_s(decisions, jobs));
  report.start_p50_s = quantile_of(latencies, 0.5);
  report.start_p99_s = quantile_of(latencies, 0.99);
  report.start_max_s = quantile_of(latencies, 1);
  return report;
}

Json demo_json(const DemoReport& report) {
  return {{"emulated", true},
          {"jobs", report.jobs},
          {"unfinished", report.findings.unfinished},
          {"double_booked", report.findings.double_booked},
          {"twice_ended", report.findings.twice_ended},
          {"rolled_back_s_max", report.findings.rolled_back_s_max},
          {"findings", report.findings.texts},
          {"starts", report.starts},
          {"restarts", report.restarts},
          {"start_p50_s", report.start_p50_s},
          {"start_p99_s", report.start_p99_s},
          {"start_max_s", report.start_max_s},
          {"jct_mean_s", report.jct_mean_s},
          {"jct_p99_s", report.jct_p99_s},
          {"simulated_jct_mean_s", report.simulated_jct_mean_s},
          {"simulated_jct_p99_s", report.simulated_jct_p99_s},
          {"jct_error_mean", report.jct_error_mean},
          {"seconds", report.seconds}};
}

std::string demo_text(const DemoReport& report) {
  using enum Table::Align;
  Table table({{}, {"", kRight}});
  const auto percent = [](double share) { return fmt::format("{:+.1f} %", 100 * share); };
  table.row({"jobs that ended",
             fmt::format("{} of {}", report.jobs - report.findings.unfinished, report.jobs)});
  table.row({"GPUs given twice", fmt::format("{}", report.findings.double_booked)});
  table.row({"starts, of them again", fmt::format("{}, {}", report.starts, report.restarts)});
  table.row({"work lost by a restart, most", short_time(report.findings.rolled_back_s_max)});
  table.row({"release to first line, p50", short_time(report.start_p50_s)});
  table.row({"release to first line, max", short_time(report.start_max_s)});
  table.row({"mean JCT in Slurm", short_time(report.jct_mean_s)});
  table.row({"mean JCT simulated", short_time(report.simulated_jct_mean_s)});
  if (report.simulated_jct_mean_s > 0) {
    table.row(
        {"Slurm against simulation", percent(report.jct_mean_s / report.simulated_jct_mean_s - 1)});
  }
  table.row({"wall time", short_time(report.seconds)});
  std::string text =
      "EMULATED: the jobs sleep at the speed of the network model. Times are the "
      "cluster's,\nbut for starts and the last line.\n\n" +
      table.render();
  for (const std::string& finding : report.findings.texts) text += "  ! " + finding + "\n";
  return text;
}

}  // namespace jige::cli
