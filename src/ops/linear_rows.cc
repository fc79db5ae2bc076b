#include "ops/linear_rows.h"

#include <algorithm>
#include <utility>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/gemm_choice.h"
#include "ops/kernel_rows.h"
#include "ops/linear_products.h"

namespace jige::ops {
namespace {

void multiply_gradient_rows(CpuDevice& device, const LinearBackwardWeight& args,
                            const std::vector<RowRange>& rows) {
  const cpu::GemmEngine& engine = cpu::gemm_engine_unpacked(args.compute);
  cpu::GemmProduct product = gradient_product(engine, args);
  if (product.right_scratch) {  // packed once for all ranges
    gemm_pack_panels(device, engine, {product.right_scratch, product.columns, product.depth},
                     product.right, {0, product.columns, 0, product.depth});
    product.right_panels = std::exchange(product.right_scratch, nullptr);
  }
  for (const RowRange& range : rows) {
    product.rows = range.count();
    product.left.data = args.grad_dst.column_range(range.begin, range.end).data;
    product.out = args.grad_weight.row_range(range.begin, range.end).data;
    cpu::gemm(device, engine, product);
  }
}

}  // namespace

void append_rows(std::vector<RowRange>& rows, const RowRange& range) {
  if (range.count() <= 0) return;
  if (!rows.empty() && rows.back().end >= range.begin) {
    rows.back().end = std::max(rows.back().end, range.end);
  } else {
    rows.push_back(range);
  }
}

void linear_backward_weight_rows(Stream& stream, const LinearBackwardWeight& args,
                                 std::vector<RowRange> rows) {
  JIGE_CHECK(!on_cuda(stream), "rows of a weight's gradient on a GPU");
  const TensorView& grad = args.grad_weight;
  check_typed("grad_weight", grad, DType::kF32, grad.rows(), args.src.columns());
  check_float("grad_dst", args.grad_dst, args.src.rows(), grad.rows());
  check_float("src", args.src, args.grad_dst.rows(), grad.columns());
  int64_t end = 0;
  for (const RowRange& range : rows) {
    JIGE_CHECK(range.begin >= end && range.end > range.begin && range.end <= grad.rows(),
               "rows [{}, {}) of {}, behind {}", range.begin, range.end, grad.rows(), end);
    end = range.end;
  }
  CpuStream& cpu = as_cpu(stream);
  cpu.submit([args, rows = std::move(rows), &device = cpu.cpu()] {
    multiply_gradient_rows(device, args, rows);
  });
}

}  // namespace jige::ops
