// The loss for unequal use of experts beside its formula in double.
#include "ops/expert_balance.h"

#include <cmath>
#include <numeric>

#include "base/rough_normal.h"
#include "ops/testing.h"

namespace jige::ops {
namespace {

using test::expect_same_bits_everywhere;
using test::TestStream;

struct BalanceCase {
  int64_t experts = 0;
  int64_t chosen = 0;
  bool sigmoid = false;
  std::vector<int32_t> lengths;  // of sequences

  int64_t tokens() const { return std::accumulate(lengths.begin(), lengths.end(), int64_t{0}); }
};

constexpr float kWeight = 0.37f;
constexpr float kBefore = 0.25f;  // gradients that are there already

// A routing of drawn logits, and what balance_experts() makes of it.
struct Balanced {
  Balanced(Stream& stream, const BalanceCase& test, std::vector<float> given)
      : logits(std::move(given)) {
    const Shape rows{test.tokens(), test.experts};
    const Shape places{test.tokens(), test.chosen};
    const auto count = static_cast<size_t>(places.count());
    weights.resize(count);
    for (auto* list : {&chosen, &row_of_place, &place_of_row}) list->resize(count);
    row_ends.resize(static_cast<size_t>(test.experts));
    losses.resize(static_cast<size_t>(test.tokens()), NAN);
    grads.resize(logits.size(), kBefore);
    const Routing routing = {
        .logits = TensorView::of(logits.data(), DType::kF32, rows),
        .chosen = TensorView::of(chosen.data(), DType::kI32, places),
        .weights = TensorView::of(weights.data(), DType::kF32, places),
        .row_of_place = TensorView::of(row_of_place.data(), DType::kI32, places),
        .place_of_row = test::view_of(place_of_row),
        .row_ends = test::view_of(row_ends),
        .normalised = true,
        .sigmoid = test.sigmoid};
    route(stream, routing);
    std::vector<SequenceSpan> sequences;
    int32_t row = 0;
    for (const int32_t length : test.lengths) {
      sequences.push_back({.row_begin = row, .row_count = length});
      row += length;
    }
    balance_experts(stream, routing,
                    {.losses = test::view_of(losses),
                     .grad_logits = TensorView::of(grads.data(), DType::kF32, rows),
                     .weight = kWeight,
                     .sequences = sequences});
  }
  std::vector<float> logits, weights, losses, grads;
  std::vector<int32_t> chosen, row_of_place, place_of_row, row_ends;
};

std::vector<float> drawn_logits(const BalanceCase& test, uint64_t seed) {
  Rng rng(seed);
  std::vector<float> logits(static_cast<size_t>(test.tokens() * test.experts));
  for (float& logit : logits) logit = 2 * rough_normal(rng);
  return logits;
}

// b of every token, with the choices of `balanced` whatever the logits are.
std::vector<double> plain_losses(const BalanceCase& test, const Balanced& balanced,
                                 const std::vector<double>& logits) {
  const auto experts = static_cast<size_t>(test.experts);
  std::vector<double> losses;
  size_t row = 0;
  for (const int32_t length : test.lengths) {
    std::vector<double> share(experts);
    const auto places = static_cast<size_t>(length * test.chosen);
    for (size_t place = 0; place < places; ++place) {
      const size_t at = row * static_cast<size_t>(test.chosen) + place;
      share[static_cast<size_t>(balanced.chosen[at])] +=
          static_cast<double>(experts) / static_cast<double>(places);
    }
    for (int32_t t = 0; t < length; ++t, ++row) {
      double sum = 0, counted = 0;
      for (size_t e = 0; e < experts; ++e) {
        const double logit = logits[row * experts + e];
        const double score = test.sigmoid ? 1 / (1 + std::exp(-logit)) : std::exp(logit);
        sum += score;
        counted += share[e] * score;
      }
      losses.push_back(counted / sum);
    }
  }
  return losses;
}

TEST(ExpertBalance, LossesAndGradientsMatchThoseInDouble) {
  for (const bool sigmoid : {false, true}) {
    // Short sequences are counted and long ones looked up.
    for (const BalanceCase& test :
         {BalanceCase{4, 2, sigmoid, {1, 5, 2}}, BalanceCase{3, 1, sigmoid, {40, 1, 33}},
          BalanceCase{21, 4, sigmoid, {3, 60}}, BalanceCase{1, 1, sigmoid, {2}}}) {
      TestStream stream;
      const Balanced balanced(*stream, test, drawn_logits(test, 3));
      const std::vector<double> logits(balanced.logits.begin(), balanced.logits.end());
      const auto losses = plain_losses(test, balanced, logits);
      for (size_t t = 0; t < losses.size(); ++t) EXPECT_NEAR(balanced.losses[t], losses[t], 2e-6);
      const auto sum = [&](const std::vector<double>& at) {
        const auto all = plain_losses(test, balanced, at);
        return kWeight * std::accumulate(all.begin(), all.end(), 0.0);
      };
      const auto slopes = test::finite_difference(sum, logits);
      for (size_t i = 0; i < slopes.size(); ++i) {
        EXPECT_NEAR(balanced.grads[i] - kBefore, slopes[i], 1e-6) << i;
      }
    }
  }
}

TEST(ExpertBalance, IsOneOfEqualUseAndExpertsOverChosenWhereAllAgree) {
  TestStream stream;
  const BalanceCase test{4, 1, false, {4, 4}};
  std::vector<float> logits(32, 0.0f);
  for (size_t t = 0; t < 4; ++t) logits[4 * t + t] = 9;  // each its own
  for (size_t t = 4; t < 8; ++t) logits[4 * t + 2] = 50;
  const Balanced balanced(*stream, test, logits);
  for (size_t t = 0; t < 4; ++t) EXPECT_NEAR(balanced.losses[t], 1, 1e-6);
  for (size_t t = 4; t < 8; ++t) EXPECT_NEAR(balanced.losses[t], 4, 1e-6);
}

TEST(ExpertBalance, BitsDependOnNeitherThreadsInstructionSetNorOtherSequences) {
  for (const bool sigmoid : {false, true}) {
    const BalanceCase together{21, 4, sigmoid, {7, 90, 30}};
    const std::vector<float> logits = drawn_logits(together, 9);
    expect_same_bits_everywhere([&](Stream& stream) {
      const Balanced all(stream, together, logits);
      // The second sequence alone.
      const std::vector<float> own(logits.begin() + 7 * 21, logits.begin() + 97 * 21);
      const Balanced one(stream, {21, 4, sigmoid, {90}}, own);
      for (size_t t = 0; t < 90; ++t) EXPECT_EQ(one.losses[t], all.losses[7 + t]);
      for (size_t i = 0; i < 90 * 21; ++i) EXPECT_EQ(one.grads[i], all.grads[7 * 21 + i]);
      return std::pair(all.losses, all.grads);
    });
  }
}

}  // namespace
}  // namespace jige::ops
