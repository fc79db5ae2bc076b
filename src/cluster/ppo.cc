#include "cluster/ppo.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace jige::cluster {
namespace {

constexpr double kBeta1 = 0.9, kBeta2 = 0.999, kTiny = 1e-8;

void normalise_advantages(std::span<PpoStep> steps) {
  const auto count = static_cast<double>(steps.size());
  double mean = 0, square = 0;
  for (const PpoStep& step : steps) mean += step.advantage / count;
  for (const PpoStep& step : steps) {
    square += (step.advantage - mean) * (step.advantage - mean) / count;
  }
  const double scale = 1 / (std::sqrt(square) + kTiny);
  for (PpoStep& step : steps) step.advantage = (step.advantage - mean) * scale;
}

}  // namespace

void set_advantages(std::span<PpoStep> episode, double lambda, double value_behind) {
  double next_value = value_behind, next_advantage = 0;
  for (size_t i = episode.size(); i-- > 0;) {
    PpoStep& step = episode[i];
    const double delta = step.reward + step.discount * next_value - step.value;
    step.advantage = delta + step.discount * lambda * next_advantage;
    next_advantage = step.advantage;
    next_value = step.value;
  }
}

PpoLoss ppo_loss(const PolicyNetwork& network, std::span<const PpoStep* const> batch,
                 const PpoOptions& options, std::span<double> gradient) {
  PpoLoss total;
  const double part = 1 / static_cast<double>(batch.size());
  for (const PpoStep* step : batch) {
    const std::vector<double> shares = network.probabilities(step->choice);
    const double ratio = shares[step->chosen] / step->probability;
    const double clipped = std::clamp(ratio, 1 - options.clip, 1 + options.clip);
    const double free_gain = ratio * step->advantage, clipped_gain = clipped * step->advantage;
    // Where the clipped gain is the smaller one it does not change with the parameters.
    const double by_log = free_gain <= clipped_gain ? -free_gain * part : 0;
    double entropy = 0;
    for (const double share : shares) entropy -= share > 0 ? share * std::log(share) : 0;
    std::vector<double> by_logit(shares.size());
    for (size_t i = 0; i < shares.size(); ++i) {
      const double log_share = shares[i] > 0 ? std::log(shares[i]) : 0;
      by_logit[i] = by_log * ((i == step->chosen ? 1 : 0) - shares[i]) +
                    options.entropy_gain * part * shares[i] * (log_share + entropy);
    }
    const double miss = network.value(step->choice) - step->value;
    total.loss += part * (-std::min(free_gain, clipped_gain) +
                          options.value_cost * miss * miss / 2 - options.entropy_gain * entropy);
    total.entropy += part * entropy;
    network.backward(step->choice, by_logit, options.value_cost * part * miss, gradient);
  }
  return total;
}

PpoTrainer::PpoTrainer(PolicyNetwork& network, const PpoOptions& options, uint64_t seed)
    : network_(network),
      options_(options),
      rng_(derive_key(seed, "ppo")),
      mean_(network.parameters().size(), 0),
      square_(network.parameters().size(), 0) {}

void PpoTrainer::apply(std::span<double> gradient) {
  double square = 0;
  for (const double g : gradient) square += g * g;
  const double norm = std::sqrt(square);
  const double scale = norm > options_.gradient_max ? options_.gradient_max / norm : 1;
  ++updates_;
  const double lift1 = 1 - std::pow(kBeta1, updates_), lift2 = 1 - std::pow(kBeta2, updates_);
  const std::span<double> parameters = network_.parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    const double g = gradient[i] * scale;
    mean_[i] = kBeta1 * mean_[i] + (1 - kBeta1) * g;
    square_[i] = kBeta2 * square_[i] + (1 - kBeta2) * g * g;
    parameters[i] -= options_.rate * (mean_[i] / lift1) / (std::sqrt(square_[i] / lift2) + kTiny);
  }
}

PpoLoss PpoTrainer::update(std::span<PpoStep> steps) {
  if (steps.empty()) return {};
  for (PpoStep& step : steps) step.value += step.advantage;
  normalise_advantages(steps);
  std::vector<const PpoStep*> order;
  for (const PpoStep& step : steps) order.push_back(&step);
  std::vector<double> gradient(network_.parameters().size());
  PpoLoss mean;
  for (int epoch = 0; epoch < options_.epochs; ++epoch) {
    rng_.shuffle(std::span(order));
    mean = {};
    for (size_t begin = 0; begin < order.size(); begin += options_.batch) {
      const size_t size = std::min(options_.batch, order.size() - begin);
      std::ranges::fill(gradient, 0);
      const PpoLoss loss =
          ppo_loss(network_, std::span(order).subspan(begin, size), options_, gradient);
      apply(gradient);
      const double part = static_cast<double>(size) / static_cast<double>(order.size());
      mean.loss += loss.loss * part;
      mean.entropy += loss.entropy * part;
    }
  }
  return mean;
}

}  // namespace jige::cluster
