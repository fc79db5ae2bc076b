// jige cluster simulate: one policy on one workload.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "cli/cluster_flags.h"
#include "cli/cluster_view.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/table.h"

namespace jige::cli {
namespace {

class ClusterSimulateCommand final : public Command {
 public:
  void declare(Flags& flags) override {
    flags.about(
        "Simulates a cluster of GPUs that runs jobs under a scheduling policy: who waits, who runs "
        "where, and how jobs slow one another down on the network. The same flags give the same "
        "result to the byte. Job completion times are from arrival to end, with all queueing.");
    flags.section("Policy");
    flags.text("--policy NAME", policy_,
               "ORDER[+ADMISSION][/PLACEMENT]: fifo, sjf, srtf, srsf, las, gittins, max-min, ftf; "
               "strict, skip, easy; pack, span, best-fit, random, contention, learned; or greedy, "
               "learned");
    cluster_.declare_policies(flags);
    cluster_.declare(flags);
    flags.number(
        "--load X", load_, {.min = 0.01, .max = 10},
        "offered: work that arrives over what all GPUs can do; by default 0.8, and that of "
        "a trace");
    flags.integer("--seed N", seed_, {}, "of everything that is drawn");
    flags.section("Result");
    flags.number("--trim X", trim_, {.min = 0, .max = 0.45},
                 "share of jobs left out of latencies at either end");
    flags.text("--schedule FILE", schedule_, "write one JSON line for each job");
    output_.declare(flags, "print one JSON object");
    flags.example("jige cluster simulate --policy srtf --jobs 2000");
    flags.example("jige cluster simulate --policy greedy --cluster 16x8x8@100/2 --load 0.9");
    flags.example("jige cluster simulate --policy las --trace seed0.trace --cluster 8x4x8");
  }

  Status run() override {
    output_.apply();
    const InterruptScope interrupts;
    JIGE_DO(check_output_files({schedule_}));
    JIGE_TRY(const ClusterScene scene, cluster_.scene());
    const auto seed = static_cast<uint64_t>(seed_);
    const cluster::Workload workload = scene.workload(seed, load_);
    JIGE_DO(scene.check_policy(policy_, "--policy"));
    const StopWatch watch;
    JIGE_TRY(const cluster::SimulationResult result,
             scene.simulate(policy_, workload, seed, {.cancel = &interrupt_flag()}));
    const double took_s = watch.seconds();
    if (!schedule_.empty()) JIGE_DO(write_schedule(workload, result));
    const cluster::ScheduleReport report = cluster::make_schedule_report(result, scene.spec, trim_);
    const double load = cluster::offered_load(workload, scene.spec);
    if (output_.json) {
      Json json{{"simulated", true}, {"policy", policy_}, {"load", load}, {"scene", scene.text}};
      json.update(schedule_json(report));
      json["decisions"] = result.decisions;
      json["rate_changes"] = result.rate_changes;
      json["seconds"] = took_s;
      print_json(json);
      return {};
    }
    print_text(fmt::format("{}\n\n{}\n{} instants, {} changes of speed, {:.2f} s\n", scene.text,
                           report_text(report, load), result.decisions, result.rate_changes,
                           took_s));
    return {};
  }

 private:
  std::string report_text(const cluster::ScheduleReport& report, double load) const {
    using enum Table::Align;
    Table table({{}, {"", kRight}});
    const auto percent = [](double share) { return fmt::format("{:.1f} %", 100 * share); };
    table.row({"policy", policy_});
    table.row({"offered load", fmt::format("{:.3f}", load)});
    table.row({"jobs finished", fmt::format("{}", report.finished)});
    if (report.refused > 0) table.row({"jobs refused", fmt::format("{}", report.refused)});
    table.row({"JCT, mean", short_time(report.jct_mean_s)});
    table.row({"JCT, p50", short_time(report.jct_p50_s)});
    table.row({"JCT, p99", short_time(report.jct_p99_s)});
    table.row({"service, mean", short_time(report.service_mean_s)});
    table.row({"alone, mean", short_time(report.alone_mean_s)});
    table.row({"makespan", short_time(report.makespan_s)});
    table.row({"GPUs held", percent(report.utilisation)});
    table.row({"GPU time of use", percent(report.useful)});
    table.row({"Jain index", fmt::format("{:.3f}", report.jain)});
    table.row({"preemptions a job", fmt::format("{:.3f}", report.preemptions)});
    table.row({"migrations a job", fmt::format("{:.3f}", report.migrations)});
    return table.render();
  }

  Status write_schedule(const cluster::Workload& workload,
                        const cluster::SimulationResult& result) const {
    std::string lines;
    for (size_t i = 0; i < result.outcomes.size(); ++i) {
      const cluster::JobOutcome& job = result.outcomes[i];
      Json json{{"job", workload.jobs[i].name},
                {"model", workload.models[static_cast<size_t>(workload.jobs[i].model)]},
                {"gpus", job.gpus},
                {"arrival_ns", job.arrival_ns}};
      if (job.refused.empty()) {
        json.update(Json{{"first_start_ns", job.first_start_ns},
                         {"finish_ns", job.finish_ns},
                         {"held_ns", job.held_ns},
                         {"restart_ns", job.restart_ns},
                         {"alone_ns", job.alone_ns},
                         {"preemptions", job.preemptions},
                         {"migrations", job.migrations}});
      } else {
        json["refused"] = job.refused;
      }
      lines += dump_json(json) + "\n";
    }
    return write_file_atomic(schedule_, lines);
  }

  ClusterFlags cluster_;
  std::string policy_ = "greedy", schedule_;
  std::optional<double> load_;
  int64_t seed_ = 1;
  double trim_ = 0.1;
  OutputFlags output_;
};

}  // namespace

std::unique_ptr<Command> make_cluster_simulate_command() {
  return std::make_unique<ClusterSimulateCommand>();
}

}  // namespace jige::cli
