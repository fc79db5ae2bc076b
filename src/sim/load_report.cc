#include "sim/load_report.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "base/split.h"

namespace jige::sim {
namespace {

double e2e_s(const RequestOutcome& outcome) { return outcome.end_s - outcome.start_s; }
double ttft_s(const RequestOutcome& outcome) { return outcome.first_token_s - outcome.start_s; }
// Of answers of two tokens and more.
double tpot_s(const RequestOutcome& outcome) {
  return (outcome.end_s - outcome.first_token_s) / static_cast<double>(outcome.output_tokens - 1);
}
double normalised_s(const RequestOutcome& outcome) {
  return e2e_s(outcome) / static_cast<double>(std::max<int64_t>(outcome.output_tokens, 1));
}

bool keeps(const RequestOutcome& outcome, const GoodputBounds& bounds) {
  const auto within = [](const std::optional<double>& bound, double value) {
    return !bound || value <= *bound;
  };
  return within(bounds.ttft_s, ttft_s(outcome)) && within(bounds.e2e_s, e2e_s(outcome)) &&
         within(bounds.normalised_s, normalised_s(outcome)) &&
         (outcome.output_tokens < 2 || within(bounds.tpot_s, tpot_s(outcome)));
}

bool read_bound(std::string_view item, std::span<const NamedBound> bounds) {
  const size_t equals = item.find('=');
  if (equals == std::string_view::npos) return false;
  const auto bound = std::ranges::find(bounds, item.substr(0, equals), &NamedBound::name);
  const std::string_view number = item.substr(equals + 1);
  double value_ms = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value_ms);
  const bool whole = error == std::errc() && end == number.data() + number.size();
  if (bound == bounds.end() || !whole || !(value_ms > 0) || !std::isfinite(value_ms)) return false;
  *bound->bound_s = value_ms / 1000;
  return true;
}

struct Latencies {
  std::vector<double> ttft, tpot, itl, e2e, normalised;

  void add(const RequestOutcome& outcome) {
    ttft.push_back(ttft_s(outcome));
    e2e.push_back(e2e_s(outcome));
    normalised.push_back(normalised_s(outcome));
    if (outcome.output_tokens >= 2) tpot.push_back(tpot_s(outcome));
    itl.insert(itl.end(), outcome.gaps_s.begin(), outcome.gaps_s.end());
  }
};

}  // namespace

void RequestOutcome::token_came(double now_s) {
  if (output_tokens++ == 0) {
    first_token_s = now_s;
  } else {
    gaps_s.push_back(now_s - end_s);
  }
  end_s = now_s;
}

double quantile(std::span<const double> sorted, double share) {
  const double rank = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(rank);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (rank - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

Summary summarise(std::vector<double> values) {
  Summary summary{.count = std::ssize(values)};
  if (values.empty()) return summary;
  std::ranges::sort(values);
  summary.mean =
      std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  summary.p50 = quantile(values, 0.5);
  summary.p90 = quantile(values, 0.9);
  summary.p99 = quantile(values, 0.99);
  return summary;
}

Status parse_bounds(std::string_view text, std::string_view flag,
                    std::span<const NamedBound> bounds) {
  if (text.empty()) return {};
  for (const std::string_view item : split_at(text, ',')) {
    if (!read_bound(item, bounds)) {
      std::vector<std::string_view> names;
      for (const NamedBound& bound : bounds) names.push_back(bound.name);
      return fail(Code::kInvalidArgument,
                  "{}: \"{}\" is no list of bounds; give milliseconds for {}, as in "
                  "ttft=500,tpot=50",
                  flag, text, fmt::join(names, ", "));
    }
  }
  return {};
}

Result<GoodputBounds> parse_goodput(std::string_view text, std::string_view flag) {
  GoodputBounds bounds;
  const NamedBound named[] = {{"ttft", &bounds.ttft_s},
                              {"tpot", &bounds.tpot_s},
                              {"e2e", &bounds.e2e_s},
                              {"norm", &bounds.normalised_s}};
  JIGE_DO(parse_bounds(text, flag, named));
  return bounds;
}

void append_round(std::vector<RequestOutcome>& all, std::span<const RequestOutcome> more) {
  if (more.empty()) return;
  double last_s = 0;
  for (const RequestOutcome& outcome : all) last_s = std::max(last_s, outcome.end_s);
  const double first_s = std::ranges::min(more, {}, &RequestOutcome::start_s).start_s;
  const double shift_s = all.empty() ? 0 : last_s - first_s;
  for (RequestOutcome outcome : more) {
    outcome.start_s += shift_s;
    outcome.first_token_s += shift_s;
    outcome.end_s += shift_s;
    all.push_back(std::move(outcome));
  }
}

LoadReport make_report(std::span<const RequestOutcome> outcomes, const GoodputBounds& bounds) {
  LoadReport report{.requests = std::ssize(outcomes)};
  Latencies latencies;
  int64_t good = 0;
  double first_s = INFINITY, last_s = -INFINITY;
  for (const RequestOutcome& outcome : outcomes) {
    first_s = std::min(first_s, outcome.start_s);
    last_s = std::max(last_s, outcome.end_s);
    if (!outcome.failure.empty()) {
      ++report.failures[outcome.failure];
      continue;
    }
    ++report.succeeded;
    report.prompt_tokens += outcome.prompt_tokens;
    report.output_tokens += outcome.output_tokens;
    good += keeps(outcome, bounds);
    latencies.add(outcome);
  }
  report.seconds = outcomes.empty() ? 0 : last_s - first_s;
  const auto rate = [&](int64_t count) {
    return report.seconds > 0 ? static_cast<double>(count) / report.seconds : 0;
  };
  report.requests_per_s = rate(report.succeeded);
  report.output_tokens_per_s = rate(report.output_tokens);
  report.tokens_per_s = rate(report.prompt_tokens + report.output_tokens);
  if (bounds.any()) report.goodput_per_s = rate(good);
  report.ttft_s = summarise(std::move(latencies.ttft));
  report.tpot_s = summarise(std::move(latencies.tpot));
  report.itl_s = summarise(std::move(latencies.itl));
  report.e2e_s = summarise(std::move(latencies.e2e));
  report.normalised_s = summarise(std::move(latencies.normalised));
  return report;
}

}  // namespace jige::sim
