#include "sim/serve_prediction.h"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include "sim/load_report.h"

namespace jige::sim {
namespace {

constexpr double kCarriedShare = 0.9;  // of a rate, or it is not carried

ServeFigure figure_of(std::vector<double> values, double share) {
  if (values.empty()) return {};
  double sum = 0;
  for (const double value : values) sum += value;
  std::ranges::sort(values);
  return {.mean = sum / static_cast<double>(values.size()),
          .p50 = quantile(values, 0.5),
          .p90 = quantile(values, 0.9),
          .p99 = quantile(values, 0.99),
          .bounded = quantile(values, share)};
}

int64_t tokens_between(const RequestOutcome& one, double begin_s, double end_s) {
  const auto counts = [=](double at_s) { return at_s > begin_s && at_s <= end_s; };
  double at_s = one.first_token_s;
  int64_t tokens = counts(at_s);
  for (const double gap_s : one.gaps_s) tokens += counts(at_s += gap_s);
  return tokens;
}

// The steady part of a run.
ServePrediction steady_part(std::span<const RequestOutcome> outcomes, const ServeBounds& bounds,
                            int64_t users) {
  ServePrediction found;
  found.users = users;
  const size_t first = users > 0 ? static_cast<size_t>(users) : outcomes.size() / 10;
  const double begin_s = outcomes[first].start_s;
  const double end_s = outcomes.back().start_s;
  std::vector<double> ttft, itl, tpot, e2e;
  int64_t tokens = 0, tokens_all = 0;
  for (size_t i = 0; i < outcomes.size(); ++i) {
    const RequestOutcome& one = outcomes[i];
    tokens += tokens_between(one, begin_s, end_s);
    tokens_all += one.output_tokens;
    if (i < first) continue;
    ttft.push_back(one.first_token_s - one.start_s);
    e2e.push_back(one.end_s - one.start_s);
    itl.insert(itl.end(), one.gaps_s.begin(), one.gaps_s.end());
    if (one.output_tokens < 2) continue;
    tpot.push_back((one.end_s - one.first_token_s) / static_cast<double>(one.output_tokens - 1));
  }
  // Requests by their tokens: of those that are over at the end the short ones are too many.
  if (end_s > begin_s) {
    found.output_tokens_per_s = static_cast<double>(tokens) / (end_s - begin_s);
    found.requests_per_s = found.output_tokens_per_s * static_cast<double>(outcomes.size()) /
                           static_cast<double>(tokens_all);
  }
  found.ttft_s = figure_of(std::move(ttft), bounds.quantile);
  found.itl_s = figure_of(std::move(itl), bounds.gap_quantile());
  found.tpot_s = figure_of(std::move(tpot), bounds.quantile);
  found.e2e_s = figure_of(std::move(e2e), bounds.quantile);
  return found;
}

}  // namespace

BoundRatio ratio_to_bounds(const ServeBounds& bounds, double ttft_s, double itl_s, double tpot_s,
                           double e2e_s) {
  BoundRatio worst;
  const auto add = [&](std::string_view name, const std::optional<double>& most_s, double value_s) {
    if (!most_s) return;
    const double ratio = value_s / (*most_s * (1 - bounds.margin));
    if (worst.tightest.empty() || ratio > worst.ratio) worst = {ratio, name};
  };
  add("ttft", bounds.ttft_s, ttft_s);
  add("itl", bounds.itl_s, itl_s);
  add("tpot", bounds.tpot_s, tpot_s);
  add("e2e", bounds.e2e_s, e2e_s);
  return worst;
}

int64_t ServeLoad::users_with(const ServeSettings& settings) const {
  return saturated() ? settings.batch_requests_max : users;
}

Result<ServePrediction> predict_serving(const ServeLoad& load, const ServeBounds& bounds,
                                        const ServeSettings& settings) {
  ServeSimulationOptions options;
  plan::apply_settings(settings, options.scheduler);
  options.scheduler.pool = load.pool;
  options.scheduler.pool.prefix_cache = false;
  options.step = load.step;
  options.users = load.users_with(settings);
  // As much as is carried: somebody always waits.
  options.turnaround_s = load.saturated() ? 0 : kBenchTurnaroundSeconds;
  options.seed = load.seed;
  options.cancel = load.cancel;
  std::vector<RequestShape> requests = load.requests;
  if (load.rate_per_s > 0) rescale_arrivals(requests, load.rate_per_s);
  for (size_t i = 0; std::ssize(requests) < 4 * options.users; ++i) {
    requests.push_back(requests[i]);
  }
  JIGE_TRY(const ServeSimulationResult result, simulate_serve(requests, options));
  ServePrediction found = steady_part(result.outcomes, bounds, options.users);
  found.settings = settings;
  found.kv_blocks_max = result.kv_blocks_live_max;
  const BoundRatio worst = ratio_to_bounds(bounds, found.ttft_s.bounded, found.itl_s.bounded,
                                           found.tpot_s.bounded, found.e2e_s.bounded);
  found.ratio = worst.ratio;
  found.tightest = worst.tightest;
  if (found.requests_per_s < kCarriedShare * load.rate_per_s) {
    found.ratio = std::numeric_limits<double>::infinity();
  }
  return found;
}

}  // namespace jige::sim
