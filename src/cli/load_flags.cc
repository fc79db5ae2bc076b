#include "cli/load_flags.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/rng.h"
#include "base/split.h"
#include "cli/flags.h"
#include "cli/input.h"
#include "cli/load_view.h"
#include "cli/suggest.h"

namespace jige::cli {
namespace {

Result<std::vector<sim::RequestShape>> read_trace(const std::string& path, int64_t requests_max) {
  std::vector<sim::RequestShape> requests;
  JIGE_DO(for_each_line(path, [&](std::string_view line, int64_t number) -> Result<bool> {
    if (line.empty()) return true;
    JIGE_TRY(const sim::RequestShape shape,
             sim::parse_trace_line(line, fmt::format("{}:{}", path, number)));
    requests.push_back(shape);
    return std::ssize(requests) < requests_max;
  }));
  if (requests.empty()) return fail(Code::kCorrupt, "{}: holds no request", path);
  std::ranges::stable_sort(requests, {}, &sim::RequestShape::arrival_s);
  const double first_s = requests.front().arrival_s;
  for (sim::RequestShape& shape : requests) shape.arrival_s -= first_s;
  return requests;
}

double mean_rate(const std::vector<sim::RequestShape>& requests) {
  const double span_s = requests.back().arrival_s;
  return span_s > 0 ? static_cast<double>(requests.size()) / span_s : 0;
}

}  // namespace

sim::Workload LoadPlan::at(size_t rate_index, int64_t context_max, int64_t round) const {
  sim::Workload load;
  if (trace_.empty()) {
    sim::WorkloadOptions options = options_;
    options.rate_per_s = rates[rate_index];
    if (round > 0) {
      options.seed = derive_key(options.seed, "round", static_cast<uint64_t>(round));
    }
    load = sim::make_workload(options);
  } else {
    load.requests = trace_;
    if (rates[rate_index] != mean_rate(trace_)) {
      sim::rescale_arrivals(load.requests, rates[rate_index]);
    }
  }
  if (context_max > 0) sim::cut_to_context(load, context_max);
  return load;
}

int64_t LoadPlan::tokens_max() const {
  int64_t most = 1;
  for (const sim::RequestShape& shape : at(0, 0).requests) {
    most = std::max(most, shape.prompt_tokens + shape.output_tokens);
  }
  return most;
}

void LoadFlags::declare(Flags& flags, Use use) {
  const bool many = use == Use::kManyLoads;
  flags.section("Load");
  flags.integer("-n,--requests N", requests, {.min = 1, .max = 10'000'000},
                "how many, at each rate; of a trace, the first N");
  flags.number("--rate R", rate, {.min = 0, .max = 1e6},
               many ? "open loop: requests a second at random times; 0: all at once"
                    : "open loop: requests a second at random times; 0: as many as are carried");
  if (many) {
    flags.text("--sweep RATES", sweep, "several rates, such as 0.5,1,2: one load after the other");
  }
  flags.integer("--users N", users, {.min = 0, .max = 1 << 20},
                "closed loop instead: N users, each waits for its answer and asks again");
  flags.number("--burstiness X", burstiness, {.min = 0.01, .max = 1000},
               "shape of the gaps between arrivals: 1 is a Poisson process, less comes in bursts, "
               "more is steadier");
  flags.choice("--lengths NAME", lengths, {"orca", "chat"},
               "orca: prompts 32 to 512, answers 1 to 128 tokens, uniform; chat: log-normal with "
               "the means of ShareGPT's conversations");
  flags.text("--prompt-tokens SPEC", prompt_tokens,
             "lengths of prompts instead: 128, 32:512 or lognormal:MEDIAN:SIGMA");
  flags.text("--output-tokens SPEC", output_tokens, "lengths of answers, likewise");
  flags.text("--trace FILE", trace,
             many ? "JSON lines with arrival_s, prompt_tokens, output_tokens instead of random "
                    "requests; with --sweep faster or slower"
                  : "JSON lines with arrival_s, prompt_tokens, output_tokens instead of random "
                    "requests");
  flags.integer("--seed N", seed, {}, "of arrivals, lengths and prompts");
  if (!many) return;
  flags.text("--goodput BOUNDS", goodput,
             "count requests within these milliseconds: ttft=500,tpot=50,e2e=9000,norm=100");
  flags.text("--svg FILE", svg, "draw median latency per token against throughput");
}

Result<LoadPlan> LoadFlags::plan(const Flags& flags) const {
  LoadPlan plan;
  plan.users = users;
  plan.seed = static_cast<uint64_t>(seed);
  JIGE_TRY(plan.goodput, sim::parse_goodput(goodput, "--goodput"));
  const bool by_rate = flags.given("--rate") || !sweep.empty();
  if (users > 0 && by_rate) {
    return fail(Code::kInvalidArgument,
                "--users is a closed loop and --rate an open one; give one of them");
  }
  if (!sweep.empty()) {
    JIGE_DO(flags.refuse({"--rate"}, "is one rate, and --sweep names all; leave one out"));
  }
  if (!trace.empty() && (flags.given("--rate") || !prompt_tokens.empty() ||
                         !output_tokens.empty() || flags.given("--lengths"))) {
    return fail(Code::kInvalidArgument,
                "--trace says when requests come and how long they are; leave out --rate, "
                "--lengths, --prompt-tokens and --output-tokens");
  }
  if (flags.given("--burstiness") && (users > 0 || !trace.empty())) {
    return fail(Code::kInvalidArgument,
                "--burstiness is of arrivals at random times, which --users and --trace have not");
  }
  if (flags.given("--lengths") && !prompt_tokens.empty() && !output_tokens.empty()) {
    return fail(Code::kInvalidArgument,
                "--prompt-tokens and --output-tokens say all that --lengths would; leave it out");
  }
  plan.options_ = {.request_count = requests,
                   .burst_shape = burstiness,
                   .lengths = lengths == "chat" ? sim::chat_lengths() : sim::orca_lengths(),
                   .seed = plan.seed};
  if (!prompt_tokens.empty()) {
    JIGE_TRY(plan.options_.lengths.prompt, sim::parse_length(prompt_tokens, "--prompt-tokens"));
  }
  if (!output_tokens.empty()) {
    JIGE_TRY(plan.options_.lengths.output, sim::parse_length(output_tokens, "--output-tokens"));
  }
  plan.rates = {rate};
  if (!trace.empty()) {
    JIGE_TRY(plan.trace_, read_trace(trace, requests));
    plan.rates = {mean_rate(plan.trace_)};
  }
  if (!sweep.empty()) {
    JIGE_TRY(plan.rates, parse_rates(sweep, "--sweep"));
  }
  return plan;
}

void SchedulingFlags::declare(Flags& flags) {
  flags.text("--policies NAMES", policies,
             "chunked, orca, rounds, static, or several with commas: one after the other");
  rounds.declare(flags);
  flags.choice("--admission NAME", admission, {"reserve", "optimistic"},
               "reserve: an answer begins when its longest form fits; optimistic: when its prompt "
               "does");
  flags.integer("--max-batch N", batch_requests, {.min = 1, .max = 4096},
                "answers that are made at once at most");
  flags.integer("--batch-tokens N", batch_tokens, {.min = 16, .max = 1 << 16},
                "tokens of one iteration, chunked policy");
  flags.integer("--kv-tokens N", kv_tokens, {.min = 16, .max = int64_t{1} << 30},
                "tokens the key/value cache holds");
}

void SchedulingFlags::declare_limits(Flags& flags) {
  flags.text("--policies NAMES", policies, "those that may be chosen");
  flags.integer("--max-batch N", batch_requests, {.min = 1, .max = 4096},
                "answers at once that a setting may have at most");
  flags.integer("--batch-tokens N", batch_tokens, {.min = 16, .max = 1 << 16},
                "tokens of one iteration that the policy chunked may have at most");
  flags.integer("--kv-tokens N", kv_tokens, {.min = 16, .max = int64_t{1} << 30},
                "tokens the key/value cache holds");
}

Result<std::vector<plan::ServePolicy>> SchedulingFlags::read_policies() const {
  std::vector<std::string> names;
  for (const auto policy : plan::kServePolicies) names.emplace_back(plan::policy_name(policy));
  std::vector<plan::ServePolicy> found;
  for (const std::string_view item : split_at(policies, ',')) {
    const auto policy = plan::find_policy(item);
    if (!policy) {
      return fail(Code::kInvalidArgument, "--policies: \"{}\" is not one of {}{}", item,
                  fmt::join(names, ", "), suggestion(std::string(item), names));
    }
    found.push_back(*policy);
  }
  return found;
}

Result<std::vector<plan::ServePolicy>> SchedulingFlags::read_policies(const Flags& flags) const {
  JIGE_TRY(std::vector<plan::ServePolicy> found, read_policies());
  const bool with_rounds = std::ranges::find(found, plan::ServePolicy::kRounds) != found.end();
  JIGE_DO(RoundFlags::check_use(flags, with_rounds, "--policies"));
  return found;
}

void SchedulingFlags::set(const sim::ServeSettings& settings) {
  policies = plan::policy_name(settings.policy);
  batch_requests = settings.batch_requests_max;
  if (settings.policy == plan::ServePolicy::kChunked) batch_tokens = settings.batch_tokens_max;
  rounds = {.prompts = settings.round_prompts, .steps = settings.round_steps};
}

plan::Admission SchedulingFlags::read_admission() const {
  return admission == "optimistic" ? plan::Admission::kOptimistic : plan::Admission::kReserve;
}

int32_t SchedulingFlags::kv_block_count(int64_t block_tokens) const {
  return static_cast<int32_t>((kv_tokens + block_tokens - 1) / block_tokens);
}

Result<std::vector<double>> parse_rates(std::string_view text, std::string_view flag) {
  std::vector<double> rates;
  for (const std::string_view item : split_at(text, ',')) {
    double rate = 0;
    const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), rate);
    const bool whole = error == std::errc() && end == item.data() + item.size();
    if (!whole || !(rate > 0) || !(rate <= 1e6)) {
      return fail(Code::kInvalidArgument,
                  "{}: \"{}\" is no list of rates above 0, at most 1e6, such as 0.5,1,2", flag,
                  text);
    }
    rates.push_back(rate);
  }
  return rates;
}

}  // namespace jige::cli
