#include "ops/kept_linear.h"

#include <algorithm>
#include <span>

#include "base/check.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/gemm_choice.h"
#include "kernels/cpu/gemm_sums.h"
#include "ops/kernel_rows.h"
#include "ops/linear_products.h"
#include "tensor/cpu_device.h"

namespace jige::ops {
namespace {

static_assert(kKeptStep == cpu::kGemmRunStep);

// The runs of rows in a matrix of so many parts.
std::vector<cpu::GemmRun> runs_of_parts(const KeptRows& rows, int64_t parts, int64_t size) {
  std::vector<cpu::GemmRun> runs;
  for (int64_t p = 0; p < parts; ++p) {
    for (const KeptRun& run : rows.runs) runs.push_back({p * size + run.begin, run.count});
  }
  return runs;
}

void check_kept(const KeptColumns& kept, int64_t row_count) {
  int64_t row = 0;
  for (const KeptRows& rows : kept.rows) {
    JIGE_CHECK(rows.begin == row && rows.end > row, "rows [{}, {}) behind {}", rows.begin, rows.end,
               row);
    row = rows.end;
    int64_t count = 0;
    int64_t end = 0;
    for (const KeptRun& run : rows.runs) {
      JIGE_CHECK(run.begin >= end && run.begin % kKeptStep == 0 && run.count % kKeptStep == 0,
                 "columns {} from {} on, behind {}", run.count, run.begin, end);
      end = run.begin + run.count;
      count += run.count;
    }
    JIGE_CHECK(count == kept.kept && end <= kept.size, "{} columns up to {}, not {} of {}", count,
               end, kept.kept, kept.size);
  }
  JIGE_CHECK(row == row_count, "kept columns of {} rows, not {}", row, row_count);
}

// The hidden width's parts of a matrix.
int64_t parts_of(const KeptColumns& kept, int64_t columns) {
  JIGE_CHECK(kept.kept > 0 && columns % kept.kept == 0, "{} columns of {} kept", columns,
             kept.kept);
  return columns / kept.kept;
}

std::byte* place_of(const TensorView& view, int64_t row, int64_t column) {
  return static_cast<std::byte*>(view.data) +
         dtype_bytes(view.dtype, row * view.row_stride + column);
}

cpu::GemmOperand lanes_across(const TensorView& rows, DType compute) {
  return {.data = rows.data,
          .dtype = rows.dtype,
          .row_stride = rows.row_stride,
          .depth_across = true,
          .round_to_bf16 = compute == DType::kBF16};
}

// One range of rows of a product.
void multiply_range(CpuDevice& device, const KeptProduct& args, const KeptColumns& kept,
                    const KeptRows& rows, int64_t parts) {
  const std::vector<cpu::GemmRun> runs = runs_of_parts(rows, parts, kept.size);
  const bool lanes = (args.side == KeptSide::kOutputs) == (args.weight.use == PackUse::kForward);
  std::vector<float> bias;  // of what is computed
  TensorView bias_view = args.bias;
  if (args.bias && args.side == KeptSide::kOutputs) {
    for (const cpu::GemmRun& run : runs) {
      const float* const begin = args.bias.as<float>() + run.begin;
      bias.insert(bias.end(), begin, begin + run.count);
    }
    bias_view = TensorView::of(bias.data(), DType::kF32, Shape{std::ssize(bias)});
  }
  multiply_parts(device,
                 {.dst = args.dst.row_range(rows.begin, rows.end),
                  .src = args.src.row_range(rows.begin, rows.end),
                  .weight = args.weight,
                  .use = args.weight.use,
                  .bias = bias_view},
                 lanes ? cpu::GemmParts{.columns = runs} : cpu::GemmParts{.depths = runs});
}

// grad[runs of rows] += grad_dst[runs of columns]ᵀ src, of one range of rows.
void add_output_rows(CpuDevice& device, const KeptWeightGradient& args, const KeptColumns& kept,
                     const KeptRows& rows) {
  const cpu::GemmEngine& engine = cpu::gemm_engine_unpacked(args.compute);
  const TensorView src = args.src.row_range(rows.begin, rows.end);
  cpu::GemmProduct product{.columns = src.columns(),
                           .depth = src.rows(),
                           .right = lanes_across(src, args.compute),
                           .accumulate = true};
  if (args.scratch.count() >= cpu::gemm_panels_bytes(engine, product.columns, product.depth)) {
    cpu::gemm_pack_panels(device, engine, {args.scratch.data, product.columns, product.depth},
                          product.right, {0, product.columns, 0, product.depth});
    product.right_panels = args.scratch.data;
  }
  int64_t column = 0;
  for (const TensorView& grad : args.grads) {
    for (const KeptRun& run : rows.runs) {
      if (grad) {
        product.rows = run.count;
        product.left = lanes_across(
            args.grad_dst.row_range(rows.begin, rows.end).column_range(column, column + run.count),
            args.compute);
        product.out = place_of(grad, run.begin, 0);
        product.out_stride = grad.row_stride;
        cpu::gemm(device, engine, product);
      }
      column += run.count;
    }
  }
  JIGE_CHECK(column == std::ssize(args.grads) * kept.kept, "{} columns of {}", column, kept.kept);
}

// grad[:, runs] += grad_dstᵀ src[:, runs], of one range of rows.
void add_input_columns(CpuDevice& device, const KeptWeightGradient& args, const KeptRows& rows) {
  const cpu::GemmEngine& engine = cpu::gemm_engine_unpacked(args.compute);
  const TensorView src = args.src.row_range(rows.begin, rows.end);
  const TensorView& grad = args.grads.front();
  cpu::GemmProduct product{
      .rows = grad.rows(),
      .columns = src.columns(),
      .depth = src.rows(),
      .left = lanes_across(args.grad_dst.row_range(rows.begin, rows.end), args.compute),
      .right = lanes_across(src, args.compute),
      .out = grad.data,
      .out_stride = grad.row_stride,
      .accumulate = true};
  if (args.scratch.count() >= cpu::gemm_panels_bytes(engine, product.columns, product.depth)) {
    const std::vector<cpu::GemmRun> runs = runs_of_parts(rows, 1, 0);
    product.right_scratch = args.scratch.data;
    product.parts.outputs = runs;
    return cpu::gemm(device, engine, product);
  }
  int64_t column = 0;
  for (const KeptRun& run : rows.runs) {
    product.columns = run.count;
    product.right = lanes_across(src.column_range(column, column + run.count), args.compute);
    product.out = place_of(grad, 0, run.begin);
    cpu::gemm(device, engine, product);
    column += run.count;
  }
}

}  // namespace

void kept_product(Stream& stream, const KeptProduct& args, const KeptColumns& kept) {
  const PackedWeight& weight = args.weight;
  const bool forward = weight.use == PackUse::kForward;
  const bool hidden_in_dst = forward == (args.side == KeptSide::kOutputs);
  const int64_t parts = parts_of(kept, (hidden_in_dst ? args.dst : args.src).columns());
  const bool outputs = args.side == KeptSide::kOutputs;
  JIGE_CHECK(!on_cuda(stream) && weight.format == WeightFormat::kCompute,
             "kept columns of a weight on a GPU or in few bits");
  JIGE_CHECK((outputs ? weight.n : weight.k) == parts * kept.size,
             "a weight [{}, {}] for {} parts of {}", weight.n, weight.k, parts, kept.size);
  const int64_t whole = outputs ? weight.k : weight.n;
  check_float("src", args.src, args.dst.rows(), hidden_in_dst ? whole : parts * kept.kept);
  check_float("dst", args.dst, args.src.rows(), hidden_in_dst ? parts * kept.kept : whole);
  if (args.bias) {
    JIGE_CHECK(forward, "a bias of a gradient");
    check_vector("bias", args.bias, DType::kF32, weight.n);
  }
  check_kept(kept, args.src.rows());
  CpuStream& cpu = as_cpu(stream);
  cpu.submit([args, kept, parts, &device = cpu.cpu()] {
    for (const KeptRows& rows : kept.rows) multiply_range(device, args, kept, rows, parts);
  });
}

void kept_weight_gradient(Stream& stream, const KeptWeightGradient& args, const KeptColumns& kept) {
  const bool outputs = args.side == KeptSide::kOutputs;
  JIGE_CHECK(!on_cuda(stream), "kept columns on a GPU");
  JIGE_CHECK(outputs ? !args.grads.empty() : args.grads.size() == 1, "{} gradients",
             args.grads.size());
  for (const TensorView& grad : args.grads) {
    if (!grad) continue;
    check_typed("grad", grad, DType::kF32, outputs ? kept.size : args.grad_dst.columns(),
                outputs ? args.src.columns() : kept.size);
  }
  const int64_t hidden = std::ssize(args.grads) * kept.kept;
  check_float("grad_dst", args.grad_dst, args.src.rows(),
              outputs ? hidden : args.grad_dst.columns());
  check_float("src", args.src, args.grad_dst.rows(), outputs ? args.src.columns() : hidden);
  check_kept(kept, args.src.rows());
  if (!outputs && !args.grads.front()) return;
  CpuStream& cpu = as_cpu(stream);
  cpu.submit([args, kept, outputs, &device = cpu.cpu()] {
    for (const KeptRows& rows : kept.rows) {
      outputs ? add_output_rows(device, args, kept, rows) : add_input_columns(device, args, rows);
    }
  });
}

int64_t kept_weight_scratch_bytes(DType compute, int64_t token_count, int64_t src_columns) {
  return cpu::gemm_panels_bytes(cpu::gemm_engine_unpacked(compute), src_columns, token_count);
}

int64_t kept_thread_scratch_bytes(DType compute, const KeptSizes& sizes, int threads) {
  const cpu::GemmRun run = {0, sizes.kept};
  const std::span<const cpu::GemmRun> runs(&run, 1);
  const int64_t hidden = sizes.parts * sizes.kept;
  const cpu::GemmEngine& engine = cpu::gemm_engine(compute);
  const cpu::GemmEngine& unpacked = cpu::gemm_engine_unpacked(compute);
  const cpu::GemmOperand rows = {.dtype = compute};
  const cpu::GemmOperand lanes = {.dtype = compute, .depth_across = true};
  int64_t bytes = 0;
  const auto add = [&](const cpu::GemmEngine& by, cpu::GemmProduct product) {
    product.right_panels = &engine;  // some address: nothing is read
    bytes = std::max(bytes, cpu::gemm_thread_scratch_bytes(by, product, threads));
  };
  const int64_t tokens = sizes.token_count;
  add(engine, {.rows = tokens,
               .columns = hidden,
               .depth = sizes.width,
               .left = rows,
               .parts = {.depths = {}, .columns = runs, .outputs = {}}});
  add(engine, {.rows = tokens,
               .columns = sizes.width,
               .depth = hidden,
               .left = rows,
               .parts = {.depths = runs, .columns = {}, .outputs = {}}});
  add(unpacked, {.rows = sizes.kept, .columns = sizes.width, .depth = tokens, .left = lanes});
  add(unpacked, {.rows = sizes.width,
                 .columns = sizes.kept,
                 .depth = tokens,
                 .left = lanes,
                 .parts = {.depths = {}, .columns = {}, .outputs = runs}});
  return bytes;
}

void kept_bias_gradient(Stream& stream, const TensorView& grad, const TensorView& grad_dst,
                        const KeptColumns& kept) {
  check_vector("grad", grad, DType::kF32, kept.size);
  check_float("grad_dst", grad_dst, grad_dst.rows(), kept.kept);
  check_kept(kept, grad_dst.rows());
  CpuStream& cpu = as_cpu(stream);
  cpu.submit([grad, grad_dst, kept] {
    for (const KeptRows& rows : kept.rows) {
      int64_t column = 0;
      for (const KeptRun& run : rows.runs) {
        cpu::gemm_add_rows(place_of(grad_dst, rows.begin, column), grad_dst.dtype,
                           grad_dst.row_stride, rows.end - rows.begin, run.count,
                           grad.as<float>() + run.begin);
        column += run.count;
      }
    }
  });
}

}  // namespace jige::ops
