// Whole models of which blocks of feed-forward layers, or numbers by subnetwork, are dropped.
#include <fmt/format.h>

#include "model/differences_test_support.h"
#include "model/model_test_support.h"

namespace jige::model {
namespace {

using formats::Family;
using testing::flat_gradients;
using testing::random_sequences;
using testing::Sequence;
using testing::Trainee;

constexpr int64_t kBlockWidth = 128;

// Families whose feed-forward layers differ: gated, fused, with biases, plain, beside attention,
// with norms behind.
constexpr Family kBlockFamilies[] = {Family::kLlama,   Family::kGpt2, Family::kGemma3,
                                     Family::kPhi3,    Family::kGlm4, Family::kStarCoder2,
                                     Family::kGptNeoX, Family::kOlmo2};

formats::ModelConfig block_config(Family family) {
  formats::ModelConfig config = testing::smooth_config(family);
  config.ffn_size = kBlockWidth;
  return config;
}

StepDropout block_dropout(int64_t token_count, double rate = 0) {
  return {.rate = rate,
          .key = 99,
          .token_count = token_count,
          .members = {21, 22, 23},
          .pooled = rate > 0,
          .block_rate = 0.5,
          .block_size = 32};
}

TEST(BlockDropout, GradientsMatchFiniteDifferences) {
  for (const Family family : kBlockFamilies) {
    SCOPED_TRACE(std::string(formats::family_name(family)));
    const formats::ModelConfig config = block_config(family);
    Trainee trainee(config, {.dropout = block_dropout(22)});
    ASSERT_TRUE(trainee.architecture().layers()[0]->dense()->may_keep());
    trainee.randomise(11);
    const auto sequences = random_sequences({9, 2, 14}, config.vocab_size, 3);
    Trainee whole(config, {});
    whole.randomise(11);
    EXPECT_NE(trainee.mean_loss(sequences), whole.mean_loss(sequences));
    testing::expect_gradients_match_differences(trainee, sequences);
  }
}

TEST(BlockDropout, GradientsWithNumbersOfAPoolMatchFiniteDifferences) {
  for (const Family family : {Family::kLlama, Family::kGpt2}) {
    SCOPED_TRACE(std::string(formats::family_name(family)));
    const formats::ModelConfig config = block_config(family);
    StepDropout dropout = block_dropout(22, 0.3);
    dropout.block_rate = family == Family::kLlama ? 0 : 0.5;
    Trainee trainee(config, {.dropout = dropout});
    trainee.randomise(11);
    testing::expect_gradients_match_differences(trainee,
                                                random_sequences({9, 2, 14}, config.vocab_size, 3));
  }
}

// A model without the weights that read what is dropped, and twice those that read what is not.
TEST(BlockDropout, LossesAreThoseOfAModelWithoutTheBlocks) {
  const formats::ModelConfig config = block_config(Family::kLlama);
  const auto sequences = random_sequences({9, 2, 14}, config.vocab_size, 3);
  StepDropout dropout = block_dropout(22);
  dropout.members = {5};
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    Trainee dropped(config, {.compute = compute, .dropout = dropout});
    Trainee whole(config, {.compute = compute});
    for (Trainee* trainee : {&dropped, &whole}) trainee->randomise(11);
    Batch batch;
    batch.sequences = {{.row_begin = 0, .row_count = 22}};
    batch.dropout = dropout;
    for (const NamedParam& param : whole.weights().trainable()) {
      if (!param.spec->name.ends_with("down_proj.weight")) continue;
      const auto kept = kept_columns(batch, 2 * param.node, kBlockWidth);  // the layer's site
      std::vector<float> factors(kBlockWidth, 0.0f);
      for (const ops::KeptRun& run : kept->rows[0].runs) {
        std::fill_n(factors.begin() + run.begin, run.count, 2.0f);
      }
      for (int64_t i = 0; i < param.value.count(); ++i) {
        param.value.as<float>()[i] *= factors[static_cast<size_t>(i % kBlockWidth)];
      }
      whole.weights().pack(whole.stream(), param.node);
    }
    EXPECT_EQ(dropped.losses(sequences), whole.losses(sequences));
  }
}

TEST(BlockDropout, F32GradientsAreTheSameBitsHoweverStepsAreCut) {
  for (const Family family : kBlockFamilies) {
    SCOPED_TRACE(std::string(formats::family_name(family)));
    const formats::ModelConfig config = block_config(family);
    const auto sequences = random_sequences({23, 2, 9, 30}, config.vocab_size, 9);
    const StepDropout dropout = block_dropout(60, 0.1);
    Trainee one(config, {.dropout = dropout});
    Trainee two(config, {.thread_count = 2, .queued_streams = true, .dropout = dropout});
    Trainee storing(config, {.dropout = dropout, .stored_gradients = true});
    for (Trainee* trainee : {&one, &two, &storing}) trainee->randomise(16);
    one.gradients({sequences});
    const std::vector<float> whole = flat_gradients(one);
    two.gradients({{sequences[0]}, {sequences[1], sequences[2]}, {sequences[3]}});
    EXPECT_EQ(whole, flat_gradients(two));
    storing.gradients({{sequences[1]}});  // something to be overwritten
    storing.gradients({{sequences[0], sequences[1]}, {sequences[2], sequences[3]}});
    EXPECT_EQ(whole, flat_gradients(storing));
  }
}

TEST(BlockDropout, Bf16GradientsAreCloseToF32) {
  for (const Family family : kBlockFamilies) {
    SCOPED_TRACE(std::string(formats::family_name(family)));
    const formats::ModelConfig config = block_config(family);
    const auto sequences = random_sequences({20, 21}, config.vocab_size, 10);
    Trainee wide(config, {.dropout = block_dropout(39)});
    Trainee narrow(config, {.compute = DType::kBF16, .dropout = block_dropout(39)});
    for (Trainee* trainee : {&wide, &narrow}) {
      trainee->randomise(17);
      trainee->gradients({sequences});
    }
    const std::vector<float> expected = flat_gradients(wide);
    const std::vector<float> actual = flat_gradients(narrow);
    double error = 0, norm = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      error += std::pow(actual[i] - expected[i], 2);
      norm += std::pow(expected[i], 2);
    }
    EXPECT_LT(std::sqrt(error / norm), 0.06);
  }
}

}  // namespace
}  // namespace jige::model
