#include "train/optimizer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace jige::train {
namespace {

constexpr double kClipEpsilon = 1e-6;

// Elements of a contiguous f32 tensor, in its own shape where they are all.
TensorView part_of(const TensorView& view, const ElementRange& range) {
  if (range.count == view.count()) return view;
  return TensorView::of(static_cast<float*>(view.data) + range.begin, DType::kF32,
                        Shape{range.count});
}

// The update of some rows of it.
ops::AdamW rows_of(ops::AdamW update, const ops::RowRange& rows) {
  JIGE_CHECK(update.moment1.dtype == DType::kF32, "rows of moments in blocks");
  for (TensorView* view : {&update.weight, &update.moment1, &update.moment2, &update.grad}) {
    *view = view->row_range(rows.begin, rows.end);
  }
  for (ops::PackPart& part : update.packs) part.row_begin += rows.begin;
  return update;
}

}  // namespace

Optimizer::Optimizer(std::span<const model::NamedParam> params, const OptimizerOptions& options)
    : params_(params.begin(), params.end()), options_(options) {
  for (const model::NamedParam& param : params_) held_.push_back({0, param.spec->shape.count()});
}

Result<Optimizer> Optimizer::create(Arena& arena, std::span<const model::NamedParam> params,
                                    const OptimizerOptions& options) {
  size_t nodes = 0;
  for (const model::NamedParam& param : params) nodes = std::max(nodes, param.node + 1);
  return create(std::vector<Arena*>(nodes, &arena), params, options);
}

Result<Optimizer> Optimizer::create(std::span<Arena* const> arenas,
                                    std::span<const model::NamedParam> params,
                                    const OptimizerOptions& options) {
  Optimizer optimizer(params, options);
  for (const model::NamedParam& param : optimizer.params_) {
    Arena& arena = *arenas[param.node];
    const ops::MomentLayout layout = ops::moment_layout(options.moments, param.value.shape);
    JIGE_TRY(Tensor moment1, arena.make_zero(layout.dtype, layout.shape));
    JIGE_TRY(Tensor moment2, arena.make_zero(layout.dtype, layout.shape));
    optimizer.moments1_.push_back(std::move(moment1));
    optimizer.moments2_.push_back(std::move(moment2));
  }
  return optimizer;
}

Result<Optimizer> Optimizer::create_share(Arena& arena, std::span<const model::NamedParam> params,
                                          const OptimizerOptions& options,
                                          const OptimizerShares& shares, int rank) {
  Optimizer optimizer(params, options);
  optimizer.shares_ = shares;
  for (size_t i = 0; i < params.size(); ++i) {
    optimizer.held_[i] = shares.of_param(i, rank);
    const Shape shape{optimizer.held_[i].count};
    const ops::MomentLayout moment =
        ops::moment_part_layout(optimizer.moment_layout(i).dtype, shape.count());
    std::array<Tensor, 3> tensors;
    const bool apart = params[i].value.data == params[i].grad.data;
    for (size_t k = 0; k < (apart ? 3 : 2) && shape.count() > 0; ++k) {
      JIGE_TRY(tensors[k], k < 2 ? arena.make_zero(moment.dtype, moment.shape)
                                 : arena.make_zero(DType::kF32, shape));
    }
    optimizer.moments1_.push_back(std::move(tensors[0]));
    optimizer.moments2_.push_back(std::move(tensors[1]));
    optimizer.masters_.push_back(std::move(tensors[2]));
  }
  return optimizer;
}

TensorView Optimizer::master(size_t i) const {
  return master_is_apart(i) ? masters_[i].view() : part_of(params_[i].value, held_[i]);
}

OptimizerReport Optimizer::decide(std::span<const double> squares, bool refuse) const {
  double sum = 0;
  for (const double square : squares) sum += square;
  OptimizerReport report{.grad_norm = std::sqrt(sum)};
  report.applied = std::isfinite(report.grad_norm) && !refuse;
  if (report.applied && options_.clip_norm > 0 && report.grad_norm > options_.clip_norm) {
    report.grad_scale = options_.clip_norm / (report.grad_norm + kClipEpsilon);
  }
  return report;
}

ops::AdamW Optimizer::update_args(size_t i, const TensorView& grad,
                                  const OptimizerUpdate& args) const {
  const double rate = params_[i].spec->adapter_b ? options_.lora_b_rate : 1.0;
  return {.weight = master(i),
          .moment1 = moments1_[i].view(),
          .moment2 = moments2_[i].view(),
          .grad = part_of(grad, held_[i]),
          .learning_rate = args.learning_rate * rate,
          .beta1 = options_.beta1,
          .beta2 = options_.beta2,
          .epsilon = options_.epsilon,
          .weight_decay = params_[i].spec->decay ? options_.weight_decay : 0,
          .step = args.update,
          .grad_scale = args.grad_scale,
          .packs = args.renew_packed ? params_[i].packs : std::vector<ops::PackPart>{}};
}

void Optimizer::update(Stream& stream, size_t i, const TensorView& grad,
                       const OptimizerUpdate& args) {
  ops::adamw(stream, update_args(i, grad, args));
}

OptimizerReport Optimizer::step(Stream& stream, const OptimizerStep& args) {
  std::vector<double> squares(params_.size());
  std::vector<TensorView> grads;
  for (const model::NamedParam& param : params_) grads.push_back(param.grad);
  ops::sums_of_squares(stream, grads, squares.data());
  stream.synchronize();
  return apply(stream, squares, args);
}

OptimizerReport Optimizer::apply(Stream& stream, std::span<const double> squares,
                                 const OptimizerStep& args) {
  JIGE_CHECK(!shares_, "the whole update of a share");
  const OptimizerReport report = decide(squares, args.refuse);
  if (!report.applied) return report;
  ++update_count_;
  std::vector<ops::AdamW> updates;
  for (size_t i = 0; i < params_.size(); ++i) {
    const ops::AdamW update = update_args(i, params_[i].grad,
                                          {.learning_rate = args.learning_rate,
                                           .grad_scale = report.grad_scale,
                                           .update = update_count_,
                                           .renew_packed = args.renew_packed});
    if (args.rows.empty() || !args.rows[i]) {
      updates.push_back(update);
      continue;
    }
    for (const ops::RowRange& rows : *args.rows[i]) updates.push_back(rows_of(update, rows));
  }
  ops::adamw(stream, updates);
  return report;
}

}  // namespace jige::train
