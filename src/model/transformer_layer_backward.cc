// The gradient tasks of TransformerLayer, in the reverse order of transformer_layer.cc's forward.
#include "model/transformer_layer.h"
#include "ops/elementwise.h"

namespace jige::model {

void TransformerLayer::backward_input(const BlockContext& context, const BlockWeights& weights,
                                      const Batch& batch, const TensorView& whole_src,
                                      const TensorView& whole_grad_dst,
                                      const TensorView& whole_grad_src,
                                      const BlockMemory& memory) const {
  const int64_t t = batch.token_count();
  Placement kept(memory.saved);
  Placement left(memory.pending);
  Placement workspace(context.workspace);
  const Activations saved = place_saved(kept, t, context.compute);
  const Gradients pending = place_pending(left, t, context.compute);
  const Work work = work_for(workspace, batch, t, context.compute, true);
  hand_back(context.stream, whole_grad_dst, whole_grad_src);
  const TensorView grad_dst = backward_input_part(context, weights, whole_src, whole_grad_dst,
                                                  whole_grad_src, saved, pending, work);
  const TensorView grad_rows = altup_ ? work.altup.result : layout_.residual(whole_grad_src);
  const Streams streams{.src = whole_src,
                        .dst = {},
                        .grad_src = whole_grad_src,
                        .rows = parts_source(whole_src, saved),
                        .result = grad_rows};
  backward_parts(context, weights, batch, grad_dst, streams, saved, pending, work);
  if (!altup_) return;
  altup_->backward_predict(context.stream, weights, context.compute, whole_grad_src, whole_src,
                           saved.altup, pending.altup, work.altup);
}

TensorView TransformerLayer::backward_input_part(const BlockContext& context,
                                                 const BlockWeights& weights, const TensorView& src,
                                                 const TensorView& whole_grad_dst,
                                                 const TensorView& whole_grad_src,
                                                 const Activations& saved, const Gradients& pending,
                                                 const Work& work) const {
  Stream& stream = context.stream;
  const TensorView grad_dst = layout_.streams(whole_grad_dst);
  const TensorView grad_src = layout_.streams(whole_grad_src);
  if (scale_) {
    ops::scale_by(stream, grad_src, grad_dst, weights.params[*scale_].value);
  } else if (!input_ && !altup_) {
    return grad_dst;
  } else if (grad_src.data != grad_dst.data) {
    ops::scale(stream, grad_src, grad_dst, 1.0f);
  }
  LayerInput::Gradients gradients{.result = grad_src, .rows = grad_src, .input = {}};
  if (altup_) {
    gradients = {.result = work.altup.others, .rows = work.altup.scaled, .input = {}};
    ops::scale(stream, gradients.result, layout_.stream(grad_src, 1), 1.0f);
    for (int64_t i = 2; i < layout_.stream_count(); ++i) {
      ops::add(stream, gradients.result, gradients.result, layout_.stream(grad_src, i));
    }
    ops::zero(stream, gradients.rows);
  }
  if (input_) {
    const auto layer = static_cast<int64_t>(index_);
    gradients.input = layout_.input(whole_grad_src, layer);
    input_->backward_input(stream, weights, context.compute, gradients, layout_.input(src, layer),
                           saved.input, pending.input, work.input);
  }
  if (!altup_) return grad_src;
  altup_->backward_correct(stream, weights, context.compute, whole_grad_src, saved.altup,
                           pending.altup, work.altup);
  return work.altup.result;
}

void TransformerLayer::backward_parts(const BlockContext& context, const BlockWeights& weights,
                                      const Batch& batch, const TensorView& grad_dst,
                                      const Streams& streams, const Activations& saved,
                                      const Gradients& pending, const Work& work) const {
  const TensorView& grad_src = streams.result;
  // Parts side by side both begin at the gradient of dst, whose memory grad_src may be.
  const auto leave_attention = [&](const TensorView& grad_stream) {
    backward_leave(context.stream, weights, batch, attention_part(saved), grad_stream,
                   pending.o_after, pending.attention_output);
  };
  if (parallel_) leave_attention(grad_dst);
  if (has_ffn()) {
    backward_ffn(context, weights, batch, streams.rows, grad_dst, grad_src, saved, pending, work);
  } else if (grad_src.data != grad_dst.data) {
    ops::scale(context.stream, grad_src, grad_dst, 1.0f);
  }
  if (!attention_) return;
  if (laurel_) {
    laurel_->backward_input(context.stream, weights, context.compute, grad_src, saved.laurel,
                            pending.laurel);
  }
  if (!parallel_) leave_attention(grad_src);
  backward_attention(context, weights, batch, streams, saved, pending, work);
}

void TransformerLayer::hand_back(Stream& stream, const TensorView& grad_dst,
                                 const TensorView& grad_src) const {
  if (layout_.plain() || grad_src.data == grad_dst.data) return;
  for (const bool window : {false, true}) {
    if (!passes_[window] && !(gives_ && window == window_)) continue;
    ops::scale(stream, layout_.keys(grad_src, window), layout_.keys(grad_dst, window), 1.0f);
  }
  const auto next = static_cast<int64_t>(index_) + 1;
  const TensorView inputs = layout_.inputs_from(grad_src, next);
  if (inputs.columns() == 0) return;
  ops::scale(stream, inputs, layout_.inputs_from(grad_dst, next), 1.0f);
}

void TransformerLayer::backward_ffn(const BlockContext& context, const BlockWeights& weights,
                                    const Batch& batch, const TensorView& src,
                                    const TensorView& grad_dst, const TensorView& grad_src,
                                    const Activations& saved, const Gradients& pending,
                                    const Work& work) const {
  Stream& stream = context.stream;
  backward_leave(stream, weights, batch, ffn_part(saved), grad_dst, pending.m_after,
                 beside_ ? pending.beside.sum : pending.ffn_output);
  if (beside_) {
    beside_->backward_norms(stream, weights, pending.ffn_output, saved.beside, pending.beside);
  }
  if (experts_) {
    experts_->backward_input(stream, weights, context.compute, batch, pending.n2,
                             pending.ffn_output, saved.experts, pending.experts, work.experts);
  } else {
    mlp_->backward_input(stream, weights, context.compute, pending.n2, pending.ffn_output,
                         saved.mlp, pending.mlp, dense_work(work));
  }
  if (grad_src.data != grad_dst.data) ops::scale(stream, grad_src, grad_dst, 1.0f);
  if (one_norm_) return;
  backward_enter(stream, weights, norm2_, grad_src, pending.n2, ffn_source(src, saved),
                 saved.stats2);
  if (beside_) {
    beside_->backward_input(stream, weights, context.compute, batch, grad_src,
                            ffn_source(src, saved), saved.beside, pending.beside, work.beside);
  }
}

ExpertRecord TransformerLayer::expert_record(const TensorView& saved, int64_t token_count,
                                             DType compute) const {
  Placement kept(saved);
  const Activations views = place_saved(kept, token_count, compute);
  const ExpertMlp::Saved& experts = beside_ ? views.beside.experts : views.experts;
  return {.row_ends = experts.routing.row_ends, .balance = experts.balance};
}

void TransformerLayer::backward_enter(Stream& stream, const BlockWeights& weights,
                                      const NormLayer& norm, const TensorView& grad_stream,
                                      const TensorView& grad_dst, const TensorView& src,
                                      const NormStats& stats) const {
  if (norm.exists()) {
    norm.backward_input(stream, weights, grad_stream, grad_dst, src, stats, true);
  } else {
    ops::add(stream, grad_stream, grad_stream, grad_dst);
  }
}

void TransformerLayer::backward_leave(Stream& stream, const BlockWeights& weights,
                                      const Batch& batch, const Part& part,
                                      const TensorView& grad_stream, const TensorView& grad_after,
                                      const TensorView& grad_result) const {
  const TensorView& grad = norms_after_ ? grad_after : grad_result;
  drop(stream, grad, grad_stream, batch, part.site);
  if (residual_scale_ != 1.0f) ops::scale(stream, grad, grad, residual_scale_);
  if (!norms_after_) return;
  part.after.backward_input(stream, weights, grad_result, grad, part.result, part.stats, false);
}

void TransformerLayer::backward_attention(const BlockContext& context, const BlockWeights& weights,
                                          const Batch& batch, const Streams& streams,
                                          const Activations& saved, const Gradients& pending,
                                          const Work& work) const {
  Stream& stream = context.stream;
  AttentionMemory memory = attention_memory(saved, pending, work, true);
  share_keys(memory, streams);
  TensorView grad_attended = pending.attention_output;
  if (attention_output_) {
    grad_attended = first_columns(work.rows, attention_->columns());
    attention_output_->backward_input(stream, weights, context.compute,
                                      {.grad_src = grad_attended,
                                       .grad_dst = pending.attention_output,
                                       .product = pending.v_attention_output,
                                       .scratch = work.adapter_scratch,
                                       .dropout = work.dropout});
  }
  attention_->backward_input(context, weights, batch, saved.attended, grad_attended, pending.n1,
                             memory);
  if (one_norm_) ops::add(stream, pending.n1, pending.n1, pending.n2);
  if (laurel_) ops::add(stream, pending.n1, pending.n1, pending.laurel.rows);
  backward_enter(stream, weights, norm1_, streams.result, pending.n1, streams.rows, saved.stats1);
}

void TransformerLayer::backward_weight(const BlockContext& context, const BlockWeights& weights,
                                       const Batch& batch, const TensorView& whole_src,
                                       const BlockMemory& memory) const {
  const int64_t t = batch.token_count();
  const DType compute = context.compute;
  Stream& stream = context.stream;
  const RowCut rows = context.weight_cut(t);
  Placement kept(memory.saved, rows);
  Placement left(memory.pending, rows);
  Placement workspace(context.workspace);
  const Activations saved = place_saved(kept, t, compute);
  const Gradients pending = place_pending(left, t, compute);
  Work work = work_for(workspace, batch, rows.end - rows.begin, compute, true);
  work.dropout.token_begin += rows.begin;
  const TensorView src = parts_source(whole_src, saved).row_range(rows.begin, rows.end);

  if (altup_) {
    altup_->backward_weight(stream, weights, compute, whole_src, context.gradients, saved.altup,
                            pending.altup, work.altup);
  }
  if (input_) {
    input_->backward_weight(stream, weights, compute,
                            layout_.input(whole_src, static_cast<int64_t>(index_)),
                            context.gradients, saved.input, pending.input, work.input);
  }
  if (has_ffn()) {
    ffn_gradients(context, weights, src, saved, pending, work);
    if (norms_before_ && !one_norm_) {
      norm2_.backward_weight(stream, weights, pending.n2, ffn_source(src, saved), saved.stats2);
    }
  }
  if (!attention_) return;
  if (attention_output_) {
    attention_output_->backward_weight(stream, weights, compute,
                                       {.grad_dst = pending.attention_output,
                                        .src = saved.attended,
                                        .product_forward = saved.u_attention_output,
                                        .product_backward = pending.v_attention_output,
                                        .scratch = work.weight_scratch,
                                        .dropout = work.dropout,
                                        .gradients = context.gradients});
  }
  attention_gradients(context, weights, batch, src, saved, pending, work);
  if (norm1_.exists()) {
    norm1_.backward_weight(stream, weights, pending.n1, src, saved.stats1);
  }
  if (!norms_after_) return;
  norm1_after_.backward_weight(stream, weights, pending.o_after, saved.o, saved.stats_o);
  norm2_after_.backward_weight(stream, weights, pending.m_after, saved.m, saved.stats_m);
}

void TransformerLayer::attention_gradients(const BlockContext& context, const BlockWeights& weights,
                                           const Batch& batch, const TensorView& src,
                                           const Activations& saved, const Gradients& pending,
                                           const Work& work) const {
  TensorView n1;
  const bool beside = laurel_ && laurel_->wants_source(weights);
  if (beside || attention_->wants_source(weights)) {
    n1 = first_columns(work.rows, width_);
    enter(context.stream, weights, norm1_, n1, src, {});
  }
  if (laurel_) {
    laurel_->backward_weight(context.stream, weights, context.compute, n1, context.gradients,
                             saved.laurel, pending.laurel, work.laurel);
  }
  attention_->backward_weight(context, weights, batch, n1,
                              attention_memory(saved, pending, work, true));
}

void TransformerLayer::ffn_gradients(const BlockContext& context, const BlockWeights& weights,
                                     const TensorView& src, const Activations& saved,
                                     const Gradients& pending, const Work& work) const {
  Stream& stream = context.stream;
  const DType compute = context.compute;
  if (beside_) {
    beside_->backward_weight(stream, weights, compute, ffn_source(src, saved), context.gradients,
                             saved.beside, pending.beside, work.beside);
  }
  if (mlp_ && mlp_->output().wants_gradient(weights)) {
    mlp_->backward_output_weight(stream, weights, compute, pending.ffn_output, context.gradients,
                                 saved.mlp, pending.mlp, dense_work(work));
  }
  const bool wants_input =
      experts_ ? experts_->wants_gradient(weights) : mlp_->input().wants_gradient(weights);
  if (!wants_input) return;
  const TensorView n2 = first_columns(work.rows, width_);
  enter(stream, weights, norm2_, n2, ffn_source(src, saved), {});
  if (experts_) {
    experts_->backward_weight(stream, weights, compute, n2, pending.ffn_output, context.gradients,
                              saved.experts, pending.experts, work.experts);
  } else {
    mlp_->backward_input_weight(stream, weights, compute, n2, context.gradients, saved.mlp,
                                pending.mlp, dense_work(work));
  }
}

}  // namespace jige::model
