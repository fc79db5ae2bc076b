// The gradient tasks of TransformerLayer, in the reverse order of transformer_layer.cc's forward.
#include "model/transformer_layer.h"
#include "ops/elementwise.h"

namespace jige::model {

void TransformerLayer::backward_input(const BlockContext& context, const BlockWeights& weights,
                                      const Batch& batch, const TensorView& src,
                                      const TensorView& grad_dst, const TensorView& grad_src,
                                      const BlockMemory& memory) const {
  const int64_t t = batch.token_count();
  Placement kept(memory.saved);
  Placement left(memory.pending);
  Placement workspace(context.workspace);
  const Activations saved = place_saved(kept, t, context.compute);
  const Gradients pending = place_pending(left, t, context.compute);
  const Work work = place_work(workspace, t, context.compute, true);
  // Parts side by side both begin at the gradient of dst, whose memory grad_src may be.
  const auto leave_attention = [&](const TensorView& grad_stream) {
    backward_leave(context.stream, weights, batch, attention_part(saved), grad_stream,
                   pending.o_after, pending.attention_output);
  };
  if (parallel_) leave_attention(grad_dst);
  backward_ffn(context, weights, batch, src, grad_dst, grad_src, saved, pending, work);
  if (!parallel_) leave_attention(grad_src);
  backward_attention(context, weights, batch, src, grad_src, saved, pending, work);
}

void TransformerLayer::backward_ffn(const BlockContext& context, const BlockWeights& weights,
                                    const Batch& batch, const TensorView& src,
                                    const TensorView& grad_dst, const TensorView& grad_src,
                                    const Activations& saved, const Gradients& pending,
                                    const Work& work) const {
  Stream& stream = context.stream;
  backward_leave(stream, weights, batch, ffn_part(saved), grad_dst, pending.m_after,
                 pending.ffn_output);
  if (experts_) {
    experts_->backward_input(stream, weights, context.compute, pending.n2, pending.ffn_output,
                             saved.experts, pending.experts, work.experts);
  } else {
    mlp_->backward_input(stream, weights, context.compute, pending.n2, pending.ffn_output,
                         saved.mlp, pending.mlp, dense_work(work));
  }
  if (grad_src.data != grad_dst.data) ops::scale(stream, grad_src, grad_dst, 1.0f);
  if (one_norm_) return;
  backward_enter(stream, weights, norm2_, grad_src, pending.n2, ffn_source(src, saved),
                 saved.stats2);
}

void TransformerLayer::backward_enter(Stream& stream, const BlockWeights& weights,
                                      const NormLayer& norm, const TensorView& grad_stream,
                                      const TensorView& grad_dst, const TensorView& src,
                                      const NormStats& stats) const {
  if (norms_before_) {
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
  ops::dropout(stream, grad, grad_stream, batch.dropout, part.site);
  if (residual_scale_ != 1.0f) ops::scale(stream, grad, grad, residual_scale_);
  if (!norms_after_) return;
  part.after.backward_input(stream, weights, grad_result, grad, part.result, part.stats, false);
}

void TransformerLayer::backward_attention(const BlockContext& context, const BlockWeights& weights,
                                          const Batch& batch, const TensorView& src,
                                          const TensorView& grad_src, const Activations& saved,
                                          const Gradients& pending, const Work& work) const {
  Stream& stream = context.stream;
  const TensorView grad_attended = first_columns(work.rows, q_columns());
  attention_output_.backward_input(stream, weights, context.compute,
                                   {.grad_src = grad_attended,
                                    .grad_dst = pending.attention_output,
                                    .product = pending.v_attention_output,
                                    .scratch = work.adapter_scratch});
  backward_heads(context, weights, batch, grad_attended, saved, pending, work);
  qkv_.backward_input(stream, weights, context.compute,
                      {.grad_src = pending.n1,
                       .grad_dst = pending.qkv,
                       .product = pending.v_qkv,
                       .scratch = work.adapter_scratch});
  if (one_norm_) ops::add(stream, pending.n1, pending.n1, pending.n2);
  backward_enter(stream, weights, norm1_, grad_src, pending.n1, src, saved.stats1);
}

void TransformerLayer::backward_heads(const BlockContext& context, const BlockWeights& weights,
                                      const Batch& batch, const TensorView& grad_attended,
                                      const Activations& saved, const Gradients& pending,
                                      const Work& work) const {
  Stream& stream = context.stream;
  const TensorView heads = heads_of(saved, work);
  if (head_norms_) {  // saved.qkv holds q|k as they were before the norms
    normalise_heads(stream, weights, heads, saved.qkv, {}, {});
    rotate(stream, weights, batch, heads, false);
  }
  const int64_t q_end = q_columns();
  const int64_t k_end = qk_columns();
  const TensorView grad_heads = head_norms_ ? pending.heads : pending.qkv.column_range(0, k_end);
  ops::attention_backward(stream, {.grad_q = grad_heads.column_range(0, q_end),
                                   .grad_k = grad_heads.column_range(q_end, k_end),
                                   .grad_v = pending.qkv.column_range(k_end, qkv_columns()),
                                   .grad_dst = grad_attended,
                                   .q = heads.column_range(0, q_end),
                                   .k = heads.column_range(q_end, k_end),
                                   .v = saved.qkv.column_range(k_end, qkv_columns()),
                                   .dst = saved.attended,
                                   .lse = saved.lse,
                                   .sequences = batch.sequences,
                                   .shape = attention_shape(weights)});
  if (sinks_) {
    ops::attention_sink_slopes(stream, {.slopes = pending.sinks,
                                        .grad_dst = grad_attended,
                                        .dst = saved.attended,
                                        .lse = saved.lse,
                                        .shape = attention_shape(weights)});
  }
  rotate(stream, weights, batch, grad_heads, true);
  if (!head_norms_) return;
  q_norm_.backward_input(stream, weights, pending.qkv.column_range(0, q_end),
                         grad_heads.column_range(0, q_end), saved.qkv.column_range(0, q_end),
                         saved.stats_q);
  k_norm_.backward_input(stream, weights, pending.qkv.column_range(q_end, k_end),
                         grad_heads.column_range(q_end, k_end),
                         saved.qkv.column_range(q_end, k_end), saved.stats_k);
}

void TransformerLayer::backward_weight(const BlockContext& context, const BlockWeights& weights,
                                       const Batch& batch, const TensorView& src,
                                       const BlockMemory& memory) const {
  const int64_t t = batch.token_count();
  const DType compute = context.compute;
  Stream& stream = context.stream;
  Placement kept(memory.saved);
  Placement left(memory.pending);
  Placement workspace(context.workspace);
  const Activations saved = place_saved(kept, t, compute);
  const Gradients pending = place_pending(left, t, compute);
  const Work work = place_work(workspace, t, compute, true);

  ffn_gradients(context, weights, src, saved, pending, work);
  if (norms_before_ && !one_norm_) {
    norm2_.backward_weight(stream, weights, pending.n2, ffn_source(src, saved), saved.stats2);
  }
  attention_output_.backward_weight(stream, weights, compute,
                                    {.grad_dst = pending.attention_output,
                                     .src = saved.attended,
                                     .product_forward = saved.u_attention_output,
                                     .product_backward = pending.v_attention_output,
                                     .scratch = work.weight_scratch,
                                     .gradients = context.gradients});
  if (sinks_ && weights.params[*sinks_].grad) {
    ops::bias_backward(stream, weights.params[*sinks_].grad, pending.sinks);
  }
  if (head_norms_) {
    const int64_t q_end = q_columns();
    const int64_t k_end = qk_columns();
    q_norm_.backward_weight(stream, weights, pending.heads.column_range(0, q_end),
                            saved.qkv.column_range(0, q_end), saved.stats_q);
    k_norm_.backward_weight(stream, weights, pending.heads.column_range(q_end, k_end),
                            saved.qkv.column_range(q_end, k_end), saved.stats_k);
  }
  if (qkv_.wants_gradient(weights)) {
    const TensorView n1 = first_columns(work.rows, width_);
    enter(stream, weights, norm1_, n1, src, {});
    qkv_.backward_weight(stream, weights, compute,
                         {.grad_dst = pending.qkv,
                          .src = n1,
                          .product_forward = saved.u_qkv,
                          .product_backward = pending.v_qkv,
                          .scratch = work.weight_scratch,
                          .gradients = context.gradients});
  }
  if (norms_before_) norm1_.backward_weight(stream, weights, pending.n1, src, saved.stats1);
  if (!norms_after_) return;
  norm1_after_.backward_weight(stream, weights, pending.o_after, saved.o, saved.stats_o);
  norm2_after_.backward_weight(stream, weights, pending.m_after, saved.m, saved.stats_m);
}

void TransformerLayer::ffn_gradients(const BlockContext& context, const BlockWeights& weights,
                                     const TensorView& src, const Activations& saved,
                                     const Gradients& pending, const Work& work) const {
  Stream& stream = context.stream;
  const DType compute = context.compute;
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
