// The tasks of DenseMlp where blocks of its hidden width are dropped: dense_mlp.h.
#include "model/dense_mlp.h"

namespace jige::model {
namespace {

// What a comes times, so that its sums stay as large in the mean.
float kept_scale(const ops::KeptColumns& kept) {
  return static_cast<float>(static_cast<double>(kept.size) / static_cast<double>(kept.kept));
}

// A whole matrix as memory.
TensorView memory_of(const TensorView& matrix) {
  return TensorView::of(matrix.data, DType::kU8, Shape{dtype_bytes(matrix.dtype, matrix.count())});
}

}  // namespace

void DenseMlp::forward_kept(Stream& stream, const BlockWeights& weights, DType compute,
                            const TensorView& dst, const TensorView& src, const Saved& saved,
                            const Work& work) const {
  JIGE_CHECK(may_keep() && !work.row_logits && !work.adapters, "blocks of {} columns", size_);
  if (work.norm) ops::rms_norm_forward(stream, *work.norm);
  const TensorView ffn = kept_ffn(saved.ffn, work);
  const TensorView activated = first_columns(work.activated, work.kept->kept);
  input_.forward_kept(stream, weights, compute,
                      {.dst = ffn, .src = src, .product = {}, .scratch = {}},
                      {ops::KeptSide::kOutputs, *work.kept});
  activate(stream, weights, activated, ffn);
  ops::scale(stream, activated, activated, kept_scale(*work.kept));
  output_.forward_kept(
      stream, weights, compute,
      {.dst = dst, .src = activated, .product = {}, .scratch = {}, .addend = work.addend},
      {ops::KeptSide::kInputs, *work.kept});
}

void DenseMlp::backward_input_kept(Stream& stream, const BlockWeights& weights, DType compute,
                                   const TensorView& grad_src, const TensorView& grad_dst,
                                   const Saved& saved, const Pending& pending,
                                   const Work& work) const {
  const int64_t columns = work.kept->kept;
  const float scale = kept_scale(*work.kept);
  const TensorView ffn = kept_ffn(saved.ffn, work);
  const TensorView grad_activated = first_columns(work.activated, columns);
  Pending kept = pending;
  kept.ffn = kept_ffn(pending.ffn, work);
  output_.backward_input_kept(
      stream, weights, compute,
      {.grad_src = grad_activated, .grad_dst = grad_dst, .product = {}, .scratch = {}},
      {ops::KeptSide::kInputs, *work.kept});
  ops::scale(stream, grad_activated, grad_activated, scale);
  backward_activate(stream, weights, kept, grad_activated, ffn);
  if (gated()) {  // a, which W reads
    const TensorView activated = ffn.column_range(0, columns);
    ops::scale(stream, activated, activated, scale);
  }
  input_.backward_input_kept(
      stream, weights, compute,
      {.grad_src = grad_src, .grad_dst = kept.ffn, .product = {}, .scratch = {}},
      {ops::KeptSide::kOutputs, *work.kept});
}

void DenseMlp::backward_output_weight_kept(Stream& stream, const BlockWeights& weights,
                                           DType compute, const TensorView& grad_dst,
                                           GradientUse gradients, const Saved& saved,
                                           const Work& work) const {
  const TensorView ffn = kept_ffn(saved.ffn, work);
  TensorView activated = ffn.column_range(0, work.kept->kept);
  TensorView scratch = work.weight_scratch;
  if (!gated()) {
    activated = first_columns(work.activated, work.kept->kept);
    activate(stream, weights, activated, ffn);
    ops::scale(stream, activated, activated, kept_scale(*work.kept));
  } else if (const TensorView free = memory_of(work.activated); free.count() > scratch.count()) {
    scratch = free;  // nothing is there now
  }
  output_.backward_weight_kept(stream, weights, compute,
                               {.grad_dst = grad_dst,
                                .src = activated,
                                .product_forward = {},
                                .product_backward = {},
                                .scratch = scratch,
                                .gradients = gradients},
                               {ops::KeptSide::kInputs, *work.kept});
}

}  // namespace jige::model
