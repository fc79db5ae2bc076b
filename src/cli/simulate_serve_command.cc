// jige simulate serve: the scheduler that serves, on a virtual clock.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/counted.h"
#include "base/file.h"
#include "base/log.h"
#include "base/progress.h"
#include "cli/bench_serve_model.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/load_flags.h"
#include "cli/load_view.h"
#include "cli/output.h"
#include "cli/step_profiler.h"
#include "cli/step_time_flags.h"
#include "sim/serve_simulation.h"
#include "sim/serve_trace.h"
#include "sim/step_profile.h"

namespace jige::cli {
namespace {

constexpr int64_t kTracesBetweenLooks = 256;
constexpr int64_t kTracesMax = 1'000'000'000;

// Shows how many requests of a simulation are over.
class RequestProgress final : public sim::SimulationObserver {
 public:
  RequestProgress(std::string_view title, size_t request_count, bool quiet)
      : bar_(title, static_cast<int64_t>(request_count), quiet, kSilentSeconds) {}

  void on_over(plan::RequestId) override { bar_.update(++over_count_, ""); }
  void finish() { bar_.finish(""); }

 private:
  int64_t over_count_ = 0;
  Progress bar_;
};

class SimulateServeCommand final : public Command {
 public:
  void declare(Flags& flags) override {
    flags_ = &flags;
    flags.about(
        "Runs the scheduler of `jige serve` on a virtual clock: an iteration takes what a profile "
        "of `jige profile serve` says of its batch, or base + token * its tokens + kv-token * the "
        "cached tokens it reads. Arrivals, lengths and figures are those of `jige bench serve`. "
        "With --traces, random traces with cancels, full caches, lost "
        "workers and early stops are run instead, and every step is checked.");
    load_.declare(flags);
    flags.section("Scheduling");
    scheduling_.policies = "static,orca,chunked";
    scheduling_.declare(flags);
    flags.integer("--in-flight N", in_flight_, {.min = 1, .max = 64},
                  "batches at once, in a pipeline of N equal stages");
    flags.number("--turnaround-ms X", turnaround_ms_, {.min = 0, .max = 1e9},
                 "with --users: from an answer's end to the user's next request");
    step_flags_.declare(flags);
    model_.declare(flags);
    flags.number("--seconds S", seconds_, {.min = 0.1, .max = 1e5},
                 "with --model or --random: time to measure it");
    flags.section("Faults");
    flags.number("--cancel-share X", faults_.cancel_share, {.min = 0, .max = 1},
                 "of requests whose client gives up");
    flags.number("--cancel-seconds S", faults_.cancel_after_s, {.min = 0, .max = 1e6},
                 "mean time until it does");
    flags.number("--lose-share X", faults_.lose_share, {.min = 0, .max = 1, .below_max = true},
                 "of iterations whose results are lost");
    flags.integer("--traces N", traces_, {.min = 0, .max = kTracesMax},
                  "check N random traces from --seed on instead");
    model_.device.declare(flags);
    output_.declare(flags, "one JSON line for what is simulated, then one a load");
    flags.example("jige simulate serve --sweep 1,2,4,8,16 --svg orca.svg");
    flags.example("jige simulate serve --profile step.json --users 16 --lengths chat");
    flags.example("jige simulate serve --random 15m --users 16 --lengths chat");
    flags.example("jige simulate serve --traces 1000000");
  }

  Status run() override {
    output_.apply();
    const InterruptScope interrupts;
    JIGE_DO(check_use());
    if (traces_ > 0) return check_traces();
    JIGE_DO(check_output_files({load_.svg}));
    JIGE_TRY(plan_, load_.plan(*flags_));
    JIGE_TRY(const std::vector<plan::ServePolicy> policies, scheduling_.read_policies(*flags_));
    JIGE_DO(choose_step_time());
    print_head();
    for (const plan::ServePolicy policy : policies) {
      for (size_t i = 0; i < plan_.rates.size(); ++i) JIGE_DO(simulate(policy, i));
    }
    return finish();
  }

 private:
  // Flags of what is not simulated would have no effect.
  Status check_use() const {
    if (traces_ > 0) {
      return flags_->refuse(
          {"--requests",   "--rate",          "--sweep",         "--users",
           "--burstiness", "--lengths",       "--prompt-tokens", "--output-tokens",
           "--trace",      "--goodput",       "--svg",           "--policies",
           "--admission",  "--max-batch",     "--batch-tokens",  "--kv-tokens",
           "--in-flight",  "--base-ms",       "--token-us",      "--kv-token-ns",
           "--model",      "--random",        "--cancel-share",  "--cancel-seconds",
           "--lose-share", "--round-prompts", "--round-steps",   "--profile",
           "--seconds",    "--turnaround-ms"},
          "is of one simulation, and --traces draws all that from --seed; leave it out");
    }
    if (load_.users == 0) {
      JIGE_DO(flags_->refuse({"--turnaround-ms"}, "is of users who wait; give --users too"));
    }
    JIGE_DO(step_flags_.check_use(*flags_));
    if (!step_flags_.profile_path.empty()) {
      JIGE_DO(flags_->refuse({"--model", "--random"}, "is not of the profile; give one of them"));
    }
    if (model_.given()) {
      return flags_->refuse({"--base-ms", "--token-us", "--kv-token-ns"},
                            "is what --model and --random measure; give one of them");
    }
    return flags_->refuse(
        {"--dtype", "--quantize", "--kv-cache", "--device", "--threads", "--memory-limit",
         "--seconds"},
        "is of a model that is measured; give --model or --random too, or leave it out");
  }

  Status choose_step_time() {
    if (step_flags_.profile_path.empty() && !model_.given()) {
      JIGE_TRY(known_, step_flags_.by_figures());
    } else {
      JIGE_TRY(const sim::StepProfile profile, find_profile());
      known_ = known_step_time(profile, {.batch_tokens = scheduling_.batch_tokens,
                                         .batch_requests = scheduling_.batch_requests});
    }
    caption_ = "SIMULATED " + known_.text;
    return {};
  }

  Result<sim::StepProfile> find_profile() {
    if (!model_.given()) return sim::load_step_profile(step_flags_.profile_path);
    JIGE_TRY(BenchServeModel measured,
             model_.load(plan_.tokens_max(), scheduling_.kv_block_count(ops::kKvBlockTokens),
                         scheduling_.batch_tokens, scheduling_.batch_requests));
    return show_profiling(measured, seconds_, output_.quiet || output_.json);
  }

  Status simulate(plan::ServePolicy policy, size_t rate_index) {
    sim::ServeSimulationOptions options;
    options.scheduler.policy = policy;
    options.scheduler.admission = scheduling_.read_admission();
    options.scheduler.batch_requests_max = static_cast<int32_t>(scheduling_.batch_requests);
    options.scheduler.batch_tokens_max = static_cast<int32_t>(scheduling_.batch_tokens);
    scheduling_.rounds.set(options.scheduler);
    options.scheduler.batches_in_flight_max = static_cast<int32_t>(in_flight_);
    options.scheduler.pool.block_count =
        scheduling_.kv_block_count(options.scheduler.pool.block_tokens);
    options.step = known_.step;
    options.users = plan_.users;
    options.turnaround_s = turnaround_ms_ / 1e3;
    options.faults = faults_;
    options.seed = plan_.seed;
    options.cancel = &interrupt_flag();
    const sim::Workload load = plan_.at(rate_index, 0);
    LoadPoint point{.subject = std::string(plan::policy_name(policy)),
                    .rate = plan_.rates[rate_index],
                    .users = plan_.users};
    RequestProgress progress(fmt::format("{}, {}", point.subject, load_text(point)),
                             load.requests.size(), output_.quiet || output_.json);
    JIGE_TRY(const sim::ServeSimulationResult result,
             sim::simulate_serve(load.requests, options, &progress));
    progress.finish();
    point.report = sim::make_report(result.outcomes, plan_.goodput);
    if (output_.json) print_json(simulated_json(point, result));
    points_.push_back(std::move(point));
    return {};
  }

  static Json simulated_json(const LoadPoint& point, const sim::ServeSimulationResult& result) {
    Json json{{"simulated", true}};
    json.update(point_json(point));
    json["iterations"] = result.iterations;
    json["iterations_lost"] = result.iterations_lost;
    json["preemptions"] = result.preemptions;
    json["computed_tokens"] = result.computed_tokens;
    json["kv_blocks_live_max"] = result.kv_blocks_live_max;
    return json;
  }

  void print_head() const {
    if (!output_.json) return print_text(caption_ + "\n");
    Json head{{"simulated", true}};
    head.update(sim::step_time_to_json(known_.step));
    print_json(head);
  }

  Status finish() {
    if (!output_.json) {
      print_text(points_.size() == 1 ? report_text(points_[0]) : points_table(points_));
    }
    if (load_.svg.empty()) return {};
    JIGE_DO(write_file_atomic(
        load_.svg,
        render_svg(load_chart(points_, "Latency against throughput, simulated", caption_))));
    log_info("{}: {}", load_.svg, counted(std::ssize(points_), "load"));
    return {};
  }

  Status check_traces() {
    const StopWatch watch;
    Progress progress("checking traces", traces_, output_.quiet || output_.json);
    sim::TraceCounts counts;
    const auto first_seed = static_cast<uint64_t>(load_.seed);
    for (int64_t i = 0; i < traces_; ++i) {
      JIGE_TRY(const sim::TraceCounts one,
               sim::run_checked_trace(first_seed + static_cast<uint64_t>(i)));
      counts += one;
      if (i % kTracesBetweenLooks != 0) continue;
      if (interrupted()) {
        return fail(Code::kCancelled, "by a signal, after {} good traces", counts.traces);
      }
      progress.update(i, "");
    }
    progress.finish("");
    if (output_.json) {
      print_json(Json{{"simulated", true},
                      {"traces", counts.traces},
                      {"requests", counts.requests},
                      {"cancelled", counts.cancelled},
                      {"iterations", counts.iterations},
                      {"iterations_lost", counts.iterations_lost},
                      {"preemptions", counts.preemptions},
                      {"cached_tokens", counts.cached_tokens},
                      {"seconds", watch.seconds()}});
      return {};
    }
    print_text(fmt::format(
        "{} traces kept every invariant in {:.1f} s: {} requests, {} cancelled, {} iterations, {} "
        "lost, {} preemptions, {} tokens from the prefix cache\n",
        counts.traces, watch.seconds(), counts.requests, counts.cancelled, counts.iterations,
        counts.iterations_lost, counts.preemptions, counts.cached_tokens));
    return {};
  }

  const Flags* flags_ = nullptr;
  LoadFlags load_;
  SchedulingFlags scheduling_;
  BenchServeModelFlags model_;
  OutputFlags output_;
  sim::ServeFaults faults_;
  int64_t in_flight_ = 1;
  int64_t traces_ = 0;
  StepTimeFlags step_flags_;
  double seconds_ = 10;
  double turnaround_ms_ = 1e3 * sim::kBenchTurnaroundSeconds;

  LoadPlan plan_;
  KnownStepTime known_;
  std::string caption_;
  std::vector<LoadPoint> points_;
};

}  // namespace

std::unique_ptr<Command> make_simulate_serve_command() {
  return std::make_unique<SimulateServeCommand>();
}

}  // namespace jige::cli
