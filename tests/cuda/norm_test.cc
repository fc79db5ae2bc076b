// Norms on a GPU, beside those of the CPU.
#include "ops/norm.h"

#include <cmath>

#include "cuda/test_device.h"

namespace jige {
namespace {

struct NormCase {
  int64_t rows, groups, width;
  int64_t begin = 0;  // the first column of sources
  bool bias = true;
  bool weight = true;
};

class CudaNorm : public CudaTest {
 protected:
  // Little more than one rounding to the type.
  static double tolerance_of(DType dtype) { return dtype == DType::kF32 ? 4e-6 : 0x1p-7; }
  struct Gapped {
    Pair whole, view;
  };
  Gapped gapped(DType dtype, int64_t rows, int64_t width, int64_t begin) {
    const Pair whole = random(dtype, {rows, (begin + width + 7) / 8 * 8});
    const int64_t end = begin + width;
    return {whole, {whole.host.column_range(begin, end), whole.gpu.column_range(begin, end)}};
  }
  static std::vector<NormCase> cases() {
    std::vector<NormCase> all = {
        {.rows = 1, .groups = 1, .width = 1},
        {.rows = 5, .groups = 1, .width = 40, .begin = 8},
        {.rows = 3, .groups = 1, .width = 40, .begin = 3, .bias = false},
        {.rows = 7, .groups = 3, .width = 64},
        {.rows = 7, .groups = 3, .width = 128, .weight = false},
        {.rows = 9, .groups = 5, .width = 33},
        {.rows = 5, .groups = 2, .width = 264},
        {.rows = 3, .groups = 1, .width = 777},
        {.rows = 3, .groups = 1, .width = 1032},
        {.rows = 2, .groups = 1, .width = 2304, .bias = false},
        {.rows = 2, .groups = 1, .width = 8200},
        {.rows = 70, .groups = 4, .width = 16},
    };
    if (!test_device_is_emulated()) {
      all.push_back({.rows = 1000, .groups = 1, .width = 4096});
      all.push_back({.rows = 1000, .groups = 32, .width = 128});
      all.push_back({.rows = 100, .groups = 1, .width = 8192});
    }
    return all;
  }
  // What forward and backward need, on one side.
  struct Side {
    TensorView dst, src, weight, bias, rstd, mean, grad_dst, grad_src, grad_weight, grad_bias;
  };
  void run(Stream& stream, const Side& side, const NormCase& shape, bool layer, bool accumulate) {
    const auto forward = layer ? ops::layer_norm_forward : ops::rms_norm_forward;
    forward(stream, {.dst = side.dst,
                     .src = side.src,
                     .weight = side.weight,
                     .bias = layer ? side.bias : TensorView{},
                     .rstd = side.rstd,
                     .mean = layer ? side.mean : TensorView{},
                     .eps = 1e-5,
                     .weight_adds_one = accumulate,
                     .width = shape.width});
    const auto backward = layer ? ops::layer_norm_backward_input : ops::rms_norm_backward_input;
    backward(stream, {.grad_src = side.grad_src,
                      .grad_dst = side.grad_dst,
                      .src = side.src,
                      .weight = side.weight,
                      .rstd = side.rstd,
                      .mean = layer ? side.mean : TensorView{},
                      .accumulate = accumulate,
                      .weight_adds_one = accumulate,
                      .width = shape.width});
    const auto weights = layer ? ops::layer_norm_backward_weight : ops::rms_norm_backward_weight;
    weights(stream, {.grad_weight = side.grad_weight,
                     .grad_bias = layer ? side.grad_bias : TensorView{},
                     .grad_dst = side.grad_dst,
                     .src = side.src,
                     .rstd = side.rstd,
                     .mean = layer ? side.mean : TensorView{}});
  }
  void compare(const NormCase& shape, DType dtype, DType source, bool layer, bool accumulate);
};

void CudaNorm::compare(const NormCase& shape, DType dtype, DType source, bool layer,
                       bool accumulate) {
  const int64_t columns = shape.groups * shape.width;
  const Gapped src = gapped(source, shape.rows, columns, shape.begin);
  const Gapped dst = gapped(dtype, shape.rows, columns, 0);
  const Gapped grad_dst = gapped(dtype, shape.rows, columns, shape.begin);
  const Gapped grad_src = gapped(source, shape.rows, columns, 8);
  const Pair weight = random(DType::kF32, {shape.width}), bias = random(DType::kF32, {shape.width});
  const Pair rstd = filled(DType::kF32, {shape.rows, shape.groups});
  const Pair mean = random(DType::kF32, {shape.rows, shape.groups});
  const Pair grad_weight = random(DType::kF32, {shape.width});
  const Pair grad_bias = random(DType::kF32, {shape.width});
  const auto side = [&](auto view) {
    const TensorView none;
    return Side{view(dst.view),
                view(src.view),
                shape.weight ? view(weight) : none,
                shape.bias ? view(bias) : none,
                view(rstd),
                view(mean),
                view(grad_dst.view),
                view(grad_src.view),
                view(grad_weight),
                shape.bias ? view(grad_bias) : none};
  };
  run(*cpu_stream_, side([](const Pair& pair) { return pair.host; }), shape, layer, accumulate);
  run(*gpu_stream_, side([](const Pair& pair) { return pair.gpu; }), shape, layer, accumulate);
  const std::string what = fmt::format("{} rows, {} groups of {}, layer {}: ", shape.rows,
                                       shape.groups, shape.width, layer);
  expect_near(dst.whole, tolerance_of(dtype), what + "dst");
  expect_near(rstd, 2e-6, what + "rstd");
  expect_near(mean, 2e-6, what + "mean");
  expect_near(grad_src.whole, 2 * tolerance_of(source), what + "grad_src");
  const auto count = static_cast<double>(shape.rows * shape.groups);
  const double of_sums = 1e-6 * std::sqrt(count + 16) + 1e-7 * count;
  expect_near(grad_weight, of_sums, what + "grad_weight");
  expect_near(grad_bias, of_sums, what + "grad_bias");
}

TEST_F(CudaNorm, IsThatOfTheCpu) {
  // Both norms in all types, and every shape with both norms and with all types.
  bool turn = false;
  for (const NormCase& shape : cases()) {
    compare(shape, DType::kF32, DType::kF32, turn, false);
    compare(shape, DType::kF32, DType::kBF16, !turn, true);
    compare(shape, DType::kBF16, DType::kF32, turn, true);
    compare(shape, DType::kBF16, DType::kBF16, !turn, false);
    turn = !turn;
  }
}

TEST_F(CudaNorm, MayTakeThePlaceOfItsSource) {
  for (const int64_t width : {100, 2304, 9000}) {
    const Pair data = random(DType::kBF16, {3, width});
    ops::rms_norm_forward(*cpu_stream_, {.dst = data.host, .src = data.host, .width = width});
    ops::rms_norm_forward(*gpu_stream_, {.dst = data.gpu, .src = data.gpu, .width = width});
    expect_near(data, 0x1p-8);
  }
}

}  // namespace
}  // namespace jige
