#include "kernels/cpu/experts.h"

#include "kernels/cpu/simd_math.h"

namespace jige::cpu::JIGE_ISA_NS {
namespace {

using V = F32x16;

constexpr float kLowest = -__builtin_inff();

JIGE_INLINE float as_rank(float logit) { return logit == logit ? logit : kLowest; }

// What a logit is chosen after: that of an expert. Index -1: after none.
struct Chosen {
  float value = -kLowest;
  int32_t index = -1;
};

// The lanes of a vector that begins with expert `first` whose experts are not behind `last`.
JIGE_INLINE V::Mask lanes_up_to(const Chosen& last, int64_t first) {
  const int64_t count = last.index + 1 - first;
  if (count <= 0) return V::first_lanes(0);
  return V::first_lanes(count < V::kLanes ? static_cast<int>(count) : V::kLanes);
}

// The ranks of logits from expert `first` on that come after `last` in descending order, ties
// ascending; NaN in the lanes of others.
JIGE_INLINE V ranks_after(const Chosen& last, const float* logits, int64_t first, int lanes) {
  const V nan = V::broadcast(__builtin_nanf(""));
  const V value = V::broadcast(last.value);
  const V logit = load_lanes<V>(logits + first, lanes);
  const V rank = select(logit == logit, logit, V::broadcast(kLowest));
  const auto before = lanes_up_to(last, first);
  const V after = select(before, select(rank < value, rank, nan), select(rank <= value, rank, nan));
  return lanes == V::kLanes ? after : select(V::first_lanes(lanes), after, nan);
}

// The first of the highest logits that come after `last`. REQUIRES: there is one.
JIGE_FLATTEN int32_t next_highest(const float* logits, int64_t count, const Chosen& last) {
  V best = V::broadcast(kLowest);
  for_each_vector<V>(
      count, [&](int64_t i, int lanes) { best = max(ranks_after(last, logits, i, lanes), best); });
  const V highest = V::broadcast(horizontal_max(best));
  for (int64_t i = 0; i < count; i += V::kLanes) {
    const int lanes = count - i < V::kLanes ? static_cast<int>(count - i) : V::kLanes;
    const uint32_t bits = mask_bits(ranks_after(last, logits, i, lanes) == highest);
    if (bits != 0) return static_cast<int32_t>(i + __builtin_ctz(bits));
  }
  return 0;
}

// The same, which becomes the last.
JIGE_INLINE int32_t choose_next(const float* logits, int64_t count, Chosen* last) {
  last->index = next_highest(logits, count, *last);
  last->value = as_rank(logits[last->index]);
  return last->index;
}

// Puts `value` in its place among the `count` ascending ones before it.
JIGE_INLINE void insert_ascending(int32_t* list, int64_t count, int32_t value) {
  for (; count > 0 && list[count - 1] > value; --count) list[count] = list[count - 1];
  list[count] = value;
}

// Σ e^(x - max)
JIGE_FLATTEN float sum_of_powers(const float* x, int64_t count, float max) {
  V sum = V::zero();
  for_each_vector<V>(count, [&](int64_t i, int lanes) {
    const V power = exp(load_lanes<V>(x + i, lanes) - V::broadcast(max));
    sum = sum + (lanes == V::kLanes ? power : select(V::first_lanes(lanes), power, V::zero()));
  });
  return horizontal_sum(sum);
}

// dst = factor e^(x - max)
JIGE_FLATTEN void scaled_powers(float* dst, const float* x, int64_t count, float max,
                                float factor) {
  for_each_vector<V>(count, [&](int64_t i, int lanes) {
    const V power = exp(load_lanes<V>(x + i, lanes) - V::broadcast(max));
    store_lanes(power * V::broadcast(factor), dst + i, lanes);
  });
}

float highest_logit(const float* logits, int64_t count) {
  return logits[next_highest(logits, count, {})];
}

JIGE_FLATTEN void sigmoids(float* dst, const float* x, int64_t count) {
  for_each_vector<V>(count, [&](int64_t i, int lanes) {
    store_lanes(sigmoid(load_lanes<V>(x + i, lanes)), dst + i, lanes);
  });
}

// ranks = what is compared of sigmoids, or of a softmax with a bias or in pairs.
void scores_with_bias(const ChooseArgs& args, const float* logits, float* ranks) {
  const int64_t experts = args.experts;
  if (args.sigmoid) {
    sigmoids(ranks, logits, experts);
  } else {
    const float max = highest_logit(logits, experts);
    scaled_powers(ranks, logits, experts, max, 1.0f / sum_of_powers(logits, experts, max));
  }
  if (!args.bias) return;
  for (int64_t e = 0; e < experts; ++e) ranks[e] = ranks[e] + args.bias[e];
}

float group_score(const ChooseArgs& args, const float* ranks, int64_t size) {
  Chosen last;
  choose_next(ranks, size, &last);
  const float best = last.value;
  if (!args.pairs || size < 2) return best;
  choose_next(ranks, size, &last);
  return best + last.value;
}

// Puts those of groups that are not chosen behind all others.
void keep_chosen_groups(const ChooseArgs& args, float* ranks) {
  float scores[kRankedExpertsMax];
  bool kept[kRankedExpertsMax] = {};
  const int64_t size = args.experts / args.groups;
  for (int64_t g = 0; g < args.groups; ++g) scores[g] = group_score(args, ranks + g * size, size);
  Chosen last;
  for (int64_t j = 0; j < args.chosen_groups; ++j) {
    kept[choose_next(scores, args.groups, &last)] = true;
  }
  for (int64_t e = 0; e < args.experts; ++e) {
    if (!kept[e / size]) ranks[e] = kLowest;
  }
}

// What experts are compared by: the logits themselves, or numbers made of them in `memory`.
const float* ranks_of(const ChooseArgs& args, const float* logits, float* memory) {
  const bool limited = args.chosen_groups < args.groups;
  if (args.sigmoid || args.bias || (limited && args.pairs)) {
    scores_with_bias(args, logits, memory);
  } else if (limited) {
    for (int64_t e = 0; e < args.experts; ++e) memory[e] = logits[e];
  } else {
    return logits;
  }
  if (limited) keep_chosen_groups(args, memory);
  return memory;
}

// From the logits of the chosen, in their place; `logits` are all of the token's.
void weigh(const ChooseArgs& args, const float* logits, float* weights) {
  const int64_t chosen = args.chosen;
  if (args.sigmoid) {
    sigmoids(weights, weights, chosen);
    float factor = args.scale;
    if (args.over_chosen) {
      float sum = 0;
      for (int64_t j = 0; j < chosen; ++j) sum = sum + weights[j];
      factor = factor / (sum + args.sum_offset);
    }
    for (int64_t j = 0; j < chosen; ++j) weights[j] = weights[j] * factor;
    return;
  }
  const float max = highest_logit(logits, args.experts);
  float sum = 0;
  if (args.over_chosen) sum = sum_of_powers(weights, chosen, max);
  if (!args.over_chosen || args.sum_min > 0) {
    const float all = sum_of_powers(logits, args.experts, max);
    const float least = args.over_chosen ? args.sum_min * all : all;
    if (sum < least) sum = least;
  }
  scaled_powers(weights, weights, chosen, max, args.scale / sum);
}

// Whether weigh() took the least sum in the place of that over the chosen.
bool sum_is_least(const ChooseArgs& args, const float* logits, const int32_t* list) {
  if (!args.over_chosen || args.sigmoid || args.sum_min <= 0) return false;
  float own[kRankedExpertsMax];
  for (int64_t j = 0; j < args.chosen; ++j) own[j] = logits[list[j]];
  const float max = highest_logit(logits, args.experts);
  return sum_of_powers(own, args.chosen, max) <
         args.sum_min * sum_of_powers(logits, args.experts, max);
}

void choose(const ChooseArgs& args, int64_t begin, int64_t end) noexcept {
  const int64_t chosen = args.chosen;
  float memory[kRankedExpertsMax];
  for (int64_t t = begin; t < end; ++t) {
    const float* logits = args.logits + t * args.logits_stride;
    const float* ranks = ranks_of(args, logits, memory);
    int32_t* list = args.experts_of + t * chosen;
    float* weights = args.weights + t * chosen;
    Chosen last;
    for (int64_t j = 0; j < chosen; ++j) {
      insert_ascending(list, j, choose_next(ranks, args.experts, &last));
    }
    for (int64_t j = 0; j < chosen; ++j) weights[j] = logits[list[j]];
    weigh(args, logits, weights);
  }
}

template <typename Dst, typename Src>
JIGE_FLATTEN void combine_row(const CombineArgs& args, Dst* dst, int64_t token) {
  const int32_t* rows = args.rows + token * args.chosen;
  const float* weights = args.weights ? args.weights + token * args.chosen : nullptr;
  const float* base = args.base ? args.base + token * args.width : nullptr;
  for_each_vector<V>(args.width, [&](int64_t i, int lanes) {
    V sum = base ? load_lanes<V>(base + i, lanes) : V::zero();
    for (int64_t j = 0; j < args.chosen; ++j) {
      const V value = load_lanes<V>(row_of<Src>(args.src, rows[j]) + i, lanes);
      sum = fma(V::broadcast(weights ? weights[j] : 1.0f), value, sum);
    }
    store_lanes(sum, dst + i, lanes);
  });
}

void combine(const CombineArgs& args, int64_t begin, int64_t end) noexcept {
  with_element_type(args.dst.type, [&](auto dst_tag) {
    with_element_type(args.src.type, [&](auto src_tag) {
      using Dst = typename decltype(dst_tag)::Type;
      using Src = typename decltype(src_tag)::Type;
      for (int64_t t = begin; t < end; ++t) {
        combine_row<Dst, Src>(args, row_of<Dst>(args.dst, t), t);
      }
    });
  });
}

template <typename A, typename B>
JIGE_FLATTEN float row_dot(const A* a, const B* b, int64_t width) {
  V sum = V::zero();
  for_each_vector<V>(width, [&](int64_t i, int lanes) {
    sum = fma(load_lanes<V>(a + i, lanes), load_lanes<V>(b + i, lanes), sum);
  });
  return horizontal_sum(sum);
}

void row_dots(const RowDotsArgs& args, int64_t begin, int64_t end) noexcept {
  with_element_type(args.a.type, [&](auto tag) {
    using Element = typename decltype(tag)::Type;
    for (int64_t r = begin; r < end; ++r) {
      args.dst[args.places[r]] =
          row_dot(row_of<Element>(args.a, r), row_of<Element>(args.b, r), args.width);
    }
  });
}

template <typename Element>
JIGE_FLATTEN void scale_row(Element* data, float factor, int64_t width) {
  const V factors = V::broadcast(factor);
  for_each_vector<V>(width, [&](int64_t i, int lanes) {
    store_lanes(load_lanes<V>(data + i, lanes) * factors, data + i, lanes);
  });
}

void scale_rows(const ScaleRowsArgs& args, int64_t begin, int64_t end) noexcept {
  with_element_type(args.data.type, [&](auto tag) {
    using Element = typename decltype(tag)::Type;
    for (int64_t r = begin; r < end; ++r) {
      scale_row(row_of<Element>(args.data, r), args.factors[args.places[r]], args.width);
    }
  });
}

float gate_of_row(const RowGateArgs& args, int64_t row) {
  return first_lane(sigmoid(F32::broadcast(args.logits[row * args.logits_stride])));
}

void gate_rows(const RowGateArgs& args, int64_t begin, int64_t end) noexcept {
  with_element_type(args.data.type, [&](auto tag) {
    using Element = typename decltype(tag)::Type;
    for (int64_t r = begin; r < end; ++r) {
      scale_row(row_of<Element>(args.data, r), gate_of_row(args, r), args.width);
    }
  });
}

void gate_rows_backward(const RowGateArgs& args, int64_t begin, int64_t end) noexcept {
  with_element_type(args.data.type, [&](auto tag) {
    with_element_type(args.grad.type, [&](auto grad_tag) {
      using Element = typename decltype(tag)::Type;
      using Grad = typename decltype(grad_tag)::Type;
      for (int64_t r = begin; r < end; ++r) {
        const float gate = gate_of_row(args, r);
        auto* row = row_of<Element>(args.data, r);
        const float dot = row_dot(row_of<Grad>(args.grad, r), row, args.width);
        args.grad_logits[r * args.grad_stride] = (1.0f - gate) * dot;
        scale_row(row, gate, args.width);
      }
    });
  });
}

template <typename Element>
JIGE_FLATTEN void add_bias(Element* data, const float* bias, int64_t width) {
  for_each_vector<V>(width, [&](int64_t i, int lanes) {
    store_lanes(load_lanes<V>(data + i, lanes) + load_lanes<V>(bias + i, lanes), data + i, lanes);
  });
}

const float* bias_of_row(const ExpertBiasArgs& args, int64_t row) {
  return args.biases + args.experts_of[args.places[row]] * args.width;
}

void add_biases(const ExpertBiasArgs& args, int64_t begin, int64_t end) noexcept {
  with_element_type(args.data.type, [&](auto tag) {
    for (int64_t r = begin; r < end; ++r) {
      add_bias(row_of<typename decltype(tag)::Type>(args.data, r), bias_of_row(args, r),
               args.width);
    }
  });
}

template <typename Element>
JIGE_FLATTEN float bias_dot(const Element* data, const float* bias, int64_t width) {
  V sum = V::zero();
  for_each_vector<V>(width, [&](int64_t i, int lanes) {
    sum = fma(load_lanes<V>(data + i, lanes), load_lanes<V>(bias + i, lanes), sum);
  });
  return horizontal_sum(sum);
}

void bias_dots(const ExpertBiasArgs& args, int64_t begin, int64_t end) noexcept {
  with_element_type(args.data.type, [&](auto tag) {
    for (int64_t r = begin; r < end; ++r) {
      float& dot = args.dots[args.places[r]];
      dot = dot + bias_dot(row_of<typename decltype(tag)::Type>(args.data, r), bias_of_row(args, r),
                           args.width);
    }
  });
}

template <typename Element>
JIGE_FLATTEN void add_scaled(float* grad, const Element* row, float factor, int64_t width) {
  for_each_vector<V>(width, [&](int64_t i, int lanes) {
    store_lanes(
        fma(V::broadcast(factor), load_lanes<V>(row + i, lanes), load_lanes<V>(grad + i, lanes)),
        grad + i, lanes);
  });
}

void bias_gradient(const ExpertBiasGradientArgs& args, int64_t begin, int64_t end) noexcept {
  with_element_type(args.rows.type, [&](auto tag) {
    for (int64_t r = begin; r < end; ++r) {
      add_scaled(args.grad, row_of<typename decltype(tag)::Type>(args.rows, r),
                 args.factors ? args.factors[args.places[r]] : 1.0f, args.width);
    }
  });
}

// A vector of the gate and of what it multiplies, within their bounds.
struct Bounded {
  V gate, up;
  V::Mask gate_inside, up_inside;
};

template <typename Src>
JIGE_INLINE Bounded load_bounded(const BoundedGateArgs& args, const Src* gate_up,
                                 const float* biases, int64_t i, int lanes) {
  const V limit = V::broadcast(args.limit);
  const V low = V::broadcast(-args.limit);
  const int64_t at = args.width + i;
  const V gate = load_lanes<V>(gate_up + i, lanes) + load_lanes<V>(biases + i, lanes);
  const V up = load_lanes<V>(gate_up + at, lanes) + load_lanes<V>(biases + at, lanes);
  Bounded result{gate, up, gate <= limit, (low <= up) & (up <= limit)};
  result.gate = select(limit < gate, limit, gate);
  result.up = select(limit < up, limit, select(up < low, low, up));
  return result;
}

template <typename Dst, typename Src>
JIGE_FLATTEN void bounded_gate_row(const BoundedGateArgs& args, Dst* dst, const Src* gate_up,
                                   const float* biases) {
  for_each_vector<V>(args.width, [&](int64_t i, int lanes) {
    const Bounded x = load_bounded(args, gate_up, biases, i, lanes);
    const V glu = x.gate * sigmoid(x.gate * V::broadcast(args.alpha));
    store_lanes((x.up + V::broadcast(1.0f)) * glu, dst + i, lanes);
  });
}

const float* gate_biases_of_row(const BoundedGateArgs& args, int64_t row) {
  return args.biases + args.experts_of[args.places[row]] * 2 * args.width;
}

void bounded_gate(const BoundedGateArgs& args, int64_t begin, int64_t end) noexcept {
  with_element_type(args.dst.type, [&](auto dst_tag) {
    with_element_type(args.gate_up.type, [&](auto src_tag) {
      for (int64_t r = begin; r < end; ++r) {
        bounded_gate_row(args, row_of<typename decltype(dst_tag)::Type>(args.dst, r),
                         row_of<typename decltype(src_tag)::Type>(args.gate_up, r),
                         gate_biases_of_row(args, r));
      }
    });
  });
}

template <typename GradSrc, typename GradDst, typename Src>
JIGE_FLATTEN void bounded_gate_backward_row(const BoundedGateArgs& args, GradSrc* grad_gate_up,
                                            const GradDst* grad_dst, const Src* gate_up,
                                            Src* activated, const float* biases) {
  const V one = V::broadcast(1.0f);
  const V alpha = V::broadcast(args.alpha);
  for_each_vector<V>(args.width, [&](int64_t i, int lanes) {
    const Bounded x = load_bounded(args, gate_up, biases, i, lanes);
    const V grad = load_lanes<V>(grad_dst + i, lanes);
    const V s = sigmoid(x.gate * alpha);
    const V raised = x.up + one;
    const V grad_gate = grad * raised * s * fma(x.gate * alpha, one - s, one);
    const V grad_up = grad * (x.gate * s);
    store_lanes(raised * (x.gate * s), activated + i, lanes);
    store_lanes(select(x.gate_inside, grad_gate, V::zero()), grad_gate_up + i, lanes);
    store_lanes(select(x.up_inside, grad_up, V::zero()), grad_gate_up + args.width + i, lanes);
  });
}

void bounded_gate_backward(const BoundedGateArgs& args, int64_t begin, int64_t end) noexcept {
  with_element_type(args.dst.type, [&](auto dst_tag) {
    with_element_type(args.grad.type, [&](auto grad_tag) {
      with_element_type(args.gate_up.type, [&](auto src_tag) {
        using Src = typename decltype(src_tag)::Type;
        for (int64_t r = begin; r < end; ++r) {
          bounded_gate_backward_row(args, row_of<typename decltype(dst_tag)::Type>(args.dst, r),
                                    row_of<typename decltype(grad_tag)::Type>(args.grad, r),
                                    row_of<Src>(args.gate_up, r), row_of<Src>(args.activated, r),
                                    gate_biases_of_row(args, r));
        }
      });
    });
  });
}

// Of the sigmoid, by what it gives.
float sigmoid_slope(float logit) { return 1.0f - first_lane(sigmoid(F32::broadcast(logit))); }

void slopes(const SlopesArgs& args, int64_t begin, int64_t end) noexcept {
  const ChooseArgs& choice = args.choice;
  const int64_t chosen = choice.chosen;
  const int64_t experts = choice.experts;
  for (int64_t t = begin; t < end; ++t) {
    const float* logits = choice.logits + t * choice.logits_stride;
    const int32_t* list = choice.experts_of + t * chosen;
    const float* weights = choice.weights + t * chosen;
    const float* grads = args.grad_weights + t * chosen;
    float* out = args.grad_logits + t * args.grad_stride;
    float total = 0;
    for (int64_t j = 0; j < chosen; ++j) total = total + weights[j] * grads[j];
    const bool least = sum_is_least(choice, logits, list);
    if ((choice.over_chosen && !least) || choice.sigmoid) {
      for (int64_t e = 0; e < experts; ++e) out[e] = 0;
    } else {
      const float max = highest_logit(logits, experts);
      scaled_powers(out, logits, experts, max, -total / sum_of_powers(logits, experts, max));
    }
    if (least) {
      for (int64_t j = 0; j < chosen; ++j) out[list[j]] = out[list[j]] + weights[j] * grads[j];
      continue;
    }
    const bool single = choice.sigmoid && !choice.over_chosen;
    const float mean = single ? 0.0f : total / choice.scale;
    for (int64_t j = 0; j < chosen; ++j) {
      const float slope = weights[j] * (grads[j] - mean);
      out[list[j]] = choice.sigmoid ? sigmoid_slope(logits[list[j]]) * slope : slope;
    }
  }
}

}  // namespace

extern const ExpertKernels kExpertKernels;
const ExpertKernels kExpertKernels = {
    .choose = choose,
    .combine = combine,
    .row_dots = row_dots,
    .scale_rows = scale_rows,
    .gate_rows = gate_rows,
    .gate_rows_backward = gate_rows_backward,
    .add_biases = add_biases,
    .bias_dots = bias_dots,
    .bias_gradient = bias_gradient,
    .bounded_gate = bounded_gate,
    .bounded_gate_backward = bounded_gate_backward,
    .slopes = slopes,
};

}  // namespace jige::cpu::JIGE_ISA_NS
