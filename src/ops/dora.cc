#include "ops/dora.h"

#include <cmath>
#include <vector>

#include "ops/kernel_rows.h"

namespace jige::ops {
namespace {

constexpr int64_t kDoraRows = 16;

// Element `index` of a matrix without a kernel of its own.
float element(const TensorView& view, int64_t row, int64_t column) {
  const int64_t index = row * view.row_stride + column;
  if (view.dtype == DType::kBF16) return to_float(view.as<BFloat16>()[index]);
  if (view.dtype == DType::kF16) return to_float(view.as<Float16>()[index]);
  return view.as<float>()[index];
}

// Runs body(n) for rows 0 to count of a vector, shared out by the team.
template <typename Body>
void submit_each(Stream& stream, int64_t count, const Body& body) {
  CpuStream& cpu = as_cpu(stream);
  cpu.submit([=, &device = cpu.cpu()] {
    device.team().parallel_for(count, kDoraRows, [&](int64_t begin, int64_t end, int) {
      for (int64_t n = begin; n < end; ++n) body(n);
    });
  });
}

// A Aᵀ, [r, r].
std::vector<double> products_of_rows(const TensorView& a) {
  const int64_t rank = a.rows();
  std::vector<double> products(static_cast<size_t>(rank * rank));
  for (int64_t i = 0; i < rank; ++i) {
    for (int64_t j = 0; j <= i; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < a.columns(); ++k) sum += double{element(a, i, k)} * element(a, j, k);
      products[static_cast<size_t>(i * rank + j)] = products[static_cast<size_t>(j * rank + i)] =
          sum;
    }
  }
  return products;
}

// ‖(W + s B A)_n‖².
double moved_square(const DoraFactors& args, const std::vector<double>& squares_of_a, int64_t n) {
  const int64_t rank = args.a.rows();
  double cross = 0;
  double own = 0;
  for (int64_t i = 0; i < rank; ++i) {
    const double factor = element(args.b, n, i);
    cross += factor * element(args.products, i, n);
    for (int64_t j = 0; j < rank; ++j) {
      own += factor * element(args.b, n, j) * squares_of_a[static_cast<size_t>(i * rank + j)];
    }
  }
  const double scale = args.scale;
  return args.squares.as<float>()[n] + 2 * scale * cross + scale * scale * own;
}

}  // namespace

void row_squares(Stream& stream, const TensorView& dst, const TensorView& weight) {
  check_vector("dst", dst, DType::kF32, weight.rows());
  submit_each(stream, weight.rows(), [dst, weight](int64_t n) {
    double square = 0;
    for (int64_t k = 0; k < weight.columns(); ++k) {
      square += double{element(weight, n, k)} * element(weight, n, k);
    }
    dst.as<float>()[n] = static_cast<float>(square);
  });
}

void square_roots(Stream& stream, const TensorView& dst, const TensorView& squares) {
  check_vector("dst", dst, DType::kF32, squares.count());
  submit_each(stream, squares.count(), [dst, squares](int64_t n) {
    dst.as<float>()[n] = std::sqrt(squares.as<float>()[n]);
  });
}

void dora_factors(Stream& stream, const DoraFactors& args) {
  const int64_t count = args.factors.count();
  check_vector("squares", args.squares, DType::kF32, count);
  check_vector("magnitude", args.magnitude, DType::kF32, count);
  check_typed("products", args.products, DType::kF32, args.a.rows(), count);
  check_typed("b", args.b, DType::kF32, count, args.a.rows());
  if (args.addends) check_vector("bias", args.bias, DType::kF32, count);
  CpuStream& cpu = as_cpu(stream);
  cpu.submit([args, count, &device = cpu.cpu()] {
    const std::vector<double> squares_of_a = products_of_rows(args.a);
    device.team().parallel_for(count, kDoraRows, [&](int64_t begin, int64_t end, int) {
      for (int64_t n = begin; n < end; ++n) {
        const double square = moved_square(args, squares_of_a, n);
        const double factor = square > 0 ? args.magnitude.as<float>()[n] / std::sqrt(square) : 0;
        args.factors.as<float>()[n] = static_cast<float>(factor);
        if (!args.addends) continue;
        args.addends.as<float>()[n] = (1 - args.factors.as<float>()[n]) * args.bias.as<float>()[n];
      }
    });
  });
}

void dora_magnitude_backward(Stream& stream, const TensorView& grad, const TensorView& grad_product,
                             const TensorView& product, const TensorView& magnitude) {
  const int64_t count = grad.count();
  check_vector("magnitude", magnitude, DType::kF32, count);
  check_float("grad_product", grad_product, product.rows(), count);
  check_float("product", product, product.rows(), count);
  submit_each(stream, count, [=](int64_t n) {
    const float length = magnitude.as<float>()[n];
    if (length == 0) return;
    float sum = grad.as<float>()[n];
    for (int64_t t = 0; t < product.rows(); ++t) {
      sum += element(grad_product, t, n) * element(product, t, n) / length;
    }
    grad.as<float>()[n] = sum;
  });
}

}  // namespace jige::ops
