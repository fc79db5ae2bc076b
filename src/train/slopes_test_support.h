// Gradients of whole engines against finite differences.
//
// Threads: the test's.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "model/weights.h"

namespace jige::train {

// Moves each parameter by `step` to either side along the gradient that a rig's last step left
// behind, and expects the loss to differ as that says. `loss` gives it with the weights as they are
// then packed, and must leave no other gradient that counts: each is read before its parameter
// moves.
template <typename Rig, typename Loss>
void expect_slopes(Rig& rig, double step, const std::string& trace, const Loss& loss) {
  model::ModelWeights& weights = rig.engine().weights();
  Stream& stream = rig.engine().stream();
  for (const model::NamedParam& param : rig.params()) {
    float* values = param.value.template as<float>();
    const float* of_loss = param.grad.template as<float>();
    const auto count = static_cast<size_t>(param.value.count());
    const std::vector<float> kept(values, values + count);
    const std::vector<float> gradient(of_loss, of_loss + count);
    double squares = 0;
    for (const float value : gradient) squares += double{value} * value;
    const double norm = std::sqrt(squares);
    const auto loss_at = [&](double distance) {
      for (size_t i = 0; i < count; ++i) {
        values[i] = kept[i] + static_cast<float>(distance * gradient[i] / norm);
      }
      weights.pack(stream);
      return loss();
    };
    const double slope = (loss_at(step) - loss_at(-step)) / (2 * step);
    loss_at(0);
    EXPECT_NEAR(slope, norm, 0.02 * norm + 1e-3) << param.spec->name << trace;
  }
}

}  // namespace jige::train
