#include "ops/token_score.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/rng.h"
#include "ops/cross_entropy.h"
#include "tensor/cpu_device.h"

namespace jige::ops {
namespace {

std::vector<float> random_logits(size_t count, uint64_t seed) {
  Rng rng(derive_key(seed, "logits"));
  std::vector<float> logits(count);
  for (float& logit : logits) logit = static_cast<float>(rng.uniform() * 12 - 6);
  return logits;
}

// The head's loss of `target`.
float loss_of(std::vector<float>& logits, int32_t target) {
  CpuDevice device({.thread_count = 1});
  auto stream = device.make_stream();
  EXPECT_TRUE(stream);
  float loss = 0;
  const Shape row{1, static_cast<int64_t>(logits.size())};
  cross_entropy(**stream, {.loss = TensorView::of(&loss, DType::kF32, Shape{1}),
                           .logits = TensorView::of(logits.data(), DType::kF32, row),
                           .targets = TensorView::of(&target, DType::kI32, Shape{1}),
                           .weights = {},
                           .grad_logits = {}});
  (*stream)->synchronize();
  return loss;
}

TEST(TokenScore, HasTheBitsOfTheHeadsLoss) {
  for (const size_t count : {1u, 7u, 96u, 4097u, 9001u}) {
    std::vector<float> logits = random_logits(count, count);
    for (const size_t token : {size_t{0}, count / 2, count - 1}) {
      const auto id = static_cast<int32_t>(token);
      const TokenScore score = score_token(logits, id, 3);
      EXPECT_EQ(score.logprob, -loss_of(logits, id)) << count << " logits, token " << id;
      for (const TokenLogProb& other : score.top) {
        EXPECT_EQ(other.logprob, -loss_of(logits, other.token));
      }
    }
  }
}

TEST(TokenScore, RanksAmongTheOthers) {
  const std::vector<float> logits = {0, 3, 1, 3, -INFINITY};
  EXPECT_EQ(score_token(logits, 1, 0).rank, 1);
  EXPECT_EQ(score_token(logits, 3, 0).rank, 1) << "nobody is likelier";
  EXPECT_EQ(score_token(logits, 2, 0).rank, 3);
  const TokenScore score = score_token(logits, 0, 9);
  EXPECT_EQ(score.rank, 4);
  ASSERT_EQ(score.top.size(), 4u) << "what cannot be is not among the likeliest";
  EXPECT_EQ(score.top[0].token, 1) << "ties go to the lowest";
  EXPECT_EQ(score.top[1].token, 3);
  EXPECT_EQ(score.top[3].token, 0);
}

TEST(TokenScore, LogitsThatCannotBeUsedHaveNoScore) {
  std::vector<float> logits = random_logits(50, 1);
  logits[20] = NAN;
  EXPECT_FALSE(std::isfinite(score_token(logits, 3, 5).logprob));
  EXPECT_FALSE(std::isfinite(score_token(logits, 20, 5).logprob));
  EXPECT_FALSE(std::isfinite(score_token(std::vector<float>(50, -INFINITY), 3, 5).logprob));
}

}  // namespace
}  // namespace jige::ops
