#include "ops/delta_gates.h"

#include <fmt/format.h>

#include "ops/testing.h"

namespace jige::ops {
namespace {

using test::Matrix;
using test::Values;

double decay_reference(double a, double log_scale, double bias) {
  return -std::exp(log_scale) * std::log1p(std::exp(a + bias));
}
double rate_reference(double b, double scale) { return scale / (1 + std::exp(-b)); }
double step_reference(double a, double bias) { return std::log1p(std::exp(a + bias)); }

struct GateInputs {
  Matrix a, b, log_scale, bias, log_decay, rate;
  bool has_b;
  float rate_scale;

  GateInputs(DType dtype, int64_t rows, int64_t heads, double spread, bool has_rates)
      : a(dtype, rows, heads),
        b(dtype, rows, heads),
        log_scale(DType::kF32, 1, heads, 0),
        bias(DType::kF32, 1, heads, 0),
        log_decay(DType::kF32, rows, heads),
        rate(DType::kF32, rows, heads),
        has_b(has_rates),
        rate_scale(heads % 2 == 0 ? 2.0f : 1.0f) {
    Rng rng(21);
    a.fill_normal(rng, spread);
    b.fill_normal(rng, spread);
    log_scale.fill_normal(rng);
    bias.fill_normal(rng);
  }
  DeltaGates args() {
    return {.log_decay = log_decay.view(),
            .rate = rate.view(),
            .a = a.view(),
            .b = has_b ? b.view() : TensorView(),
            .log_scale = log_scale.vector(),
            .bias = bias.vector(),
            .rate_scale = rate_scale};
  }
};

template <typename Body>
void for_gate_inputs(Body&& body) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int64_t heads : {1, 16, 19, 48}) {
      for (const double spread : {1.0, 12.0}) {  // of which some arguments are above 20
        for (const bool has_b : {true, false}) {
          GateInputs in(dtype, 7, heads, spread, has_b);
          body(in, fmt::format("{} heads, {}{}", heads, spread, has_b ? "" : ", without b"));
        }
      }
    }
  }
}

TEST(DeltaGates, ForwardAgreesWithDouble) {
  test::TestStream stream;
  test::for_each_isa([&] {
    for_gate_inputs([&](GateInputs& in, const std::string& what) {
      delta_gates_forward(*stream, in.args());
      Values decay, rate;
      const auto scale = static_cast<double>(in.rate_scale);
      for (int64_t t = 0; t < in.a.rows(); ++t) {
        for (int64_t h = 0; h < in.a.columns(); ++h) {
          // The sum of a and the bias is rounded, so its own error is taken out.
          const double sum = static_cast<double>(in.a.get(t, h) + in.bias.get(0, h));
          decay.push_back(decay_reference(sum, static_cast<double>(in.log_scale.get(0, h)), 0));
          rate.push_back(in.has_b ? rate_reference(static_cast<double>(in.b.get(t, h)), scale)
                                  : step_reference(sum, 0));
        }
      }
      test::expect_near(in.log_decay, decay, 1e-6, 0, what);
      test::expect_near(in.rate, rate, 1e-6, 0, what);
    });
  });
}

// Of each of so many numbers, as often as a head has columns.
Matrix repeated(const Matrix& heads, int64_t key_dim) {
  return Matrix(DType::kF32, 1, heads.columns() * key_dim, 0).fill_by([&](int64_t, int64_t i) {
    return static_cast<double>(heads.get(0, i / key_dim));
  });
}

TEST(DeltaGates, DecaysByKeyAreThoseOfAsManyHeads) {
  test::TestStream stream;
  test::for_each_isa([&] {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      constexpr int64_t kRows = 5, kHeads = 3, kKeyDim = 19, kAll = kHeads * kKeyDim;
      GateInputs wide(dtype, kRows, kAll, 12.0, true), few(dtype, kRows, kHeads, 1.0, true);
      wide.rate_scale = few.rate_scale;
      Matrix scales = few.log_scale;
      wide.log_scale = repeated(scales, kKeyDim);
      Rng rng(23);
      Matrix grad_decay(DType::kF32, kRows, kAll), grad_rates(DType::kF32, kRows, kAll);
      Matrix grad_rate(DType::kF32, kRows, kHeads);
      grad_decay.fill_normal(rng);
      grad_rates.fill(0);
      grad_rate.fill_normal(rng);
      const auto run = [&](DeltaGates args, Matrix& rate_gradients, int64_t heads) {
        delta_gates_forward(*stream, args);
        std::vector<Matrix> grads = {{dtype, kRows, kAll},
                                     {dtype, kRows, heads},
                                     {DType::kF32, kRows, heads},
                                     {DType::kF32, kRows, kAll}};
        delta_gates_backward(*stream, {.grad_a = grads[0].view(),
                                       .grad_b = grads[1].view(),
                                       .slopes_scale = grads[2].view(),
                                       .slopes_bias = grads[3].view(),
                                       .grad_log_decay = grad_decay.view(),
                                       .grad_rate = rate_gradients.view(),
                                       .forward = args});
        return grads;
      };
      const std::vector<Matrix> as_heads = run(wide.args(), grad_rates, kAll);
      const Matrix decays = wide.log_decay;
      Matrix by_key(DType::kF32, kRows, kAll);
      DeltaGates args = wide.args();
      args.log_decay = by_key.view();
      args.rate = few.rate.view();
      args.b = few.b.view();
      args.log_scale = scales.vector();
      const std::vector<Matrix> grads = run(args, grad_rate, kHeads);
      EXPECT_TRUE(by_key == decays);
      EXPECT_TRUE(grads[0] == as_heads[0] && grads[3] == as_heads[3]);
      Values sums, by_b;
      for (int64_t t = 0; t < kRows; ++t) {
        for (int64_t h = 0; h < kHeads; ++h) {
          double sum = 0;
          for (int64_t j = 0; j < kKeyDim; ++j) {
            sum += static_cast<double>(as_heads[2].get(t, h * kKeyDim + j));
          }
          sums.push_back(sum);
          const double rate = rate_reference(static_cast<double>(few.b.get(t, h)), 1);
          by_b.push_back(static_cast<double>(grad_rate.get(t, h) * few.rate_scale) * rate *
                         (1 - rate));
        }
      }
      test::expect_near(grads[2], sums, 1e-5, 1e-5, "log_scale");
      test::expect_near(grads[1], by_b, 1e-5, 1e-6, "b");
    }
  });
}

TEST(DeltaGates, BackwardAgreesWithFiniteDifferences) {
  test::TestStream stream;
  test::for_each_isa([&] {
    for_gate_inputs([&](GateInputs& in, const std::string& what) {
      const int64_t rows = in.a.rows();
      const int64_t heads = in.a.columns();
      Rng rng(22);
      Matrix grad_decay(DType::kF32, rows, heads), grad_rate(DType::kF32, rows, heads);
      grad_decay.fill_normal(rng);
      grad_rate.fill_normal(rng);
      Matrix grad_a(in.a.dtype(), rows, heads), grad_b(in.a.dtype(), rows, heads);
      Matrix slopes_scale(DType::kF32, rows, heads), slopes_bias(DType::kF32, rows, heads);
      delta_gates_backward(*stream, {.grad_a = grad_a.view(),
                                     .grad_b = in.has_b ? grad_b.view() : TensorView(),
                                     .slopes_scale = slopes_scale.view(),
                                     .slopes_bias = slopes_bias.view(),
                                     .grad_log_decay = grad_decay.view(),
                                     .grad_rate = grad_rate.view(),
                                     .forward = in.args()});
      Values by_a, by_b, by_scale;
      const auto slope = [](const std::function<double(double)>& f) {
        constexpr double kStep = 1e-5;
        return (f(kStep) - f(-kStep)) / (2 * kStep);
      };
      for (int64_t t = 0; t < rows; ++t) {
        for (int64_t h = 0; h < heads; ++h) {
          const auto a = static_cast<double>(in.a.get(t, h));
          const auto b = static_cast<double>(in.b.get(t, h));
          const auto scale = static_cast<double>(in.log_scale.get(0, h));
          const auto bias = static_cast<double>(in.bias.get(0, h));
          const auto decay = static_cast<double>(grad_decay.get(t, h));
          const auto rate = static_cast<double>(grad_rate.get(t, h));
          const double by_step =
              in.has_b ? 0 : slope([&](double d) { return step_reference(a + d, bias); });
          by_a.push_back(decay *
                             slope([&](double d) { return decay_reference(a + d, scale, bias); }) +
                         rate * by_step);
          by_b.push_back(rate *
                         slope([&](double d) { return rate_reference(b + d, in.rate_scale); }));
          by_scale.push_back(decay *
                             slope([&](double d) { return decay_reference(a, scale + d, bias); }));
        }
      }
      test::expect_near(grad_a, by_a, 2e-6, 1e-6, what);
      if (in.has_b) test::expect_near(grad_b, by_b, 2e-6, 1e-6, what);
      test::expect_near(slopes_scale, by_scale, 2e-6, 1e-6, what);
      test::expect_near(slopes_bias, by_a, 2e-6, 1e-6, what);
    });
  });
}

TEST(DeltaGates, HaveTheSameBitsOnAnyThreadsAndInstructionSet) {
  const std::vector<std::pair<DType, bool>> cases = {
      {DType::kF32, true}, {DType::kBF16, true}, {DType::kF32, false}};
  for (const auto& [dtype, has_b] : cases) {
    test::expect_same_bits_everywhere([dtype = dtype, has_b = has_b](Stream& stream) {
      GateInputs in(dtype, 901, 37, 3, has_b);
      delta_gates_forward(stream, in.args());
      Matrix grad_a = in.a, grad_b = in.b, slopes_scale = in.rate, slopes_bias = in.rate;
      delta_gates_backward(stream, {.grad_a = grad_a.view(),
                                    .grad_b = has_b ? grad_b.view() : TensorView(),
                                    .slopes_scale = slopes_scale.view(),
                                    .slopes_bias = slopes_bias.view(),
                                    .grad_log_decay = in.log_decay.view(),
                                    .grad_rate = in.rate.view(),
                                    .forward = in.args()});
      return std::tuple(in.log_decay, in.rate, grad_a, grad_b, slopes_scale, slopes_bias);
    });
  }
}

}  // namespace
}  // namespace jige::ops
