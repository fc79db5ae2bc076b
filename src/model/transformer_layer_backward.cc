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
  backward_ffn(context, weights, batch, grad_dst, grad_src, saved, pending, work);
  backward_attention(context, weights, batch, src, grad_src, saved, pending, work);
}

void TransformerLayer::backward_ffn(const BlockContext& context, const BlockWeights& weights,
                                    const Batch& batch, const TensorView& grad_dst,
                                    const TensorView& grad_src, const Activations& saved,
                                    const Gradients& pending, const Work& work) const {
  Stream& stream = context.stream;
  ops::dropout(stream, pending.ffn_output, grad_dst, batch.dropout, ffn_site());
  if (experts_) {
    experts_->backward_input(stream, weights, context.compute, pending.n2, pending.ffn_output,
                             saved.experts, pending.experts, work.experts);
  } else {
    backward_dense_ffn(context, weights, saved, pending, work);
  }
  if (grad_src.data != grad_dst.data) ops::scale(stream, grad_src, grad_dst, 1.0f);
  norm2_.backward_input(stream, weights, grad_src, pending.n2, saved.x1, saved.stats2, true);
}

void TransformerLayer::backward_dense_ffn(const BlockContext& context, const BlockWeights& weights,
                                          const Activations& saved, const Gradients& pending,
                                          const Work& work) const {
  Stream& stream = context.stream;
  const TensorView grad_activated = first_columns(work.rows, ffn_size_);
  ffn_output_.backward_input(stream, weights, context.compute,
                             {.grad_src = grad_activated,
                              .grad_dst = pending.ffn_output,
                              .product = pending.v_ffn_output,
                              .scratch = work.adapter_scratch,
                              .past_caches = true});
  if (gated()) {
    // W wants a again, and nobody the gate.
    ops::swiglu_backward(stream, pending.ffn, grad_activated, saved.ffn,
                         saved.ffn.column_range(0, ffn_size_));
  } else {
    ops::activation_backward(stream, pending.ffn, grad_activated, saved.ffn, plain_activation());
  }
  ffn_input_.backward_input(stream, weights, context.compute,
                            {.grad_src = pending.n2,
                             .grad_dst = pending.ffn,
                             .product = pending.v_ffn_input,
                             .scratch = work.adapter_scratch});
}

void TransformerLayer::backward_attention(const BlockContext& context, const BlockWeights& weights,
                                          const Batch& batch, const TensorView& src,
                                          const TensorView& grad_src, const Activations& saved,
                                          const Gradients& pending, const Work& work) const {
  Stream& stream = context.stream;
  ops::dropout(stream, pending.attention_output, grad_src, batch.dropout, attention_site());
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
  norm1_.backward_input(stream, weights, grad_src, pending.n1, src, saved.stats1, true);
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
                                   .shape = attention_shape()});
  rotate(stream, weights, batch, grad_heads, true);
  if (!head_norms_) return;
  q_norm_.backward_input(stream, weights, pending.qkv.column_range(0, q_end),
                         grad_heads.column_range(0, q_end), saved.qkv.column_range(0, q_end),
                         saved.stats_q, false);
  k_norm_.backward_input(stream, weights, pending.qkv.column_range(q_end, k_end),
                         grad_heads.column_range(q_end, k_end),
                         saved.qkv.column_range(q_end, k_end), saved.stats_k, false);
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

  ffn_gradients(context, weights, saved, pending, work);
  norm2_.backward_weight(stream, weights, pending.n2, saved.x1, saved.stats2);
  attention_output_.backward_weight(stream, weights, compute,
                                    {.grad_dst = pending.attention_output,
                                     .src = saved.attended,
                                     .product_forward = saved.u_attention_output,
                                     .product_backward = pending.v_attention_output,
                                     .scratch = work.weight_scratch,
                                     .gradients = context.gradients});
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
    norm1_.forward(stream, weights, n1, src, {});
    qkv_.backward_weight(stream, weights, compute,
                         {.grad_dst = pending.qkv,
                          .src = n1,
                          .product_forward = saved.u_qkv,
                          .product_backward = pending.v_qkv,
                          .scratch = work.weight_scratch,
                          .gradients = context.gradients});
  }
  norm1_.backward_weight(stream, weights, pending.n1, src, saved.stats1);
}

void TransformerLayer::ffn_gradients(const BlockContext& context, const BlockWeights& weights,
                                     const Activations& saved, const Gradients& pending,
                                     const Work& work) const {
  Stream& stream = context.stream;
  const DType compute = context.compute;
  if (experts_) {
    if (!experts_->wants_gradient(weights)) return;
    const TensorView n2 = first_columns(work.rows, width_);
    norm2_.forward(stream, weights, n2, saved.x1, {});
    experts_->backward_weight(stream, weights, compute, n2, pending.ffn_output, context.gradients,
                              saved.experts, pending.experts, work.experts);
    return;
  }
  if (ffn_output_.wants_gradient(weights)) {
    TensorView activated = saved.ffn.column_range(0, ffn_size_);  // X left it there
    if (!gated()) {
      activated = first_columns(work.rows, ffn_size_);
      activate(stream, activated, saved.ffn);
    }
    ffn_output_.backward_weight(stream, weights, compute,
                                {.grad_dst = pending.ffn_output,
                                 .src = activated,
                                 .product_forward = saved.u_ffn_output,
                                 .product_backward = pending.v_ffn_output,
                                 .scratch = work.weight_scratch,
                                 .gradients = context.gradients});
  }
  if (ffn_input_.wants_gradient(weights)) {
    const TensorView n2 = first_columns(work.rows, width_);
    norm2_.forward(stream, weights, n2, saved.x1, {});
    ffn_input_.backward_weight(stream, weights, compute,
                               {.grad_dst = pending.ffn,
                                .src = n2,
                                .product_forward = saved.u_ffn_input,
                                .product_backward = pending.v_ffn_input,
                                .scratch = work.weight_scratch,
                                .gradients = context.gradients});
  }
}

}  // namespace jige::model
