#include "ops/norm.h"

#include <fmt/format.h>

#include "ops/testing.h"

namespace jige::ops {
namespace {

using test::Matrix;
using test::Values;
constexpr double kEps = 1e-5;

// y of every group by the definition, in double.
Values norm_reference(const Values& x, const Values& weight, const Values* bias, bool layer) {
  const size_t width = weight.size();
  Values y(x.size());
  for (size_t begin = 0; begin < x.size(); begin += width) {
    double mean = 0;
    if (layer) {
      for (size_t i = 0; i < width; ++i) mean += x[begin + i] / static_cast<double>(width);
    }
    double variance = 0;
    for (size_t i = 0; i < width; ++i) {
      variance += (x[begin + i] - mean) * (x[begin + i] - mean) / static_cast<double>(width);
    }
    const double rstd = 1 / std::sqrt(variance + kEps);
    for (size_t i = 0; i < width; ++i) {
      y[begin + i] = (x[begin + i] - mean) * rstd * weight[i] + (bias ? (*bias)[i] : 0);
    }
  }
  return y;
}

struct NormCase {
  int64_t rows, groups, width;
  bool layer;
  DType src = DType::kF32;
  DType dst = DType::kF32;
  DType grad = DType::kF32;
  bool adds_one = false;

  std::string name() const {
    return fmt::format("{} [{}, {}·{}] {} to {}, gradients {}{}", layer ? "layer" : "rms", rows,
                       groups, width, dtype_info(src).name, dtype_info(dst).name,
                       dtype_info(grad).name, adds_one ? ", adds one" : "");
  }
};

// Inputs and results of one forward and backward.
struct NormBuffers {
  Matrix src, weight, bias, dst, rstd, mean, grad_dst, grad_src, grad_weight, grad_bias;
  bool adds_one = false;
  bool operator==(const NormBuffers&) const = default;
};

NormBuffers make_norm_buffers(const NormCase& c) {
  Rng rng(static_cast<uint64_t>(c.rows * 1000 + c.width));
  const int64_t columns = c.groups * c.width;
  NormBuffers run = {
      Matrix(c.src, c.rows, columns),           Matrix(DType::kF32, 1, c.width, 0),
      Matrix(DType::kF32, 1, c.width, 0),       Matrix(c.dst, c.rows, columns, 5),
      Matrix(DType::kF32, c.rows, c.groups, 1), Matrix(DType::kF32, c.rows, c.groups, 2),
      Matrix(c.grad, c.rows, columns, 1),       Matrix(c.grad, c.rows, columns),
      Matrix(DType::kF32, 1, c.width, 0),       Matrix(DType::kF32, 1, c.width, 0)};
  run.src.fill_normal(rng, 1.0, 0.5);
  run.weight.fill_normal(rng, 0.5, 1.0);
  run.bias.fill_normal(rng);
  run.grad_dst.fill_normal(rng);
  run.grad_src.fill(0.25);
  run.grad_weight.fill(2.0);
  run.grad_bias.fill(-1.0);
  run.adds_one = c.adds_one;
  return run;
}

// What normalised columns are multiplied with.
Values factors_of(const NormBuffers& run) {
  Values factors = run.weight.values();
  for (double& factor : factors) factor += run.adds_one ? 1.0 : 0.0;
  return factors;
}

void forward(Stream& stream, NormBuffers& run, bool layer, int64_t begin, int64_t end) {
  NormForward args;
  args.dst = run.dst.view().row_range(begin, end);
  args.src = run.src.view().row_range(begin, end);
  args.weight = run.weight.vector();
  args.rstd = run.rstd.view().row_range(begin, end);
  args.eps = kEps;
  args.weight_adds_one = run.adds_one;
  if (layer) {
    args.bias = run.bias.vector();
    args.mean = run.mean.view().row_range(begin, end);
    layer_norm_forward(stream, args);
  } else {
    rms_norm_forward(stream, args);
  }
}

void backward(Stream& stream, NormBuffers& run, bool layer, bool accumulate, int64_t begin,
              int64_t end) {
  NormBackwardInput input;
  input.grad_src = run.grad_src.view().row_range(begin, end);
  input.grad_dst = run.grad_dst.view().row_range(begin, end);
  input.src = run.src.view().row_range(begin, end);
  input.weight = run.weight.vector();
  input.rstd = run.rstd.view().row_range(begin, end);
  input.accumulate = accumulate;
  input.weight_adds_one = run.adds_one;
  NormBackwardWeight weight;
  weight.grad_weight = run.grad_weight.vector();
  weight.grad_dst = input.grad_dst;
  weight.src = input.src;
  weight.rstd = input.rstd;
  if (layer) {
    input.mean = weight.mean = run.mean.view().row_range(begin, end);
    weight.grad_bias = run.grad_bias.vector();
    layer_norm_backward_input(stream, input);
    layer_norm_backward_weight(stream, weight);
  } else {
    rms_norm_backward_input(stream, input);
    rms_norm_backward_weight(stream, weight);
  }
}

std::vector<NormCase> norm_cases() {
  std::vector<NormCase> all;
  for (const bool layer : {false, true}) {
    for (const int64_t width : {1, 7, 16, 33, 100, 515}) {
      all.push_back({3, 1, width, layer});
      all.push_back({2, 3, width, layer});
    }
    for (const DType src : {DType::kF32, DType::kBF16}) {
      for (const DType dst : {DType::kF32, DType::kBF16}) {
        for (const DType grad : {DType::kF32, DType::kBF16}) {
          for (const bool adds_one : {false, true}) {
            all.push_back({5, 2, 37, layer, src, dst, grad, adds_one});
          }
        }
      }
    }
  }
  return all;
}

TEST(Norm, ForwardAgreesWithDouble) {
  test::TestStream stream;
  test::for_each_isa([&] {
    for (const NormCase& c : norm_cases()) {
      NormBuffers run = make_norm_buffers(c);
      forward(*stream, run, c.layer, 0, c.rows);
      const Values bias = run.bias.values();
      test::expect_near(
          run.dst,
          norm_reference(run.src.values(), factors_of(run), c.layer ? &bias : nullptr, c.layer),
          2e-6, 4e-6, c.name());
    }
  });
}

TEST(Norm, GradientsAgreeWithFiniteDifferences) {
  test::TestStream stream;
  for (const NormCase& c : norm_cases()) {
    if (c.width > 200) continue;  // finite differences cost the square
    const NormBuffers in = make_norm_buffers(c);
    const Values x = in.src.values();
    const Values w = factors_of(in);
    const Values b = in.bias.values();
    const Values dy = in.grad_dst.values();
    const Values* bias = c.layer ? &b : nullptr;
    Values dx = test::finite_difference(
        [&](const Values& at) { return test::dot(norm_reference(at, w, bias, c.layer), dy); }, x);
    for (double& value : dx) value += 0.25;
    Values dw = test::finite_difference(
        [&](const Values& at) { return test::dot(norm_reference(x, at, bias, c.layer), dy); }, w);
    for (double& value : dw) value += 2.0;
    Values db;
    if (c.layer) {
      db = test::finite_difference(
          [&](const Values& at) { return test::dot(norm_reference(x, w, &at, true), dy); }, b);
    }
    for (double& value : db) value += -1.0;
    test::for_each_isa([&] {
      NormBuffers run = make_norm_buffers(c);
      forward(*stream, run, c.layer, 0, c.rows);
      backward(*stream, run, c.layer, true, 0, c.rows);
      // A group of one has rstd up to 300, which multiplies the error of the differences too.
      const double loose = c.width == 1 ? 1e-4 : 1e-5;
      test::expect_near(run.grad_src, dx, loose, loose, "dx of " + c.name());
      test::expect_near(run.grad_weight, dw, 1e-5, 1e-5, "dw of " + c.name());
      if (c.layer) test::expect_near(run.grad_bias, db, 1e-5, 1e-5, "db of " + c.name());
    });
  }
}

TEST(Norm, OverwritesTheInputGradientUnlessToldToAdd) {
  test::TestStream stream;
  const NormCase c = {4, 1, 21, true};
  NormBuffers added = make_norm_buffers(c);
  NormBuffers written = make_norm_buffers(c);
  for (NormBuffers* run : {&added, &written}) forward(*stream, *run, true, 0, 4);
  backward(*stream, added, true, true, 0, 4);
  backward(*stream, written, true, false, 0, 4);
  Values expected = written.grad_src.values();
  for (double& value : expected) value += 0.25;
  test::expect_near(added.grad_src, expected, 1e-6, 1e-7, "added");
}

TEST(Norm, HasTheSameBitsOnAnyThreadsInstructionSetAndSplitOfRows) {
  for (const bool layer : {false, true}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const NormCase c = {67, 2, 259, layer, dtype, dtype, dtype};
      const auto whole = [&](Stream& stream) {
        NormBuffers run = make_norm_buffers(c);
        forward(stream, run, layer, 0, c.rows);
        backward(stream, run, layer, true, 0, c.rows);
        return run;
      };
      test::expect_same_bits_everywhere(whole);
      test::TestStream stream;
      const NormBuffers expected = whole(*stream);
      NormBuffers split = make_norm_buffers(c);
      int64_t begin = 0;
      for (const int64_t end : {int64_t{1}, int64_t{30}, int64_t{64}, c.rows}) {
        forward(*stream, split, layer, begin, end);
        backward(*stream, split, layer, true, begin, end);
        begin = end;
      }
      EXPECT_TRUE(split == expected) << c.name();
    }
  }
}

TEST(Norm, WorksInPlaceAndWithoutStatistics) {
  test::TestStream stream;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const NormCase c = {6, 2, 45, false, dtype, dtype};
    NormBuffers apart = make_norm_buffers(c);
    forward(*stream, apart, false, 0, c.rows);
    NormBuffers in_place = make_norm_buffers(c);
    NormForward args;
    args.dst = args.src = in_place.src.view();
    args.weight = in_place.weight.vector();
    args.eps = kEps;
    rms_norm_forward(*stream, args);
    EXPECT_EQ(in_place.src.values(), apart.dst.values());
  }
}

TEST(Norm, WithoutWeightIsThatOfOnes) {
  test::TestStream stream;
  test::for_each_isa([&] {
    for (const bool accumulate : {false, true}) {
      const NormCase c = {5, 3, 37, false};
      NormBuffers ones = make_norm_buffers(c);
      ones.weight.fill(1.0);
      forward(*stream, ones, false, 0, c.rows);
      backward(*stream, ones, false, accumulate, 0, c.rows);
      NormBuffers none = make_norm_buffers(c);
      NormForward args;
      args.dst = none.dst.view();
      args.src = none.src.view();
      args.rstd = none.rstd.view();
      args.eps = kEps;
      args.width = c.width;
      rms_norm_forward(*stream, args);
      NormBackwardInput input;
      input.grad_src = none.grad_src.view();
      input.grad_dst = none.grad_dst.view();
      input.src = none.src.view();
      input.rstd = none.rstd.view();
      input.accumulate = accumulate;
      input.width = c.width;
      rms_norm_backward_input(*stream, input);
      EXPECT_EQ(none.dst.values(), ones.dst.values());
      EXPECT_EQ(none.rstd.values(), ones.rstd.values());
      EXPECT_EQ(none.grad_src.values(), ones.grad_src.values());
      if (accumulate) continue;
      input.grad_src = none.grad_dst.view();  // in place
      rms_norm_backward_input(*stream, input);
      EXPECT_EQ(none.grad_dst.values(), ones.grad_src.values());
    }
  });
}

TEST(Norm, TakesNoRows) {
  test::TestStream stream;
  NormBuffers run = make_norm_buffers({0, 1, 8, false});
  forward(*stream, run, false, 0, 0);
  backward(*stream, run, false, false, 0, 0);
  EXPECT_EQ(run.grad_weight.get(0, 0), 2.0f);
}

TEST(Norm, KeepsAccuracyWithAMeanFarFromZero) {
  test::TestStream stream;
  NormBuffers run = make_norm_buffers({2, 1, 4096, true});
  Rng rng(3);
  run.src.fill_normal(rng, 1.0, 1000.0);
  forward(*stream, run, true, 0, 2);
  const Values bias = run.bias.values();
  // The mean itself is rounded to f32: 3e-5 of a deviation.
  test::expect_near(run.dst, norm_reference(run.src.values(), run.weight.values(), &bias, true),
                    1e-3, 1e-3, "mean 1000");
}

}  // namespace
}  // namespace jige::ops
