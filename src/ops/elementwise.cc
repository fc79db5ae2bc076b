#include "ops/elementwise.h"

#include <cstring>

#include "base/cpu.h"
#include "kernels/cpu/activation.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/embedding.h"
#include "kernels/cuda/activation.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/embedding.h"
#include "ops/kernel_rows.h"

namespace jige::ops {
namespace {

// Puts kernel(args, row_begin, row_end) on the stream, shared out by rows. `kernel_of` picks it
// from the table when the work runs, or from that of GPUs.
template <typename KernelOf, typename Args>
void submit_rows(Stream& stream, KernelOf kernel_of, const Args& args, int64_t rows,
                 int64_t columns) {
  if (on_cuda(stream)) {
    kernel_of(cuda::activation_kernels())(launch_stream(stream), args, rows);
    return;
  }
  CpuStream& cpu_stream = as_cpu(stream);
  cpu_stream.submit([=, &device = cpu_stream.cpu()] {
    const auto kernel = kernel_of(cpu::activation_kernels(active_isa()));
    for_row_ranges(device, rows, columns,
                   [&](int64_t begin, int64_t end) { kernel(args, begin, end); });
  });
}

void check_tokens(const int32_t* tokens, int64_t count, int64_t vocabulary) {
  for (int64_t t = 0; t < count; ++t) {
    JIGE_CHECK(0 <= tokens[t] && tokens[t] < vocabulary, "token {} of a vocabulary of {}",
               tokens[t], vocabulary);
  }
}

// The elements of a view as an array starting at element `index` of row `row`.
cpu::Array array_at(const TensorView& view, int64_t row, int64_t index) {
  auto* data = static_cast<std::byte*>(view.data);
  return {data + dtype_bytes(view.dtype, row * view.row_stride + index), element_type(view.dtype)};
}

cpu::ConstArray const_array_at(const TensorView& view, int64_t row, int64_t index) {
  const cpu::Array array = array_at(view, row, index);
  return {array.data, array.type};
}

// Calls body(row, index, count) for pieces of rows on the team; views without gaps are one row.
template <typename Body>
void for_pieces(CpuDevice& device, bool contiguous, int64_t rows, int64_t columns, Body&& body) {
  if (contiguous) {
    constexpr int64_t kLineElements = 32;
    device.team().parallel_for(
        rows * columns, even_grain(device, rows * columns, kElementsPerRange, kLineElements),
        [&](int64_t begin, int64_t end, int) { body(0, begin, end - begin); });
    return;
  }
  for_row_ranges(device, rows, columns, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) body(row, 0, columns);
  });
}

// Of the table of the CPU or of that of GPUs.
template <typename Kernels>
const auto& plain_kernels(const Kernels& kernels, Activation activation) {
  switch (activation) {
    case Activation::kGeluErf:
      return kernels.gelu_erf;
    case Activation::kRelu:
      return kernels.relu;
    case Activation::kReluSquared:
      return kernels.relu_squared;
    case Activation::kSilu:
      return kernels.silu;
    default:
      return kernels.gelu_tanh;
  }
}

enum class Gate { kSilu, kGelu, kGeluErf };

template <typename Kernels>
const auto& gated_kernels(const Kernels& kernels, Gate gate) {
  return gate == Gate::kSilu   ? kernels.swiglu
         : gate == Gate::kGelu ? kernels.geglu
                               : kernels.geglu_erf;
}

void gated_forward(Stream& stream, Gate gate, const TensorView& dst, const TensorView& gate_up) {
  const int64_t rows = dst.rows();
  const int64_t width = dst.columns();
  check_float("dst", dst, rows, width);
  check_float("gate_up", gate_up, rows, 2 * width);
  submit_rows(
      stream, [gate](const auto& kernels) { return gated_kernels(kernels, gate).forward; },
      cpu::GatedForwardArgs{ops::rows_of(dst), const_rows_of(gate_up), width}, rows, 2 * width);
}

void gated_backward(Stream& stream, Gate gate, const TensorView& grad_gate_up,
                    const TensorView& grad_dst, const TensorView& gate_up,
                    const TensorView& activated) {
  const int64_t rows = grad_dst.rows();
  const int64_t width = grad_dst.columns();
  check_float("grad_dst", grad_dst, rows, width);
  check_float("grad_gate_up", grad_gate_up, rows, 2 * width);
  check_float("gate_up", gate_up, rows, 2 * width);
  cpu::GatedBackwardArgs args = {};
  args.grad_gate_up = ops::rows_of(grad_gate_up);
  args.grad_dst = const_rows_of(grad_dst);
  args.gate_up = const_rows_of(gate_up);
  args.width = width;
  if (activated) {
    check_typed("activated", activated, gate_up.dtype, rows, width);
    args.activated = ops::rows_of(activated);
  }
  submit_rows(
      stream, [gate](const auto& kernels) { return gated_kernels(kernels, gate).backward; }, args,
      rows, 2 * width);
}

void check_scale(const TensorView& dst, const TensorView& src) {
  check_float("dst", dst, dst.rows(), dst.columns());
  check_float("src", src, dst.rows(), dst.columns());
}

// `factor_of` gives the factor when the work runs.
template <typename FactorOf>
void submit_scale(Stream& stream, const TensorView& dst, const TensorView& src,
                  FactorOf factor_of) {
  const int64_t rows = dst.rows();
  const int64_t columns = dst.columns();
  CpuStream& cpu_stream = as_cpu(stream);
  cpu_stream.submit([=, &device = cpu_stream.cpu()] {
    const auto kernel = cpu::elementwise_kernels(active_isa()).scale;
    const float factor = factor_of();
    for_pieces(device, dst.contiguous() && src.contiguous(), rows, columns,
               [&](int64_t row, int64_t index, int64_t count) {
                 kernel(array_at(dst, row, index), const_array_at(src, row, index), factor, count);
               });
  });
}

}  // namespace

void swiglu_forward(Stream& stream, const TensorView& dst, const TensorView& gate_up) {
  gated_forward(stream, Gate::kSilu, dst, gate_up);
}

void swiglu_backward(Stream& stream, const TensorView& grad_gate_up, const TensorView& grad_dst,
                     const TensorView& gate_up, const TensorView& activated) {
  gated_backward(stream, Gate::kSilu, grad_gate_up, grad_dst, gate_up, activated);
}

void geglu_forward(Stream& stream, const TensorView& dst, const TensorView& gate_up) {
  gated_forward(stream, Gate::kGelu, dst, gate_up);
}

void geglu_backward(Stream& stream, const TensorView& grad_gate_up, const TensorView& grad_dst,
                    const TensorView& gate_up, const TensorView& activated) {
  gated_backward(stream, Gate::kGelu, grad_gate_up, grad_dst, gate_up, activated);
}

void geglu_erf_forward(Stream& stream, const TensorView& dst, const TensorView& gate_up) {
  gated_forward(stream, Gate::kGeluErf, dst, gate_up);
}

void geglu_erf_backward(Stream& stream, const TensorView& grad_gate_up, const TensorView& grad_dst,
                        const TensorView& gate_up, const TensorView& activated) {
  gated_backward(stream, Gate::kGeluErf, grad_gate_up, grad_dst, gate_up, activated);
}

void activation_forward(Stream& stream, const TensorView& dst, const TensorView& src,
                        Activation activation) {
  const int64_t rows = src.rows();
  const int64_t width = src.columns();
  check_float("dst", dst, rows, width);
  check_float("src", src, rows, width);
  submit_rows(
      stream,
      [activation](const auto& kernels) { return plain_kernels(kernels, activation).forward; },
      cpu::PlainForwardArgs{rows_of(dst), const_rows_of(src), width}, rows, width);
}

void activation_backward(Stream& stream, const TensorView& grad_src, const TensorView& grad_dst,
                         const TensorView& src, Activation activation) {
  const int64_t rows = src.rows();
  const int64_t width = src.columns();
  check_float("grad_src", grad_src, rows, width);
  check_float("grad_dst", grad_dst, rows, width);
  check_float("src", src, rows, width);
  submit_rows(
      stream,
      [activation](const auto& kernels) { return plain_kernels(kernels, activation).backward; },
      cpu::PlainBackwardArgs{rows_of(grad_src), const_rows_of(grad_dst), const_rows_of(src), width},
      rows, width);
}

void embedding_forward(Stream& stream, const TensorView& dst, const TensorView& table,
                       const TensorView& tokens) {
  const int64_t rows = dst.rows();
  const int64_t width = dst.columns();
  check_typed("dst", dst, DType::kF32, rows, width);
  check_shape("table", table, table.rows(), width);
  check_vector("tokens", tokens, DType::kI32, rows);
  const cpu::EmbeddingForwardArgs args = {dst.as<float>(), dst.row_stride, const_rows_of(table),
                                          tokens.as<int32_t>(), width};
  if (on_cuda(stream)) return cuda::embedding_forward(launch_stream(stream), args, rows);
  CpuStream& cpu_stream = as_cpu(stream);
  cpu_stream.submit([args, rows, vocabulary = table.rows(), &device = cpu_stream.cpu()] {
    check_tokens(args.tokens, rows, vocabulary);
    const auto kernel = cpu::embedding_kernels(active_isa()).forward;
    for_row_ranges(device, rows, args.width,
                   [&](int64_t begin, int64_t end) { kernel(args, begin, end); });
  });
}

void known_tokens(Stream& stream, const TensorView& dst, const TensorView& src, int64_t limit) {
  const int64_t count = src.count();
  check_vector("dst", dst, DType::kI32, count);
  check_vector("src", src, DType::kI32, count);
  auto* const to = dst.as<int32_t>();
  const auto* const from = src.as<int32_t>();
  const auto bound = static_cast<int32_t>(limit);
  if (on_cuda(stream)) return cuda::known_tokens(launch_stream(stream), to, from, count, bound);
  as_cpu(stream).submit([=] {
    for (int64_t t = 0; t < count; ++t) to[t] = from[t] < bound ? from[t] : 0;
  });
}

void select_rows(Stream& stream, const TensorView& dst, const TensorView& src,
                 std::span<const int32_t> rows) {
  const auto count = std::ssize(rows);
  check_typed("dst", dst, DType::kF32, count, src.columns());
  check_typed("src", src, DType::kF32, src.rows(), src.columns());
  for (const int32_t row : rows) {
    JIGE_CHECK(0 <= row && row < src.rows(), "row {} of {}", row, src.rows());
  }
  if (on_cuda(stream)) {
    const void* const numbers = as_cuda(stream).upload(rows.data(), 4 * count);
    const cpu::EmbeddingForwardArgs args = {dst.as<float>(), dst.row_stride, const_rows_of(src),
                                            static_cast<const int32_t*>(numbers), src.columns()};
    return cuda::embedding_forward(launch_stream(stream), args, count);
  }
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = rows[static_cast<size_t>(i)];
    stream.copy(dst.row_range(i, i + 1).data, src.row_range(row, row + 1).data, 4 * src.columns(),
                CopyKind::kDeviceToDevice);
  }
}

void embedding_backward(Stream& stream, const TensorView& grad_table, const TensorView& grad_dst,
                        const TensorView& tokens) {
  const int64_t rows = grad_dst.rows();
  const int64_t width = grad_dst.columns();
  check_typed("grad_dst", grad_dst, DType::kF32, rows, width);
  check_typed("grad_table", grad_table, DType::kF32, grad_table.rows(), width);
  check_vector("tokens", tokens, DType::kI32, rows);
  const cpu::EmbeddingBackwardArgs args = {grad_table.as<float>(), grad_table.row_stride,
                                           grad_dst.as<float>(),   grad_dst.row_stride,
                                           tokens.as<int32_t>(),   rows};
  if (on_cuda(stream)) {
    void* const scratch = as_cuda(stream).scratch(cuda::embedding_backward_scratch(args));
    return cuda::embedding_backward(launch_stream(stream), args, width, scratch);
  }
  CpuStream& cpu_stream = as_cpu(stream);
  cpu_stream.submit([args, width, vocabulary = grad_table.rows(), &device = cpu_stream.cpu()] {
    check_tokens(args.tokens, args.row_count, vocabulary);
    const auto kernel = cpu::embedding_kernels(active_isa()).backward;
    for_column_ranges(device, width, args.row_count,
                      [&](int64_t begin, int64_t end) { kernel(args, begin, end); });
  });
}

void add(Stream& stream, const TensorView& dst, const TensorView& a, const TensorView& b) {
  const int64_t rows = dst.rows();
  const int64_t columns = dst.columns();
  check_float("dst", dst, rows, columns);
  check_float("a", a, rows, columns);
  check_float("b", b, rows, columns);
  if (on_cuda(stream)) {
    cuda::add(launch_stream(stream), rows_of(dst), const_rows_of(a), const_rows_of(b), rows,
              columns);
    return;
  }
  CpuStream& cpu_stream = as_cpu(stream);
  cpu_stream.submit([=, &device = cpu_stream.cpu()] {
    const auto kernel = cpu::elementwise_kernels(active_isa()).add;
    const bool contiguous = dst.contiguous() && a.contiguous() && b.contiguous();
    for_pieces(device, contiguous, rows, columns, [&](int64_t row, int64_t index, int64_t count) {
      kernel(array_at(dst, row, index), const_array_at(a, row, index),
             const_array_at(b, row, index), count);
    });
  });
}

void zero(Stream& stream, const TensorView& dst) {
  if (on_cuda(stream)) {
    if (dst.contiguous()) return stream.fill_zero(dst.data, dtype_bytes(dst.dtype, dst.count()));
    return cuda::zero_rows(launch_stream(stream), dst.data, dtype_bytes(dst.dtype, dst.row_stride),
                           dst.rows(), dtype_bytes(dst.dtype, dst.columns()));
  }
  CpuStream& cpu_stream = as_cpu(stream);
  cpu_stream.submit([dst, &device = cpu_stream.cpu()] {
    if (!dst.contiguous()) {
      for_row_ranges(device, dst.rows(), dst.columns(), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          std::memset(dst.row_range(row, row + 1).data, 0,
                      static_cast<size_t>(dtype_bytes(dst.dtype, dst.columns())));
        }
      });
      return;
    }
    constexpr int64_t kBytesPerRange = int64_t{1} << 18;
    device.team().parallel_for(dtype_bytes(dst.dtype, dst.count()), kBytesPerRange,
                               [&](int64_t begin, int64_t end, int) {
                                 std::memset(static_cast<std::byte*>(dst.data) + begin, 0,
                                             static_cast<size_t>(end - begin));
                               });
  });
}

void scale_columns(Stream& stream, const TensorView& dst, const TensorView& src,
                   const TensorView& factor, const TensorView& addend) {
  const int64_t rows = dst.rows();
  const int64_t columns = dst.columns();
  check_scale(dst, src);
  if (factor) check_vector("factor", factor, DType::kF32, columns);
  if (addend) check_vector("addend", addend, DType::kF32, columns);
  const float* const by = factor ? factor.as<float>() : nullptr;
  const float* const plus = addend ? addend.as<float>() : nullptr;
  if (on_cuda(stream)) {
    cuda::scale_columns(launch_stream(stream), rows_of(dst), const_rows_of(src), by, plus, rows,
                        columns);
    return;
  }
  CpuStream& cpu_stream = as_cpu(stream);
  cpu_stream.submit([=, &device = cpu_stream.cpu()] {
    const auto kernel = cpu::elementwise_kernels(active_isa()).scale_columns;
    for_row_ranges(device, rows, columns, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        kernel(array_at(dst, row, 0), const_array_at(src, row, 0), by, plus, columns);
      }
    });
  });
}

void scale(Stream& stream, const TensorView& dst, const TensorView& src, float factor) {
  check_scale(dst, src);
  if (on_cuda(stream)) {
    return cuda::scale(launch_stream(stream), rows_of(dst), const_rows_of(src), factor, dst.rows(),
                       dst.columns());
  }
  submit_scale(stream, dst, src, [factor] { return factor; });
}

void scale_by(Stream& stream, const TensorView& dst, const TensorView& src,
              const TensorView& factor) {
  check_scale(dst, src);
  check_vector("factor", factor, DType::kF32, 1);
  if (on_cuda(stream)) {
    return cuda::scale_by(launch_stream(stream), rows_of(dst), const_rows_of(src),
                          factor.as<float>(), dst.rows(), dst.columns());
  }
  submit_scale(stream, dst, src, [number = factor.as<float>()] { return *number; });
}

void soft_cap(Stream& stream, const TensorView& data, double cap) {
  const int64_t rows = data.rows();
  const int64_t columns = data.columns();
  check_typed("data", data, DType::kF32, rows, columns);
  JIGE_CHECK(cap > 0, "a cap of {}", cap);
  if (on_cuda(stream)) {
    return cuda::soft_cap(launch_stream(stream), rows_of(data), static_cast<float>(cap), rows,
                          columns);
  }
  CpuStream& cpu_stream = as_cpu(stream);
  cpu_stream.submit([=, &device = cpu_stream.cpu()] {
    const auto kernel = cpu::elementwise_kernels(active_isa()).soft_cap;
    for_pieces(
        device, data.contiguous(), rows, columns, [&](int64_t row, int64_t index, int64_t count) {
          kernel(data.as<float>() + row * data.row_stride + index, static_cast<float>(cap), count);
        });
  });
}

}  // namespace jige::ops
