#include "ops/low_rank.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/check.h"
#include "ops/elementwise.h"
#include "tensor/cpu_device.h"
#include "tensor/cuda_device.h"

namespace jige::ops {
namespace {

// Multiplications of a range up to which it is given to one thread.
constexpr int64_t kOneThreadWork = int64_t{1} << 21;

// Runs what it is given at once: on a thread of the team, loops in it stay on that thread.
class ThisThread final : public CpuStream {
 public:
  explicit ThisThread(CpuDevice& device) : device_(device) {}
  Device& device() override { return device_; }
  CpuDevice& cpu() override { return device_; }
  void submit(Work work) override { work(); }
  void copy(void* dst, const void* src, int64_t bytes, CopyKind) override {
    std::copy_n(static_cast<const std::byte*>(src), bytes, static_cast<std::byte*>(dst));
  }
  void fill_zero(void* dst, int64_t bytes) override {
    std::fill_n(static_cast<std::byte*>(dst), bytes, std::byte{0});
  }
  Event record() override { return Event(); }
  void wait(const Event& event) override { event.wait(); }
  void synchronize() override {}

 private:
  CpuDevice& device_;
};

int64_t work_of(const LowRankRows& rows) {
  int64_t products = rows.weight->a.n * rows.weight->a.k;
  for (const LowRankWeight::Part& part : rows.weight->parts) products += part.b.n * part.b.k;
  return (rows.row_end - rows.row_begin) * products;
}

bool is_small(const LowRankRows& rows) { return work_of(rows) <= kOneThreadWork; }

// The small ranges, cut so that every thread gets its share of their rows.
std::vector<LowRankRows> small_pieces(const LowRankForward& args, int threads) {
  int64_t row_count = 0;
  for (const LowRankRows& rows : args.rows) {
    if (is_small(rows)) row_count += rows.row_end - rows.row_begin;
  }
  const int64_t share = (row_count + threads - 1) / threads;
  std::vector<LowRankRows> pieces;
  for (const LowRankRows& rows : args.rows) {
    if (!is_small(rows)) continue;
    for (int64_t row = rows.row_begin; row < rows.row_end; row += share) {
      pieces.push_back({rows.weight, row, std::min(row + share, rows.row_end)});
    }
  }
  return pieces;
}

int64_t widest_part(const LowRankForward& args) {
  int64_t widest = 0;
  for (const LowRankRows& rows : args.rows) {
    for (const LowRankWeight::Part& part : rows.weight->parts) {
      widest = std::max(widest, part.b.n);
    }
  }
  return widest;
}

void check(const LowRankForward& args) {
  const int64_t row_count = args.dst.rows();
  JIGE_CHECK(args.src.rows() == row_count && args.product.rows() >= row_count,
             "{} rows out, {} in, {} of products", row_count, args.src.rows(), args.product.rows());
  JIGE_CHECK(args.scratch.count() >= low_rank_scratch_bytes(row_count, widest_part(args)),
             "a scratch of {} bytes for {} rows", args.scratch.count(), row_count);
  for (const LowRankRows& rows : args.rows) {
    JIGE_CHECK(0 <= rows.row_begin && rows.row_begin < rows.row_end && rows.row_end <= row_count,
               "rows {} to {} of {}", rows.row_begin, rows.row_end, row_count);
    JIGE_CHECK(rows.weight->a.n <= args.product.columns(), "{} products in {} columns",
               rows.weight->a.n, args.product.columns());
  }
}

// Multiplies u by the scales of parts, neighbours of one scale at once.
void scale_products(Stream& stream, const LowRankWeight& weight, const TensorView& u) {
  const auto& parts = weight.parts;
  for (size_t first = 0; first < parts.size();) {
    size_t last = first;
    while (last + 1 < parts.size() && parts[last + 1].scale == parts[first].scale &&
           parts[last + 1].a_row == parts[last].a_row + parts[last].b.k) {
      ++last;
    }
    const TensorView columns =
        u.column_range(parts[first].a_row, parts[last].a_row + parts[last].b.k);
    scale(stream, columns, columns, parts[first].scale);
    first = last + 1;
  }
}

// One range; its share of the scratch begins behind those of the rows before it.
void add_rows(Stream& stream, const LowRankForward& args, const LowRankRows& rows,
              int64_t part_outputs) {
  const LowRankWeight& weight = *rows.weight;
  const int64_t count = rows.row_end - rows.row_begin;
  const TensorView src = args.src.row_range(rows.row_begin, rows.row_end);
  const TensorView dst = args.dst.row_range(rows.row_begin, rows.row_end);
  const TensorView u =
      args.product.row_range(rows.row_begin, rows.row_end).column_range(0, weight.a.n);
  linear_forward(stream, {.dst = u, .src = src, .weight = weight.a});
  scale_products(stream, weight, u);
  auto* const scratch = static_cast<std::byte*>(args.scratch.data) +
                        low_rank_scratch_bytes(rows.row_begin, part_outputs);
  for (const LowRankWeight::Part& part : weight.parts) {
    const TensorView out = dst.column_range(part.column, part.column + part.b.n);
    const TensorView delta = TensorView::of(scratch, dst.dtype, Shape{count, part.b.n});
    linear_forward(
        stream,
        {.dst = delta, .src = u.column_range(part.a_row, part.a_row + part.b.k), .weight = part.b});
    add(stream, out, out, delta);
    if (part.factor || part.addend) scale_columns(stream, out, out, part.factor, part.addend);
  }
}

}  // namespace

int64_t low_rank_scratch_bytes(int64_t row_count, int64_t part_outputs) {
  return dtype_bytes(DType::kF32, row_count * part_outputs);
}

void low_rank_forward(Stream& stream, const LowRankForward& args) {
  check(args);
  const int64_t part_outputs = widest_part(args);
  if (on_cuda(stream)) {
    for (const LowRankRows& rows : args.rows) add_rows(stream, args, rows, part_outputs);
    return;
  }
  CpuStream& cpu = as_cpu(stream);
  CpuDevice& device = cpu.cpu();
  std::vector<LowRankRows> pieces = small_pieces(args, device.team().size());
  if (pieces.size() == 1) pieces.clear();  // one thread would work, and the others wait
  for (const LowRankRows& rows : args.rows) {
    if (pieces.empty() || !is_small(rows)) add_rows(stream, args, rows, part_outputs);
  }
  if (pieces.empty()) return;
  cpu.submit([args, pieces = std::move(pieces), part_outputs, &device] {
    device.team().parallel_for(std::ssize(pieces), 1, [&](int64_t begin, int64_t end, int) {
      ThisThread here(device);
      for (int64_t i = begin; i < end; ++i) {
        add_rows(here, args, pieces[static_cast<size_t>(i)], part_outputs);
      }
    });
  });
}

}  // namespace jige::ops
