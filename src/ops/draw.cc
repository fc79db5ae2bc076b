#include "ops/draw.h"

#include <algorithm>

#include "kernels/cpu/logits.h"
#include "ops/kernel_rows.h"
#include "ops/likeliest.h"

namespace jige::ops {

bool can_sample(Stream& stream, int64_t columns) {
  return on_cuda(stream) && columns <= cpu::kDrawColumnsMax;
}

namespace {

void find_likeliest(Stream& stream, const TensorView& tokens, const TensorView& logits,
                    std::span<const RowDraw> draws) {
  const auto wanted = [&](int64_t row) {
    return row < std::ssize(draws) && draws[static_cast<size_t>(row)].kind == RowDraw::kLikeliest;
  };
  for (int64_t begin = 0; begin < std::ssize(draws); ++begin) {
    int64_t end = begin;
    while (wanted(end)) ++end;
    if (end == begin) continue;
    likeliest(stream, tokens.row_range(begin, end), logits.row_range(begin, end));
    begin = end;
  }
}

}  // namespace

void draw(Stream& stream, const TensorView& tokens, const TensorView& logits,
          std::span<const RowDraw> draws) {
  const int64_t rows = logits.rows();
  const int64_t columns = logits.columns();
  JIGE_CHECK(std::ssize(draws) == rows, "{} draws of {} rows", draws.size(), rows);
  if (!on_cuda(stream)) return find_likeliest(stream, tokens, logits, draws);
  likeliest(stream, tokens, logits);
  const auto samples = [](const RowDraw& one) { return one.kind == RowDraw::kSample; };
  if (std::ranges::none_of(draws, samples)) return;
  JIGE_CHECK(can_sample(stream, columns), "{} logits cannot be sampled from here", columns);
  CudaStream& gpu = as_cuda(stream);
  cuda::draw(launch_stream(stream), {.tokens = tokens.as<int32_t>(),
                                     .logits = logits.as<float>(),
                                     .stride = logits.row_stride,
                                     .rows = rows,
                                     .columns = columns,
                                     .draws = static_cast<const RowDraw*>(gpu.upload(
                                         draws.data(), static_cast<int64_t>(draws.size_bytes()))),
                                     .scratch = gpu.scratch(cuda::draw_bytes(rows, columns)),
                                     .zeros = gpu.zeros(cuda::draw_zeros_bytes(rows))});
}

}  // namespace jige::ops
