// Activations, embedding, residual sums and conversions.
//
// Shapes: T tokens, F feed-forward width, D width, V vocabulary.
//   swiglu  h = silu(gate) · up, gate_up = [gate | up] of 2F columns
//   geglu   h = gelu(gate) · up, gelu in the tanh or the exact erf form
//   plain   h = gelu(x), in the tanh or the exact erf form, relu(x) or silu(x)
// Exponentials come from one polynomial shared by all instruction sets, so the bits agree.
// Threads: asynchronous on the stream.
#pragma once

#include <cstdint>
#include <span>

#include "tensor/device.h"
#include "tensor/view.h"

namespace jige::ops {

// dst [T, F], gate_up [T, 2F]; f32 or bf16 each.
void swiglu_forward(Stream& stream, const TensorView& dst, const TensorView& gate_up);
// grad_gate_up [T, 2F] (may be gate_up itself), grad_dst [T, F]. `activated` [T, F], where it is
// given, gets what the forward gave, in gate_up's type; it may be the gate columns of gate_up when
// grad_gate_up is not.
void swiglu_backward(Stream& stream, const TensorView& grad_gate_up, const TensorView& grad_dst,
                     const TensorView& gate_up, const TensorView& activated = {});

// The same with gelu for silu, in either form.
void geglu_forward(Stream& stream, const TensorView& dst, const TensorView& gate_up);
void geglu_backward(Stream& stream, const TensorView& grad_gate_up, const TensorView& grad_dst,
                    const TensorView& gate_up, const TensorView& activated = {});
void geglu_erf_forward(Stream& stream, const TensorView& dst, const TensorView& gate_up);
void geglu_erf_backward(Stream& stream, const TensorView& grad_gate_up, const TensorView& grad_dst,
                        const TensorView& gate_up, const TensorView& activated = {});

// Activations without a gate.
enum class Activation { kGeluTanh, kGeluErf, kRelu, kReluSquared, kSilu };
// dst may be src itself.
void activation_forward(Stream& stream, const TensorView& dst, const TensorView& src,
                        Activation activation);
// grad_src may be src itself. The slope of relu at 0 is 0.
void activation_backward(Stream& stream, const TensorView& grad_src, const TensorView& grad_dst,
                         const TensorView& src, Activation activation);

// dst [T, D] f32 = table[tokens[t]] (f32, bf16 or f16 table [V, D]); tokens [T] i32.
// REQUIRES: every token is in [0, V).
void embedding_forward(Stream& stream, const TensorView& dst, const TensorView& table,
                       const TensorView& tokens);
// grad_table [V, D] f32 += grad_dst [T, D] f32, tokens in ascending order of t.
void embedding_backward(Stream& stream, const TensorView& grad_table, const TensorView& grad_dst,
                        const TensorView& tokens);

// Tokens as a table of fewer rows has them: dst = src where it is below `limit`, else 0; [T] i32.
// dst may be src.
void known_tokens(Stream& stream, const TensorView& dst, const TensorView& src, int64_t limit);

// Rows of src, in this order: dst [rows, D], src [T, D], both f32.
void select_rows(Stream& stream, const TensorView& dst, const TensorView& src,
                 std::span<const int32_t> rows);

// dst = a + b, elementwise; f32 or bf16 each; dst may be a or b.
void add(Stream& stream, const TensorView& dst, const TensorView& a, const TensorView& b);
// dst = scale · src; dst may be src. f32 or bf16 each. With scale 1 it converts between types.
void scale(Stream& stream, const TensorView& dst, const TensorView& src, float factor);
// The same with a factor that is read when the work runs, [1] f32.
void scale_by(Stream& stream, const TensorView& dst, const TensorView& src,
              const TensorView& factor);
// dst = factor · src + addend, with one number for each column, f32 [columns] or empty: 1 and 0;
// dst may be src. f32 or bf16 each, rounded once as the sum.
void scale_columns(Stream& stream, const TensorView& dst, const TensorView& src,
                   const TensorView& factor, const TensorView& addend);
// Every element x of data becomes cap · tanh(x / cap), as cross_entropy does it; f32.
void soft_cap(Stream& stream, const TensorView& data, double cap);
// Every element of dst becomes zero; any type.
void zero(Stream& stream, const TensorView& dst);

}  // namespace jige::ops
