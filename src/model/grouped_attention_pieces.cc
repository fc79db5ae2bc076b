// GroupedAttention where sequences are divided: among ranks, whose rows meet those of all, and into
// what its tokens see.
#include "model/grouped_attention.h"

namespace jige::model {

GroupedAttention::Whole GroupedAttention::place_whole(Placement& at, int64_t row_count,
                                                      DType compute) const {
  Whole whole;
  for (TensorView* rows : {&whole.k, &whole.v}) {
    *rows = at.take(compute, Shape{row_count, kv_columns()});
  }
  for (TensorView* rows : {&whole.q, &whole.dst, &whole.grad_dst}) {
    *rows = at.take(compute, Shape{row_count, q_columns()});
  }
  whole.lse = at.take(DType::kF32, Shape{row_count, heads_});
  return whole;
}

int64_t GroupedAttention::gathered_bytes(int64_t row_count, DType compute) const {
  Placement at;
  place_whole(at, row_count, compute);
  return at.peak_bytes();
}

void GroupedAttention::attend_pieces(const BlockContext& context, const BlockWeights& weights,
                                     const TensorView& dst, const Heads& heads,
                                     const Activations& views) const {
  Placement gathered(context.gathered);
  const Whole whole = place_whole(gathered, context.exchange->row_count(), context.compute);
  const DividedRows rows[] = {{heads.k, whole.k}, {heads.v, whole.v}};
  context.exchange->bring(context.stream, ContextNeed::kKeys, rows);
  ops::AttentionForward args{.dst = dst,
                             .q = heads.q,
                             .k = whole.k,
                             .v = whole.v,
                             .lse = views.lse,
                             .sequences = {},
                             .shape = shape(weights)};
  for (const ops::SequencePiece& piece : context.exchange->pieces()) {
    args.sequences.push_back({.row_begin = piece.row_begin,
                              .row_count = piece.row_count,
                              .context_count = piece.position});
    args.key_begins.push_back(piece.whole_begin);
  }
  ops::attention_forward(context.stream, args);
}

std::vector<ops::SequenceSpan> GroupedAttention::seen(const Batch& batch) const {
  if (chunk_ == 0) return mutual_spans(batch).empty() ? batch.sequences : batch.seen;
  std::vector<ops::SequenceSpan> pieces;
  for (const ops::SequenceSpan& sequence : batch.sequences) {
    for (int64_t row = 0; row < sequence.row_count;) {
      const int64_t begin = (sequence.context_count + row) / chunk_ * chunk_;
      const int64_t ahead = sequence.context_count + row - begin;
      const int64_t rows = std::min(chunk_ - ahead, sequence.row_count - row);
      ops::SequenceSpan piece = sequence;
      piece.row_begin = static_cast<int32_t>(sequence.row_begin + row);
      piece.row_count = static_cast<int32_t>(rows);
      piece.context_count = static_cast<int32_t>(ahead);
      if (sequence.blocks) piece.blocks = sequence.blocks + begin / ops::kKvBlockTokens;
      pieces.push_back(piece);
      row += rows;
    }
  }
  return pieces;
}

void GroupedAttention::backward_attend(const BlockContext& context, const BlockWeights& weights,
                                       const Batch& batch, const AttendedGradients& rows) const {
  if (context.exchange) return backward_pieces(context, weights, rows);
  ops::AttentionBackward attention{
      .grad_q = rows.grads.q,
      .grad_k = rows.grads.k,
      .grad_v = rows.grads.v,
      .grad_dst = rows.grad_dst,
      .q = rows.heads.q,
      .k = rows.heads.k,
      .v = rows.heads.v,
      .dst = rows.dst,
      .lse = rows.lse,
      .sequences = mutual_spans(batch).empty() ? seen(batch) : batch.sequences,
      .shape = shape(weights)};
  for (const ops::SequenceSpan& span : mutual_spans(batch)) {
    if (span.mutual) attention.mutual.push_back({span.row_begin, span.row_count});
  }
  ops::attention_backward(context.stream, attention);
}

void GroupedAttention::backward_pieces(const BlockContext& context, const BlockWeights& weights,
                                       const AttendedGradients& rows) const {
  Placement gathered(context.gathered);
  const Whole whole = place_whole(gathered, context.exchange->row_count(), context.compute);
  const DividedRows keys[] = {{rows.heads.k, whole.k}, {rows.heads.v, whole.v}};
  context.exchange->bring(context.stream, ContextNeed::kKeys, keys);
  const DividedRows queries[] = {{rows.heads.q, whole.q},
                                 {rows.dst, whole.dst},
                                 {rows.grad_dst, whole.grad_dst},
                                 {rows.lse, whole.lse}};
  context.exchange->bring(context.stream, ContextNeed::kQueries, queries);
  ops::attention_backward_pieces(context.stream, {.grad_q = rows.grads.q,
                                                  .grad_k = rows.grads.k,
                                                  .grad_v = rows.grads.v,
                                                  .grad_dst = whole.grad_dst,
                                                  .q = whole.q,
                                                  .k = whole.k,
                                                  .v = whole.v,
                                                  .dst = whole.dst,
                                                  .lse = whole.lse,
                                                  .pieces = context.exchange->pieces(),
                                                  .shape = shape(weights)});
}

}  // namespace jige::model
