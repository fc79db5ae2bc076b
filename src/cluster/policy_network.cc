#include "cluster/policy_network.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/check.h"
#include "base/json.h"
#include "base/rng.h"

namespace jige::cluster {
namespace {

constexpr int64_t kWidthMax = 4096;

}  // namespace

// A tower: first weights [H, F], first bias [H], second weights [H, H], second bias [H], last
// weights [H], last bias.
size_t PolicyNetwork::tower_size() const {
  const auto f = static_cast<size_t>(features_), h = static_cast<size_t>(hidden_);
  return h * f + h + h * h + h + h + 1;
}

PolicyNetwork::PolicyNetwork(int32_t features, int32_t hidden)
    : features_(features), hidden_(hidden) {}

PolicyNetwork::PolicyNetwork(int32_t features, int32_t hidden, uint64_t seed)
    : PolicyNetwork(features, hidden) {
  parameters_.resize(2 * tower_size());
  Rng rng(derive_key(seed, "policy network"));
  const auto f = static_cast<size_t>(features), h = static_cast<size_t>(hidden);
  for (size_t tower = 0; tower < 2; ++tower) {
    double* at = parameters_.data() + tower * tower_size();
    for (size_t i = 0; i < h * f; ++i) at[i] = rng.normal() / std::sqrt(static_cast<double>(f));
    at += h * f + h;
    for (size_t i = 0; i < h * h; ++i) at[i] = rng.normal() / std::sqrt(static_cast<double>(h));
  }
}

std::span<const double> PolicyNetwork::row(const Choice& choice, size_t index) const {
  const auto f = static_cast<size_t>(features_);
  return std::span(choice.features).subspan(index * f, f);
}

PolicyNetwork::Layers PolicyNetwork::run(size_t tower, std::span<const double> input) const {
  const auto f = static_cast<size_t>(features_), h = static_cast<size_t>(hidden_);
  const double* w1 = parameters_.data() + tower * tower_size();
  const double* b1 = w1 + h * f;
  const double* w2 = b1 + h;
  const double* b2 = w2 + h * h;
  const double* w3 = b2 + h;
  Layers layers{std::vector<double>(h), std::vector<double>(h), w3[h]};
  for (size_t i = 0; i < h; ++i) {
    double sum = b1[i];
    for (size_t k = 0; k < f; ++k) sum += w1[i * f + k] * input[k];
    layers.first[i] = std::tanh(sum);
  }
  for (size_t i = 0; i < h; ++i) {
    double sum = b2[i];
    for (size_t k = 0; k < h; ++k) sum += w2[i * h + k] * layers.first[k];
    layers.second[i] = std::tanh(sum);
    layers.out += w3[i] * layers.second[i];
  }
  return layers;
}

void PolicyNetwork::run_back(size_t tower, std::span<const double> input, double by_out,
                             std::span<double> gradient) const {
  const Layers layers = run(tower, input);
  const auto f = static_cast<size_t>(features_), h = static_cast<size_t>(hidden_);
  const size_t begin = tower * tower_size();
  const double* w2 = parameters_.data() + begin + h * f + h;
  const double* w3 = w2 + h * h + h;
  double* g1 = gradient.data() + begin;
  double* g1_bias = g1 + h * f;
  double* g2 = g1_bias + h;
  double* g2_bias = g2 + h * h;
  double* g3 = g2_bias + h;
  std::vector<double> by_first(h, 0);
  for (size_t i = 0; i < h; ++i) {
    g3[i] += by_out * layers.second[i];
    const double by_sum = by_out * w3[i] * (1 - layers.second[i] * layers.second[i]);
    g2_bias[i] += by_sum;
    for (size_t k = 0; k < h; ++k) {
      g2[i * h + k] += by_sum * layers.first[k];
      by_first[k] += by_sum * w2[i * h + k];
    }
  }
  g3[h] += by_out;
  for (size_t i = 0; i < h; ++i) {
    const double by_sum = by_first[i] * (1 - layers.first[i] * layers.first[i]);
    g1_bias[i] += by_sum;
    for (size_t k = 0; k < f; ++k) g1[i * f + k] += by_sum * input[k];
  }
}

std::vector<double> PolicyNetwork::pooled(const Choice& choice) const {
  std::vector<double> mean(static_cast<size_t>(features_), 0);
  for (size_t i = 0; i < choice.count(); ++i) {
    const std::span<const double> features = row(choice, i);
    for (size_t k = 0; k < mean.size(); ++k) {
      mean[k] += features[k] / static_cast<double>(choice.count());
    }
  }
  return mean;
}

std::vector<double> PolicyNetwork::logits(const Choice& choice) const {
  JIGE_CHECK(choice.count() > 0, "a choice without candidates");
  std::vector<double> logits(choice.count());
  for (size_t i = 0; i < logits.size(); ++i) {
    logits[i] = choice.priors[i] + run(0, row(choice, i)).out;
  }
  return logits;
}

std::vector<double> PolicyNetwork::probabilities(const Choice& choice) const {
  std::vector<double> shares = logits(choice);
  const double most = std::ranges::max(shares);
  for (double& share : shares) share = std::exp(share - most);
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  for (double& share : shares) share /= sum;
  return shares;
}

double PolicyNetwork::value(const Choice& choice) const { return run(1, pooled(choice)).out; }

void PolicyNetwork::backward(const Choice& choice, std::span<const double> by_logit,
                             double by_value, std::span<double> gradient) const {
  for (size_t i = 0; i < choice.count(); ++i) run_back(0, row(choice, i), by_logit[i], gradient);
  run_back(1, pooled(choice), by_value, gradient);
}

std::string PolicyNetwork::to_json() const {
  Json json{{"jige_policy", 1}, {"features", features_}, {"hidden", hidden_}};
  json["parameters"] = parameters_;
  return dump_json(json) + "\n";
}

Result<PolicyNetwork> PolicyNetwork::from_json(std::string_view text, std::string_view where) {
  JIGE_TRY(const Json json, parse_json(text, where));
  JIGE_TRY(const int64_t version, get_int(json, "jige_policy", where));
  JIGE_TRY(const int64_t features, get_int(json, "features", where));
  JIGE_TRY(const int64_t hidden, get_int(json, "hidden", where));
  if (version != 1 || features < 1 || hidden < 1 || features > kWidthMax || hidden > kWidthMax) {
    return fail(Code::kCorrupt, "{}: version {}, {} features and {} hidden units are no policy",
                where, version, features, hidden);
  }
  PolicyNetwork network(static_cast<int32_t>(features), static_cast<int32_t>(hidden));
  const auto list = json.find("parameters");
  // Nothing is made for what a file only claims to hold.
  const size_t count = 2 * network.tower_size();
  if (list == json.end() || !list->is_array() || list->size() != count) {
    return fail(Code::kCorrupt, "{}: field \"parameters\" must hold {} numbers", where, count);
  }
  network.parameters_.resize(count);
  for (size_t i = 0; i < network.parameters_.size(); ++i) {
    const Json& number = (*list)[i];
    if (!number.is_number() || !std::isfinite(number.get<double>())) {
      return fail(Code::kCorrupt, "{}: parameter {} is no number", where, i);
    }
    network.parameters_[i] = number.get<double>();
  }
  return network;
}

}  // namespace jige::cluster
