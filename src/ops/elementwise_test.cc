#include "ops/elementwise.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>

#include "ops/testing.h"

namespace jige::ops {
namespace {

using test::Matrix;
using test::Values;
constexpr DType kTypes[] = {DType::kF32, DType::kBF16};
constexpr int64_t kWidths[] = {1, 7, 8, 15, 16, 17, 40, 129};

double silu(double x) { return x / (1 + std::exp(-x)); }

constexpr Activation kPlain[] = {Activation::kGeluTanh, Activation::kGeluErf, Activation::kRelu,
                                 Activation::kReluSquared, Activation::kSilu};

double plain(double x, Activation activation) {
  if (activation == Activation::kRelu) return std::max(x, 0.0);
  if (activation == Activation::kReluSquared) return std::pow(std::max(x, 0.0), 2);
  if (activation == Activation::kSilu) return silu(x);
  if (activation == Activation::kGeluErf) return x * 0.5 * std::erfc(-x / std::numbers::sqrt2);
  const double inner = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
  return 0.5 * x * (1 + std::tanh(inner));
}

double gelu(double x) { return plain(x, Activation::kGeluTanh); }
double gelu_erf(double x) { return plain(x, Activation::kGeluErf); }

// The activations that multiply with a gate.
struct Gate {
  double (*value)(double);
  double tolerance;  // absolute: gelu's tail is that of a rounded argument
  decltype(&swiglu_forward) forward;
  decltype(&swiglu_backward) backward;
};
constexpr Gate kGates[] = {{silu, 0, swiglu_forward, swiglu_backward},
                           {gelu, 5e-7, geglu_forward, geglu_backward},
                           {gelu_erf, 5e-7, geglu_erf_forward, geglu_erf_backward}};

// Σ grad · activated gate · up, for rows of 2·width.
double gated_dot(const Gate& kind, const Values& gate_up, const Values& grad, int64_t width) {
  double sum = 0;
  for (size_t i = 0; i < grad.size(); ++i) {
    const size_t row = i / static_cast<size_t>(width);
    const size_t gate = i + row * static_cast<size_t>(width);
    sum += grad[i] * kind.value(gate_up[gate]) * gate_up[gate + static_cast<size_t>(width)];
  }
  return sum;
}

TEST(Gated, ForwardAgreesWithDouble) {
  test::TestStream stream;
  test::for_each_isa([&] {
    for (const Gate& gate : kGates)
      for (const DType src_type : kTypes) {
        for (const DType dst_type : kTypes) {
          for (const int64_t width : kWidths) {
            Rng rng(1);
            Matrix gate_up(src_type, 3, 2 * width);
            gate_up.fill_normal(rng, 4.0);
            Matrix dst(dst_type, 3, width, 2);
            gate.forward(*stream, dst.view(), gate_up.view());
            Values expected;
            for (int64_t r = 0; r < 3; ++r) {
              for (int64_t c = 0; c < width; ++c) {
                expected.push_back(gate.value(gate_up.get(r, c)) * gate_up.get(r, width + c));
              }
            }
            test::expect_near(dst, expected, 5e-7, gate.tolerance, fmt::format("width {}", width));
          }
        }
      }
  });
}

TEST(Gated, GradientAgreesWithFiniteDifferences) {
  test::TestStream stream;
  test::for_each_isa([&] {
    for (const Gate& gate : kGates)
      for (const DType src_type : kTypes) {
        for (const DType grad_type : kTypes) {
          for (const int64_t width : {1, 7, 17, 40}) {
            Rng rng(2);
            Matrix gate_up(src_type, 2, 2 * width);
            gate_up.fill_normal(rng, 2.0);
            Matrix grad_dst(grad_type, 2, width, 1);
            grad_dst.fill_normal(rng);
            Matrix grad_gate_up(grad_type, 2, 2 * width, 4);
            gate.backward(*stream, grad_gate_up.view(), grad_dst.view(), gate_up.view(), {});
            const Values dy = grad_dst.values();
            const Values expected = test::finite_difference(
                [&](const Values& at) { return gated_dot(gate, at, dy, width); }, gate_up.values());
            test::expect_near(grad_gate_up, expected, 1e-6, 1e-6, fmt::format("width {}", width));
          }
        }
      }
  });
}

TEST(Gated, BackwardMayOverwriteItsInput) {
  test::TestStream stream;
  for (const Gate& gate : kGates)
    for (const DType dtype : kTypes) {
      Rng rng(3);
      Matrix gate_up(dtype, 3, 90);
      gate_up.fill_normal(rng);
      Matrix grad_dst(dtype, 3, 45);
      grad_dst.fill_normal(rng);
      Matrix apart(dtype, 3, 90);
      gate.backward(*stream, apart.view(), grad_dst.view(), gate_up.view(), {});
      gate.backward(*stream, gate_up.view(), grad_dst.view(), gate_up.view(), {});
      EXPECT_TRUE(apart == gate_up);
    }
}

TEST(Gated, BackwardRepeatsTheForwardInPlaceOfTheGate) {
  test::TestStream stream;
  test::for_each_isa([&] {
    for (const Gate& gate : kGates)
      for (const DType dtype : kTypes) {
        for (const int64_t width : {1, 15, 16, 45}) {
          Rng rng(4);
          Matrix gate_up(dtype, 3, 2 * width);
          gate_up.fill_normal(rng);
          Matrix grad_dst(dtype, 3, width);
          grad_dst.fill_normal(rng);
          Matrix activated(dtype, 3, width);
          gate.forward(*stream, activated.view(), gate_up.view());
          Matrix expected(dtype, 3, 2 * width);
          gate.backward(*stream, expected.view(), grad_dst.view(), gate_up.view(), {});
          Matrix grad(dtype, 3, 2 * width);
          const Values before = gate_up.values();
          gate.backward(*stream, grad.view(), grad_dst.view(), gate_up.view(),
                        gate_up.view().column_range(0, width));
          EXPECT_TRUE(grad == expected) << width;
          const Values after = gate_up.values();
          const Values want = activated.values();
          for (size_t row = 0, w = static_cast<size_t>(width); row < 3; ++row) {
            for (size_t i = 0; i < w; ++i) {
              EXPECT_EQ(after[row * 2 * w + i], want[row * w + i]) << width;
              EXPECT_EQ(after[row * 2 * w + w + i], before[row * 2 * w + w + i]) << width;
            }
          }
        }
      }
  });
}

TEST(Zero, ClearsEveryElementAndNothingElse) {
  for (const int threads : {1, 3}) {
    test::TestStream stream(threads);
    for (const int64_t count : {1, 65, 200003}) {
      std::vector<float> values(static_cast<size_t>(count) + 1, 1.0f);
      zero(*stream, TensorView::of(values.data(), DType::kF32, Shape{count}));
      EXPECT_EQ(values.back(), 1.0f);
      values.pop_back();
      EXPECT_EQ(values, std::vector<float>(values.size(), 0.0f)) << count;
    }
  }
}

TEST(PlainActivation, ForwardAgreesWithDouble) {
  test::TestStream stream;
  test::for_each_isa([&] {
    for (const Activation activation : kPlain) {
      for (const DType src_type : kTypes) {
        for (const DType dst_type : kTypes) {
          Matrix src(src_type, 3, 201);
          src.fill_by(
              [](int64_t r, int64_t c) { return 0.05 * static_cast<double>(r * 201 + c) - 15; });
          Matrix dst(dst_type, 3, 201, 1);
          activation_forward(*stream, dst.view(), src.view(), activation);
          Values expected = src.values();
          for (double& value : expected) value = plain(value, activation);
          test::expect_near(dst, expected, 1e-6, 5e-7, "plain");
        }
      }
    }
  });
}

TEST(PlainActivation, GradientAgreesWithFiniteDifferences) {
  test::TestStream stream;
  test::for_each_isa([&] {
    for (const Activation activation : kPlain) {
      for (const DType src_type : kTypes) {
        for (const DType grad_type : kTypes) {
          for (const int64_t width : kWidths) {
            Rng rng(4);
            Matrix src(src_type, 2, width);
            src.fill_normal(rng, 2.0);
            Matrix grad_dst(grad_type, 2, width);
            grad_dst.fill_normal(rng);
            Matrix grad_src(grad_type, 2, width, 2);
            activation_backward(*stream, grad_src.view(), grad_dst.view(), src.view(), activation);
            const Values dy = grad_dst.values();
            const Values expected = test::finite_difference(
                [&](const Values& at) {
                  double sum = 0;
                  for (size_t i = 0; i < at.size(); ++i) sum += dy[i] * plain(at[i], activation);
                  return sum;
                },
                src.values());
            test::expect_near(grad_src, expected, 1e-6, 2e-6, fmt::format("width {}", width));
          }
        }
      }
    }
  });
}

TEST(PlainActivation, ReluHasNoSlopeAtZeroAndKeepsNaN) {
  test::TestStream stream;
  test::for_each_isa([&] {
    Matrix src(DType::kF32, 1, 4);
    const float values[] = {0.0f, -0.0f, 1e-30f, std::nanf("")};
    for (int64_t i = 0; i < 4; ++i) src.view().as<float>()[i] = values[i];
    Matrix grad(DType::kF32, 1, 4);
    for (int64_t i = 0; i < 4; ++i) grad.view().as<float>()[i] = 2.0f;
    Matrix dst(DType::kF32, 1, 4);
    activation_forward(*stream, dst.view(), src.view(), Activation::kRelu);
    activation_backward(*stream, grad.view(), grad.view(), src.view(), Activation::kRelu);
    EXPECT_TRUE(std::isnan(dst.get(0, 3)));
    EXPECT_EQ(dst.get(0, 2), double{1e-30f});
    EXPECT_EQ(grad.get(0, 0), 0);
    EXPECT_EQ(grad.get(0, 1), 0);
    EXPECT_EQ(grad.get(0, 2), 2);
  });
}

TEST(Activations, HaveTheSameBitsOnAnyThreadsAndInstructionSet) {
  for (const DType dtype : kTypes) {
    test::expect_same_bits_everywhere([&](Stream& stream) {
      Rng rng(5);
      Matrix gate_up(dtype, 80, 2 * 331);
      gate_up.fill_normal(rng, 3.0);
      Matrix hidden(dtype, 80, 331);
      swiglu_forward(stream, hidden.view(), gate_up.view());
      Matrix grad(dtype, 80, 2 * 331);
      swiglu_backward(stream, grad.view(), hidden.view(), gate_up.view());
      for (const Activation activation : kPlain) {
        Matrix out(dtype, 80, 2 * 331);
        activation_forward(stream, out.view(), grad.view(), activation);
        activation_backward(stream, grad.view(), out.view(), gate_up.view(), activation);
      }
      return grad;
    });
  }
}

TEST(Embedding, CopiesRowsOfEveryTableType) {
  test::TestStream stream;
  test::for_each_isa([&] {
    for (const DType table_type : {DType::kF32, DType::kBF16, DType::kF16}) {
      for (const int64_t width : kWidths) {
        Rng rng(6);
        Matrix table(table_type, 11, width);
        table.fill_normal(rng);
        std::vector<int32_t> tokens = {10, 0, 3, 3, 7};
        Matrix dst(DType::kF32, 5, width, 2);
        embedding_forward(*stream, dst.view(), table.view(), test::view_of(tokens));
        for (int64_t t = 0; t < 5; ++t) {
          for (int64_t c = 0; c < width; ++c) {
            ASSERT_EQ(dst.get(t, c), table.get(tokens[static_cast<size_t>(t)], c));
          }
        }
        ASSERT_TRUE(dst.gap_intact());
      }
    }
  });
}

// Random tokens of a vocabulary of 13, so that rows repeat.
std::vector<int32_t> repeated_tokens(int64_t count) {
  Rng rng(7);
  std::vector<int32_t> tokens;
  for (int64_t t = 0; t < count; ++t) tokens.push_back(static_cast<int32_t>(rng.below(13)));
  return tokens;
}

TEST(SelectRows, BringsRowsTogetherInTheirOrder) {
  test::TestStream stream;
  Rng rng(5);
  Matrix src(DType::kF32, 6, 9, 2);
  Matrix dst(DType::kF32, 4, 9);
  src.fill_normal(rng);
  const std::vector<int32_t> rows = {4, 0, 0, 5};
  select_rows(*stream, dst.view(), src.view(), rows);
  for (size_t i = 0; i < rows.size(); ++i) {
    for (int64_t column = 0; column < 9; ++column) {
      EXPECT_EQ(dst.get(static_cast<int64_t>(i), column), src.get(rows[i], column));
    }
  }
  EXPECT_TRUE(dst.gap_intact());
}

TEST(Embedding, BackwardAddsTokensInAscendingOrder) {
  test::TestStream stream(3);
  test::for_each_isa([&] {
    for (const int64_t width : kWidths) {
      Rng rng(8);
      std::vector<int32_t> tokens = repeated_tokens(50);
      Matrix grad_dst(DType::kF32, 50, width);
      grad_dst.fill_normal(rng);
      Matrix grad_table(DType::kF32, 13, width);
      grad_table.fill_normal(rng);
      Matrix expected = grad_table;
      for (int64_t t = 0; t < 50; ++t) {
        const int32_t token = tokens[static_cast<size_t>(t)];
        for (int64_t c = 0; c < width; ++c) {
          const float sum = expected.get(token, c) + grad_dst.get(t, c);
          expected.set(token, c, sum);
        }
      }
      embedding_backward(*stream, grad_table.view(), grad_dst.view(), test::view_of(tokens));
      ASSERT_TRUE(grad_table == expected) << "width " << width;
    }
  });
}

TEST(Embedding, BackwardHasTheSameBitsOnAnyThreadsAndInSplits) {
  const auto whole = [&](Stream& stream, std::vector<int64_t> ends) {
    Rng rng(9);
    std::vector<int32_t> tokens = repeated_tokens(150);
    Matrix grad_dst(DType::kF32, 150, 523);
    grad_dst.fill_normal(rng);
    Matrix grad_table(DType::kF32, 13, 523);
    grad_table.fill(0.125);
    int64_t begin = 0;
    for (const int64_t end : ends) {
      embedding_backward(stream, grad_table.view(), grad_dst.view().row_range(begin, end),
                         test::view_of(tokens).row_range(begin, end));
      begin = end;
    }
    return grad_table;
  };
  test::expect_same_bits_everywhere([&](Stream& stream) { return whole(stream, {150}); });
  test::TestStream stream;
  EXPECT_TRUE(whole(*stream, {150}) == whole(*stream, {1, 2, 77, 150}));
}

TEST(EmbeddingDeathTest, RefusesATokenOutsideTheTable) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  test::TestStream stream(1);
  Matrix table(DType::kF32, 4, 8);
  Matrix dst(DType::kF32, 2, 8);
  for (const int32_t bad : {4, -1}) {
    std::vector<int32_t> tokens = {0, bad};
    EXPECT_DEATH(embedding_forward(*stream, dst.view(), table.view(), test::view_of(tokens)),
                 "token");
    EXPECT_DEATH(embedding_backward(*stream, table.view(), dst.view(), test::view_of(tokens)),
                 "token");
  }
}

TEST(Add, AgreesInEveryMixOfTypesAndGaps) {
  test::TestStream stream;
  test::for_each_isa([&] {
    for (int mix = 0; mix < 16; ++mix) {
      for (const int64_t width : kWidths) {
        Rng rng(10);
        const int64_t gap = mix & 8 ? 0 : 3;
        Matrix a(kTypes[mix & 1], 3, width, gap);
        Matrix b(kTypes[(mix >> 1) & 1], 3, width, gap);
        Matrix dst(kTypes[(mix >> 2) & 1], 3, width, gap);
        a.fill_normal(rng);
        b.fill_normal(rng);
        Matrix expected = dst;
        expected.fill_by([&](int64_t r, int64_t c) { return a.get(r, c) + b.get(r, c); });
        add(*stream, dst.view(), a.view(), b.view());
        ASSERT_TRUE(dst == expected) << "mix " << mix << " width " << width;
        if (a.dtype() == dst.dtype()) {
          add(*stream, a.view(), a.view(), b.view());
          ASSERT_EQ(a.values(), expected.values());
        }
      }
    }
  });
}

TEST(Scale, AgreesInEveryMixOfTypesAndGaps) {
  test::TestStream stream;
  test::for_each_isa([&] {
    for (int mix = 0; mix < 8; ++mix) {
      for (const int64_t width : kWidths) {
        for (const float factor : {1.0f, -0.3f}) {
          Rng rng(11);
          const int64_t gap = mix & 4 ? 0 : 3;
          Matrix src(kTypes[mix & 1], 3, width, gap);
          Matrix dst(kTypes[(mix >> 1) & 1], 3, width, gap);
          src.fill_normal(rng);
          Matrix expected = dst;
          expected.fill_by([&](int64_t r, int64_t c) { return src.get(r, c) * factor; });
          scale(*stream, dst.view(), src.view(), factor);
          ASSERT_TRUE(dst == expected) << "mix " << mix << " width " << width;
        }
      }
    }
  });
}

TEST(Scale, SharesALargeArrayAmongThreads) {
  test::expect_same_bits_everywhere([](Stream& stream) {
    Rng rng(12);
    Matrix src(DType::kF32, 1, 100001, 0);
    src.fill_normal(rng);
    scale(stream, src.vector(), src.vector(), 0.7f);
    return src;
  });
}

TEST(ScaleBy, ReadsItsFactorWhenTheWorkRuns) {
  test::TestStream stream;
  Rng rng(13);
  Matrix src(DType::kF32, 5, 33, 2);
  src.fill_normal(rng);
  Matrix expected(DType::kBF16, 5, 33, 0);
  scale(*stream, expected.view(), src.view(), -1.7f);
  Matrix dst(DType::kBF16, 5, 33, 0);
  Matrix one(DType::kF32, 1, 1, 0);
  Matrix factor(DType::kF32, 1, 1, 0);
  one.fill(1.0);
  scale(*stream, factor.vector(), one.vector(), -1.7f);
  scale_by(*stream, dst.view(), src.view(), factor.vector());
  (*stream).synchronize();
  EXPECT_TRUE(dst == expected);
}

TEST(ScaleColumns, GivesEachColumnItsFactorAndAddend) {
  for (const DType type : kTypes) {
    for (const int64_t width : kWidths) {
      test::TestStream stream;
      Rng rng(14);
      Matrix src(type, 3, width, 2);
      src.fill_normal(rng);
      Matrix factor(DType::kF32, 1, width, 0), addend(DType::kF32, 1, width, 0);
      factor.fill_normal(rng);
      addend.fill_normal(rng);
      for (const auto& [by, plus] : {std::pair{true, true}, {true, false}, {false, true}}) {
        Matrix dst(DType::kF32, 3, width, 1);
        scale_columns(*stream, dst.view(), src.view(), by ? factor.vector() : TensorView{},
                      plus ? addend.vector() : TensorView{});
        (*stream).synchronize();
        for (int64_t row = 0; row < 3; ++row) {
          for (int64_t column = 0; column < width; ++column) {
            const double expected =
                double{src.get(row, column)} * (by ? factor.get(0, column) : 1) +
                (plus ? addend.get(0, column) : 0);
            EXPECT_NEAR(dst.get(row, column), expected, 1e-6) << row << ", " << column;
          }
        }
      }
    }
  }
}

TEST(ScaleColumns, GivesTheSameBitsEverywhere) {
  test::expect_same_bits_everywhere([](Stream& stream) {
    Rng rng(15);
    Matrix data(DType::kBF16, 700, 100), numbers(DType::kF32, 1, 100, 0);
    data.fill_normal(rng);
    numbers.fill_normal(rng);
    scale_columns(stream, data.view(), data.view(), numbers.vector(), numbers.vector());
    return data;
  });
}

TEST(Scale, ConvertsSpecialValues) {
  test::TestStream stream;
  std::vector<float> src = {std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN(), -0.0f, 3.4e38f};
  Matrix dst(DType::kBF16, 1, 5, 0);
  scale(*stream, dst.vector(), test::view_of(src), 1.0f);
  EXPECT_EQ(dst.get(0, 0), std::numeric_limits<float>::infinity());
  EXPECT_EQ(dst.get(0, 1), -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(dst.get(0, 2)));
  EXPECT_TRUE(std::signbit(dst.get(0, 3)));
  EXPECT_EQ(dst.get(0, 4), std::numeric_limits<float>::infinity());  // rounds up beyond the largest
}

}  // namespace
}  // namespace jige::ops
