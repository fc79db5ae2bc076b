#include "ops/linear_cuda.h"

#include "base/check.h"
#include "base/cpu.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/linear.h"
#include "kernels/cuda/matmul_lt.h"
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
  return {.rows = args.src.rows(),
          .k = args.weight.k,
          .src = const_rows_of(args.src),
          .weight = static_cast<const cpu::Bf16*>(cuda_packed_rows(args.weight).data),
          .bias = static_cast<const float*>(args.bias.data)};
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

}  // namespace

Status cuda_matmul_ready() { return cuda::matmul_lt_ready(); }

TensorView cuda_packed_rows(const PackedWeight& packed) {
  JIGE_CHECK(packed.format == WeightFormat::kCompute, "the CUDA backend has no weights in {}",
             weight_format_name(packed.format));
  return packed_rows_on_gpu(packed);
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

void cuda_pack_weight(Stream& stream, const PackedWeight& packed, const TensorView& weight,
                      int64_t row_begin) {
  const TensorView rows = cuda_packed_rows(packed);
  copy_view(stream, rows.row_range(row_begin, row_begin + weight.rows()), weight);
}

void cuda_linear_forward(Stream& stream, const LinearForward& args) {
  if (!takes_few_rows(args)) {
    if (args.norm) rms_norm_forward(stream, *args.norm);
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
  cuda::multiply_few_rows(launch_stream(stream), product);
}

bool cuda_linear_gated_forward(Stream& stream, const LinearGated& args) {
  if (!takes_few_rows(args.product)) return false;
  cuda::FewRowsProduct product = few_rows_of(args.product);
  product.n = args.dst.columns();
  product.out = rows_of(args.dst);
  product.gate =
      args.unit == GatedUnit::kSwiGlu ? cuda::ProductGate::kSilu : cuda::ProductGate::kGelu;
  if (!cuda::few_rows_takes_gate(product)) return false;
  take_norm(stream, args.product, &product);
  cuda::multiply_few_rows(launch_stream(stream), product);
  return true;
}

void cuda_linear_backward_input(Stream& stream, const LinearBackwardInput& args) {
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
