// jige bench serve: what a server, or an engine in this process, does under load.
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "api/api_keys.h"
#include "base/clock.h"
#include "base/counted.h"
#include "base/cpu.h"
#include "base/file.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/rng.h"
#include "cli/bench_serve_model.h"
#include "cli/build_info.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/equal_latency.h"
#include "cli/filled_cache.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/load_engine_target.h"
#include "cli/load_flags.h"
#include "cli/load_http_target.h"
#include "cli/load_rounds.h"
#include "cli/load_view.h"
#include "cli/output.h"
#include "cli/serve_plan_view.h"
#include "cli/server_list.h"

namespace jige::cli {
namespace {

constexpr int64_t kQueueMax = 1 << 24;  // nothing is refused: the load is what is measured

class BenchServeCommand final : public Command {
 public:
  void declare(Flags& flags) override {
    flags_ = &flags;
    flags.about(
        "Puts load on a server with the OpenAI API (streamed completions), or on an "
        "engine in this process, and reports throughput and latencies: first token (TTFT), per "
        "further token (TPOT), between tokens (ITL), whole answer (E2E), and E2E divided by its "
        "tokens, Orca's normalised latency. Prompts are random tokens that never repeat, so no "
        "prefix cache helps.");
    flags.section("What is measured");
    flags.text("[URL]", url_, "a server, such as http://127.0.0.1:8000");
    model_.declare(flags);
    flags.text("--server-ca FILE", server_ca_, kServerCaHelp);
    flags.text("--served-model NAME", served_model_, "URL: which model; else its first");
    flags.integer("--vocab-size N", vocab_size_, {.min = 2, .max = 1 << 30},
                  "URL: prompts are of token ids below this, which the model must have");
    flags.number("--silence-seconds S", silence_seconds_, {.min = 0.1, .max = 1e6},
                 "URL: a request that hears nothing for so long has failed");
    load_.declare(flags);
    flags.integer("--rounds N", rounds_, {.min = 1, .max = 1000},
                  "repeat it all with other requests drawn alike, policies in turns: figures are "
                  "then over all rounds, with their spread");
    flags.number("--temperature T", sampling_.temperature, {.min = 0, .max = 2},
                 "answers are drawn with it; 0: the likeliest tokens");
    flags.number("--top-p P", sampling_.top_p, {.max = 1, .above_min = true},
                 "with a temperature: from the likeliest tokens that make up this share");
    flags.integer("--top-k N", sampling_.top_k, {},
                  "with a temperature, in this process: from the N likeliest tokens; 0: off");
    flags.section("Scheduling, in this process");
    flags.text(
        "--plan FILE", plan_path_,
        "settings of `jige plan serve -o FILE`, in place of the policy's flags; what it says "
        "is shown beside what is measured, of a server at a URL too");
    scheduling_.declare(flags);
    model_.device.declare(flags);
    output_.declare(flags,
                    "one JSON line for what is measured, then one a load, then equal latencies");
    flags.example("jige bench serve http://127.0.0.1:8000 --rate 4 --goodput ttft=500,tpot=50");
    flags.example("jige bench serve --model models/tiny --users 16 --lengths chat");
    flags.example(
        "jige bench serve --random 15m --sweep 1,2,4,8 --policies static,orca,chunked --svg "
        "orca.svg");
  }

  Status run() override {
    output_.apply();
    const InterruptScope interrupts;
    if (url_.empty() != model_.given()) {
      return fail(Code::kInvalidArgument, "give one of URL, --model FOLDER and --random SIZE");
    }
    JIGE_DO(check_subject());
    JIGE_DO(check_output_files({load_.svg}));
    JIGE_DO(read_plan());
    JIGE_TRY(plan_, load_.plan(*flags_));
    loads_.emplace(plan_.goodput);
    // Prompts of two runs differ, or the second would find those of the first in a server's cache.
    prompt_key_ = derive_key(plan_.seed, "bench serve",
                             static_cast<uint64_t>(RealClock().now_ns()) ^
                                 static_cast<uint64_t>(std::time(nullptr)) << 32);
    JIGE_DO(url_.empty() ? bench_engine() : bench_server());
    return finish();
  }

 private:
  Status read_plan() {
    if (plan_path_.empty()) return {};
    JIGE_DO(flags_->refuse(
        {"--policies", "--round-prompts", "--round-steps", "--max-batch", "--batch-tokens"},
        "is what --plan says; leave one of them out"));
    JIGE_TRY(planned_, sim::load_serve_plan(plan_path_));
    scheduling_.set(planned_->settings);
    return {};
  }

  // A flag of what is not measured would have no effect.
  Status check_subject() const {
    if (sampling_.temperature == 0) {
      JIGE_DO(flags_->refuse({"--top-p", "--top-k"},
                             "is for drawn answers; give a --temperature too, or leave it out"));
    }
    if (url_.empty()) {
      return flags_->refuse({"--served-model", "--vocab-size", "--silence-seconds"},
                            "is for a server at a URL; leave it out");
    }
    return flags_->refuse({"--dtype", "--quantize", "--kv-cache", "--policies", "--round-prompts",
                           "--round-steps", "--admission", "--max-batch", "--batch-tokens",
                           "--kv-tokens", "--device", "--threads", "--memory-limit", "--top-k"},
                          "is for an engine in this process; a server at a URL has chosen its own");
  }

  Status bench_server() {
    HttpTargetOptions options{.vocab_size = vocab_size_,
                              .temperature = sampling_.temperature,
                              .top_p = sampling_.top_p,
                              .silence_seconds_max = silence_seconds_};
    JIGE_TRY(options.peer, resolve_server({url_, "URL"}, server_ca_));
    options.peer.api_key = api::client_key();
    JIGE_TRY(const ServedModelInfo served, ask_for_model(options.peer, served_model_));
    options.model = served.name;
    caption_ = fmt::format("{} at {}, client on {}", served.name, options.peer.host,
                           cpu_features().model_name) +
               sampling_text();
    print_head();
    JIGE_DO(warm_up_server(options));
    return for_each_load([&](LoadTurn turn) -> Status {
      options.prompt_key = next_prompt_key();
      HttpTarget target(options);
      JIGE_DO(run_load(options.peer.host, turn, served.context_max, target));
      if (!target.first_error().empty()) {
        log_warn("the first failure: {}", target.first_error());
      }
      return {};
    });
  }

  // One short request, so that what cannot work is told before the load.
  Status warm_up_server(HttpTargetOptions options) {
    options.prompt_key = next_prompt_key();
    HttpTarget target(options);
    const std::vector<sim::RequestShape> one = {{.prompt_tokens = 8, .output_tokens = 2}};
    const LoadRun run = drive_load(one, 0, target, interrupt_flag());
    if (run.stopped || run.outcomes.empty()) return fail(Code::kCancelled, "by a signal");
    if (run.outcomes[0].failure.empty()) return {};
    return fail(Code::kUnavailable,
                "{}: a first request failed with {}: {}; --vocab-size may be larger than the "
                "model's, and JIGE_API_KEY holds a key where one is needed",
                url_, run.outcomes[0].failure, target.first_error());
  }

  Status bench_engine() {
    JIGE_TRY(const std::vector<plan::ServePolicy> policies, scheduling_.read_policies(*flags_));
    JIGE_TRY(BenchServeModel served,
             model_.load(plan_.tokens_max(), scheduling_.kv_block_count(ops::kKvBlockTokens),
                         scheduling_.batch_tokens, scheduling_.batch_requests));
    const int threads = served.devices.team().size();
    caption_ = fmt::format("{} on {}, {} thread{}", served.text, cpu_features().model_name, threads,
                           threads == 1 ? "" : "s") +
               sampling_text();
    print_head();
    // What is met once, or the first policy would pay for all: memory, caches, pages.
    JIGE_DO(write_cache(*served.model));
    JIGE_DO(run_engine(served, policies[0], std::nullopt));
    // Policies in turns, so that what else the machine does falls on all of them.
    return for_each_load([&](LoadTurn turn) -> Status {
      for (const plan::ServePolicy policy : policies) JIGE_DO(run_engine(served, policy, turn));
      return {};
    });
  }

  struct LoadTurn {
    int64_t round = 0;
    size_t rate_index = 0;
  };

  template <typename Run>
  Status for_each_load(const Run& run) {
    for (int64_t round = 0; round < rounds_; ++round) {
      for (size_t i = 0; i < plan_.rates.size(); ++i) JIGE_DO(run({round, i}));
    }
    return {};
  }

  // A load, or a short one to warm up.
  Status run_engine(BenchServeModel& served, plan::ServePolicy policy,
                    std::optional<LoadTurn> turn) {
    serve::EngineOptions options;
    options.policy = policy;
    options.admission = scheduling_.read_admission();
    options.batch_requests_max = static_cast<int32_t>(scheduling_.batch_requests);
    options.batch_tokens_max = static_cast<int32_t>(scheduling_.batch_tokens);
    scheduling_.rounds.set(options);
    options.sampling_team = &served.devices.team();
    options.waiting_requests_max = kQueueMax;
    options.waiting_prompt_tokens_max = INT64_MAX;
    JIGE_TRY(const auto engine, serve::Engine::create(*served.model, *served.tokenizer, options));
    EngineTarget target(*engine, served.model->config().vocab_size, next_prompt_key(), sampling_);
    const Status status = turn ? run_load(std::string(plan::policy_name(policy)), *turn,
                                          engine->context_max(), target)
                               : warm_up_engine(target);
    engine->stop();
    return status;
  }

  Status warm_up_engine(EngineTarget& target) {
    const std::vector<sim::RequestShape> two(2, {.prompt_tokens = 16, .output_tokens = 4});
    sim::Workload load{.requests = two};
    sim::cut_to_context(load, plan_.tokens_max());
    const LoadRun run = drive_load(load.requests, 0, target, interrupt_flag());
    if (run.stopped) return fail(Code::kCancelled, "by a signal");
    if (run.outcomes[0].failure.empty()) return {};
    return fail(Code::kInternal, "a first request failed with {}", run.outcomes[0].failure);
  }

  Status run_load(std::string subject, LoadTurn turn, int64_t context_max, LoadTarget& target) {
    const sim::Workload load = plan_.at(turn.rate_index, context_max, turn.round);
    if (load.cut_count > 0) {
      log_warn("{} of {} requests were cut to the context of {} tokens", load.cut_count,
               load.requests.size(), context_max);
    }
    LoadPoint point{
        .subject = std::move(subject), .rate = plan_.rates[turn.rate_index], .users = plan_.users};
    std::string title = fmt::format("{}, {}", point.subject, load_text(point));
    if (rounds_ > 1) title += fmt::format(", round {} of {}", turn.round + 1, rounds_);
    Progress progress(title, std::ssize(load.requests), output_.quiet || output_.json);
    const LoadRun run = drive_load(load.requests, plan_.users, target, interrupt_flag(),
                                   [&](int64_t over) { progress.update(over, ""); });
    progress.finish("");
    const LoadPoint& measured = loads_->add(turn.round, std::move(point), run.outcomes);
    if (run.short_count > 0) {
      log_warn("{} answers were shorter than asked for: the server does not know ignore_eos",
               run.short_count);
    }
    if (run.late_s_max > 0.1) {
      log_warn("requests were sent up to {:.2f} s late: this machine is too busy to send them",
               run.late_s_max);
    }
    if (output_.json && rounds_ == 1) print_json(point_json(measured));
    if (run.stopped) return fail(Code::kCancelled, "by a signal, the last load is not complete");
    return {};
  }

  // How answers are drawn, behind a caption; nothing where they are greedy.
  std::string sampling_text() const {
    if (sampling_.temperature == 0) return "";
    std::string text = fmt::format(", temperature {}", sampling_.temperature);
    if (sampling_.top_p < 1) text += fmt::format(", top-p {}", sampling_.top_p);
    if (sampling_.top_k > 0) text += fmt::format(", top-k {}", sampling_.top_k);
    return text;
  }

  uint64_t next_prompt_key() { return derive_key(prompt_key_, "load", load_count_++); }

  void print_head() const {
    if (output_.json) {
      print_json(Json{{"subject", caption_},
                      {"machine", cpu_features().model_name},
                      {"isa", isa_name(active_isa())},
                      {"version", kVersion},
                      {"build", kBuildType}});
    } else {
      print_text(caption_ + "\n");
    }
  }

  // Beside the first load; one that is another than was planned for has other figures.
  void tell_plan(const LoadPoint& point) const {
    if (!planned_) return;
    const bool same =
        planned_->users == point.users && (point.users > 0 || planned_->rate_per_s == point.rate);
    if (!same) log_warn("{} is for another load", plan_path_);
    if (output_.json) {
      print_json(Json{{"plan", planned_and_measured_json(*planned_, point.report)}});
    } else {
      print_text("\n" + planned_and_measured_text(*planned_, point.report));
    }
  }

  Status finish() {
    const std::vector<LoadPoint> points = loads_->points();
    const std::optional<EqualLatency> equal = equal_latency(points, loads_->rounds());
    if (!output_.json) {
      print_text(points.size() == 1 ? report_text(points[0]) : points_table(points));
      if (equal) print_text("\n" + equal_latency_table(*equal));
    } else {
      if (rounds_ > 1) {
        for (const LoadPoint& point : points) print_json(point_json(point));
      }
      if (equal) print_json(equal_latency_json(*equal));
    }
    tell_plan(points[0]);
    if (load_.svg.empty()) return {};
    JIGE_DO(write_file_atomic(
        load_.svg, render_svg(load_chart(points, "Latency against throughput", caption_))));
    log_info("{}: {}", load_.svg, counted(std::ssize(points), "load"));
    return {};
  }

  const Flags* flags_ = nullptr;
  std::string url_, server_ca_, served_model_;
  int64_t vocab_size_ = 1000;
  double silence_seconds_ = 600;
  BenchServeModelFlags model_;
  LoadFlags load_;
  ops::SamplingParams sampling_;
  int64_t rounds_ = 1;
  SchedulingFlags scheduling_;
  std::string plan_path_;
  OutputFlags output_;

  LoadPlan plan_;
  std::optional<sim::ServePlanFile> planned_;
  std::string caption_;
  uint64_t prompt_key_ = 0;
  uint64_t load_count_ = 0;
  std::optional<LoadRounds> loads_;
};

}  // namespace

std::unique_ptr<Command> make_bench_serve_command() {
  return std::make_unique<BenchServeCommand>();
}

}  // namespace jige::cli
