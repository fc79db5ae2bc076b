#include "sim/serve_planner.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <span>
#include <utility>

#include "plan/serve_search.h"
#include "plan/serve_steady.h"
#include "sim/serve_plan_check.h"

namespace jige::sim {
namespace {

using plan::ServePolicy;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr size_t kLengthsMax = 512;        // of which the closed form knows
constexpr double kSearchTolerance = 0.05;  // the closed form is only nearly monotone
constexpr double kWorthwhile = 0.002;      // more throughput, or less time, than was found
constexpr double kFar = 2;        // doublings, from where a simulation says nothing any more
constexpr double kNearly = 1.2;   // of a ratio to bounds that simulations may show to be kept
constexpr double kHopeless = 2;   // of a ratio to bounds, where nothing keeps them yet
constexpr double kAlike = 0.005;  // of throughputs: the faster answers count
constexpr double kMore = 1.01;    // what counts as more throughput

// So many values for each doubling, in equal steps, up to the most, which is among them: with two
// 1, 2, 3, 4, 6, 8, 12 …
std::vector<int32_t> ladder(int32_t least, int32_t most, int64_t per_doubling) {
  std::vector<int32_t> values;
  for (int64_t power = 1; power <= most; power *= 2) {
    for (int64_t i = 0; i < per_doubling; ++i) {
      const int64_t value = power + power * i / per_doubling;
      const bool is_new = values.empty() || value > values.back();
      if (value >= least && value <= most && is_new) values.push_back(static_cast<int32_t>(value));
    }
  }
  if (values.empty() || values.back() != most) values.push_back(most);
  return values;
}

// The time of an iteration by what it has in the mean.
struct LoadSeconds {
  const StepTime& step;
  double operator()(const plan::StepLoad& load) const {
    // Sequences with one row read what is not of prompts.
    return step.mean_seconds(
        StepFeatures{.rows = load.rows(),
                     .sampled_rows = load.sampled_rows(),
                     .sequences = load.sequences(),
                     .kv_tokens = load.kv_tokens,
                     .decode_keys = std::max(load.kv_tokens - load.prompt_tokens, 0.0),
                     .pairs = load.pairs});
  }
};

std::vector<plan::RequestLengths> lengths_of(std::span<const RequestShape> requests) {
  std::vector<plan::RequestLengths> lengths;
  const size_t count = std::min(requests.size(), kLengthsMax);
  for (size_t i = 0; i < count; ++i) {
    const RequestShape& shape = requests[i * requests.size() / count];
    lengths.push_back({shape.prompt_tokens, shape.output_tokens});
  }
  return lengths;
}

// A setting by the closed form.
struct Candidate {
  ServeSettings settings;
  double requests_per_s = 0;
  double ratio = kInfinity;
  double answer_s = 0;
  bool simulated = false;
};

// How much more a simulation gave than the closed form.
struct Correction {
  ServeSettings settings;
  double throughput = 1;
  double answer = 1;  // its mean time
  double ratio = 1;
};

// Of settings of one policy, in doublings.
double distance(const ServeSettings& a, const ServeSettings& b) {
  const auto apart = [](int32_t x, int32_t y) {
    return x == y ? 0 : std::fabs(std::log2(static_cast<double>(x) / static_cast<double>(y)));
  };
  return apart(a.batch_requests_max, b.batch_requests_max) +
         apart(a.batch_tokens_max, b.batch_tokens_max) + apart(a.round_prompts, b.round_prompts) +
         apart(a.round_steps, b.round_steps);
}

class ServePlanner {
 public:
  explicit ServePlanner(const ServePlanRequest& request)
      : request_(request),
        load_(request.load),
        lengths_(lengths_of(load_.requests), load_.pool.block_tokens),
        seconds_of_(LoadSeconds{load_.step}) {}

  Result<ServePlan> run() {
    const bool monotone = load_.saturated() && !request_.bounds.ttft_s;
    JIGE_DO(judge(/*all=*/!monotone));
    plan_.settings = settings_;
    plan_.evaluated = std::ssize(candidates_);
    total_ = std::min<int64_t>(request_.simulations_max, plan_.evaluated);
    JIGE_DO(simulate_usual());
    JIGE_DO(simulate_finalists());
    choose();
    if (request_.certify) JIGE_DO(certify());
    plan_.simulated = std::ssize(predictions_);
    return std::move(plan_);
  }

 private:
  // More is better.
  double merit(double requests_per_s, double answer_s) const {
    return load_.rate_per_s > 0 ? -answer_s : requests_per_s;
  }
  double merit(const ServePrediction& one) const {
    return merit(one.requests_per_s, one.e2e_s.mean);
  }

  // Settings by the closed form: all, or those that a search asks for.
  Status judge(bool all) {
    settings_ = 0;
    candidates_.clear();
    for (const ServePolicy policy : request_.policies) JIGE_DO(judge(policy, all));
    return {};
  }

  Status judge(ServePolicy policy, bool all) {
    int32_t rows_max = request_.batch_requests_max;
    if (load_.users > 0) {
      rows_max = static_cast<int32_t>(std::min<int64_t>(rows_max, load_.users));
    }
    const std::vector<int32_t> rows = ladder(1, rows_max, 4);
    if (policy == ServePolicy::kChunked) {
      for (const int32_t tokens :
           ladder(std::min(16, request_.batch_tokens_max), request_.batch_tokens_max, 2)) {
        JIGE_DO(search(all, {static_cast<int32_t>(rows.size())}, [&](const plan::Setting& at) {
          return ServeSettings{.policy = policy,
                               .batch_requests_max = rows[static_cast<size_t>(at[0])],
                               .batch_tokens_max = tokens};
        }));
      }
      return {};
    }
    if (policy != ServePolicy::kRounds) {
      return search(all, {static_cast<int32_t>(rows.size())}, [&](const plan::Setting& at) {
        return ServeSettings{.policy = policy,
                             .batch_requests_max = rows[static_cast<size_t>(at[0])]};
      });
    }
    const std::vector<int32_t> prompts = ladder(1, std::min(rows_max, 64), 2);
    std::vector<int32_t> steps = ladder(1, 128, 2);
    std::ranges::reverse(steps);  // fewer are more of both
    return search(all,
                  {static_cast<int32_t>(rows.size()), static_cast<int32_t>(prompts.size()),
                   static_cast<int32_t>(steps.size())},
                  [&](const plan::Setting& at) {
                    return ServeSettings{.policy = policy,
                                         .batch_requests_max = rows[static_cast<size_t>(at[0])],
                                         .round_prompts = prompts[static_cast<size_t>(at[1])],
                                         .round_steps = steps[static_cast<size_t>(at[2])]};
                  });
  }

  template <typename SettingsOf>
  Status search(bool all, const std::vector<int32_t>& sizes, const SettingsOf& settings_of) {
    int64_t count = 1;
    for (const int32_t size : sizes) count *= size;
    settings_ += count;
    std::map<plan::Setting, plan::SettingScore> seen;
    const plan::EvaluateSetting evaluate = [&](const plan::Setting& at) {
      const auto [found, is_new] = seen.try_emplace(at);
      if (!is_new) return found->second;
      if (cancelled()) return found->second;
      const Candidate one = by_closed_form(settings_of(at));
      candidates_.push_back(one);
      found->second = {.throughput = one.requests_per_s, .latency = one.ratio};
      return found->second;
    };
    if (all) {
      plan::search_all_settings(sizes, evaluate, {});
    } else {
      // Near the bounds on both sides, since simulations will differ.
      for (const double ratio_max : {1.0, 0.7, 0.5, 1.4}) {
        plan::search_settings(sizes, evaluate,
                              {.latency_max = ratio_max,
                               .throughput_tolerance = kSearchTolerance,
                               .latency_tolerance = kSearchTolerance});
      }
    }
    if (cancelled()) return fail(Code::kCancelled, "by a signal");
    return {};
  }

  plan::SteadyOptions steady_options(const ServeSettings& settings) const {
    return {.policy = settings.policy,
            .batch_requests_max = settings.batch_requests_max,
            .batch_tokens_max = settings.batch_tokens_max,
            .round_prompts = settings.round_prompts,
            .round_steps = settings.round_steps,
            .block_count = load_.pool.block_count,
            .users = static_cast<double>(load_.users_with(settings)),
            .rate_per_s = load_.rate_per_s};
  }

  Candidate by_closed_form(const ServeSettings& settings) const {
    const plan::SteadyState state =
        plan::steady_state(lengths_, steady_options(settings), seconds_of_);
    Candidate one{.settings = settings, .requests_per_s = state.requests_per_s};
    one.answer_s = state.wait_s + state.answer_s;
    if (!state.carried) return one;
    const double quantile = request_.bounds.quantile;
    // A wait is between none and twice its mean.
    const double ttft_s = state.first_s + state.wait_s * (1 + quantile);
    const double e2e_s = state.wait_s + state.latency_s(lengths_.output_quantile(quantile));
    const double itl_s = state.gap_quantile_s(request_.bounds.gap_quantile());
    const BoundRatio worst =
        ratio_to_bounds(request_.bounds, ttft_s, itl_s, state.gap_mean_s(), e2e_s);
    one.ratio = worst.ratio;
    return one;
  }

  // As the nearest simulation of its policy was off; of the ratio to bounds, where that changes
  // much from setting to setting, the less the farther it is.
  Candidate corrected(const Candidate& one) const {
    const Correction* nearest = nullptr;
    double least = kInfinity;
    for (const Correction& off : corrections_) {
      if (off.settings.policy != one.settings.policy) continue;
      const double its = distance(off.settings, one.settings);
      if (its < least) nearest = &off;
      least = std::min(least, its);
    }
    Candidate same = one;
    if (!nearest) return same;
    same.requests_per_s *= nearest->throughput;
    same.answer_s *= nearest->answer;
    same.ratio *= std::pow(nearest->ratio, std::max(0.0, 1 - least / kFar));
    return same;
  }

  // Bounds before all, then what is promised.
  std::pair<bool, double> promise(const Candidate& one) const {
    const bool keeps = one.ratio <= 1;
    return {keeps, keeps ? merit(one.requests_per_s, one.answer_s) : -one.ratio};
  }

  // The least ratio to the bounds: near what was simulated and did not keep them, it is far above.
  Candidate* safest() {
    Candidate* least = nullptr;
    double least_ratio = kInfinity;
    for (Candidate& one : candidates_) {
      if (one.simulated || !std::isfinite(one.ratio)) continue;
      const double ratio = corrected(one).ratio;
      if (!least || ratio < least_ratio) least = &one;
      least_ratio = std::min(least_ratio, ratio);
    }
    return least;
  }

  template <typename Counts>
  Candidate* most_promising(const Counts& counts) {
    Candidate* best = nullptr;
    std::pair<bool, double> most;
    for (Candidate& one : candidates_) {
      if (one.simulated || !std::isfinite(one.ratio) || !counts(one)) continue;
      const auto its = promise(corrected(one));
      if (best && its <= most) continue;
      best = &one;
      most = its;
    }
    return best;
  }

  // One of those to choose from, unless it is beyond what settings may have.
  Status simulate_usual() {
    const ServeSettings& usual = request_.usual;
    JIGE_TRY(plan_.usual, predict_serving(load_, request_.bounds, usual));
    if (std::ranges::find(request_.policies, usual.policy) == request_.policies.end() ||
        usual.batch_requests_max > request_.batch_requests_max ||
        usual.batch_tokens_max > request_.batch_tokens_max) {
      return {};
    }
    for (Candidate& one : candidates_) one.simulated |= one.settings == usual;
    keep(by_closed_form(usual), plan_.usual);
    return {};
  }

  // Each policy's best first; then the best of all, as long as one promises more than was found and
  // may keep the bounds. Where nothing has kept them with half of the simulations, those that stay
  // farthest below them are tried: what carries little may be all that does.
  Status simulate_finalists() {
    for (const ServePolicy policy : request_.policies) {
      Candidate* const best =
          most_promising([policy](const Candidate& one) { return one.settings.policy == policy; });
      if (best) JIGE_DO(try_out(*best));
    }
    const auto simulations_max = static_cast<size_t>(total_);
    while (predictions_.size() < simulations_max) {
      const size_t best = best_index();
      const bool found = best < predictions_.size();
      const double had = found ? merit(predictions_[best]) : 0;
      const auto promises_more = [&](const Candidate& one) {
        const Candidate same = corrected(one);
        const double promised = merit(same.requests_per_s, same.answer_s);
        return !found || promised > had + kWorthwhile * std::fabs(had);
      };
      const bool in_need = !found && predictions_.size() >= simulations_max / 2;
      Candidate* const next = in_need ? safest() : most_promising(promises_more);
      if (!next || corrected(*next).ratio > (found ? kNearly : kHopeless)) return {};
      JIGE_DO(try_out(*next));
    }
    return {};
  }

  Status try_out(Candidate& one) {
    if (one.simulated) return {};
    one.simulated = true;
    if (request_.progress) request_.progress(std::ssize(predictions_), total_);
    JIGE_TRY(ServePrediction found, predict_serving(load_, request_.bounds, one.settings));
    keep(one, std::move(found));
    return {};
  }

  void keep(const Candidate& one, ServePrediction found) {
    Correction off{.settings = one.settings};
    if (found.requests_per_s > 0 && one.requests_per_s > 0) {
      off.throughput = found.requests_per_s / one.requests_per_s;
      plan_.steady_error_max = std::max(plan_.steady_error_max, std::fabs(1 / off.throughput - 1));
    }
    if (one.answer_s > 0) off.answer = found.e2e_s.mean / one.answer_s;
    if (one.ratio > 0 && std::isfinite(one.ratio)) off.ratio = found.ratio / one.ratio;
    corrections_.push_back(off);
    predictions_.push_back(std::move(found));
  }

  bool cancelled() const { return load_.cancel && load_.cancel->load(std::memory_order_relaxed); }

  // predictions_.size() where nothing keeps the bounds.
  size_t best_index() const {
    size_t best = predictions_.size();
    for (size_t i = 0; i < predictions_.size(); ++i) {
      if (!predictions_[i].keeps_bounds()) continue;
      if (best == predictions_.size() || merit(predictions_[i]) > merit(predictions_[best])) {
        best = i;
      }
    }
    return best;
  }

  // Whether `one` is to be preferred: bounds before all.
  bool better(const ServePrediction& one, const ServePrediction& other) const {
    if (one.keeps_bounds() != other.keeps_bounds()) return one.keeps_bounds();
    return one.keeps_bounds() ? merit(one) > merit(other) : one.ratio < other.ratio;
  }

  void choose() {
    const auto first_where = [this](const auto& counts, const auto& in_front) {
      const ServePrediction* first = nullptr;
      for (const ServePrediction& one : predictions_) {
        if (counts(one) && (!first || in_front(one, *first))) first = &one;
      }
      return first;
    };
    const auto best_where = [&](const auto& counts) {
      return first_where(counts, [this](const ServePrediction& one, const ServePrediction& other) {
        return better(one, other);
      });
    };
    for (const ServePolicy policy : request_.policies) {
      const ServePrediction* best =
          best_where([&](const ServePrediction& one) { return one.settings.policy == policy; });
      if (best) plan_.by_policy.push_back(*best);
    }
    const ServePrediction* best = best_where([](const ServePrediction&) { return true; });
    if (!best) return;
    if (!best->keeps_bounds()) {
      plan_.nearest = *best;
      plan_.binding = best->tightest;
      return;
    }
    // Throughput that is as good as the greatest may come with much faster answers.
    const ServePrediction* const fastest = first_where(
        [&](const ServePrediction& one) {
          return one.keeps_bounds() &&
                 merit(one) >= merit(*best) - kAlike * std::fabs(merit(*best));
        },
        [](const ServePrediction& one, const ServePrediction& other) {
          return one.e2e_s.mean < other.e2e_s.mean;
        });
    plan_.chosen = *(best = fastest);
    const ServePrediction* other = best_where([&](const ServePrediction& one) {
      return one.keeps_bounds() && one.settings.policy != best->settings.policy;
    });
    if (!other) {
      other = best_where([&](const ServePrediction& one) {
        return one.keeps_bounds() && one.settings != best->settings;
      });
    }
    if (other) plan_.runner_up = *other;
    plan_.binding = binding(*best);
  }

  std::string binding(const ServePrediction& chosen) const {
    if (load_.rate_per_s > 0) return "rate";
    const ServePrediction* more = nullptr;
    for (const ServePrediction& one : predictions_) {
      if (one.keeps_bounds() || one.requests_per_s < kMore * chosen.requests_per_s) continue;
      if (!more || one.requests_per_s > more->requests_per_s) more = &one;
    }
    if (more) return std::string(more->tightest);
    // What would help if there were more of it.
    plan::SteadyOptions options = steady_options(chosen.settings);
    const double now = plan::steady_state(lengths_, options, seconds_of_).requests_per_s;
    const auto helps = [&](const plan::SteadyOptions& other) {
      return plan::steady_state(lengths_, other, seconds_of_).requests_per_s > kMore * now;
    };
    plan::SteadyOptions more_memory = options;
    more_memory.block_count *= 2;
    if (helps(more_memory)) return "memory";
    plan::SteadyOptions more_users = options;
    more_users.users *= 2;
    more_users.batch_requests_max = request_.batch_requests_max;
    if (!load_.saturated() && helps(more_users)) return "users";
    options.users *= 2;
    options.batch_requests_max *= 2;
    return helps(options) ? "answers at once" : "time of an iteration";
  }

  Status certify() {
    total_ = settings_;
    JIGE_DO(judge(/*all=*/true));
    for (Candidate& one : candidates_) {
      one.simulated = std::ranges::find(predictions_, one.settings, &ServePrediction::settings) !=
                      predictions_.end();
      JIGE_DO(try_out(one));
    }
    const size_t best = best_index();
    if (best == predictions_.size() || !plan_.chosen) return {};
    plan_.certified = predictions_[best];
    plan_.certified_gain = std::fabs(merit(predictions_[best]) / merit(*plan_.chosen) - 1);
    return {};
  }

  const ServePlanRequest& request_;
  const ServeLoad& load_;
  const plan::LengthModel lengths_;
  const plan::StepSeconds seconds_of_;
  std::vector<Candidate> candidates_;
  std::vector<ServePrediction> predictions_;
  std::vector<Correction> corrections_;  // of predictions_
  int64_t settings_ = 0;
  int64_t total_ = 0;
  ServePlan plan_;
};

}  // namespace

Result<ServePlan> plan_serving(const ServePlanRequest& request) {
  JIGE_DO(check_serve_plan_request(request));
  return ServePlanner(request).run();
}

}  // namespace jige::sim
