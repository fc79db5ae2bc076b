#include "ops/cross_entropy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ops/elementwise.h"
#include "ops/testing.h"

namespace jige::ops {
namespace {

using test::Matrix;
using test::Values;
constexpr float kInfinite = std::numeric_limits<float>::infinity();

struct EntropyCase {
  int64_t rows, vocabulary;
  double deviation = 3.0;
  double cap = 0;
};

struct EntropyBuffers {
  Matrix logits, grad;
  std::vector<float> loss, weights;
  std::vector<int32_t> targets;
  double cap = 0;
  bool operator==(const EntropyBuffers&) const = default;
};

EntropyBuffers make_entropy_buffers(const EntropyCase& c, DType grad_type) {
  Rng rng(static_cast<uint64_t>(c.vocabulary));
  EntropyBuffers buffers = {Matrix(DType::kF32, c.rows, c.vocabulary),
                            Matrix(grad_type, c.rows, c.vocabulary, 1),
                            std::vector<float>(static_cast<size_t>(c.rows), -1.0f),
                            {},
                            {},
                            c.cap};
  buffers.logits.fill_normal(rng, c.deviation);
  for (int64_t t = 0; t < c.rows; ++t) {
    buffers.weights.push_back(static_cast<float>(rng.uniform()));
    const auto target = static_cast<int32_t>(rng.below(static_cast<uint64_t>(c.vocabulary)));
    buffers.targets.push_back(t % 4 == 3 ? -100 : target);
  }
  return buffers;
}

CrossEntropy args_of(EntropyBuffers& buffers) {
  CrossEntropy args;
  args.loss = test::view_of(buffers.loss);
  args.logits = buffers.logits.view();
  args.targets = test::view_of(buffers.targets);
  args.weights = test::view_of(buffers.weights);
  args.grad_logits = buffers.grad.view();
  args.cap = buffers.cap;
  return args;
}

// The logits that count.
Values capped(Values logits, double cap) {
  if (cap > 0) {
    for (double& logit : logits) logit = cap * std::tanh(logit / cap);
  }
  return logits;
}

double row_loss(const Values& logits, size_t begin, size_t count, int32_t target) {
  if (target < 0) return 0;
  double largest = -INFINITY;
  for (size_t i = 0; i < count; ++i) largest = std::max(largest, logits[begin + i]);
  double sum = 0;
  for (size_t i = 0; i < count; ++i) sum += std::exp(logits[begin + i] - largest);
  return std::log(sum) + largest - logits[begin + static_cast<size_t>(target)];
}

// Σ weight · loss, the function whose gradient cross_entropy gives.
double total_loss(const Values& given, const EntropyBuffers& buffers) {
  const Values logits = capped(given, buffers.cap);
  const size_t count = logits.size() / buffers.targets.size();
  double sum = 0;
  for (size_t t = 0; t < buffers.targets.size(); ++t) {
    sum += static_cast<double>(buffers.weights[t]) *
           row_loss(logits, t * count, count, buffers.targets[t]);
  }
  return sum;
}

TEST(CrossEntropy, LossAgreesWithDouble) {
  test::TestStream stream;
  test::for_each_isa([&] {
    for (const EntropyCase& c :
         {EntropyCase{5, 1}, EntropyCase{5, 2}, EntropyCase{5, 15}, EntropyCase{5, 16},
          EntropyCase{5, 17}, EntropyCase{6, 1000}, EntropyCase{3, 4099}, EntropyCase{2, 262144},
          EntropyCase{3, 5000, 100.0}, EntropyCase{5, 1, 3.0, 2.0}, EntropyCase{5, 17, 3.0, 30.0},
          EntropyCase{3, 4099, 100.0, 30.0}}) {
      EntropyBuffers buffers = make_entropy_buffers(c, DType::kF32);
      cross_entropy(*stream, args_of(buffers));
      const Values logits = capped(buffers.logits.values(), c.cap);
      const auto count = static_cast<size_t>(c.vocabulary);
      for (size_t t = 0; t < buffers.loss.size(); ++t) {
        const double expected = row_loss(logits, t * count, count, buffers.targets[t]);
        EXPECT_NEAR(buffers.loss[t], expected, 2e-7 + 3e-7 * expected)
            << "vocabulary " << c.vocabulary << " row " << t;
      }
    }
  });
}

TEST(CrossEntropy, GradientAgreesWithFiniteDifferences) {
  test::TestStream stream;
  test::for_each_isa([&] {
    for (const DType grad_type : {DType::kF32, DType::kBF16}) {
      for (const int64_t vocabulary : {1, 2, 15, 16, 17, 33, 130}) {
        for (const double cap : {0.0, 2.5, 30.0}) {
          EntropyBuffers buffers = make_entropy_buffers({4, vocabulary, 3.0, cap}, grad_type);
          cross_entropy(*stream, args_of(buffers));
          const Values expected = test::finite_difference(
              [&](const Values& at) { return total_loss(at, buffers); }, buffers.logits.values());
          test::expect_near(buffers.grad, expected, 1e-6, 2e-7,
                            fmt::format("vocabulary {} cap {}", vocabulary, cap));
        }
      }
    }
  });
}

TEST(CrossEntropy, GradientOfALargeVocabularyAgreesWithDouble) {
  test::TestStream stream;
  for (const DType grad_type : {DType::kF32, DType::kBF16}) {
    EntropyBuffers buffers = make_entropy_buffers({2, 100003}, grad_type);
    cross_entropy(*stream, args_of(buffers));
    const Values logits = buffers.logits.values();
    const auto count = size_t{100003};
    Values expected;
    for (size_t t = 0; t < 2; ++t) {
      const double log_sum = row_loss(logits, t * count, count, 0) + logits[t * count];
      for (size_t i = 0; i < count; ++i) {
        const double hit = static_cast<int32_t>(i) == buffers.targets[t] ? 1 : 0;
        expected.push_back(static_cast<double>(buffers.weights[t]) *
                           (std::exp(logits[t * count + i] - log_sum) - hit));
      }
    }
    test::expect_near(buffers.grad, expected, 2e-6, 1e-12, "gradient");
  }
}

TEST(CrossEntropy, GradientMayOverwriteTheLogits) {
  test::TestStream stream;
  for (const double cap : {0.0, 5.0}) {
    EntropyBuffers apart = make_entropy_buffers({4, 4501, 3.0, cap}, DType::kF32);
    cross_entropy(*stream, args_of(apart));
    EntropyBuffers in_place = make_entropy_buffers({4, 4501, 3.0, cap}, DType::kF32);
    CrossEntropy args = args_of(in_place);
    args.grad_logits = args.logits;
    cross_entropy(*stream, args);
    EXPECT_EQ(in_place.logits.values(), apart.grad.values());
    EXPECT_EQ(in_place.loss, apart.loss);
  }
}

// What generation does with its logits before it chooses a token.
TEST(CrossEntropy, CapsLogitsAsSoftCapDoes) {
  test::TestStream stream;
  test::for_each_isa([&] {
    EntropyBuffers fused = make_entropy_buffers({4, 4501, 30.0, 7.0}, DType::kF32);
    CrossEntropy args = args_of(fused);
    args.grad_logits = {};
    cross_entropy(*stream, args);
    EntropyBuffers apart = make_entropy_buffers({4, 4501, 30.0}, DType::kF32);
    const Values expected = capped(apart.logits.values(), 7.0);
    soft_cap(*stream, apart.logits.view(), 7.0);
    test::expect_near(apart.logits, expected, 3e-7, 1e-6, "capped");
    args = args_of(apart);
    args.grad_logits = {};
    cross_entropy(*stream, args);
    EXPECT_EQ(fused.loss, apart.loss);
  });
}

TEST(CrossEntropy, NeedsNoGradientOrWeights) {
  test::TestStream stream;
  EntropyBuffers full = make_entropy_buffers({4, 301}, DType::kF32);
  std::fill(full.weights.begin(), full.weights.end(), 1.0f);
  cross_entropy(*stream, args_of(full));
  EntropyBuffers bare = make_entropy_buffers({4, 301}, DType::kF32);
  CrossEntropy args = args_of(bare);
  args.weights = args.grad_logits = {};
  cross_entropy(*stream, args);
  EXPECT_EQ(bare.loss, full.loss);
  args.grad_logits = bare.grad.view();
  cross_entropy(*stream, args);
  EXPECT_TRUE(bare.grad == full.grad);
}

TEST(CrossEntropy, IgnoresRowsWithANegativeTarget) {
  test::TestStream stream;
  for (const DType grad_type : {DType::kF32, DType::kBF16}) {
    EntropyBuffers buffers = make_entropy_buffers({4, 77}, grad_type);
    buffers.logits.set(3, 5, NAN);  // row 3 has target -100
    cross_entropy(*stream, args_of(buffers));
    EXPECT_EQ(buffers.loss[3], 0.0f);
    for (int64_t i = 0; i < 77; ++i) EXPECT_EQ(buffers.grad.get(3, i), 0.0f);
  }
}

TEST(CrossEntropy, TakesMinusInfinityForImpossibleTokens) {
  test::TestStream stream;
  EntropyBuffers buffers = make_entropy_buffers({1, 37}, DType::kF32);
  buffers.targets[0] = 4;
  for (int64_t i = 0; i < 37; ++i) {
    if (i != 4 && i != 20) buffers.logits.set(0, i, -kInfinite);
  }
  buffers.logits.set(0, 4, 1.0);
  buffers.logits.set(0, 20, 1.0);
  cross_entropy(*stream, args_of(buffers));
  EXPECT_NEAR(buffers.loss[0], std::log(2.0), 1e-6);
  EXPECT_EQ(buffers.grad.get(0, 0), 0.0f);
  EXPECT_FLOAT_EQ(buffers.grad.get(0, 20), 0.5f * buffers.weights[0]);
  buffers.targets[0] = 0;
  cross_entropy(*stream, args_of(buffers));
  EXPECT_EQ(buffers.loss[0], kInfinite);
}

TEST(CrossEntropy, ShowsNaNInTheLossOfItsRowOnly) {
  test::TestStream stream;
  test::for_each_isa([&] {
    for (const float bad : {NAN, kInfinite}) {
      for (const int64_t place : {0, 16, 99, 100}) {
        EntropyBuffers buffers = make_entropy_buffers({3, 101}, DType::kF32);
        buffers.logits.set(1, place, bad);
        cross_entropy(*stream, args_of(buffers));
        EXPECT_TRUE(std::isnan(buffers.loss[1]));
        EXPECT_TRUE(std::isnan(buffers.grad.get(1, 0)));
        EXPECT_FALSE(std::isnan(buffers.loss[0]));
        EXPECT_FALSE(std::isnan(buffers.loss[2]));
      }
    }
  });
}

TEST(CrossEntropy, HasTheSameBitsOnAnyThreadsInstructionSetAndSplitOfRows) {
  for (const auto& [grad_type, cap] : {std::pair(DType::kF32, 0.0), std::pair(DType::kBF16, 0.0),
                                       std::pair(DType::kF32, 4.0), std::pair(DType::kBF16, 4.0)}) {
    const EntropyCase c = {23, 4321, 3.0, cap};
    const auto whole = [&](Stream& stream) {
      EntropyBuffers buffers = make_entropy_buffers(c, grad_type);
      cross_entropy(stream, args_of(buffers));
      return buffers;
    };
    test::expect_same_bits_everywhere(whole);
    test::TestStream stream;
    EntropyBuffers split = make_entropy_buffers(c, grad_type);
    int64_t begin = 0;
    for (const int64_t end : {int64_t{1}, int64_t{20}, c.rows}) {
      CrossEntropy args = args_of(split);
      for (TensorView* view :
           {&args.loss, &args.logits, &args.targets, &args.weights, &args.grad_logits}) {
        *view = view->row_range(begin, end);
      }
      cross_entropy(*stream, args);
      begin = end;
    }
    EXPECT_TRUE(split == whole(*stream));
  }
}

}  // namespace
}  // namespace jige::ops
