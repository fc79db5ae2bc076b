// Adapters with lengths of rows (DoRA) in training: gradients of the lengths, what they must not
// depend on, memory. The rest is held against PEFT in train/adapter_training_test.cc.
#include <cmath>

#include "formats/lora_config.h"
#include "model/model_test_support.h"

namespace jige::model {
namespace {

using formats::Family;
using testing::flat_gradients;
using testing::random_sequences;
using testing::tiny_config;
using testing::Trainee;

constexpr Family kDoraFamilies[] = {Family::kLlama,    Family::kQwen2,    Family::kGpt2,
                                    Family::kPhi,      Family::kGranite,  Family::kDeepSeekV2,
                                    Family::kFalconH1, Family::kQwen3Next};

formats::ModelConfig dora_base(Family family) {
  formats::ModelConfig config = tiny_config(family);
  config.experts.chosen = config.experts.count;
  config.experts.chosen_groups = config.experts.groups;
  if (config.delta.norm_eps > 0) config.delta.norm_eps = 0.1;
  return config;
}

// A trainee in which everything matters.
struct DoraTrainee : Trainee {
  DoraTrainee(const formats::ModelConfig& config, const Options& options)
      : Trainee(config, options, formats::LoraConfig{.rank = 3, .alpha = 2, .use_dora = true}) {
    testing::fill_base(*this, 21);
    randomise(15);
  }
};

bool is_length(const NamedParam& param) { return param.spec->shape.rank() == 1; }

TEST(DoraTraining, GradientsOfLengthsMatchFiniteDifferences) {
  for (const Family family : kDoraFamilies) {
    SCOPED_TRACE(formats::family_name(family));
    const formats::ModelConfig config = dora_base(family);
    const auto sequences = random_sequences({9, 2, 14}, config.vocab_size, 3);
    DoraTrainee trainee(config, {});
    trainee.gradients({sequences});
    int lengths = 0;
    for (const NamedParam& param : trainee.weights().trainable()) {
      if (!is_length(param)) continue;
      ++lengths;
      const auto count = static_cast<size_t>(param.grad.count());
      const std::vector<float> gradient(param.grad.as<float>(), param.grad.as<float>() + count);
      const std::vector<float> before(param.value.as<float>(), param.value.as<float>() + count);
      double norm = 0;
      for (const float slope : gradient) norm += double{slope} * slope;
      norm = std::sqrt(norm);
      const auto loss_at = [&](double step) {
        for (size_t i = 0; i < count; ++i) {
          param.value.as<float>()[i] = static_cast<float>(before[i] + step * gradient[i] / norm);
        }
        trainee.weights().pack(trainee.stream(), param.node);
        return trainee.mean_loss(sequences);
      };
      const double step = 5e-3;
      const double slope =
          (8 * (loss_at(step) - loss_at(-step)) - (loss_at(2 * step) - loss_at(-2 * step))) /
          (12 * step);
      EXPECT_NEAR(slope, norm, 2e-3 * norm + 1e-4) << param.spec->name;
      EXPECT_GT(norm, 1e-5) << param.spec->name;
      loss_at(0);
    }
    EXPECT_GT(lengths, 3);
  }
}

TEST(DoraTraining, GivesTheSameBitsForAnySplitAndThreads) {
  for (const Family family : kDoraFamilies) {
    SCOPED_TRACE(formats::family_name(family));
    const formats::ModelConfig config = dora_base(family);
    const auto sequences = random_sequences({9, 2, 14}, config.vocab_size, 3);
    DoraTrainee together(config, {});
    DoraTrainee apart(config, {.thread_count = 2, .queued_streams = true});
    together.gradients({sequences});
    apart.gradients({{sequences[0]}, {sequences[1], sequences[2]}});
    EXPECT_EQ(flat_gradients(together), flat_gradients(apart));
  }
}

TEST(DoraTraining, TakesExactlyThePlannedMemory) {
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    const formats::ModelConfig config = tiny_config(Family::kQwen2);
    DoraTrainee trainee(config, {.compute = compute, .tokens_max = 48});
    const TrainingMemory plan = training_memory(
        trainee.architecture(), {.compute = compute, .position_count = config.context_max}, 48);
    EXPECT_EQ(trainee.arena().peak_bytes(), plan.total_bytes() - plan.moments_bytes);
    trainee.gradients({random_sequences({30}, config.vocab_size, 3)});
    EXPECT_EQ(trainee.arena().peak_bytes(), plan.total_bytes() - plan.moments_bytes);
  }
}

}  // namespace
}  // namespace jige::model
