// Where TransformerLayer's tasks have their memory, and how much it is.
#include <algorithm>

#include "model/transformer_layer.h"

namespace jige::model {

TransformerLayer::Activations TransformerLayer::place_saved(Placement& at, int64_t token_count,
                                                            DType compute) const {
  const int64_t t = token_count;
  Activations saved;
  if (!parallel_ && has_both()) saved.x1 = at.take(DType::kF32, Shape{t, width_});
  if (attention_) {
    saved.attention = at.take(DType::kU8, Shape{attention_->saved_bytes(t, compute)});
  }
  if (attention_output_) saved.attended = at.take(compute, Shape{t, attention_->columns()});
  place_streams(at, saved, t, compute, true);
  place_ffn(at, saved, t, compute, true);
  if (norms_before_) {
    if (attention_) saved.stats1 = norm1_.place_stats(at, t);
    if (has_ffn()) saved.stats2 = one_norm_ ? saved.stats1 : norm2_.place_stats(at, t);
  }
  if (norms_after_) {
    saved.o = at.take(compute, Shape{t, width_});
    saved.m = at.take(compute, Shape{t, width_});
    saved.stats_o = norm1_after_.place_stats(at, t);
    saved.stats_m = norm2_after_.place_stats(at, t);
  }
  if (attention_output_) {
    saved.u_attention_output = attention_output_->place_product(at, t, compute);
  }
  return saved;
}

void TransformerLayer::place_streams(Placement& at, Activations& views, int64_t token_count,
                                     DType compute, bool saves) const {
  if (altup_) views.altup = altup_->place_saved(at, token_count, compute, saves);
  if (laurel_) views.laurel = laurel_->place_saved(at, token_count, compute, saves);
}

void TransformerLayer::place_ffn(Placement& at, Activations& views, int64_t token_count,
                                 DType compute, bool saves) const {
  if (experts_) {
    views.experts = experts_->place_saved(at, token_count, compute);
  } else if (mlp_) {
    views.mlp = mlp_->place_saved(at, token_count, compute, saves);
  }
  if (beside_) views.beside = beside_->place_saved(at, token_count, compute, saves);
  if (input_) views.input = input_->place_saved(at, token_count, compute, saves);
}

TransformerLayer::Activations TransformerLayer::place_unsaved(Placement& at, int64_t token_count,
                                                              DType compute) const {
  const int64_t t = token_count;
  Activations views;
  if (!parallel_ && has_both()) views.x1 = at.take(DType::kF32, Shape{t, width_});
  if (norms_after_) views.o = views.m = at.take(compute, Shape{t, width_});
  place_streams(at, views, t, compute, false);
  // The attention's results are gone when the MLP's begin.
  const int64_t begin = at.offset();
  if (attention_) {
    views.attention =
        at.take(DType::kU8, Shape{attention_->workspace_bytes(t, compute, PackFor::kInference)});
  }
  if (attention_output_) {
    views.attended = at.take(compute, Shape{t, attention_->columns()});
    views.u_attention_output = attention_output_->place_product(at, t, compute);
  }
  const int64_t attention_end = at.offset();
  at.rewind(begin);
  place_ffn(at, views, t, compute, false);
  at.rewind(std::max(attention_end, at.offset()));
  return views;
}

TransformerLayer::Gradients TransformerLayer::place_pending(Placement& at, int64_t token_count,
                                                            DType compute) const {
  const int64_t t = token_count;
  Gradients pending;
  const Shape rows{t, width_};
  if (attention_) {
    pending.attention = at.take(DType::kU8, Shape{attention_->pending_bytes(t, compute)});
    pending.attention_output = at.take(compute, rows);
    pending.n1 = at.take(compute, rows);
  }
  if (attention_output_) {
    pending.v_attention_output = attention_output_->place_product(at, t, compute);
  }
  if (experts_) {
    pending.experts = experts_->place_pending(at, t, compute);
  } else if (mlp_) {
    pending.mlp = mlp_->place_pending(at, t, compute);
  }
  if (beside_) pending.beside = beside_->place_pending(at, t, compute);
  if (input_) pending.input = input_->place_pending(at, t, compute);
  if (altup_) pending.altup = altup_->place_pending(at, t, compute);
  if (laurel_) pending.laurel = laurel_->place_pending(at, t, compute);
  if (has_ffn()) {
    pending.ffn_output = at.take(compute, rows);
    pending.n2 = at.take(compute, rows);
  }
  if (norms_after_) {
    pending.o_after = at.take(compute, rows);
    pending.m_after = at.take(compute, rows);
  }
  return pending;
}

TransformerLayer::Work TransformerLayer::place_work(Placement& at, int64_t token_count,
                                                    DType compute, bool training) const {
  Work work;
  const int64_t columns =
      std::max({width_, mlp_ ? mlp_->size() : 0, attention_ ? attention_->columns() : 0});
  work.rows = at.take(compute, Shape{token_count, columns});
  if (parallel_) work.x1 = at.take(DType::kF32, Shape{token_count, width_});
  if (training && attention_) {
    work.attention = at.take(
        DType::kU8, Shape{attention_->workspace_bytes(token_count, compute, PackFor::kTraining)});
  }
  int64_t scratch_bytes = 0;
  int64_t weight_bytes = 0;
  for (const Projection* p : projections()) {
    scratch_bytes = std::max(scratch_bytes, p->scratch_bytes(token_count));
    weight_bytes = std::max(weight_bytes, p->weight_scratch_bytes(token_count, compute));
  }
  if (scratch_bytes > 0) work.adapter_scratch = at.take(DType::kU8, Shape{scratch_bytes});
  if (training && weight_bytes > 0) work.weight_scratch = at.take(DType::kU8, Shape{weight_bytes});
  if (experts_) work.experts = experts_->place_work(at, token_count, compute, training);
  if (beside_) work.beside = beside_->place_work(at, token_count, compute, training);
  if (input_) work.input = input_->place_work(at, token_count, compute, training);
  if (altup_) work.altup = altup_->place_work(at, token_count, compute, training);
  if (laurel_) work.laurel = laurel_->place_work(at, token_count, compute, training);
  return work;
}

TransformerLayer::Work TransformerLayer::work_for(Placement& at, const Batch& batch,
                                                  int64_t row_count, DType compute,
                                                  bool training) const {
  Work work = place_work(at, row_count, compute, training);
  work.dropout = adapter_dropout(batch.dropout);
  if (dense()) work.kept = kept_columns(batch, ffn_site(), mlp_->size());
  return work;
}

DenseMlp::Work TransformerLayer::dense_work(const Work& work) const {
  // Behind n2, at a cache line.
  const int64_t begin = (dtype_bytes(work.rows.dtype, work.rows.rows() * width_) + 63) / 64 * 64;
  const int64_t bytes = dtype_bytes(work.rows.dtype, work.rows.count());
  return {.activated = first_columns(work.rows, mlp_->size()),
          .adapter_scratch = work.adapter_scratch,
          .weight_scratch = work.weight_scratch,
          .dropout = work.dropout,
          .row_logits = {},
          .grad_row_logits = {},
          .addend = {},
          .kept = work.kept ? &*work.kept : nullptr,
          .spare = TensorView::of(static_cast<std::byte*>(work.rows.data) + begin, DType::kU8,
                                  Shape{std::max<int64_t>(bytes - begin, 0)})};
}

int64_t TransformerLayer::saved_bytes(int64_t token_count, DType compute) const {
  Placement at;
  place_saved(at, token_count, compute);
  return at.peak_bytes();
}

int64_t TransformerLayer::pending_bytes(int64_t token_count, DType compute) const {
  Placement at;
  place_pending(at, token_count, compute);
  return at.peak_bytes();
}

int64_t TransformerLayer::workspace_bytes(int64_t token_count, DType compute, PackFor use) const {
  Placement at;
  const bool training = use == PackFor::kTraining;
  if (!training) place_unsaved(at, token_count, compute);
  place_work(at, token_count, compute, training);
  return at.peak_bytes();
}

int64_t TransformerLayer::thread_scratch_bytes(int64_t token_count, DType compute, int threads,
                                               bool frozen_base) const {
  int64_t bytes = attention_ ? attention_->thread_scratch_bytes(token_count) : 0;
  if (const ExpertMlp* experts = any_experts()) {
    bytes =
        std::max(bytes, experts->thread_scratch_bytes(token_count, compute, threads, frozen_base));
  }
  for (const Projection* projection : all_projections()) {
    bytes = std::max(bytes,
                     projection->thread_scratch_bytes(token_count, compute, threads, frozen_base));
  }
  return bytes;
}

}  // namespace jige::model
