#include "cli/cluster_demo_check.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>

#include "base/json.h"
#include "base/split.h"
#include "cluster/trace_fields.h"
#include "slurm/host_list.h"

namespace jige::cli {
namespace {

constexpr size_t kTextsMax = 8;
constexpr double kGpuNumberMax = 65535;

void say(DemoFindings& findings, std::string text) {
  if (findings.texts.size() < kTextsMax) findings.texts.push_back(std::move(text));
}

struct Held {
  double from_s = 0, to_s = 0;
  int64_t job = 0;
  int32_t gpus = 0;
};

// More GPUs in use at once than there are. Ends come before starts at one time.
void check_counts(const std::string& node, std::vector<Held> held, int32_t gpus_per_node,
                  DemoFindings& findings) {
  std::vector<std::tuple<double, int32_t, int64_t>> changes;
  for (const Held& one : held) {
    changes.emplace_back(one.from_s, one.gpus, one.job);
    changes.emplace_back(one.to_s, -one.gpus, one.job);
  }
  std::ranges::sort(changes);
  int32_t used = 0;
  for (const auto& [at_s, gpus, job] : changes) {
    used += gpus;
    if (gpus < 0 || used <= gpus_per_node) continue;
    ++findings.double_booked;
    say(findings, fmt::format("node {}: {} of {} GPUs in use as job {} starts at {:.3f}", node,
                              used, gpus_per_node, job, at_s));
  }
}

void check_numbers(const std::string& gpu, std::vector<Held> held, DemoFindings& findings) {
  std::ranges::sort(held, {}, &Held::from_s);
  for (size_t i = 1; i < held.size(); ++i) {
    if (held[i].from_s >= held[i - 1].to_s) continue;
    ++findings.double_booked;
    say(findings, fmt::format("GPU {}: job {} starts at {:.3f}, job {} stops at {:.3f}", gpu,
                              held[i].job, held[i].from_s, held[i - 1].job, held[i - 1].to_s));
  }
}

}  // namespace

Result<std::vector<Stint>> read_job_log(std::string_view text, std::string_view where) {
  std::vector<Stint> stints;
  cluster::Lines lines(text);
  while (lines.next()) {
    const std::vector<std::string> words = cluster::split_blanks(lines.line());
    const auto wrong = [&] {
      return fail(Code::kCorrupt, "{}: line {}: \"{}\"", where, lines.number(), lines.line());
    };
    const std::optional<double> time =
        words.empty() ? std::nullopt : cluster::parse_double(words[0]);
    if (words.size() < 3 || !time) return wrong();
    const std::optional<double> work_us = cluster::parse_double(words.back());
    if (!work_us) return wrong();
    if (words[1] == "start" && words.size() == 6) {
      Stint stint{.from_s = *time, .to_s = -1};
      JIGE_TRY(stint.nodes, slurm::expand_hosts(words[2]));
      if (stint.nodes.empty()) return wrong();
      for (const std::string_view number : split_at(words[3], ',')) {
        const std::optional<double> gpu = cluster::parse_double(number);
        if (!gpu) continue;
        if (*gpu < 0 || *gpu > kGpuNumberMax) return wrong();
        stint.first_node_gpus.push_back(static_cast<int32_t>(*gpu));
      }
      stint.from_work_s = stint.to_work_s = *work_us / 1e6;
      stints.push_back(std::move(stint));
    } else if ((words[1] == "stop" || words[1] == "end") && !stints.empty()) {
      stints.back().to_s = *time;
      stints.back().to_work_s = *work_us / 1e6;
      stints.back().ended = words[1] == "end";
    } else {
      return wrong();
    }
  }
  return stints;
}

DemoFindings check_demo_jobs(const std::vector<DemoJob>& jobs, int32_t gpus_per_node,
                             double end_s) {
  DemoFindings findings;
  std::map<std::string, std::vector<Held>> by_node, by_gpu;
  for (const DemoJob& job : jobs) {
    int64_t ends = 0;
    for (size_t i = 0; i < job.stints.size(); ++i) {
      const Stint& stint = job.stints[i];
      const bool last = i + 1 == job.stints.size();
      const double to_s = stint.to_s >= 0 ? stint.to_s : last ? end_s : job.stints[i + 1].from_s;
      for (const std::string& node : stint.nodes) {
        by_node[node].push_back({stint.from_s, to_s, job.id, job.gpus_per_node});
      }
      for (const int32_t gpu : stint.first_node_gpus) {
        by_gpu[fmt::format("{}:{}", stint.nodes.front(), gpu)].push_back(
            {stint.from_s, to_s, job.id, 1});
      }
      ends += stint.ended;
      if (last || stint.ended) continue;
      const double lost_s = stint.to_work_s - job.stints[i + 1].from_work_s;
      findings.rolled_back_s_max = std::max(findings.rolled_back_s_max, lost_s);
    }
    findings.unfinished += ends == 0;
    findings.twice_ended += ends > 1;
    if (ends == 0) say(findings, fmt::format("job {}: never ended", job.id));
  }
  for (auto& [node, held] : by_node) check_counts(node, std::move(held), gpus_per_node, findings);
  for (auto& [gpu, held] : by_gpu) check_numbers(gpu, std::move(held), findings);
  return findings;
}

Result<std::vector<double>> start_latencies_s(std::string_view decisions,
                                              const std::vector<DemoJob>& jobs) {
  std::map<int64_t, std::vector<double>> releases;
  cluster::Lines lines(decisions);
  while (lines.next()) {
    JIGE_TRY(const Json line, parse_json(lines.line(), "decisions"));
    JIGE_TRY(const std::string event, get_string(line, "event", "decisions"));
    if (event != "action") continue;
    JIGE_TRY(const std::string step, get_string(line, "step", "decisions"));
    JIGE_TRY(const int64_t job, get_int(line, "job", "decisions"));
    JIGE_TRY(const double time_s, get_number(line, "time_s", "decisions"));
    JIGE_TRY(const double took_s, get_number(line, "took_s", "decisions"));
    // The line is written when the calls are over.
    if (step == "place") releases[job].push_back(time_s - took_s);
  }
  std::vector<double> latencies;
  for (const DemoJob& job : jobs) {
    for (const Stint& stint : job.stints) {
      double last = -1;
      for (const double release : releases[job.id]) {
        if (release <= stint.from_s) last = release;
      }
      if (last >= 0) latencies.push_back(stint.from_s - last);
    }
  }
  return latencies;
}

}  // namespace jige::cli
