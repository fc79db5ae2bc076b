// Gradients of a whole model against differences of its loss.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/rough_normal.h"
#include "model/model_test_support.h"

namespace jige::model::testing {

// Renews the packed forms of a parameter alone: what has no value keeps its own. Those of adapters
// depend on one another.
inline void pack_alone(Trainee& trainee, const std::string& name, size_t node) {
  const Block& block = trainee.architecture().block(node);
  BlockWeights alone = trainee.weights().block(node);
  for (size_t i = 0; i < alone.params.size(); ++i) {
    const ParamSpec& spec = block.params()[i];
    if (spec.name != name && !spec.adapter) alone.params[i].value = {};
  }
  const WeightsOptions& options = trainee.weights().options();
  block.pack(trainee.stream(), alone, options.compute, options.use);
}

// In the nodes that read the parameter: the head may share the table.
inline void pack_uses(Trainee& trainee, const NamedParam& param) {
  pack_alone(trainee, param.spec->name, param.node);
  if (param.node == 0) {
    pack_alone(trainee, param.spec->name, trainee.architecture().head_node());
  }
}

// The loss at value + step · direction of one parameter. REQUIRES: what the nodes in front of it
// give is that of these sequences.
inline double loss_along(Trainee& trainee, const NamedParam& param,
                         const std::vector<float>& direction, double step,
                         const std::vector<Sequence>& sequences) {
  float* values = param.value.as<float>();
  const std::vector<float> before(values, values + direction.size());
  for (size_t i = 0; i < direction.size(); ++i) {
    values[i] = static_cast<float>(before[i] + step * direction[i]);
  }
  pack_uses(trainee, param);
  const double loss = trainee.mean_loss(sequences, param.node);
  std::copy(before.begin(), before.end(), values);
  return loss;
}

// Along a direction between a parameter's own gradient and a random one the loss must rise by the
// inner product with the gradient.
inline void expect_gradients_match_differences(Trainee& trainee,
                                               const std::vector<Sequence>& sequences) {
  trainee.gradients({sequences});
  Rng rng(derive_key(5, "directions"));
  const formats::ModelConfig& config = trainee.architecture().config();
  const formats::ExpertConfig& experts = config.experts;
  size_t node = 0;
  for (const NamedParam& param : trainee.weights().trainable()) {
    if (param.node != node) trainee.losses(sequences);  // of the values as they are
    node = param.node;
    const auto count = static_cast<size_t>(param.grad.count());
    const float* gradient = param.grad.as<float>();
    const bool zero = std::count(gradient, gradient + count, 0.0f) == param.grad.count();
    EXPECT_TRUE(zero || !param.spec->fixed) << param.spec->name;
    const bool unchosen = param.spec->stacked && experts.chosen < experts.count && zero;
    // A bias of keys that do not turn adds the same to all scores of a query.
    const bool idle = config.position == formats::PositionKind::kLearned &&
                      param.spec->name.ends_with("k_proj.bias");
    if (param.spec->fixed || unchosen || idle) continue;
    std::vector<float> direction(count);
    double own = 0, other = 0;
    for (size_t i = 0; i < count; ++i) {
      direction[i] = rough_normal(rng);
      other += static_cast<double>(direction[i]) * direction[i];
      own += static_cast<double>(gradient[i]) * gradient[i];
    }
    EXPECT_GT(own, 1e-9) << param.spec->name << " has no gradient";
    const double of_own = std::sqrt(0.5 / own), of_other = std::sqrt(0.5 / other);
    double expected = 0;
    for (size_t i = 0; i < count; ++i) {
      direction[i] = static_cast<float>(of_own * gradient[i] + of_other * direction[i]);
      expected += static_cast<double>(gradient[i]) * direction[i];
    }
    const auto rise = [&](double step) {
      return loss_along(trainee, param, direction, step, sequences) -
             loss_along(trainee, param, direction, -step, sequences);
    };
    const double step = 5e-3;  // differences of fourth order: f32 losses need a long step
    const double slope = (8 * rise(step) - rise(2 * step)) / (12 * step);
    EXPECT_NEAR(slope, expected, 5e-4 * std::abs(expected) + 7e-5) << param.spec->name;
    pack_uses(trainee, param);
  }
}

// A loss without the steps that it has where a token's choice of experts changes, or the columns of
// a sparse gate that count.
inline formats::ModelConfig smooth_config(formats::Family family) {
  formats::ModelConfig config = without_layer_inputs(tiny_config(family));
  config.experts.chosen = config.experts.count;
  config.experts.chosen_groups = config.experts.groups;
  config.ffn_sparsity.clear();
  if (config.delta.norm_eps > 0)
    config.delta.norm_eps = 0.1;  // a head's first results may be near zero
  return config;
}

}  // namespace jige::model::testing
