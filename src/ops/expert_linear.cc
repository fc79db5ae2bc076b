#include "ops/expert_linear.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "ops/expert_linear_cuda.h"
#include "ops/kernel_rows.h"
#include "ops/linear_products.h"

namespace jige::ops {
namespace {

// Reading a weight takes about as long as computing with so many rows.
constexpr int64_t kRowsOfReading = 8;
// Pieces for each thread, which even out those of unequal speed, and the fewest columns of one: of
// few rows as many as are read in one go, of many so many that packing the rows again does not
// show.
constexpr int64_t kPiecesPerThread = 8;
constexpr int64_t kPieceColumnsMin = 64;
constexpr int64_t kPieceColumnsMinOfMany = 256;
constexpr int64_t kManyRows = 16;

struct ExpertRows {
  int64_t expert;
  int64_t begin;
  int64_t end;
  int64_t count() const { return end - begin; }
};

// The experts that have rows, or all.
std::vector<ExpertRows> rows_by_expert(const TensorView& row_ends, int64_t row_count, bool all) {
  std::vector<ExpertRows> list;
  const auto* ends = row_ends.as<int32_t>();
  int64_t begin = 0;
  for (int64_t e = 0; e < row_ends.count(); ++e) {
    if (all || ends[e] > begin) list.push_back({e, begin, ends[e]});
    begin = ends[e];
  }
  JIGE_CHECK(begin == row_count, "experts have {} of {} rows", begin, row_count);
  return list;
}

// A part of one expert's product: columns of its output, or rows of its gradient.
struct Piece {
  ExpertRows rows;
  int64_t begin;
  int64_t end;
};

// Cuts [0, extent) of every expert, in whole steps.
std::vector<Piece> cut_pieces(const std::vector<ExpertRows>& experts, int64_t extent, int64_t step,
                              int threads) {
  const auto cost = [](const ExpertRows& rows) { return rows.count() + kRowsOfReading; };
  int64_t total = 0;
  for (const ExpertRows& rows : experts) total += cost(rows);
  std::vector<Piece> pieces;
  for (const ExpertRows& rows : experts) {
    const int64_t least = rows.count() < kManyRows ? kPieceColumnsMin : kPieceColumnsMinOfMany;
    const int64_t wanted = threads > 1 ? (kPiecesPerThread * threads * cost(rows)) / total : 1;
    const int64_t parts = std::clamp<int64_t>(wanted, 1, std::max<int64_t>(extent / least, 1));
    const int64_t length = ((extent + parts - 1) / parts + step - 1) / step * step;
    for (int64_t begin = 0; begin < extent; begin += length) {
      pieces.push_back({rows, begin, std::min(begin + length, extent)});
    }
  }
  return pieces;
}

template <typename Body>
void for_pieces_of_experts(CpuDevice& device, const std::vector<Piece>& pieces, Body&& body) {
  device.team().parallel_for(static_cast<int64_t>(pieces.size()), 1,
                             [&](int64_t begin, int64_t end, int) {
                               for (int64_t i = begin; i < end; ++i) {
                                 body(pieces[static_cast<size_t>(i)]);
                               }
                             });
}

void run_products(CpuDevice& device, const ExpertProduct& args) {
  const std::vector<ExpertRows> experts =
      rows_by_expert(args.row_ends, args.src.rows(), /*all=*/false);
  if (experts.empty()) return;
  const auto product_of = [&](const ExpertRows& rows) {
    return PackedProduct{.dst = args.dst.row_range(rows.begin, rows.end),
                         .src = args.src.row_range(rows.begin, rows.end),
                         .weight = args.weights.at(rows.expert),
                         .use = args.use,
                         .strip = args.strip};
  };
  if (args.weights.first.format != WeightFormat::kCompute && args.strip) {
    for (const ExpertRows& rows : experts) multiply(device, product_of(rows));  // one strip for all
    return;
  }
  const int64_t step = product_column_step(args.weights.at(experts.front().expert));
  for_pieces_of_experts(device, cut_pieces(experts, args.dst.columns(), step, device.team().size()),
                        [&](const Piece& piece) {
                          multiply_columns(device, product_of(piece.rows), piece.begin, piece.end);
                        });
}

void add_gradients(CpuDevice& device, const ExpertWeightGradient& args) {
  std::vector<ExpertRows> experts =
      rows_by_expert(args.row_ends, args.src.rows(), /*all=*/!args.accumulate);
  std::erase_if(experts, [&](const ExpertRows& rows) {
    return !args.grads[static_cast<size_t>(rows.expert)];
  });
  if (experts.empty()) return;
  const int64_t outputs = args.grad_dst.columns();
  constexpr int64_t kRowStep = 16;
  for_pieces_of_experts(
      device, cut_pieces(experts, outputs, kRowStep, device.team().size()),
      [&](const Piece& piece) {
        const ExpertRows& rows = piece.rows;
        const TensorView grad =
            args.grads[static_cast<size_t>(rows.expert)].row_range(piece.begin, piece.end);
        if (rows.count() == 0) {
          std::memset(grad.data, 0, static_cast<size_t>(grad.count()) * sizeof(float));
          return;
        }
        multiply_gradient(
            device,
            {.grad_weight = grad,
             .grad_dst =
                 args.grad_dst.row_range(rows.begin, rows.end).column_range(piece.begin, piece.end),
             .src = args.src.row_range(rows.begin, rows.end),
             .compute = args.compute,
             .accumulate = args.accumulate});
      });
}

}  // namespace

PackedWeight ExpertWeights::at(int64_t expert) const {
  JIGE_DCHECK(0 <= expert && expert < count, "expert {} of {}", expert, count);
  PackedWeight weight = first;
  weight.data = static_cast<std::byte*>(first.data) + expert * stride_bytes;
  return weight;
}

void expert_product(Stream& stream, const ExpertProduct& args) {
  const PackedWeight& weight = args.weights.first;
  const bool forward = args.use == PackUse::kForward;
  JIGE_CHECK(weight.format != WeightFormat::kCompute || weight.use == args.use,
             "weights are packed for another use");
  JIGE_CHECK(forward || weight.format == WeightFormat::kCompute || args.strip || on_cuda(stream),
             "no strip for the input gradient of quantised weights");
  check_float("src", args.src, args.dst.rows(), forward ? weight.k : weight.n);
  check_float("dst", args.dst, args.src.rows(), forward ? weight.n : weight.k);
  check_vector("row_ends", args.row_ends, DType::kI32, args.weights.count);
  if (on_cuda(stream)) return cuda_expert_product(stream, args);
  CpuStream& cpu_stream = as_cpu(stream);
  cpu_stream.submit([args, &device = cpu_stream.cpu()] { run_products(device, args); });
}

bool expert_gated_forward(Stream& stream, const ExpertGated& args) {
  const PackedWeight& weight = args.weights.first;
  const Routing& routing = args.routing;
  check_float("src", args.src, routing.token_count(), weight.k);
  check_float("dst", args.dst, routing.row_count(), weight.n / 2);
  if (args.bounded.biases) {
    check_vector("biases", args.bounded.biases, DType::kF32, args.weights.count * weight.n);
  }
  return on_cuda(stream) && cuda_expert_gated_forward(stream, args);
}

void expert_weight_gradient(Stream& stream, const ExpertWeightGradient& args) {
  check_vector("row_ends", args.row_ends, DType::kI32, static_cast<int64_t>(args.grads.size()));
  for (const TensorView& grad : args.grads) {
    if (grad) {
      check_typed("grad", grad, DType::kF32, args.grad_dst.columns(), args.src.columns());
      JIGE_CHECK(grad.contiguous(), "gradient {} with gaps", grad.shape.to_string());
    }
  }
  check_float("grad_dst", args.grad_dst, args.src.rows(), args.grad_dst.columns());
  check_float("src", args.src, args.grad_dst.rows(), args.src.columns());
  if (on_cuda(stream)) return cuda_expert_weight_gradient(stream, args);
  CpuStream& cpu_stream = as_cpu(stream);
  cpu_stream.submit([args, &device = cpu_stream.cpu()] { add_gradients(device, args); });
}

}  // namespace jige::ops
