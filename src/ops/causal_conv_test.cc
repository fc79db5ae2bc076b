#include "ops/causal_conv.h"

#include <fmt/format.h>

#include <numeric>

#include "ops/testing.h"

namespace jige::ops {
namespace {

using test::Matrix;
using test::Values;

struct ConvCase {
  std::vector<int32_t> lengths;
  int64_t columns = 0;
  CausalConvShape shape;
  bool bias = false;
  DType dtype = DType::kF32;

  int64_t rows() const { return std::accumulate(lengths.begin(), lengths.end(), int64_t{0}); }
  std::vector<SequenceSpan> spans() const {
    std::vector<SequenceSpan> result;
    int32_t row = 0;
    for (const int32_t length : lengths) {
      result.push_back({.row_begin = row, .row_count = length});
      row += length;
    }
    return result;
  }
};

std::string conv_name(const ConvCase& c) {
  return fmt::format("{} taps, {} columns, {} sequences", c.shape.kernel, c.columns,
                     c.lengths.size());
}

std::vector<ConvCase> conv_cases() {
  std::vector<ConvCase> all;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    all.push_back({{5, 1, 0, 2, 9}, 37, {4, true}, true, dtype});
    all.push_back({{3, 7}, 16, {4, false}, false, dtype});
    all.push_back({{11}, 9, {8, true}, false, dtype});
    all.push_back({{4, 2}, 5, {1, false}, true, dtype});
    all.push_back({{6, 6}, 270, {3, true}, true, dtype});  // more than a block of columns
    all.push_back({{}, 8, {4, true}, false, dtype});
  }
  return all;
}

struct ConvOperands {
  Matrix dst, src, weight, bias;

  explicit ConvOperands(const ConvCase& c, uint64_t seed = 3)
      : dst(c.dtype, c.rows(), c.columns),
        src(c.dtype, c.rows(), c.columns),
        weight(DType::kF32, c.columns, c.shape.kernel),
        bias(DType::kF32, 1, c.columns, 0) {
    Rng rng(seed);
    src.fill_normal(rng);
    weight.fill_normal(rng);
    bias.fill_normal(rng);
  }
  CausalConvForward args(const ConvCase& c) {
    return {.dst = dst.view(),
            .src = src.view(),
            .weight = weight.view(),
            .bias = c.bias ? bias.vector() : TensorView{},
            .states = {},
            .sequences = c.spans(),
            .shape = c.shape};
  }
};

double conv_silu(double x) { return x / (1 + std::exp(-x)); }

// dst, or u without the silu.
Values conv_reference(const ConvCase& c, const Values& src, const Values& weight,
                      const Values& bias, bool activated) {
  Values dst;
  for (const SequenceSpan& span : c.spans()) {
    for (int64_t t = 0; t < span.row_count; ++t) {
      for (int64_t column = 0; column < c.columns; ++column) {
        double u = c.bias ? bias[static_cast<size_t>(column)] : 0.0;
        for (int64_t i = 0; i < c.shape.kernel; ++i) {
          const int64_t row = t - c.shape.kernel + 1 + i;
          if (row < 0) continue;
          u += weight[static_cast<size_t>(column * c.shape.kernel + i)] *
               src[static_cast<size_t>((span.row_begin + row) * c.columns + column)];
        }
        dst.push_back(activated && c.shape.silu ? conv_silu(u) : u);
      }
    }
  }
  return dst;
}

TEST(CausalConv, ForwardAgreesWithDouble) {
  test::TestStream stream;
  test::for_each_isa([&] {
    for (const ConvCase& c : conv_cases()) {
      ConvOperands operands(c);
      causal_conv_forward(*stream, operands.args(c));
      test::expect_near(operands.dst,
                        conv_reference(c, operands.src.values(), operands.weight.values(),
                                       operands.bias.values(), true),
                        1e-6, 2e-6, conv_name(c));
    }
  });
}

struct ConvGradients {
  Matrix src, products, weight, bias;

  explicit ConvGradients(const ConvCase& c)
      : src(c.dtype, c.rows(), c.columns),
        products(c.dtype, c.rows(), c.columns),
        weight(DType::kF32, c.columns, c.shape.kernel),
        bias(DType::kF32, 1, c.columns, 0) {
    weight.fill(0.25);
    bias.fill(-0.5);
  }
};

void conv_backward(Stream& stream, const ConvCase& c, ConvOperands& in, Matrix& grad_dst,
                   ConvGradients* grads, bool in_place = false) {
  Matrix& products = in_place ? grad_dst : grads->products;
  causal_conv_backward_input(stream, {.grad_src = grads->src.view(),
                                      .grad_products = products.view(),
                                      .grad_dst = grad_dst.view(),
                                      .src = in.src.view(),
                                      .weight = in.weight.view(),
                                      .bias = c.bias ? in.bias.vector() : TensorView{},
                                      .sequences = c.spans(),
                                      .shape = c.shape});
  causal_conv_backward_weight(stream, {.grad_weight = grads->weight.view(),
                                       .grad_bias = c.bias ? grads->bias.vector() : TensorView{},
                                       .grad_products = products.view(),
                                       .src = in.src.view(),
                                       .sequences = c.spans(),
                                       .shape = c.shape});
}

TEST(CausalConv, BackwardAgreesWithFiniteDifferences) {
  test::TestStream stream;
  test::for_each_isa([&] {
    for (const ConvCase& c : conv_cases()) {
      if (c.columns > 100) continue;  // the differences would take long
      ConvOperands in(c);
      Rng rng(4);
      Matrix grad_dst(c.dtype, c.rows(), c.columns);
      grad_dst.fill_normal(rng);
      const Values grad = grad_dst.values();
      const Values src = in.src.values();
      const Values weight = in.weight.values();
      const Values bias = in.bias.values();
      ConvGradients grads(c);
      conv_backward(*stream, c, in, grad_dst, &grads);

      const Values by_src = test::finite_difference(
          [&](const Values& at) {
            return test::dot(conv_reference(c, at, weight, bias, true), grad);
          },
          src);
      Values by_weight = test::finite_difference(
          [&](const Values& at) { return test::dot(conv_reference(c, src, at, bias, true), grad); },
          weight);
      Values by_bias = test::finite_difference(
          [&](const Values& at) {
            return test::dot(conv_reference(c, src, weight, at, true), grad);
          },
          bias);
      for (double& value : by_weight) value += 0.25;
      for (double& value : by_bias) value -= 0.5;
      // Gradients of u are rounded to the type on the way.
      const double rounding = 4 * test::rounding_of(c.dtype);
      test::expect_near(grads.src, by_src, 1e-5, 1e-5 + 2 * rounding, conv_name(c));
      test::expect_near(grads.weight, by_weight, 1e-5, 1e-5 + 8 * rounding, conv_name(c));
      test::expect_near(grads.bias, by_bias, 1e-5, 1e-5 + 8 * rounding, conv_name(c));
    }
  });
}

TEST(CausalConv, GradientsOfProductsMayTakeThePlaceOfThoseOfTheResult) {
  test::TestStream stream;
  for (const ConvCase& c : conv_cases()) {
    ConvOperands in(c);
    Rng rng(5);
    Matrix grad_dst(c.dtype, c.rows(), c.columns);
    grad_dst.fill_normal(rng);
    ConvGradients apart(c), placed(c);
    conv_backward(*stream, c, in, grad_dst, &apart);
    conv_backward(*stream, c, in, grad_dst, &placed, true);
    EXPECT_TRUE(apart.src == placed.src) << conv_name(c);
    EXPECT_TRUE(apart.products == grad_dst) << conv_name(c);
    EXPECT_TRUE(apart.weight == placed.weight) << conv_name(c);
  }
}

// The rows of one sequence run in pieces of these lengths over a state, which holds NaN before.
struct ConvPieces {
  Matrix dst, states;
  bool operator==(const ConvPieces& other) const = default;
};
ConvPieces conv_in_pieces(Stream& stream, const ConvCase& c, const std::vector<int32_t>& pieces) {
  ConvOperands in(c);
  ConvPieces run = {in.dst, Matrix(c.dtype, 3, (c.shape.kernel - 1) * c.columns)};
  int32_t row = 0;
  for (const int32_t count : pieces) {
    CausalConvForward args = in.args(c);
    args.dst = run.dst.view();
    args.states = run.states.view();
    args.sequences = {{.row_begin = row, .row_count = count, .context_count = row, .state = 1}};
    causal_conv_forward(stream, args);
    row += count;
  }
  return run;
}

TEST(CausalConv, GoesOnFromItsStateWithTheSameBits) {
  test::TestStream stream;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int64_t kernel : {2, 4, 8}) {
      const ConvCase c = {{11}, 37, {kernel, true}, true, dtype};
      const ConvPieces whole = conv_in_pieces(*stream, c, {11});
      ConvOperands training(c);
      causal_conv_forward(*stream, training.args(c));
      EXPECT_TRUE(whole.dst == training.dst) << "without a state";
      for (int64_t j = 0; j < kernel - 1; ++j) {
        for (int64_t column = 0; column < c.columns; ++column) {
          ASSERT_EQ(whole.states.get(1, j * c.columns + column),
                    training.src.get(11 - (kernel - 1) + j, column));
        }
      }
      for (const std::vector<int32_t>& pieces : std::vector<std::vector<int32_t>>{
               {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, {2, 0, 9}, {5, 6}, {1, 2, 7, 1}, {10, 1}}) {
        EXPECT_TRUE(conv_in_pieces(*stream, c, pieces) == whole)
            << conv_name(c) << " in " << pieces.size();
      }
    }
  }
}

// Rows of its inputs, of which there are more and fewer than a state has.
TEST(CausalConv, ASpareRowHasTheStateBehindTheFirstRows) {
  test::TestStream stream(2);
  for (const int64_t kernel : {2, 4, 8}) {
    for (const auto& [context, kept] : {std::pair{3, 1}, {3, 6}, {1, 2}, {0, 3}, {0, 11}, {9, 2}}) {
      const ConvCase c = {{11}, 37, {kernel, true}, true, DType::kBF16};
      const ConvPieces whole = conv_in_pieces(*stream, c, {context, 11 - context});
      const ConvPieces first = conv_in_pieces(*stream, c, {context, kept});
      ConvOperands in(c);
      ConvPieces with = conv_in_pieces(*stream, c, {context});
      CausalConvForward args = in.args(c);
      args.dst = with.dst.view();
      args.states = with.states.view();
      args.sequences = {{.row_begin = context,
                         .row_count = 11 - context,
                         .context_count = context,
                         .state = 1,
                         .spare = 2,
                         .spare_rows = kept}};
      causal_conv_forward(*stream, args);
      EXPECT_TRUE(with.dst == whole.dst) << conv_name(c);
      for (int64_t i = 0; i < with.states.columns(); ++i) {
        ASSERT_EQ(with.states.get(1, i), whole.states.get(1, i)) << conv_name(c);
        ASSERT_EQ(with.states.get(2, i), first.states.get(1, i)) << conv_name(c) << " " << kept;
      }
    }
  }
}

TEST(CausalConv, SequencesDoNotMeet) {
  test::TestStream stream;
  const ConvCase together = {{5, 1, 7}, 37, {4, true}, true, DType::kBF16};
  ConvOperands all(together);
  causal_conv_forward(*stream, all.args(together));
  ConvOperands alone(together);
  for (const SequenceSpan& span : together.spans()) {
    CausalConvForward args = alone.args(together);
    args.sequences = {span};
    causal_conv_forward(*stream, args);
  }
  EXPECT_TRUE(all.dst == alone.dst);
}

TEST(CausalConv, WeightGradientsDoNotDependOnMicroBatches) {
  test::TestStream stream;
  const ConvCase c = {{5, 1, 7, 12}, 37, {4, true}, true, DType::kBF16};
  ConvOperands in(c);
  Rng rng(6);
  Matrix products(c.dtype, c.rows(), c.columns);
  products.fill_normal(rng);
  ConvGradients once(c), split(c);
  const auto add = [&](ConvGradients& to, std::vector<SequenceSpan> sequences) {
    causal_conv_backward_weight(*stream, {.grad_weight = to.weight.view(),
                                          .grad_bias = to.bias.vector(),
                                          .grad_products = products.view(),
                                          .src = in.src.view(),
                                          .sequences = std::move(sequences),
                                          .shape = c.shape});
  };
  add(once, c.spans());
  for (const SequenceSpan& span : c.spans()) add(split, {span});
  EXPECT_TRUE(once.weight == split.weight);
  EXPECT_TRUE(once.bias == split.bias);
}

TEST(CausalConv, HasTheSameBitsOnAnyThreadsAndInstructionSet) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const ConvCase c = {{300, 111}, 421, {4, true}, true, dtype};
    test::expect_same_bits_everywhere([&](Stream& stream) {
      ConvOperands in(c);
      causal_conv_forward(stream, in.args(c));
      ConvGradients grads(c);
      conv_backward(stream, c, in, in.dst, &grads);
      return std::tuple(in.dst, grads.src, grads.products, grads.weight, grads.bias);
    });
  }
}

}  // namespace
}  // namespace jige::ops
