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

// The share of a distribution up to `value`, with straight lines between its quantiles.
double share_up_to(std::span<const double> quantiles, double value) {
  const auto above = std::ranges::upper_bound(quantiles, value);
  if (above == quantiles.begin()) return 0;
  if (above == quantiles.end()) return 1;
  const auto i = static_cast<size_t>(above - quantiles.begin());
  const double part = (value - quantiles[i - 1]) / (quantiles[i] - quantiles[i - 1]);
  return (static_cast<double>(i - 1) + part) / static_cast<double>(quantiles.size() - 1);
}

// Of the last requests: what a member of them is, in ascending order, and its mean.
struct SortedLengths {
  std::vector<double> values;
  double mean = 0;
};

SortedLengths sorted_lengths(const std::deque<EndedRequest>& requests,
                             int64_t EndedRequest::*const length) {
  SortedLengths sorted;
  double sum = 0;
  for (const EndedRequest& request : requests) {
    sorted.values.push_back(static_cast<double>(request.*length));
    sum += sorted.values.back();
  }
  std::ranges::sort(sorted.values);
  sorted.mean = sum / static_cast<double>(requests.size());
  return sorted;
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
  const auto look_at = [&](double value) {
    const auto up_to = std::ranges::upper_bound(values, value) - values.begin();
    const double share = static_cast<double>(up_to) / static_cast<double>(values.size());
    most = std::max(most, std::abs(share - share_up_to(quantiles, value)));
  };
  // Between two steps the difference goes one way: it is largest at one of their ends.
  for (const std::span<const double> steps : {values, quantiles}) {
    for (const double value : steps) {
      look_at(value - 1);
      look_at(value);
    }
  }
  return most;
}

DriftDetector::DriftDetector(PlannedLoad planned, DriftOptions options)
    : planned_(std::move(planned)), options_(options) {
  JIGE_CHECK(planned_.prompt_tokens.size() == kLengthQuantiles &&
                 planned_.answer_tokens.size() == kLengthQuantiles,
             "{} and {} quantiles of lengths", planned_.prompt_tokens.size(),
             planned_.answer_tokens.size());
}

void DriftDetector::arrive(double now_s) {
  arrivals_s_.push_back(now_s);
  if (std::ssize(arrivals_s_) > options_.window) arrivals_s_.pop_front();
}

// Requests a second between the first and the last arrival; 0 where they came at once.
double DriftDetector::rate() const {
  if (arrivals_s_.empty()) return 0;
  const double seconds = arrivals_s_.back() - arrivals_s_.front();
  return seconds > 0 ? static_cast<double>(arrivals_s_.size() - 1) / seconds : 0;
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

// Of those of lengths, by how many requests the plan was made for.
double DriftDetector::threshold_factor() const {
  if (planned_.requests == 0) return 1;
  const double chance = kChance * std::sqrt(1 / static_cast<double>(options_.window) +
                                            1 / static_cast<double>(planned_.requests));
  return std::max(1.0, chance / options_.distance_high);
}

void DriftDetector::look() {
  ++state_.looks;
  const SortedLengths prompts = sorted_lengths(last_, &EndedRequest::prompt_tokens);
  const SortedLengths answers = sorted_lengths(last_, &EndedRequest::answer_tokens);
  state_.prompt_tokens_mean = prompts.mean;
  state_.answer_tokens_mean = answers.mean;
  state_.prompt_distance = length_distance(prompts.values, planned_.prompt_tokens);
  state_.answer_distance = length_distance(answers.values, planned_.answer_tokens);
  state_.rate_per_s = rate();
  const bool rates = planned_.rate_per_s > 0 && state_.rate_per_s > 0;
  state_.rate_ratio = rates ? state_.rate_per_s / planned_.rate_per_s : 1;
  const double distance =
      std::max(state_.prompt_distance, state_.answer_distance) / threshold_factor();
  const double times = std::max(state_.rate_ratio, 1 / state_.rate_ratio);
  if (distance > options_.distance_high || times > options_.rate_high) {
    state_.drifted = true;
  } else if (distance < options_.distance_low && times < options_.rate_low) {
    state_.drifted = false;
  }
}

}  // namespace jige::plan
