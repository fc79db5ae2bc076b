// jige cluster compare: policies on the same workloads, over loads and seeds.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/split.h"
#include "cli/cluster_flags.h"
#include "cli/cluster_page.h"
#include "cli/cluster_view.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/output.h"

namespace jige::cli {
namespace {

class ClusterCompareCommand final : public Command {
 public:
  void declare(Flags& flags) override {
    flags.about(
        "Runs scheduling policies over the same simulated jobs, at several offered loads and from "
        "several seeds, and says what each gives: job completion times with all queueing, time "
        "with "
        "GPUs beside them, use of the cluster, fairness, preemptions, with confidence intervals.");
    flags.section("Policies");
    flags.text("--policies LIST", policies_, "as for `jige cluster simulate`, with commas");
    flags.text("--base NAME", base_, "the one of them that others are compared with");
    cluster_.declare_policies(flags);
    cluster_.declare(flags);
    flags.text("--loads LIST", loads_, "offered loads");
    flags.integer("--seeds N", seeds_, {.min = 1, .max = 1000}, "workloads for each load");
    flags.integer("--seed N", seed_, {}, "of the first one");
    flags.section("Result");
    flags.number("--trim X", trim_, {.min = 0, .max = 0.45},
                 "share of jobs left out of latencies at either end");
    flags.text("--html FILE", html_, "write a page with the table and pictures");
    output_.declare(flags, "one JSON line for the scene, then one a policy and load");
    flags.example("jige cluster compare --html report.html");
    flags.example(
        "jige cluster compare --policies srtf,las,greedy --base srtf --loads 0.5,0.8,1.1");
    flags.example("jige cluster compare --policies fifo,fifo+easy --trace log.swf --loads 0.9");
    flags.example(
        "jige cluster compare --cluster deepshare --trace trace0 --rates isolated_thp.csv "
        "--contention table --table shared_thp_ratio.csv --loads 1 --seeds 1 --trim 0 "
        "--policies published-las,las --base las");
  }

  Status run() override {
    output_.apply();
    const InterruptScope interrupts;
    JIGE_DO(check_output_files({html_}));
    JIGE_TRY(scene_, cluster_.scene());
    JIGE_TRY(const std::vector<double> loads, read_loads(loads_, "--loads"));
    for (const auto name : split_at(policies_, ',')) names_.emplace_back(name);
    JIGE_DO(check_names());
    if (scene_.trace && seeds_ > 1) {
      log_info("a trace has the same jobs for every seed; --seeds 1 says the same");
    }
    Progress progress("simulating", std::ssize(loads) * std::ssize(names_) * seeds_,
                      output_.quiet || output_.json);
    int64_t done = 0;
    for (const double load : loads) {
      for (const std::string& name : names_) {
        points_.push_back({.policy = name, .load = load, .runs = {}});
        for (int64_t i = 0; i < seeds_; ++i) {
          progress.update(done++, fmt::format("{} at {:.2f}", name, load));
          JIGE_DO(simulate(points_.back(), i, load == loads.back()));
        }
      }
    }
    progress.finish("");
    return finish();
  }

 private:
  Status check_names() const {
    for (const std::string& name : names_) JIGE_DO(scene_.check_policy(name, "--policies"));
    if (std::ranges::find(names_, base_) != names_.end()) return {};
    return fail(Code::kInvalidArgument, "--base: \"{}\" is not among --policies {}", base_,
                policies_);
  }

  // Pictures are of the first seed at the last load.
  Status simulate(ClusterPoint& point, int64_t index, bool last_load) {
    const auto seed = static_cast<uint64_t>(seed_ + index);
    const bool shown = index == 0 && last_load && !html_.empty();
    const cluster::Workload workload = scene_.workload(seed, point.load);
    JIGE_TRY(cluster::SimulationResult result,
             scene_.simulate(point.policy, workload, seed,
                             {.record_links = shown, .cancel = &interrupt_flag()}));
    point.runs.push_back(cluster::make_schedule_report(result, scene_.spec, trim_));
    if (shown) {
      pictures_.push_back({.policy = point.policy,
                           .load = point.load,
                           .jct_s = cluster::sorted_jct_s(result, trim_),
                           .record = std::move(result.record)});
    }
    return {};
  }

  Status finish() {
    if (output_.json) {
      print_json(Json{{"simulated", true},
                      {"scene", scene_.text},
                      {"seeds", seeds_},
                      {"base", base_},
                      {"trim", trim_}});
      for (const ClusterPoint& point : points_) print_json(cluster_json(point, points_, base_));
    } else {
      print_text(fmt::format("{}\n{} seeds, ± is half of the 95 % confidence interval\n\n{}",
                             scene_.text, seeds_, cluster_table(points_, base_)));
    }
    if (html_.empty()) return {};
    JIGE_DO(write_file_atomic(html_, render_page({.scene = scene_.text,
                                                  .base = base_,
                                                  .seed_count = seeds_,
                                                  .points = points_,
                                                  .pictures = pictures_,
                                                  .spec = scene_.spec})));
    log_info("{}: {} policies at {} loads", html_, names_.size(), points_.size() / names_.size());
    return {};
  }

  ClusterFlags cluster_;
  std::string policies_ = "fifo+easy,sjf,srtf,srsf,las,gittins,ftf,greedy";
  std::string base_ = "srtf", loads_ = "0.5,0.7,0.9,1.1", html_;
  int64_t seeds_ = 5, seed_ = 1;
  double trim_ = 0.1;
  OutputFlags output_;

  ClusterScene scene_;
  std::vector<std::string> names_;
  std::vector<ClusterPoint> points_;
  std::vector<ClusterPicture> pictures_;
};

}  // namespace

std::unique_ptr<Command> make_cluster_compare_command() {
  return std::make_unique<ClusterCompareCommand>();
}

}  // namespace jige::cli
