#include "ops/draw.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/logits.h"
#include "ops/kernel_rows.h"
#include "ops/likeliest.h"

namespace jige::ops {

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

// The draws on the GPU, with the tokens that they penalise.
const RowDraw* upload_draws(CudaStream& gpu, std::span<const RowDraw> draws) {
  std::vector<SeenToken> seen;
  for (const RowDraw& draw : draws) seen.insert(seen.end(), draw.seen, draw.seen + draw.seen_count);
  const auto* at = seen.empty() ? nullptr
                                : static_cast<const SeenToken*>(gpu.upload(
                                      seen.data(), std::ssize(seen) * int64_t{sizeof(SeenToken)}));
  std::vector<RowDraw> rows(draws.begin(), draws.end());
  for (RowDraw& row : rows) {
    row.seen = row.seen_count > 0 ? at : nullptr;
    if (row.seen_count > 0) at += row.seen_count;
  }
  return static_cast<const RowDraw*>(
      gpu.upload(rows.data(), std::ssize(rows) * int64_t{sizeof(RowDraw)}));
}

}  // namespace

float log_probability(const DrawScore& score) {
  const double log_total = static_cast<double>(score.largest) + std::log(score.total);
  return static_cast<float>(static_cast<double>(score.logit) - log_total);
}

bool can_draw(Stream& stream, int64_t columns, const RowDraw& draw) {
  const bool plain = draw.seen_count == 0 && !draw.is_scored;
  if (draw.kind == RowDraw::kLikeliest && plain) return true;
  return draw.kind != RowDraw::kHost && on_cuda(stream) && columns <= cpu::kDrawColumnsMax;
}

void draw(Stream& stream, const TensorView& tokens, const TensorView& scores,
          const TensorView& logits, std::span<const RowDraw> draws) {
  const int64_t rows = logits.rows();
  const int64_t columns = logits.columns();
  JIGE_CHECK(std::ssize(draws) == rows, "{} draws of {} rows", draws.size(), rows);
  check_typed("scores", scores, DType::kF32, rows, sizeof(DrawScore) / sizeof(float));
  for (const RowDraw& one : draws) {
    JIGE_CHECK(one.kind == RowDraw::kHost || can_draw(stream, columns, one),
               "of {} logits no token can be drawn here", columns);
  }
  if (!on_cuda(stream)) return find_likeliest(stream, tokens, logits, draws);
  CudaStream& gpu = as_cuda(stream);
  const RowDraw* const uploaded = upload_draws(gpu, draws);
  const auto penalises = [](const RowDraw& one) { return one.seen_count > 0; };
  if (std::ranges::any_of(draws, penalises)) {
    cuda::penalise(launch_stream(stream), {.logits = logits.as<float>(),
                                           .stride = logits.row_stride,
                                           .rows = rows,
                                           .columns = columns,
                                           .draws = uploaded});
  }
  likeliest(stream, tokens, logits);
  const auto needs_sums = [](const RowDraw& one) {
    return one.kind == RowDraw::kSample || one.is_scored;
  };
  if (std::ranges::none_of(draws, needs_sums)) return;
  cuda::draw(launch_stream(stream), {.scores = reinterpret_cast<DrawScore*>(scores.as<float>()),
                                     .tokens = tokens.as<int32_t>(),
                                     .logits = logits.as<float>(),
                                     .stride = logits.row_stride,
                                     .rows = rows,
                                     .columns = columns,
                                     .draws = uploaded,
                                     .scratch = gpu.scratch(cuda::draw_bytes(rows, columns)),
                                     .zeros = gpu.zeros(cuda::draw_zeros_bytes(rows))});
}

}  // namespace jige::ops
