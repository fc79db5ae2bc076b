// PolicyNetwork: scores candidates and values a state, small enough to train on a CPU.
//
//   logit of a candidate   prior + actor(features of the candidate), the same actor for all
//   value of the state     critic(mean of the candidates' features)
//   actor, critic          F -> H tanh -> H tanh -> 1, own parameters, last layer zero at first
//
// So an untrained network follows the prior, and another number of candidates, jobs or nodes needs
// no other network. One candidate may be to do nothing; what is forbidden is not among them.
// File: JSON {"jige_policy": 1, "features": F, "hidden": H, "parameters": [...]}; numbers come back
// bit for bit. Threads: a value.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace jige::cluster {

// What a choice was made from: rows of `features` numbers.
struct Choice {
  std::vector<double> features;  // row by row
  std::vector<double> priors;    // a row each
  size_t count() const { return priors.size(); }
};

class PolicyNetwork {
 public:
  PolicyNetwork(int32_t features, int32_t hidden, uint64_t seed);

  int32_t feature_count() const { return features_; }
  std::span<double> parameters() { return parameters_; }
  std::span<const double> parameters() const { return parameters_; }

  // Logits and probabilities of the candidates. REQUIRES: at least one.
  std::vector<double> logits(const Choice& choice) const;
  std::vector<double> probabilities(const Choice& choice) const;
  double value(const Choice& choice) const;

  // Adds to `gradient` what the gradients by each logit and by the value give by parameters.
  void backward(const Choice& choice, std::span<const double> by_logit, double by_value,
                std::span<double> gradient) const;

  std::string to_json() const;
  // Fails with kCorrupt, naming `where` and the field.
  static Result<PolicyNetwork> from_json(std::string_view text, std::string_view where);

 private:
  // Without parameters.
  PolicyNetwork(int32_t features, int32_t hidden);
  struct Layers {
    std::vector<double> first, second;
    double out = 0;
  };
  size_t tower_size() const;
  Layers run(size_t tower, std::span<const double> input) const;
  void run_back(size_t tower, std::span<const double> input, double by_out,
                std::span<double> gradient) const;
  std::vector<double> pooled(const Choice& choice) const;
  std::span<const double> row(const Choice& choice, size_t index) const;

  int32_t features_, hidden_;
  std::vector<double> parameters_;  // actor, then critic
};

}  // namespace jige::cluster
