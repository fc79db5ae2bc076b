// jige simulate route: several servers behind a router, on a virtual clock.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "base/split.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/step_time_flags.h"
#include "cli/suggest.h"
#include "cli/table.h"
#include "sim/route_simulation.h"
#include "sim/step_profile.h"

namespace jige::cli {
namespace {

class SimulateRouteCommand final : public Command {
 public:
  void declare(Flags& flags) override {
    flags_ = &flags;
    flags.about(
        "Runs the policies of `jige route` in front of several simulated servers, each with the "
        "scheduler of `jige serve`, on a virtual clock. Users hold conversations: each begins with "
        "one of a few system prompts, and a turn's prompt is all that was said so far and a new "
        "question. An iteration takes what a profile of `jige profile serve` says of its batch, or "
        "base + token * its tokens + kv-token * the cached tokens it reads.");
    flags.integer("--servers N", servers_, {.min = 1, .max = 1024}, "how many there are");
    flags.text("--speeds NUMBERS", speeds_,
               "how fast each is, as 1,1,2: an iteration takes its time / speed; 1 for those that "
               "are not named");
    flags.choice("--known-speeds HOW", known_speeds_, {"learned", "equal", "exact"},
                 "what the router knows of that: what it learns from answers, nothing, or all");
    flags.text("--policies NAMES", policies_,
               "prefix, least-loaded, round-robin, or several with commas");
    flags.number("--imbalance-ratio X", imbalance_ratio_, {.min = 1, .max = 1e6},
                 "policy prefix: what is known at a server counts while its work is at most this "
                 "times the mean of all");
    flags.number("--imbalance-slack N", imbalance_slack_, {.min = 0, .max = 1e12},
                 "and so many tokens more");
    flags.integer("--answer-cost N", answer_cost_, {.min = 1, .max = 10000},
                  "tokens of prompts that a token of an answer counts for");
    flags.integer("--known-weight N", known_weight_, {.min = 0, .max = 10000},
                  "policy prefix: what a token that a server knows saves there, in tokens of work");
    declare_load(flags);
    flags.section("Servers");
    flags.integer("--max-batch N", batch_requests_, {.min = 1, .max = 4096},
                  "answers that are made at once at most");
    flags.integer("--batch-tokens N", batch_tokens_, {.min = 16, .max = 1 << 16},
                  "tokens of one iteration");
    flags.integer("--kv-tokens N", kv_tokens_, {.min = 16, .max = int64_t{1} << 30},
                  "tokens the key/value cache holds");
    step_flags_.declare(flags);
    output_.declare(flags, "one JSON line for each policy");
    flags.example("jige simulate route --servers 4 --users 64");
    flags.example(
        "jige simulate route --profile step.json --users 32 --turns 1 --system-prompts 1");
  }

  Status run() override {
    output_.apply();
    const InterruptScope interrupts;
    JIGE_TRY(const std::vector<plan::RouteRule> rules, read_rules());
    JIGE_TRY(sim::RouteSimulationOptions options, read_options());
    if (!output_.json) print_text(fmt::format("SIMULATED {}\n", step_text_));
    for (const plan::RouteRule rule : rules) {
      options.route.rule = rule;
      JIGE_TRY(const sim::RouteSimulationResult result, sim::simulate_route(options));
      tell(rule, result);
    }
    if (!output_.json) print_text(table_.render());
    return {};
  }

 private:
  void declare_load(Flags& flags) {
    flags.section("Load");
    flags.integer("--users N", users_, {.min = 1, .max = 1 << 20},
                  "who talk at once; each waits for its answer, thinks, and asks again");
    flags.integer("--conversations N", conversations_, {.min = 1, .max = 10'000'000}, "in all");
    flags.text("--turns SPEC", turns_,
               "questions of a conversation: 4, 1:8 or lognormal:MEDIAN:SIGMA");
    flags.integer("--system-prompts N", system_prompts_, {.min = 0, .max = 1 << 20},
                  "what conversations begin with; the k-th is as likely as 1 / k");
    flags.text("--system-tokens SPEC", system_tokens_, "lengths of these");
    flags.text("--question-tokens SPEC", question_tokens_, "lengths of questions");
    flags.text("--answer-tokens SPEC", answer_tokens_, "lengths of answers");
    flags.integer("--other-users N", other_users_, {.min = 0, .max = 1 << 20},
                  "further ones who ask the first server themselves");
    flags.number("--tell-seconds S", tell_seconds_, {.min = 0, .max = 1e6},
                 "between two times that servers tell the router how many requests they have; 0: "
                 "they do not");
    flags.number("--think-seconds S", think_seconds_, {.min = 0, .max = 1e6},
                 "mean time from an answer to the next question");
    flags.integer("--seed N", seed_, {}, "of conversations and noise");
  }

  Result<std::vector<plan::RouteRule>> read_rules() const {
    std::vector<std::string> names;
    for (const auto rule : plan::kRouteRules) names.emplace_back(plan::route_rule_name(rule));
    std::vector<plan::RouteRule> rules;
    for (const std::string_view name : split_at(policies_, ',')) {
      const auto rule = plan::find_route_rule(name);
      if (!rule) {
        return fail(Code::kInvalidArgument, "--policies: \"{}\" is not one of {}{}", name,
                    fmt::join(names, ", "), suggestion(std::string(name), names));
      }
      rules.push_back(*rule);
    }
    return rules;
  }

  // One for each server.
  Result<std::vector<double>> read_speeds() const {
    std::vector<double> speeds;
    for (size_t begin = 0; !speeds_.empty() && begin <= speeds_.size();) {
      const size_t end = std::min(speeds_.find(',', begin), speeds_.size());
      const std::string_view word = std::string_view(speeds_).substr(begin, end - begin);
      begin = end + 1;
      double speed = 0;
      const auto [at, error] = std::from_chars(word.data(), word.data() + word.size(), speed);
      const bool whole = error == std::errc() && at == word.data() + word.size();
      if (!whole || !(speed >= 1e-3 && speed <= 1e3)) {
        return fail(Code::kInvalidArgument,
                    "--speeds: \"{}\" is no number from 0.001 to 1000; one a server, as 1,1,2",
                    word);
      }
      speeds.push_back(speed);
    }
    if (std::ssize(speeds) > servers_) {
      return fail(Code::kInvalidArgument, "--speeds: names {} and there are {} servers",
                  speeds.size(), servers_);
    }
    speeds.resize(static_cast<size_t>(servers_), 1);
    return speeds;
  }

  Result<sim::RouteSimulationOptions> read_options() {
    sim::RouteSimulationOptions options;
    JIGE_TRY(options.speeds, read_speeds());
    options.known_speeds = known_speeds_ == "exact"   ? sim::KnownSpeeds::kExact
                           : known_speeds_ == "equal" ? sim::KnownSpeeds::kEqual
                                                      : sim::KnownSpeeds::kLearned;
    options.other_users = other_users_;
    options.tell_s = tell_seconds_;
    options.server_count = static_cast<int32_t>(servers_);
    options.route.requests_max = 1 << 24;
    options.route.waiting_max = 0;
    options.route.block_tokens = 32;
    options.route.answer_cost = answer_cost_;
    options.route.known_weight = known_weight_;
    options.route.imbalance_ratio = imbalance_ratio_;
    options.route.imbalance_slack = imbalance_slack_;
    options.scheduler.batch_requests_max = static_cast<int32_t>(batch_requests_);
    options.scheduler.batch_tokens_max = static_cast<int32_t>(batch_tokens_);
    options.scheduler.pool.block_count =
        static_cast<int32_t>(kv_tokens_ / options.scheduler.pool.block_tokens);
    // As much as a server's cache holds.
    options.route.known_blocks_max =
        static_cast<size_t>(std::max<int64_t>(kv_tokens_ / options.route.block_tokens, 1));
    options.load = {.user_count = users_ + other_users_,
                    .conversation_count = conversations_,
                    .system_prompts = system_prompts_,
                    .think_s = think_seconds_,
                    .seed = static_cast<uint64_t>(seed_)};
    JIGE_TRY(options.load.turns, sim::parse_length(turns_, "--turns"));
    JIGE_TRY(options.load.system_tokens, sim::parse_length(system_tokens_, "--system-tokens"));
    JIGE_TRY(options.load.question_tokens,
             sim::parse_length(question_tokens_, "--question-tokens"));
    JIGE_TRY(options.load.answer_tokens, sim::parse_length(answer_tokens_, "--answer-tokens"));
    options.cancel = &interrupt_flag();
    JIGE_DO(step_flags_.check_use(*flags_));
    KnownStepTime known;
    if (step_flags_.profile_path.empty()) {
      JIGE_TRY(known, step_flags_.by_figures());
    } else {
      JIGE_TRY(const sim::StepProfile profile, sim::load_step_profile(step_flags_.profile_path));
      known = known_step_time(profile,
                              {.batch_tokens = batch_tokens_, .batch_requests = batch_requests_});
    }
    options.step = known.step;
    step_text_ = known.text;
    return options;
  }

  void tell(plan::RouteRule rule, const sim::RouteSimulationResult& result) {
    const sim::LoadReport report = sim::make_report(result.outcomes);
    const sim::LoadReport others = sim::make_report(result.other_outcomes);
    const auto prompts = static_cast<double>(result.prompt_tokens);
    const double cached = static_cast<double>(result.cached_tokens) / prompts;
    const double believed = static_cast<double>(result.believed_tokens) / prompts;
    const double busy_sum = std::accumulate(result.busy_s.begin(), result.busy_s.end(), 0.0);
    const double busiest = *std::ranges::max_element(result.busy_s);
    const double uneven =
        busy_sum > 0 ? busiest / (busy_sum / static_cast<double>(result.busy_s.size())) : 1;
    if (output_.json) {
      return print_json(Json{{"simulated", true},
                             {"policy", plan::route_rule_name(rule)},
                             {"servers", servers_},
                             {"requests", report.requests},
                             {"seconds", report.seconds},
                             {"output_tokens_per_s", report.output_tokens_per_s},
                             {"ttft_mean_s", report.ttft_s.mean},
                             {"ttft_p50_s", report.ttft_s.p50},
                             {"ttft_p99_s", report.ttft_s.p99},
                             {"e2e_mean_s", report.e2e_s.mean},
                             {"e2e_p99_s", report.e2e_s.p99},
                             {"prompt_tokens", result.prompt_tokens},
                             {"cached_share", cached},
                             {"believed_share", believed},
                             {"busiest_over_mean", uneven},
                             {"other_requests", others.requests},
                             {"other_e2e_mean_s", others.e2e_s.mean}});
    }
    const auto ms = [](double seconds) { return fmt::format("{:.0f}", seconds * 1e3); };
    table_.row({std::string(plan::route_rule_name(rule)),
                fmt::format("{:.0f}", report.output_tokens_per_s), ms(report.ttft_s.mean),
                ms(report.ttft_s.p50), ms(report.ttft_s.p99), ms(report.e2e_s.mean),
                ms(report.e2e_s.p99), fmt::format("{:.1f} %", cached * 100),
                fmt::format("{:.1f} %", believed * 100), fmt::format("{:.2f}", uneven)});
  }

  const Flags* flags_ = nullptr;
  int64_t servers_ = 4;
  std::string policies_ = "round-robin,least-loaded,prefix";
  double imbalance_ratio_ = plan::RouteOptions{}.imbalance_ratio;
  double imbalance_slack_ = plan::RouteOptions{}.imbalance_slack;
  int64_t answer_cost_ = plan::RouteOptions{}.answer_cost;
  int64_t known_weight_ = plan::RouteOptions{}.known_weight;
  std::string speeds_;
  std::string known_speeds_ = "learned";
  int64_t users_ = 64;
  int64_t other_users_ = 0;
  double tell_seconds_ = 1;
  int64_t conversations_ = 400;
  std::string turns_ = "1:8";
  int64_t system_prompts_ = 4;
  std::string system_tokens_ = "300";
  std::string question_tokens_ = "20:200";
  std::string answer_tokens_ = "20:300";
  double think_seconds_ = 5;
  int64_t seed_ = 1;
  int64_t batch_requests_ = 64;
  int64_t batch_tokens_ = 512;
  int64_t kv_tokens_ = 65536;
  StepTimeFlags step_flags_;
  OutputFlags output_;
  std::string step_text_;
  Table table_{{{"policy"},
                {"tokens/s", Table::Align::kRight},
                {"TTFT mean", Table::Align::kRight},
                {"p50", Table::Align::kRight},
                {"p99 ms", Table::Align::kRight},
                {"E2E mean", Table::Align::kRight},
                {"p99 ms", Table::Align::kRight},
                {"known", Table::Align::kRight},
                {"believed", Table::Align::kRight},
                {"busiest", Table::Align::kRight}}};
};

}  // namespace

std::unique_ptr<Command> make_simulate_route_command() {
  return std::make_unique<SimulateRouteCommand>();
}

}  // namespace jige::cli
