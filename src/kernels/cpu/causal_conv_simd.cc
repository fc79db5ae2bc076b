#include "kernels/cpu/causal_conv.h"

#include "kernels/cpu/simd_math.h"

namespace jige::cpu::JIGE_ISA_NS {
namespace {

using V = F32x16;

constexpr int64_t kBlockColumns = 256;

// Some columns of all rows: the weights of tap i for them are row i.
struct ConvBlock {
  int64_t column;
  int64_t count;
  float weight[kCausalConvTapsMax][kBlockColumns];
  float bias[kBlockColumns];
};

void load_block(const CausalConvOperands& in, int64_t column, int64_t count, ConvBlock* block) {
  block->column = column;
  block->count = count;
  for (int64_t c = 0; c < count; ++c) {
    for (int64_t i = 0; i < in.taps; ++i) {
      block->weight[i][c] = in.weight[(column + c) * in.weight_stride + i];
    }
    block->bias[c] = in.bias ? in.bias[column + c] : 0.0f;
  }
}

// The K inputs of row t of a span, of one block, the oldest first.
template <typename Element>
struct ConvTaps {
  const CausalConvOperands& in;
  const CausalConvSpan& span;
  const Element* state;  // the span's, or null: zeros
  int64_t column;
  const Element* at[kCausalConvTapsMax] = {};
  Element zeros[kBlockColumns] = {};

  ConvTaps(const CausalConvOperands& operands, const CausalConvSpan& its_span,
           const Element* its_state, int64_t first_column)
      : in(operands), span(its_span), state(its_state), column(first_column) {}

  JIGE_INLINE void move_to(int64_t t) {
    for (int64_t i = 0; i < in.taps; ++i) {
      const int64_t row = t - in.taps + 1 + i;
      if (row >= 0) {
        at[i] = row_of<Element>(in.src, span.row_begin + row) + column;
      } else {
        at[i] = state ? state + (in.taps - 1 + row) * in.columns + column : zeros;
      }
    }
  }
};

template <typename Element>
JIGE_INLINE V product_at(const ConvBlock& block, const ConvTaps<Element>& taps, int64_t c,
                         int lanes) {
  V sum = load_lanes<V>(block.bias + c, lanes);
  for (int64_t i = 0; i < taps.in.taps; ++i) {
    sum = fma(load_lanes<V>(block.weight[i] + c, lanes), load_lanes<V>(taps.at[i] + c, lanes), sum);
  }
  return sum;
}

// The last K - 1 inputs once the first `row_count` rows of the span have come, of `state` as it was
// before: those that it has move up. `renewed` may be the state itself.
template <typename Element>
void renew_state(const CausalConvOperands& in, const CausalConvSpan& span, int64_t row_count,
                 const ConvBlock& block, const Element* state, Element* renewed) {
  const int64_t kept = in.taps - 1;
  for (int64_t j = 0; j < kept; ++j) {
    const int64_t row = row_count - kept + j;
    Element* to = renewed + j * in.columns + block.column;
    const size_t bytes = sizeof(Element) * static_cast<size_t>(block.count);
    if (row >= 0) {
      std::memcpy(to, row_of<Element>(in.src, span.row_begin + row) + block.column, bytes);
    } else if (span.resumed) {
      std::memcpy(to, state + (j + row_count) * in.columns + block.column, bytes);
    } else {
      std::memset(to, 0, bytes);
    }
  }
}

template <typename Element>
JIGE_FLATTEN void forward_span(const CausalConvForwardArgs& args, const CausalConvSpan& span,
                               const ConvBlock& block) {
  Element* state = args.states.data ? row_of<Element>(args.states, span.state) : nullptr;
  ConvTaps<Element> taps(args.in, span, span.resumed ? state : nullptr, block.column);
  for (int64_t t = 0; t < span.row_count; ++t) {
    taps.move_to(t);
    for_each_vector<V>(block.count, [&](int64_t c, int lanes) {
      V value = product_at(block, taps, c, lanes);
      if (args.in.silu) value = value * sigmoid(value);
      store_any(value, args.dst, span.row_begin + t, block.column + c, lanes);
    });
  }
  if (!state) return;
  if (span.spare >= 0) {
    Element* const spare = row_of<Element>(args.states, span.spare);
    renew_state(args.in, span, span.spare_rows, block, state, spare);
  }
  renew_state(args.in, span, span.row_count, block, state, state);
}

// From the last row to the first, so that the rows a gradient is summed from are there.
template <typename Element>
JIGE_FLATTEN void backward_span(const CausalConvBackwardArgs& args, const CausalConvSpan& span,
                                const ConvBlock& block) {
  const int64_t last_tap = args.in.taps - 1;
  const ConstRows products = {args.grad_products.data, args.grad_products.type,
                              args.grad_products.stride};
  ConvTaps<Element> taps(args.in, span, nullptr, block.column);
  for (int64_t t = span.row_count - 1; t >= 0; --t) {
    const int64_t row = span.row_begin + t;
    const int64_t later = span.row_count - 1 - t;
    const int64_t first_tap = later < last_tap ? last_tap - later : 0;
    taps.move_to(t);
    for_each_vector<V>(block.count, [&](int64_t c, int lanes) {
      V grad = load_any<V>(args.grad_dst, row, block.column + c, lanes);
      if (args.in.silu) {
        const V one = V::broadcast(1.0f);
        const V u = product_at(block, taps, c, lanes);
        const V s = sigmoid(u);
        grad = grad * (s * fma(u, one - s, one));
      }
      store_any(grad, args.grad_products, row, block.column + c, lanes);
      V sum = V::zero();
      for (int64_t i = first_tap; i <= last_tap; ++i) {
        sum = fma(load_lanes<V>(block.weight[i] + c, lanes),
                  load_any<V>(products, row + last_tap - i, block.column + c, lanes), sum);
      }
      store_any(sum, args.grad_src, row, block.column + c, lanes);
    });
  }
}

// Adds a span's rows, in ascending order, to the weights and biases of a block.
template <typename Element>
JIGE_FLATTEN void add_span(const CausalConvWeightArgs& args, const CausalConvSpan& span,
                           ConvBlock* block) {
  ConvTaps<Element> taps(args.in, span, nullptr, block->column);
  for (int64_t t = 0; t < span.row_count; ++t) {
    taps.move_to(t);
    for_each_vector<V>(block->count, [&](int64_t c, int lanes) {
      const V grad = load_any<V>(args.grad_products, span.row_begin + t, block->column + c, lanes);
      for (int64_t i = 0; i < args.in.taps; ++i) {
        float* sum = block->weight[i] + c;
        store_lanes(fma(grad, load_lanes<V>(taps.at[i] + c, lanes), load_lanes<V>(sum, lanes)), sum,
                    lanes);
      }
      store_lanes(load_lanes<V>(block->bias + c, lanes) + grad, block->bias + c, lanes);
    });
  }
}

// Calls body(column, count) for the blocks of a range.
template <typename Body>
JIGE_INLINE void for_each_block(int64_t column_begin, int64_t column_end, Body&& body) {
  for (int64_t column = column_begin; column < column_end; column += kBlockColumns) {
    const int64_t left = column_end - column;
    body(column, left < kBlockColumns ? left : kBlockColumns);
  }
}

void conv_forward(const CausalConvForwardArgs& args, int64_t column_begin,
                  int64_t column_end) noexcept {
  ConvBlock block;
  for_each_block(column_begin, column_end, [&](int64_t column, int64_t count) {
    load_block(args.in, column, count, &block);
    with_element_type(args.in.src.type, [&](auto tag) {
      for (int64_t s = 0; s < args.in.span_count; ++s) {
        forward_span<typename decltype(tag)::Type>(args, args.in.spans[s], block);
      }
    });
  });
}

void conv_backward_input(const CausalConvBackwardArgs& args, int64_t column_begin,
                         int64_t column_end) noexcept {
  ConvBlock block;
  for_each_block(column_begin, column_end, [&](int64_t column, int64_t count) {
    load_block(args.in, column, count, &block);
    with_element_type(args.in.src.type, [&](auto tag) {
      for (int64_t s = 0; s < args.in.span_count; ++s) {
        backward_span<typename decltype(tag)::Type>(args, args.in.spans[s], block);
      }
    });
  });
}

void conv_backward_weight(const CausalConvWeightArgs& args, int64_t column_begin,
                          int64_t column_end) noexcept {
  ConvBlock block;
  CausalConvOperands sums = args.in;
  sums.weight = args.grad_weight;
  sums.weight_stride = args.grad_weight_stride;
  sums.bias = args.grad_bias;
  for_each_block(column_begin, column_end, [&](int64_t column, int64_t count) {
    load_block(sums, column, count, &block);
    with_element_type(args.in.src.type, [&](auto tag) {
      for (int64_t s = 0; s < args.in.span_count; ++s) {
        add_span<typename decltype(tag)::Type>(args, args.in.spans[s], &block);
      }
    });
    for (int64_t c = 0; c < count; ++c) {
      for (int64_t i = 0; i < args.in.taps; ++i) {
        args.grad_weight[(column + c) * args.grad_weight_stride + i] = block.weight[i][c];
      }
      if (args.grad_bias) args.grad_bias[column + c] = block.bias[c];
    }
  });
}

}  // namespace

extern const CausalConvKernels kCausalConvKernels;
const CausalConvKernels kCausalConvKernels = {conv_forward, conv_backward_input,
                                              conv_backward_weight};

}  // namespace jige::cpu::JIGE_ISA_NS
