#include "ops/adamw.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

#include "base/rough_normal.h"
#include "ops/testing.h"

namespace jige::ops {
namespace {

using test::expect_same_bits_everywhere;
using test::for_each_isa;
using test::TestStream;
using test::view_of;

constexpr int64_t kCounts[] = {1, 7, 8, 15, 17, 100, 4095, 4097, 70001};

struct State {
  std::vector<float> weight, moment1, moment2, grad;

  explicit State(int64_t count) {
    Rng rng(derive_key(1, "adamw", static_cast<uint64_t>(count)));
    for (int64_t i = 0; i < count; ++i) {
      weight.push_back(rough_normal(rng));
      moment1.push_back(0.1f * rough_normal(rng));
      moment2.push_back(static_cast<float>(0.01 * rng.uniform()));
      grad.push_back(rough_normal(rng));
    }
  }
  AdamW args() {
    return {.weight = view_of(weight),
            .moment1 = view_of(moment1),
            .moment2 = view_of(moment2),
            .grad = view_of(grad),
            .learning_rate = 3e-3,
            .beta1 = 0.9,
            .beta2 = 0.95,
            .epsilon = 1e-8,
            .weight_decay = 0.1,
            .step = 3,
            .grad_scale = 0.7};
  }
};

TEST(AdamW, FollowsTheFormulaInDouble) {
  TestStream stream;
  for_each_isa([&] {
    for (const int64_t count : kCounts) {
      const State before(count);
      State state(count);
      const AdamW args = state.args();
      adamw(*stream, args);
      const double correction1 = 1 - std::pow(0.9, 3);
      const double correction2 = 1 - std::pow(0.95, 3);
      for (size_t i = 0; i < before.weight.size(); ++i) {
        const double g = 0.7 * before.grad[i];
        const double m = 0.9 * before.moment1[i] + 0.1 * g;
        const double v = 0.95 * before.moment2[i] + 0.05 * g * g;
        const double w = before.weight[i];
        const double expected =
            w - 3e-3 * ((m / correction1) / (std::sqrt(v / correction2) + 1e-8) + 0.1 * w);
        ASSERT_NEAR(state.moment1[i], m, 1e-7);
        ASSERT_NEAR(state.moment2[i], v, 1e-6 * v);
        ASSERT_NEAR(state.weight[i], expected, 3e-7 * (1 + std::fabs(expected)));
        ASSERT_EQ(state.grad[i], before.grad[i]);
      }
    }
  });
}

// The order of operations that kernels/cpu/adamw.h states.
TEST(AdamW, GivesTheBitsOfTheStatedOrder) {
  TestStream stream;
  for_each_isa([&] {
    const State before(1003);
    State state(1003);
    adamw(*stream, state.args());
    const auto f = [](double value) { return static_cast<float>(value); };
    const float root = f(1 / std::sqrt(1 - std::pow(0.95, 3.0)));
    const float step_size = f(3e-3 / (1 - std::pow(0.9, 3.0)));
    const float decay = f(1 - 3e-3 * 0.1);
    for (size_t i = 0; i < before.weight.size(); ++i) {
      const float g = before.grad[i] * f(0.7);
      const float m = std::fma(f(1 - 0.9), g, f(0.9) * before.moment1[i]);
      const float v = std::fma(f(1 - 0.95) * g, g, f(0.95) * before.moment2[i]);
      const float quotient = m / std::fma(std::sqrt(v), root, f(1e-8));
      ASSERT_EQ(state.moment1[i], m);
      ASSERT_EQ(state.moment2[i], v);
      ASSERT_EQ(state.weight[i], std::fma(-step_size, quotient, before.weight[i] * decay));
    }
  });
}

// A part of a fused weight, at rows that begin and end anywhere, in both packed forms.
TEST(AdamW, RenewsPackedFormsAsPackWeightDoes) {
  constexpr int64_t kColumns = 70;
  constexpr int64_t kRowsOfAll = 150;
  for_each_isa([&] {
    for (const DType compute : {DType::kF32, DType::kBF16}) {
      for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 64}, {37, 101}, {96, 150}}) {
        TestStream stream(3);
        const Shape shape{end - begin, kColumns};
        State plain(shape.count());
        State packing = plain;
        const auto args_of = [&](State& state) {
          AdamW args = state.args();
          for (TensorView* view : {&args.weight, &args.moment1, &args.moment2, &args.grad}) {
            view->shape = shape;
            view->row_stride = kColumns;
          }
          return args;
        };
        AdamW args = args_of(packing);
        std::vector<std::vector<std::byte>> want, got;
        got.reserve(2);
        const AdamW plain_args = args_of(plain);
        adamw(*stream, plain_args);
        for (const PackUse use : {PackUse::kForward, PackUse::kInputGradient}) {
          const auto bytes =
              static_cast<size_t>(packed_weight_bytes(compute, use, kRowsOfAll, kColumns));
          want.emplace_back(bytes);
          got.emplace_back(bytes);
          const PackedWeight packed = {want.back().data(), compute, use, kRowsOfAll, kColumns};
          pack_weight(*stream, packed, plain_args.weight, begin);
          args.packs.push_back({packed, begin});
          args.packs.back().packed.data = got.back().data();
        }
        adamw(*stream, args);
        EXPECT_EQ(packing.weight, plain.weight);
        EXPECT_EQ(packing.moment2, plain.moment2);
        EXPECT_TRUE(got == want) << begin << " to " << end;
        EXPECT_FALSE(got[0] == std::vector<std::byte>(got[0].size()));
      }
    }
  });
}

// Parts of one fused weight, two of which meet within a block of rows, and vectors beside them.
TEST(AdamW, GivesManyAtOnceTheBitsOfOneByOne) {
  constexpr int64_t kColumns = 70;
  const std::vector<int64_t> borders = {0, 64, 101, 150};
  struct Run {
    std::vector<State> states;
    std::vector<std::vector<std::byte>> forms;
    std::vector<AdamW> updates;
  };
  const auto prepare = [&] {
    Run run;
    for (size_t i = 0; i + 1 < borders.size(); ++i) {
      run.states.emplace_back((borders[i + 1] - borders[i]) * kColumns);
    }
    for (const int64_t count : {int64_t{0}, int64_t{1003}, int64_t{40000}}) {
      run.states.emplace_back(count);
    }
    for (const PackUse use : {PackUse::kForward, PackUse::kInputGradient}) {
      run.forms.emplace_back(packed_weight_bytes(DType::kBF16, use, borders.back(), kColumns));
    }
    for (State& state : run.states) run.updates.push_back(state.args());
    for (size_t i = 0; i + 1 < borders.size(); ++i) {
      AdamW& args = run.updates[i];
      for (TensorView* view : {&args.weight, &args.moment1, &args.moment2, &args.grad}) {
        view->shape = Shape{borders[i + 1] - borders[i], kColumns};
        view->row_stride = kColumns;
      }
      const PackUse uses[] = {PackUse::kForward, PackUse::kInputGradient};
      for (size_t form = 0; form < run.forms.size(); ++form) {
        args.packs.push_back(
            {{run.forms[form].data(), DType::kBF16, uses[form], borders.back(), kColumns},
             borders[i]});
      }
    }
    return run;
  };
  for_each_isa([&] {
    TestStream stream(3);
    Run single = prepare();
    for (const AdamW& args : single.updates) adamw(*stream, args);
    Run together = prepare();
    adamw(*stream, together.updates);
    for (size_t i = 0; i < single.states.size(); ++i) {
      EXPECT_EQ(together.states[i].weight, single.states[i].weight) << i;
      EXPECT_EQ(together.states[i].moment1, single.states[i].moment1) << i;
      EXPECT_EQ(together.states[i].moment2, single.states[i].moment2) << i;
    }
    EXPECT_NE(together.states[0].weight, State(64 * kColumns).weight);
    EXPECT_TRUE(together.forms == single.forms);
  });
}

TEST(AdamW, GivesTheSameBitsOnEveryInstructionSetAndNumberOfThreads) {
  const State before(70001);
  expect_same_bits_everywhere([&](Stream& stream) {
    State state = before;
    adamw(stream, state.args());
    return state.weight;
  });
}

TEST(AdamW, KeepsAWeightWithoutGradientAndDecay) {
  TestStream stream;
  std::vector<float> weight = {1.5f, -2.0f}, zeros(2), moment2(2), grad(2);
  adamw(*stream, {.weight = view_of(weight),
                  .moment1 = view_of(zeros),
                  .moment2 = view_of(moment2),
                  .grad = view_of(grad),
                  .learning_rate = 1});
  EXPECT_EQ(weight, (std::vector<float>{1.5f, -2.0f}));
}

TEST(SumsOfSquares, AreNearTheDoubleSums) {
  TestStream stream;
  for_each_isa([&] {
    std::vector<std::vector<float>> vectors(1);  // none of a tensor's, too
    for (const int64_t count : kCounts) vectors.push_back(State(count).grad);
    std::vector<TensorView> views;
    for (std::vector<float>& values : vectors) views.push_back(view_of(values));
    std::vector<double> results(views.size(), 0.5);
    sums_of_squares(*stream, views, results.data());
    for (size_t i = 0; i < results.size(); ++i) {
      double expected = 0;
      for (const float g : vectors[i]) expected += static_cast<double>(g) * g;
      EXPECT_NEAR(results[i], expected, 1e-12 * expected) << vectors[i].size();
    }
  });
}

TEST(SumsOfSquares, GiveTheSameBitsOnEveryInstructionSetAndNumberOfThreads) {
  std::vector<float> values(300007);
  Rng rng(5);
  for (float& value : values) value = static_cast<float>(rng.uniform());
  expect_same_bits_everywhere([&](Stream& stream) {
    double result = 0;
    sums_of_squares(stream, {{view_of(values)}}, &result);
    return result;
  });
}

TEST(SumsOfSquares, AreNotFiniteWhenAnElementIsNot) {
  TestStream stream;
  for (const float bad :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    for (const size_t at : {size_t{0}, size_t{4999}}) {
      std::vector<float> values(5000, 1.0f);
      values[at] = bad;
      double result = 0;
      sums_of_squares(*stream, {{view_of(values)}}, &result);
      EXPECT_FALSE(std::isfinite(result));
    }
  }
}

}  // namespace
}  // namespace jige::ops
