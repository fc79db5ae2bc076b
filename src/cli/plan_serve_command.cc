// jige plan serve: the settings of a server that are best for a load.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/load_flags.h"
#include "cli/output.h"
#include "cli/serve_plan_view.h"
#include "cli/step_time_flags.h"
#include "cli/train_plan_progress.h"
#include "sim/serve_plan_file.h"
#include "sim/serve_planner.h"

namespace jige::cli {
namespace {

class PlanServeCommand final : public Command {
 public:
  void declare(Flags& flags) override {
    flags_ = &flags;
    flags.about(
        "Finds the policy and its settings with which a server carries most within bounds on "
        "latency, for a load and the time that an iteration takes. Many settings are judged by "
        "formulas, and those that promise most are run by the scheduler of `jige serve` on a "
        "virtual clock: figures are of the steady state, and simulated. Without --users and --rate "
        "the load is as much as is carried: as many users as answers are made at once.");
    load_.rate = 0;
    load_.requests = 400;
    load_.declare(flags, LoadFlags::Use::kOneLoad);
    flags.section("Bounds");
    flags.text("--bound BOUNDS", bound_,
               "milliseconds that latencies keep: e2e=9000,ttft=500,itl=50,tpot=40, or some of "
               "them");
    flags.number("--quantile X", bounds_.quantile,
                 {.min = 0, .max = 1, .above_min = true, .below_max = true},
                 "share of requests that keep them; of gaps between tokens half as many may not");
    flags.number("--margin X", bounds_.margin, {.min = 0, .max = 1, .below_max = true},
                 "bounds count as so much less, 0.1 a tenth, for what a simulation does not know; "
                 "without it by the profile's error on cells held out, without a profile 0");
    flags.section("The server");
    scheduling_.policies = "chunked,orca,rounds,static";
    scheduling_.declare_limits(flags);
    step_flags_.declare(flags);
    flags.section("Result");
    flags.integer("--simulations N", simulations_, {.min = 1, .max = 100'000},
                  "settings that are simulated at most");
    flags.toggle("--certify", certify_,
                 "simulate all settings, and tell what the best of them is; takes minutes");
    flags.text("-o,--out FILE", out_, "write the plan as JSON, for `jige serve --plan`");
    output_.declare(flags, "print one JSON object");
    flags.example("jige plan serve --profile step.json --users 16 --bound itl=50 -o plan.json");
    flags.example("jige plan serve --lengths chat --bound e2e=30000 --base-ms 8 --token-us 40");
    flags.example("jige serve models/tiny --plan plan.json");
  }

  Status run() override {
    output_.apply();
    const InterruptScope interrupts;
    JIGE_DO(check_output_files({out_}));
    JIGE_TRY(sim::ServePlanRequest request, read_request());
    const bool quiet = output_.quiet || output_.json;
    if (!output_.json) print_text(fmt::format("SIMULATED {}\n", iteration_.text));
    const StopWatch watch;
    TrainPlanProgress progress(quiet, "planning");
    request.progress = progress.listener();
    JIGE_TRY(const sim::ServePlan plan, sim::plan_serving(request));
    clear_progress_line();
    if (output_.json) {
      print_json(plan_json(request, plan));
    } else {
      print_text(serve_plan_text(request, plan, watch.seconds()));
    }
    if (!plan.chosen) return nothing_keeps(request, plan);
    if (out_.empty()) return {};
    return write_file_atomic(
        out_, dump_json(sim::serve_plan_to_json(request, plan, iteration_), 2) + "\n");
  }

 private:
  // A plan rests on what an iteration takes: a profile that does not know is refused.
  Result<KnownStepTime> read_step_time() {
    JIGE_DO(step_flags_.check_use(*flags_));
    if (step_flags_.profile_path.empty()) return step_flags_.by_figures();
    JIGE_TRY(const sim::StepProfile profile, sim::load_step_profile(step_flags_.profile_path));
    const double error = profile.held_out.all.mean;
    if (error > sim::kStepErrorMax) {
      return fail(
          Code::kUnsupported,
          "{}: its times are {:.0f} % off on cells that were held out, and a plan needs {:.0f} "
          "%; profile again with more --seconds, or when the machine is idle",
          step_flags_.profile_path, 100 * error, 100 * sim::kStepErrorMax);
    }
    iteration_.profiled = profile.subject;
    if (!flags_->given("--margin")) bounds_.margin = profile.held_out.margin();
    return known_step_time(profile, {.batch_tokens = scheduling_.batch_tokens,
                                     .batch_requests = scheduling_.batch_requests});
  }

  Result<sim::ServePlanRequest> read_request() {
    sim::ServePlanRequest request;
    JIGE_TRY(const LoadPlan plan, load_.plan(*flags_));
    request.load.requests = plan.at(0, 0).requests;
    request.load.users = plan.users;
    request.load.rate_per_s = plan.users > 0 ? 0 : plan.rates[0];
    request.load.seed = plan.seed;
    JIGE_TRY(KnownStepTime known, read_step_time());
    request.load.step = std::move(known.step);
    iteration_.text = std::move(known.text);
    request.load.pool.block_count = scheduling_.kv_block_count(request.load.pool.block_tokens);
    request.load.cancel = &interrupt_flag();
    if (request.load.saturated()) {
      JIGE_DO(flags_->refuse({"--burstiness"},
                             "is of arrivals at random times; give a --rate too, or leave it out"));
    }
    const sim::NamedBound named[] = {{"ttft", &bounds_.ttft_s},
                                     {"itl", &bounds_.itl_s},
                                     {"tpot", &bounds_.tpot_s},
                                     {"e2e", &bounds_.e2e_s}};
    JIGE_DO(sim::parse_bounds(bound_, "--bound", named));
    if (!bounds_.any()) {
      JIGE_DO(flags_->refuse({"--quantile", "--margin"},
                             "is of bounds; give a --bound too, or leave it out"));
    }
    request.bounds = bounds_;
    JIGE_TRY(request.policies, scheduling_.read_policies());
    if (std::ranges::find(request.policies, plan::ServePolicy::kChunked) ==
        request.policies.end()) {
      JIGE_DO(flags_->refuse({"--batch-tokens"},
                             "is of the policy chunked; add it to --policies, or leave it out"));
    }
    request.batch_requests_max = static_cast<int32_t>(scheduling_.batch_requests);
    request.batch_tokens_max = static_cast<int32_t>(scheduling_.batch_tokens);
    request.usual.batch_requests_max = request.batch_requests_max;
    request.usual.batch_tokens_max = request.batch_tokens_max;
    request.simulations_max = static_cast<int32_t>(simulations_);
    request.certify = certify_;
    return request;
  }

  static Status nothing_keeps(const sim::ServePlanRequest& request, const sim::ServePlan& plan) {
    if (!plan.nearest || !(plan.nearest->ratio < std::numeric_limits<double>::infinity())) {
      return fail(Code::kExhausted,
                  "nothing that was simulated carries {} requests a second; the load needs a "
                  "faster machine, or more of them",
                  request.load.rate_per_s);
    }
    return fail(Code::kExhausted,
                "no setting keeps the bounds{}; {} comes closest, and bounds {:.3g} times as large "
                "could be kept: --bound {}; the first to give way is {}",
                margin_text(request.bounds), sim::settings_text(plan.nearest->settings),
                plan.nearest->ratio, bounds_flag(request.bounds, plan.nearest->ratio),
                plan.nearest->tightest);
  }

  const Flags* flags_ = nullptr;
  LoadFlags load_;
  SchedulingFlags scheduling_;
  sim::ServeBounds bounds_;
  StepTimeFlags step_flags_;
  std::string bound_, out_;
  sim::PlannedIteration iteration_;
  int64_t simulations_ = 32;
  bool certify_ = false;
  OutputFlags output_;
};

}  // namespace

std::unique_ptr<Command> make_plan_serve_command() { return std::make_unique<PlanServeCommand>(); }

}  // namespace jige::cli
