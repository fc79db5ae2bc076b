// Layers that share the keys of one before them, in models without an input of its own for each
// layer, against the same with such inputs that say nothing.
#include "model/model_test_support.h"

namespace jige::model {
namespace {

using testing::fixture;
using testing::random_sequences;
using testing::Trainee;
using testing::value_of;

std::map<std::string, std::vector<float>> gradients_by_name(Trainee& trainee) {
  std::map<std::string, std::vector<float>> gradients;
  for (const NamedParam& param : trainee.weights().trainable()) {
    const float* values = param.grad.as<float>();
    gradients[param.spec->name] = {values, values + param.grad.count()};
  }
  return gradients;
}

TEST(SharedKeys, NeedNoInputsOfLayers) {
  const formats::ModelConfig with_inputs =
      value_of(formats::load_model_config(fixture("gemma4_layer_inputs")));
  ASSERT_GT(with_inputs.shared_kv_layers, 0);
  formats::ModelConfig config = with_inputs;
  config.layer_inputs = {};

  Trainee silent(with_inputs, {});
  Trainee without(config, {});
  silent.randomise(3);
  without.randomise(3);
  size_t gates = 0;
  for (const NamedParam& param : silent.weights().trainable()) {
    if (!param.spec->name.ends_with("per_layer_input_gate.weight")) continue;
    std::fill_n(param.value.as<float>(), param.value.count(), 0.0f);
    ++gates;
  }
  ASSERT_EQ(gates, static_cast<size_t>(config.layer_count));
  silent.weights().pack(silent.stream());

  const auto sequences = random_sequences({9, 14}, config.vocab_size, 5);
  EXPECT_EQ(without.mean_loss(sequences), silent.mean_loss(sequences));
  silent.gradients({sequences});
  without.gradients({sequences});
  const auto expected = gradients_by_name(silent);
  for (const auto& [name, gradient] : gradients_by_name(without)) {
    EXPECT_EQ(gradient, expected.at(name)) << name;
  }
}

}  // namespace
}  // namespace jige::model
