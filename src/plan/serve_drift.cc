#include "plan/serve_drift.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace jige::plan {
namespace {

// Two samples of n and m of one distribution are farther apart than this times sqrt(1/n + 1/m) once
// in 8000 times.
constexpr double kChance = 2.2;

constexpr int64_t kEndedToUnderWay = 3;

// The share of a distribution up to `value`, with straight lines between its quantiles, of which
// `i` are no larger.
double share_up_to(std::span<const double> quantiles, size_t i, double value) {
  if (i == 0) return 0;
  if (i == quantiles.size()) return 1;
  const double part = (value - quantiles[i - 1]) / (quantiles[i] - quantiles[i - 1]);
  return (static_cast<double>(i - 1) + part) / static_cast<double>(quantiles.size() - 1);
}

std::vector<double> lengths_of(std::span<const EndedRequest> requests,
                               int64_t EndedRequest::*const length) {
  std::vector<double> lengths;
  for (const EndedRequest& request : requests) {
    lengths.push_back(static_cast<double>(request.*length));
  }
  return lengths;
}

double mean_of(std::span<const EndedRequest> requests, int64_t EndedRequest::*const length) {
  double sum = 0;
  for (const EndedRequest& request : requests) sum += static_cast<double>(request.*length);
  return sum / static_cast<double>(requests.size());
}

double distance_of(std::span<const EndedRequest> requests, int64_t EndedRequest::*const length,
                   std::span<const double> quantiles) {
  std::vector<double> lengths = lengths_of(requests, length);
  std::ranges::sort(lengths);
  return length_distance(lengths, quantiles);
}

void check_quantiles(const PlannedLoad& planned) {
  JIGE_CHECK(planned.prompt_tokens.size() == kLengthQuantiles &&
                 planned.answer_tokens.size() == kLengthQuantiles,
             "{} and {} quantiles of lengths", planned.prompt_tokens.size(),
             planned.answer_tokens.size());
}

// By which thresholds of lengths are larger, as few requests were planned for.
double threshold_factor(const PlannedLoad& planned, const DriftOptions& options) {
  if (planned.requests == 0) return 1;
  const double chance = kChance * std::sqrt(1 / static_cast<double>(options.window) +
                                            1 / static_cast<double>(planned.requests));
  return std::max(1.0, chance / options.distance_high);
}

}  // namespace

std::vector<double> length_quantiles(std::vector<double> lengths) {
  std::ranges::sort(lengths);
  std::vector<double> quantiles(kLengthQuantiles);
  for (size_t i = 0; i < kLengthQuantiles; ++i) {
    quantiles[i] = lengths[i * (lengths.size() - 1) / (kLengthQuantiles - 1)];
  }
  return quantiles;
}

double length_distance(std::span<const double> values, std::span<const double> quantiles) {
  double most = 0;
  // Between two steps the difference goes one way: it is largest at one of their ends.
  for (const std::span<const double> steps : {values, quantiles}) {
    for (const double before : {1.0, 0.0}) {
      size_t up_to = 0, quantiles_up_to = 0;  // both ascend with the steps
      for (const double step : steps) {
        const double value = step - before;
        while (up_to < values.size() && values[up_to] <= value) ++up_to;
        while (quantiles_up_to < quantiles.size() && quantiles[quantiles_up_to] <= value) {
          ++quantiles_up_to;
        }
        const double share = static_cast<double>(up_to) / static_cast<double>(values.size());
        most = std::max(most, std::abs(share - share_up_to(quantiles, quantiles_up_to, value)));
      }
    }
  }
  return most;
}

double RecentLoad::rate_per_s() const {
  if (arrivals_s.empty()) return 0;
  const double seconds = arrivals_s.back() - arrivals_s.front();
  return seconds > 0 ? static_cast<double>(arrivals_s.size() - 1) / seconds : 0;
}

PlannedLoad planned_for(const RecentLoad& recent, bool with_rate) {
  return {.prompt_tokens = length_quantiles(lengths_of(recent.ended, &EndedRequest::prompt_tokens)),
          .answer_tokens = length_quantiles(lengths_of(recent.ended, &EndedRequest::answer_tokens)),
          .rate_per_s = with_rate ? recent.rate_per_s() : 0,
          .requests = std::ssize(recent.ended)};
}

LoadDistance load_distance(const RecentLoad& recent, const PlannedLoad& planned) {
  LoadDistance distance{
      .prompts = distance_of(recent.ended, &EndedRequest::prompt_tokens, planned.prompt_tokens),
      .answers = distance_of(recent.ended, &EndedRequest::answer_tokens, planned.answer_tokens)};
  const double rate_per_s = recent.rate_per_s();
  if (planned.rate_per_s > 0 && rate_per_s > 0) {
    distance.rate_ratio = rate_per_s / planned.rate_per_s;
  }
  return distance;
}

bool is_drift(const LoadDistance& distance, const PlannedLoad& planned,
              const DriftOptions& options) {
  return distance.lengths() > options.distance_high * threshold_factor(planned, options) ||
         distance.rate_times() > options.rate_high;
}

DriftDetector::DriftDetector(PlannedLoad planned, DriftOptions options)
    : planned_(std::move(planned)), options_(options) {
  check_quantiles(planned_);
}

void DriftDetector::replan(PlannedLoad planned) {
  check_quantiles(planned);
  planned_ = std::move(planned);
  state_.drifted = false;
  ++state_.plans;
  if (state_.looks > 0) look();
}

void DriftDetector::arrive(double now_s) {
  arrivals_s_.push_back(now_s);
  if (std::ssize(arrivals_s_) > options_.window) arrivals_s_.pop_front();
}

RecentLoad DriftDetector::recent() const {
  return {.ended = {last_.begin(), last_.end()},
          .arrivals_s = {arrivals_s_.begin(), arrivals_s_.end()}};
}

bool DriftDetector::add(const EndedRequest& request, int64_t under_way) {
  last_.push_back(request);
  ++ended_count_;
  ++since_look_;
  if (std::ssize(last_) < options_.window) return false;
  if (std::ssize(last_) > options_.window) last_.pop_front();
  if (state_.looks == 0 && ended_count_ < kEndedToUnderWay * under_way) return false;
  if (state_.looks > 0 && since_look_ < options_.step) return false;
  since_look_ = 0;
  const bool before = state_.drifted;
  look();
  return state_.drifted != before;
}

void DriftDetector::look() {
  ++state_.looks;
  const RecentLoad recent = this->recent();
  const LoadDistance distance = load_distance(recent, planned_);
  state_.prompt_tokens_mean = mean_of(recent.ended, &EndedRequest::prompt_tokens);
  state_.answer_tokens_mean = mean_of(recent.ended, &EndedRequest::answer_tokens);
  state_.prompt_distance = distance.prompts;
  state_.answer_distance = distance.answers;
  state_.rate_per_s = recent.rate_per_s();
  state_.rate_ratio = distance.rate_ratio;
  if (is_drift(distance, planned_, options_)) {
    state_.drifted = true;
  } else if (distance.lengths() < options_.distance_low * threshold_factor(planned_, options_) &&
             distance.rate_times() < options_.rate_low) {
    state_.drifted = false;
  }
}

}  // namespace jige::plan
