#include "ops/linear_cuda.h"

#include <algorithm>

#include "base/check.h"
#include "base/cpu.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/linear.h"
#include "kernels/cuda/matmul_lt.h"
#include "kernels/cuda/quant.h"
#include "ops/kernel_rows.h"
#include "ops/pack_rows.h"

namespace jige::ops {
namespace {

// out = left · right, with accumulate += that; the arguments of a cuda::Product as views.
struct ViewProduct {
  TensorView out;
  TensorView left;
  TensorView right;
  int64_t depth = 0;
  bool left_across = false;
  bool right_across = false;
  bool accumulate = false;
  TensorView bias;
  TensorView addend;  // or none; out is f32
};

cuda::Product product_of(const ViewProduct& views) {
  return {.rows = views.out.rows(),
          .columns = views.out.columns(),
          .depth = views.depth,
          .left = const_rows_of(views.left),
          .right = const_rows_of(views.right),
          .out = rows_of(views.out),
          .left_across = views.left_across,
          .right_across = views.right_across,
          .accumulate = views.accumulate,
          .bias = views.bias.data,
          .addend = views.addend ? const_rows_of(views.addend) : cpu::ConstRows{}};
}

void copy_view(Stream& stream, const TensorView& dst, const TensorView& src,
               bool accumulate = false) {
  cuda::copy_rows(launch_stream(stream), {.rows = src.rows(),
                                          .columns = src.columns(),
                                          .dst = rows_of(dst),
                                          .src = const_rows_of(src),
                                          .accumulate = accumulate});
}

void add_to(Stream& stream, const TensorView& dst, const TensorView& addend) {
  cuda::add(launch_stream(stream), rows_of(dst), const_rows_of(addend), const_rows_of(dst),
            dst.rows(), dst.columns());
}

// Places in the scratch of a stream for what cuBLASLt does not take where it is. Made twice: to
// learn the bytes, and with the memory.
class LtPlaces {
 public:
  explicit LtPlaces(std::byte* memory) : memory_(memory) {}

  static bool fits(const TensorView& view, DType dtype) {
    const int64_t multiple = cuda::kMatmulLtAlignment / dtype_bytes(dtype, 1);
    return view.dtype == dtype && view.row_stride % multiple == 0 &&
           reinterpret_cast<uintptr_t>(view.data) % uintptr_t{cuda::kMatmulLtAlignment} == 0;
  }
  // The view itself, or where a copy in `dtype` goes.
  TensorView place(const TensorView& view, DType dtype) {
    const int64_t multiple = cuda::kMatmulLtAlignment / dtype_bytes(dtype, 1);
    TensorView result = view;
    if (view.rows() <= 1) result.row_stride = view.columns();
    if (fits(result, dtype)) return result;
    result.dtype = dtype;
    result.row_stride = (view.columns() + multiple - 1) / multiple * multiple;
    result.data = take(dtype_bytes(dtype, view.rows() * result.row_stride));
    return result;
  }
  void* take(int64_t bytes) {
    constexpr int64_t kAlignment = 256;
    void* const result = memory_ ? memory_ + bytes_ : nullptr;
    bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return result;
  }
  int64_t bytes() const { return bytes_; }

 private:
  std::byte* memory_;
  int64_t bytes_ = 0;
};

// The product as cuBLASLt takes it.
struct LtPlan {
  ViewProduct views;
  void* workspace;
  int64_t bytes;
};

LtPlan plan_lt(const ViewProduct& views, std::byte* memory) {
  LtPlaces places(memory);
  LtPlan plan = {views, places.take(cuda::matmul_lt_workspace_bytes()), 0};
  plan.views.left = places.place(views.left, DType::kBF16);
  plan.views.right = places.place(views.right, DType::kBF16);
  plan.views.out = places.place(views.out, views.out.dtype);
  if (views.bias)
    plan.views.bias = places.place(views.bias.reshaped({1, views.bias.count()}), views.out.dtype);
  plan.bytes = places.bytes();
  return plan;
}

void multiply_by_lt(Stream& stream, const ViewProduct& views) {
  const int64_t bytes = plan_lt(views, nullptr).bytes;
  LtPlan plan = plan_lt(views, static_cast<std::byte*>(as_cuda(stream).scratch(bytes)));
  const auto copy_in = [&](const TensorView& used, const TensorView& given) {
    if (used.data != given.data) copy_view(stream, used, given);
  };
  copy_in(plan.views.left, views.left);
  copy_in(plan.views.right, views.right);
  if (views.bias) copy_in(plan.views.bias, views.bias.reshaped({1, views.bias.count()}));
  const bool out_copied = plan.views.out.data != views.out.data;
  if (out_copied) plan.views.accumulate = false;
  const bool adds = views.addend && !out_copied && LtPlaces::fits(views.addend, DType::kF32);
  if (!adds) plan.views.addend = {};
  cuda::multiply_lt(launch_stream(stream), product_of(plan.views), plan.workspace);
  if (out_copied) copy_view(stream, views.out, plan.views.out, views.accumulate);
  if (views.addend && !adds) add_to(stream, views.out, views.addend);
}

void multiply_views(Stream& stream, const ViewProduct& views, DType compute) {
  if (views.out.count() == 0) return;
  if (compute == DType::kF32 || views.depth == 0) {
    cuda::multiply_in_chains(launch_stream(stream), product_of(views));
    if (views.addend) add_to(stream, views.out, views.addend);
  } else {
    multiply_by_lt(stream, views);
  }
}

// Whether the kernel for few rows is that of the product.
bool takes_few_rows(const LinearForward& args) {
  return args.weight.compute == DType::kBF16 && args.src.rows() <= cuda::kFewRows;
}

// All but n and out, and the norm.
cuda::FewRowsProduct few_rows_of(const LinearForward& args) {
  cuda::FewRowsProduct product = {.rows = args.src.rows(),
                                  .k = args.weight.k,
                                  .src = const_rows_of(args.src),
                                  .bias = static_cast<const float*>(args.bias.data)};
  if (!cuda_is_quantised(args.weight)) {
    product.weight = static_cast<const cpu::Bf16*>(cuda_packed_rows(args.weight).data);
  }
  return product;
}

// The norm as a part of the product, or done.
void take_norm(Stream& stream, const LinearForward& args, cuda::FewRowsProduct* product) {
  if (!args.norm) return;
  const NormForward& norm = *args.norm;
  cuda::FewRowsProduct normed = *product;
  normed.src = const_rows_of(norm.src);
  normed.norm = {.given = true,
                 .adds_one = norm.weight_adds_one,
                 .weight = norm.weight.data ? norm.weight.as<float>() : nullptr,
                 .eps = static_cast<float>(norm.eps)};
  if (!norm.rstd && cuda::few_rows_takes_norm(normed)) {
    *product = normed;
  } else {
    rms_norm_forward(stream, norm);
  }
}

// Columns of numbers in rows that cuBLASLt takes, whatever their type.
int64_t padded_columns(int64_t columns) {
  constexpr int64_t kMultiple = cuda::kMatmulLtAlignment / 2;
  return (columns + kMultiple - 1) / kMultiple * kMultiple;
}

// A part of a weight.
struct NumbersPart {
  int64_t row = 0;
  int64_t rows = 0;
  int64_t column = 0;
  int64_t columns = 0;
};

// The product with the weight of the arguments.
void multiply_few(Stream& stream, const LinearForward& args, cuda::FewRowsProduct product) {
  if (!cuda_is_quantised(args.weight)) {
    cuda::multiply_few_rows(launch_stream(stream), product);
    return;
  }
  if (!cuda::quant_few_rows_takes(product)) {
    product.src = const_rows_of(cuda_padded_copy(stream, args.src));
  }
  cuda::multiply_few_rows(launch_stream(stream), product, cuda_quant_weight(args.weight));
}

// The numbers of rows [row, row + rows) and columns [column, …) of a quantised weight in the strip.
TensorView numbers_in_strip(Stream& stream, const PackedWeight& weight, const TensorView& strip,
                            const NumbersPart& part) {
  TensorView numbers = TensorView::of(strip.data, weight.compute, Shape{part.rows, part.columns});
  numbers.row_stride = padded_columns(part.columns);
  JIGE_CHECK(dtype_bytes(weight.compute, part.rows * numbers.row_stride) <= strip.count(),
             "a strip of {} bytes for a weight [{}, {}]", strip.count(), weight.n, weight.k);
  cuda::quant_numbers(launch_stream(stream), {.weight = cuda_quant_weight(weight),
                                              .row_begin = part.row,
                                              .rows = part.rows,
                                              .column_begin = part.column,
                                              .columns = part.columns,
                                              .dst = rows_of(numbers)});
  return numbers;
}

// How many lines of a weight, `bytes` each, the strip holds: all, or a multiple of `step`.
int64_t lines_of_strip(const TensorView& strip, int64_t bytes, int64_t lines, int64_t step) {
  const int64_t fit = strip.count() / bytes;
  return fit >= lines ? lines : std::max(fit / step, int64_t{1}) * step;
}

void forward_by_strips(Stream& stream, const LinearForward& args) {
  const PackedWeight& weight = args.weight;
  const int64_t row_bytes = dtype_bytes(weight.compute, padded_columns(weight.k));
  const int64_t step = lines_of_strip(args.strip, row_bytes, weight.n, cuda::kQuantRecordRows);
  for (int64_t row = 0; row < weight.n; row += step) {
    const int64_t end = std::min(row + step, weight.n);
    const TensorView numbers = numbers_in_strip(
        stream, weight, args.strip, {.row = row, .rows = end - row, .columns = weight.k});
    multiply_views(stream,
                   {.out = args.dst.column_range(row, end),
                    .left = args.src,
                    .right = numbers,
                    .depth = weight.k,
                    .bias = args.bias ? args.bias.row_range(row, end) : TensorView{},
                    .addend = args.addend ? args.addend.column_range(row, end) : TensorView{}},
                   weight.compute);
  }
}

void backward_by_strips(Stream& stream, const LinearBackwardInput& args) {
  const PackedWeight& weight = args.weight;
  const int64_t step = lines_of_strip(args.strip, dtype_bytes(weight.compute, weight.n),
                                      padded_columns(weight.k), cuda::kQuantRecordColumns);
  for (int64_t column = 0; column < weight.k; column += step) {
    const int64_t end = std::min(column + step, weight.k);
    const TensorView numbers = numbers_in_strip(
        stream, weight, args.strip, {.rows = weight.n, .column = column, .columns = end - column});
    multiply_views(stream,
                   {.out = args.grad_src.column_range(column, end),
                    .left = args.grad_dst,
                    .right = numbers,
                    .depth = weight.n,
                    .right_across = true},
                   weight.compute);
  }
}

}  // namespace

Status cuda_matmul_ready() { return cuda::matmul_lt_ready(); }

TensorView cuda_packed_rows(const PackedWeight& packed) {
  JIGE_CHECK(!cuda_is_quantised(packed), "the rows of a weight in {}",
             weight_format_name(packed.format));
  return packed_rows_on_gpu(packed);
}

bool cuda_is_quantised(const PackedWeight& weight) {
  return weight.format != WeightFormat::kCompute;
}

cuda::QuantWeight cuda_quant_weight(const PackedWeight& weight) {
  JIGE_CHECK(cuda_is_quantised(weight), "blocks of a weight in the compute type");
  return {.data = static_cast<unsigned char*>(weight.data),
          .n = weight.n,
          .k = weight.k,
          .halves = weight.format != WeightFormat::kQ8};
}

TensorView cuda_padded_copy(Stream& stream, const TensorView& src) {
  TensorView copy = src;
  copy.dtype = DType::kBF16;
  copy.row_stride = padded_columns(src.columns());
  const int64_t bytes = dtype_bytes(DType::kBF16, src.rows() * copy.row_stride);
  copy.data = as_cuda(stream).scratch(bytes);
  stream.fill_zero(copy.data, bytes);
  copy_view(stream, copy, src);
  return copy;
}

void pack_rows_for_gpu(const PackPart& part, const TensorView& rows) {
  const TensorView packed = packed_rows_on_gpu(part.packed);
  const auto copy = cpu::elementwise_kernels(active_isa()).scale;
  for (int64_t row = 0; row < rows.rows(); ++row) {
    const TensorView from = rows.row_range(row, row + 1);
    const TensorView to = packed.row_range(part.row_begin + row, part.row_begin + row + 1);
    if (from.dtype != DType::kF16) {
      copy({to.data, element_type(to.dtype)}, {from.data, element_type(from.dtype)}, 1.0f,
           rows.columns());
      continue;
    }
    for (int64_t i = 0; i < rows.columns(); ++i) {
      const float value = to_float(from.as<Float16>()[i]);
      if (to.dtype == DType::kF32) to.as<float>()[i] = value;
      if (to.dtype == DType::kBF16) to.as<BFloat16>()[i] = to_bfloat16(value);
    }
  }
}

int64_t cuda_strip_bytes(DType compute, int64_t n, int64_t k) {
  constexpr int64_t kStripBytes = int64_t{32} << 20;  // so that it stays in the second cache
  const int64_t columns = padded_columns(k);
  const int64_t least =
      std::max(cuda::kQuantRecordRows * columns, std::min(columns, cuda::kQuantRecordColumns) * n);
  return std::min(dtype_bytes(compute, n * columns),
                  std::max(kStripBytes, dtype_bytes(compute, least)));
}

void cuda_pack_weight(Stream& stream, const PackedWeight& packed, const TensorView& weight,
                      int64_t row_begin, const TensorView& scales) {
  if (cuda_is_quantised(packed)) {
    cuda::quantise_rows(launch_stream(stream), {.weight = cuda_quant_weight(packed),
                                                .src = const_rows_of(weight),
                                                .rows = weight.rows(),
                                                .row_begin = row_begin,
                                                .scales = static_cast<const uint16_t*>(scales.data),
                                                .scales_stride = scales.row_stride,
                                                .fp4 = packed.format == WeightFormat::kMxfp4});
    return;
  }
  const TensorView rows = cuda_packed_rows(packed);
  copy_view(stream, rows.row_range(row_begin, row_begin + weight.rows()), weight);
}

void cuda_pack_turned(Stream& stream, const PackedWeight& packed, const TensorView& weight) {
  cuda::copy_turned(launch_stream(stream), {.rows = weight.rows(),
                                            .columns = weight.columns(),
                                            .dst = rows_of(cuda_packed_rows(packed)),
                                            .src = const_rows_of(weight)});
}

void cuda_linear_forward(Stream& stream, const LinearForward& args) {
  if (!takes_few_rows(args)) {
    if (args.norm) rms_norm_forward(stream, *args.norm);
    if (cuda_is_quantised(args.weight)) return forward_by_strips(stream, args);
    multiply_views(stream,
                   {.out = args.dst,
                    .left = args.src,
                    .right = cuda_packed_rows(args.weight),
                    .depth = args.weight.k,
                    .bias = args.bias,
                    .addend = args.addend},
                   args.weight.compute);
    return;
  }
  cuda::FewRowsProduct product = few_rows_of(args);
  product.n = args.weight.n;
  product.out = rows_of(args.dst);
  take_norm(stream, args, &product);
  if (args.addend) product.addend = const_rows_of(args.addend);
  multiply_few(stream, args, product);
}

bool cuda_linear_gated_forward(Stream& stream, const LinearGated& args) {
  if (!takes_few_rows(args.product)) return false;
  cuda::FewRowsProduct product = few_rows_of(args.product);
  product.n = args.dst.columns();
  product.out = rows_of(args.dst);
  product.gate =
      args.unit == GatedUnit::kSwiGlu ? cuda::ProductGate::kSilu : cuda::ProductGate::kGelu;
  const bool splits =
      !cuda_is_quantised(args.product.weight) || product.n % cuda::kQuantRecordRows == 0;
  if (!splits || !cuda::few_rows_takes_gate(product)) return false;
  take_norm(stream, args.product, &product);
  multiply_few(stream, args.product, product);
  return true;
}

bool cuda_head_linear(Stream& stream, const HeadLinear& args) {
  const PackedWeight& first = args.weights.first;
  const int64_t heads = args.weights.count;
  const int64_t src_step = args.src.columns() / heads;
  const int64_t out_step = args.dst.columns() / heads;
  const int64_t weight_step = args.weights.step_bytes / dtype_bytes(first.compute, 1);
  if (first.compute != DType::kBF16 || args.src.dtype != DType::kBF16) return false;
  if (args.src.count() == 0) return true;
  const TensorView rows = cuda_packed_rows(first);
  if (args.src.rows() <= cuda::kFewRows) {
    cuda::multiply_few_rows(launch_stream(stream), {.rows = args.src.rows(),
                                                    .n = first.n,
                                                    .k = first.k,
                                                    .src = const_rows_of(args.src),
                                                    .weight = rows.as<cpu::Bf16>(),
                                                    .out = rows_of(args.dst),
                                                    .heads = {.count = heads,
                                                              .weight_step = weight_step,
                                                              .src_step = src_step,
                                                              .out_step = out_step}});
    return true;
  }
  const int64_t src_multiple = cuda::kMatmulLtAlignment / dtype_bytes(DType::kBF16, 1);
  const int64_t out_multiple = cuda::kMatmulLtAlignment / dtype_bytes(args.dst.dtype, 1);
  const bool fits = LtPlaces::fits(args.src, DType::kBF16) && LtPlaces::fits(rows, DType::kBF16) &&
                    LtPlaces::fits(args.dst, args.dst.dtype) && src_step % src_multiple == 0 &&
                    weight_step % src_multiple == 0 && out_step % out_multiple == 0;
  if (!fits) return false;
  cuda::Product product = product_of({.out = args.dst.column_range(0, first.n),
                                      .left = args.src.column_range(0, first.k),
                                      .right = rows,
                                      .depth = first.k});
  product.batch = {heads, src_step, weight_step, out_step};
  cuda::multiply_lt(launch_stream(stream), product,
                    as_cuda(stream).scratch(cuda::matmul_lt_workspace_bytes()));
  return true;
}

void cuda_linear_backward_input(Stream& stream, const LinearBackwardInput& args) {
  if (cuda_is_quantised(args.weight)) return backward_by_strips(stream, args);
  multiply_views(stream,
                 {.out = args.grad_src,
                  .left = args.grad_dst,
                  .right = cuda_packed_rows(args.weight),
                  .depth = args.weight.n,
                  .right_across = true},
                 args.weight.compute);
}

void cuda_linear_backward_weight(Stream& stream, const LinearBackwardWeight& args) {
  multiply_views(stream,
                 {.out = args.grad_weight,
                  .left = args.grad_dst,
                  .right = args.src,
                  .depth = args.src.rows(),
                  .left_across = true,
                  .right_across = true,
                  .accumulate = args.accumulate},
                 args.compute);
}

void cuda_bias_backward(Stream& stream, const TensorView& grad_bias, const TensorView& grad_dst) {
  const int64_t bytes = cuda::column_sums_bytes(grad_dst.rows(), grad_dst.columns());
  cuda::add_column_sums(launch_stream(stream), static_cast<float*>(grad_bias.data),
                        const_rows_of(grad_dst), grad_dst.rows(), grad_dst.columns(),
                        as_cuda(stream).scratch(bytes));
}

}  // namespace jige::ops
