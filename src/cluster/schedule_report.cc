#include "cluster/schedule_report.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/check.h"

namespace jige::cluster {
namespace {

// Student's t for 97.5 %, by degrees of freedom from 1 on.
constexpr double kStudent[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306,
                               2.262,  2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
                               2.110,  2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064,
                               2.060,  2.056, 2.052, 2.048, 2.045, 2.042};
constexpr double kNormal = 1.96;

double seconds(int64_t ns) { return static_cast<double>(ns) / kSecond; }

// Those that count for latencies.
std::vector<const JobOutcome*> middle(const SimulationResult& result, double trim) {
  std::vector<const JobOutcome*> jobs;
  const size_t cut = static_cast<size_t>(trim * static_cast<double>(result.outcomes.size()));
  for (size_t i = cut; i + cut < result.outcomes.size(); ++i) {
    if (result.outcomes[i].finish_ns >= 0) jobs.push_back(&result.outcomes[i]);
  }
  return jobs;
}

double held_until(const TimeSeries& gpus, int64_t end_ns) {
  double total = 0;
  for (size_t i = 0; i < gpus.amounts().size(); ++i) {
    const int64_t begin_ns = static_cast<int64_t>(i) * gpus.width_ns();
    const double share =
        static_cast<double>(end_ns - begin_ns) / static_cast<double>(gpus.width_ns());
    total += gpus.amounts()[i] * std::clamp(share, 0.0, 1.0);
  }
  return total;
}

}  // namespace

std::vector<double> sorted_jct_s(const SimulationResult& result, double trim) {
  std::vector<double> jct_s;
  for (const JobOutcome* job : middle(result, trim)) {
    jct_s.push_back(seconds(job->finish_ns - job->arrival_ns));
  }
  std::ranges::sort(jct_s);
  return jct_s;
}

double quantile(std::span<const double> sorted, double share) {
  if (sorted.empty()) return 0;
  const double rank = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(rank);
  if (below + 1 == sorted.size()) return sorted.back();
  return sorted[below] + (rank - std::floor(rank)) * (sorted[below + 1] - sorted[below]);
}

ScheduleReport make_schedule_report(const SimulationResult& result, const ClusterSpec& spec,
                                    double trim) {
  ScheduleReport report;
  double needed_ns = 0;
  int64_t first_ns = std::numeric_limits<int64_t>::max(), last_ns = 0, end_ns = 0;
  for (const JobOutcome& job : result.outcomes) {
    report.refused += !job.refused.empty();
    if (job.finish_ns < 0) continue;
    ++report.finished;
    needed_ns += job.alone_ns * job.gpus;
    first_ns = std::min(first_ns, job.arrival_ns);
    last_ns = std::max(last_ns, job.arrival_ns);
    end_ns = std::max(end_ns, job.finish_ns);
  }
  if (report.finished == 0) return report;
  report.makespan_s = seconds(end_ns - first_ns);
  report.useful = needed_ns / kSecond / report.makespan_s / spec.gpu_count();
  if (last_ns > first_ns) {
    report.utilisation = held_until(result.record.gpus(), last_ns) /
                         static_cast<double>(last_ns - first_ns) / spec.gpu_count();
  } else {
    report.utilisation =
        result.record.gpus().total() / static_cast<double>(end_ns - first_ns) / spec.gpu_count();
  }
  const std::vector<const JobOutcome*> jobs = middle(result, trim);
  const auto count = static_cast<double>(jobs.size());
  double speeds = 0, squares = 0;
  for (const JobOutcome* job : jobs) {
    const double jct_s = seconds(job->finish_ns - job->arrival_ns);
    report.jct_mean_s += jct_s / count;
    report.service_mean_s += seconds(job->held_ns) / count;
    report.wait_mean_s += (jct_s - seconds(job->held_ns)) / count;
    report.alone_mean_s += job->alone_ns / kSecond / count;
    report.preemptions += job->preemptions / count;
    report.migrations += job->migrations / count;
    const double speed = job->alone_ns / kSecond / jct_s;
    speeds += speed;
    squares += speed * speed;
  }
  report.jobs = std::ssize(jobs);
  report.jain = squares > 0 ? speeds * speeds / count / squares : 0;
  const std::vector<double> jct_s = sorted_jct_s(result, trim);
  report.jct_p50_s = quantile(jct_s, 0.5);
  report.jct_p99_s = quantile(jct_s, 0.99);
  report.jct_max_s = jct_s.empty() ? 0 : jct_s.back();
  return report;
}

Estimate estimate(std::span<const double> values) {
  if (values.empty()) return {};
  const auto count = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  if (values.size() == 1) return {mean, std::numeric_limits<double>::infinity()};
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  const size_t freedom = values.size() - 1;
  const double t = freedom <= std::size(kStudent) ? kStudent[freedom - 1] : kNormal;
  return {mean, t * std::sqrt(squares / (count - 1) / count)};
}

Estimate estimate_change(std::span<const double> values, std::span<const double> base) {
  JIGE_CHECK(values.size() == base.size(), "{} values and {} to compare with", values.size(),
             base.size());
  std::vector<double> changes;
  for (size_t i = 0; i < values.size(); ++i) {
    changes.push_back(base[i] > 0 ? values[i] / base[i] - 1 : 0);
  }
  return estimate(changes);
}

}  // namespace jige::cluster
