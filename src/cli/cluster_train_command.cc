// jige cluster train-policy: a placement policy by reinforcement learning in the simulator.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/counted.h"
#include "base/file.h"
#include "base/log.h"
#include "base/progress.h"
#include "cli/cluster_flags.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/line_chart.h"
#include "cli/output.h"
#include "cluster/train_policy.h"

namespace jige::cli {
namespace {

class ClusterTrainCommand final : public Command {
 public:
  void declare(Flags& flags) override {
    flags.about(
        "Trains a small network that places jobs, by PPO in the simulator, from the choices the "
        "contention-aware greedy has. It begins as the greedy and is rewarded for short completion "
        "times, queueing included. `jige cluster compare` says whether it is any better: give it "
        "the file with --learned and other seeds. The same flags give the same file. "
        "Ctrl-C ends it early, with the policy as the last update left it.");
    flags.text("-o,--out FILE", out_, "where the policy goes, as JSON");
    flags.integer("--iterations N", iterations_, {.min = 1, .max = 100'000}, "updates");
    flags.integer("--episodes N", episodes_, {.min = 1, .max = 10'000}, "workloads an update");
    flags.text("--loads LOW,HIGH", loads_, "range of offered loads");
    flags.integer("--seed N", seed_, {}, "of jobs, choices and parameters");
    flags.number("--rate X", ppo_.rate, {.min = 0, .max = 1, .above_min = true}, "of learning");
    flags.number("--entropy X", ppo_.entropy_gain, {.min = 0, .max = 10}, "reward for variety");
    flags.choice("--reward WHAT", reward_, {"completion", "published"},
                 "minus waiting and running time of all jobs, or that of the ICPADS'23 scheduler: "
                 "-W * mean loss + (1 - W) * use of GPUs over ten rounds");
    flags.number("--loss-weight W", loss_weight_, {.min = 0, .max = 1}, "of the published one");
    cluster_.declare(flags);
    flags.section("Result");
    flags.text("--svg FILE", svg_, "draw the learning curve");
    output_.declare(flags, "one JSON line an update");
    flags.example("jige cluster train-policy --jobs 200 --fixed-shapes 0.5 --out policy.json");
    flags.example("jige cluster train-policy --reward published --out published.json");
    flags.example(
        "jige cluster compare --learned ours=policy.json,theirs=published.json --base greedy "
        "--policies greedy,learned:ours,learned:theirs");
  }

  Status run() override {
    output_.apply();
    const InterruptScope interrupts;
    if (out_.empty()) {
      return fail(Code::kInvalidArgument, "--out is missing: name the file for the policy");
    }
    JIGE_DO(check_output_files({out_, svg_}));
    JIGE_TRY(const cluster::TrainPolicyOptions options, read_options());
    Progress progress("training", iterations_, output_.quiet || output_.json);
    std::vector<cluster::TrainPolicyPoint> points;
    const StopWatch watch;
    JIGE_TRY(const cluster::PolicyNetwork network,
             cluster::train_policy(options, [&](const cluster::TrainPolicyPoint& point) {
               points.push_back(point);
               if (output_.json) {
                 print_json(Json{{"iteration", point.iteration},
                                 {"jct_against_greedy", point.against_greedy},
                                 {"entropy", point.entropy},
                                 {"choices", point.choices}});
               }
               progress.update(point.iteration + 1,
                               fmt::format("mean JCT {:+.1f} % against the greedy, entropy {:.3f}",
                                           100 * point.against_greedy, point.entropy));
             }));
    progress.finish("");
    JIGE_DO(write_file_atomic(out_, network.to_json()));
    if (!svg_.empty()) JIGE_DO(write_file_atomic(svg_, render_svg(curve(points))));
    if (!output_.json) {
      log_info("{}: {} of {} in {:.0f} s", out_, counted(std::ssize(points), "update"),
               counted(episodes_, "workload"), watch.seconds());
    }
    if (std::ssize(points) < iterations_) {
      return fail(Code::kCancelled, "by a signal, after {} of {} updates; {} has the policy so far",
                  points.size(), iterations_, out_);
    }
    return {};
  }

 private:
  Result<cluster::TrainPolicyOptions> read_options() const {
    JIGE_TRY(const ClusterScene scene, cluster_.scene());
    if (scene.trace || scene.contention != "links") {
      return fail(Code::kInvalidArgument,
                  "training draws its jobs and needs links; leave out --trace and --contention");
    }
    JIGE_TRY(const std::vector<double> loads, read_loads(loads_, "--loads"));
    if (loads.size() != 2 || loads[0] > loads[1]) {
      return fail(Code::kInvalidArgument, "--loads: \"{}\" must be two numbers, the lower first",
                  loads_);
    }
    return cluster::TrainPolicyOptions{.spec = scene.spec,
                                       .links = scene.links,
                                       .jobs = scene.generated,
                                       .load_low = loads[0],
                                       .load_high = loads[1],
                                       .iterations = iterations_,
                                       .episodes = episodes_,
                                       .reward = reward_ == "published"
                                                     ? cluster::RewardKind::kPublished
                                                     : cluster::RewardKind::kCompletion,
                                       .loss_weight = loss_weight_,
                                       .ppo = ppo_,
                                       .seed = static_cast<uint64_t>(seed_),
                                       .cancel = &interrupt_flag()};
  }

  LineChart curve(const std::vector<cluster::TrainPolicyPoint>& points) const {
    LineChart chart{.title = "Learning to place jobs",
                    .subtitle = fmt::format("{} workloads an update, drawn choices", episodes_),
                    .x_label = "update",
                    .y_label = "mean JCT against the greedy, %"};
    ChartSeries series{.name = "", .color = "#1f6feb", .dots = true, .points = {}};
    ChartSeries even{.name = "the greedy", .color = "#6e7781", .points = {}};
    for (const cluster::TrainPolicyPoint& point : points) {
      const auto x = static_cast<double>(point.iteration + 1);
      series.points.push_back({x, 100 * point.against_greedy});
      even.points.push_back({x, 0});
    }
    chart.series = {std::move(series), std::move(even)};
    return chart;
  }

  ClusterFlags cluster_;
  cluster::PpoOptions ppo_;
  std::string out_, svg_, loads_ = "0.6,1.0", reward_ = "completion";
  double loss_weight_ = 0.5;
  int64_t iterations_ = 30, episodes_ = 8, seed_ = 1;
  OutputFlags output_;
};

}  // namespace

std::unique_ptr<Command> make_cluster_train_command() {
  return std::make_unique<ClusterTrainCommand>();
}

}  // namespace jige::cli
