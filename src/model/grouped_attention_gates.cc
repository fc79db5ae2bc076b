// GroupedAttention where every head has one number of a token for a gate.
#include "model/grouped_attention.h"
#include "ops/elementwise.h"
#include "ops/experts.h"

namespace jige::model {
namespace {

// One column for a row of each head.
TensorView as_column(const TensorView& gates) {
  return TensorView::of(gates.data, gates.dtype, Shape{gates.shape.count(), 1});
}

}  // namespace

TensorView GroupedAttention::place_head_gates(Placement& at, int64_t token_count) const {
  return head_gates_ ? at.take(DType::kF32, Shape{token_count, heads_}) : TensorView{};
}

GroupedAttention::HeadGateMemory GroupedAttention::place_head_gate_memory(Placement& at,
                                                                          int64_t token_count,
                                                                          DType compute) const {
  if (!head_gates_) return {};
  return {.attended = at.take(compute, Shape{token_count, q_columns()}),
          .gates = place_head_gates(at, token_count),
          .grad_gates = place_head_gates(at, token_count)};
}

void GroupedAttention::gate_heads(Stream& stream, const TensorView& dst, const TensorView& attended,
                                  const TensorView& product, const TensorView& gates) const {
  ops::scale(stream, gates, head_gates_of(product), 1.0f);
  if (attended.data != dst.data) ops::scale(stream, dst, attended, 1.0f);
  ops::gate_rows(stream, by_head(dst), as_column(gates));
}

TensorView GroupedAttention::backward_head_gates(Stream& stream, const Activations& saved,
                                                 const Gradients& pending,
                                                 const TensorView& grad_dst,
                                                 const TensorView& grad_attended,
                                                 const HeadGateMemory& memory) const {
  ops::scale(stream, memory.gates, head_gates_of(saved.qkv), 1.0f);
  ops::scale(stream, grad_attended, grad_dst, 1.0f);
  ops::gate_rows(stream, by_head(grad_attended), as_column(memory.gates));
  ops::scale(stream, memory.attended, saved.attended, 1.0f);
  ops::gate_rows_backward(stream, as_column(memory.grad_gates), by_head(grad_attended),
                          by_head(memory.attended), as_column(memory.gates));
  ops::scale(stream, head_gates_of(pending.qkv), memory.grad_gates, 1.0f);
  return grad_attended;
}

}  // namespace jige::model
