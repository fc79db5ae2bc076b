// PPO: proximal policy optimisation of a PolicyNetwork from recorded choices.
//
//   delta_t = r_t + d_t V(t+1) - V(t)          d_t: discount over the time to the next choice
//   A_t     = delta_t + d_t lambda A_(t+1)     0 behind the last choice of an episode
//   loss    = mean of  -min(q A, clip(q, 1 - e, 1 + e) A) + value_cost (V - target)^2 / 2
//             - entropy_gain H,   q = p_new / p_old, target = V_old + A; A is then brought to mean
//             0 and deviation 1
//
// An episode that ends has nothing behind it; one that is cut off has the value of the state it was
// cut at in `value_behind`. The same inputs and seed give the same bits. Threads: none.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/rng.h"
#include "cluster/policy_network.h"

namespace jige::cluster {

struct PpoStep {
  Choice choice;
  size_t chosen = 0;
  double probability = 1;  // of it, when it was chosen
  double value = 0;        // of the state, then; what it should be, once advantages are in
  double reward = 0;       // until the next choice
  double discount = 1;     // over that time
  double advantage = 0;
};

struct PpoOptions {
  double lambda = 0.95;
  double clip = 0.2;
  double entropy_gain = 0.003;
  double value_cost = 0.5;
  double rate = 1e-3;         // of learning
  double gradient_max = 0.5;  // its norm
  int epochs = 4;
  size_t batch = 64;
};

// Sets advantages of one episode.
void set_advantages(std::span<PpoStep> episode, double lambda, double value_behind);

// The loss of a batch and its gradient, which is added to. Advantages are taken as they are, and
// `value` of a step as the critic's target.
struct PpoLoss {
  double loss = 0;
  double entropy = 0;
};
PpoLoss ppo_loss(const PolicyNetwork& network, std::span<const PpoStep* const> batch,
                 const PpoOptions& options, std::span<double> gradient);

class PpoTrainer {
 public:
  PpoTrainer(PolicyNetwork& network, const PpoOptions& options, uint64_t seed);
  // Some epochs over these steps; the mean loss and entropy of the last one.
  PpoLoss update(std::span<PpoStep> steps);

 private:
  void apply(std::span<double> gradient);

  PolicyNetwork& network_;
  PpoOptions options_;
  Rng rng_;
  std::vector<double> mean_, square_;  // Adam's
  int64_t updates_ = 0;
};

}  // namespace jige::cluster
