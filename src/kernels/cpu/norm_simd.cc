#include "kernels/cpu/norm.h"

#include "kernels/cpu/simd.h"

namespace jige::cpu::JIGE_ISA_NS {
namespace {

using V = F32x16;

// What a weight is added to; minus zero changes no number.
V weight_offset(bool adds_one) { return V::broadcast(adds_one ? 1.0f : -0.0f); }

// What normalised columns from i on are multiplied with; a null weight is 1.
V factor_at(const float* weight, V offset, int64_t i, int lanes) {
  return weight ? load_lanes<V>(weight + i, lanes) + offset : V::broadcast(1.0f);
}

template <typename Element>
float sum_of(const Element* x, int64_t width) {
  V sum = V::zero();
  for_each_vector<V>(width, [&](int64_t i, int lanes) { sum = sum + load_lanes<V>(x + i, lanes); });
  return horizontal_sum(sum);
}

// Σ (x - mean)². The lanes beyond the end are kept at zero, since 0 - mean is not.
template <typename Element>
float sum_of_squares(const Element* x, int64_t width, float mean) {
  V sum = V::zero();
  const V center = V::broadcast(mean);
  for_each_vector<V>(width, [&](int64_t i, int lanes) {
    fetch_ahead(x + i);
    const V difference = load_lanes<V>(x + i, lanes) - center;
    const V kept =
        lanes == V::kLanes ? difference : select(V::first_lanes(lanes), difference, V::zero());
    sum = fma(kept, kept, sum);
  });
  return horizontal_sum(sum);
}

template <bool kLayer, typename Dst, typename Src>
JIGE_FLATTEN void forward_group(const NormForwardArgs& args, Dst* dst, const Src* src,
                                float* rstd_out, float* mean_out) {
  const auto width = static_cast<float>(args.width);
  const float mean = kLayer ? sum_of(src, args.width) / width : 0.0f;
  const float rstd = 1.0f / sqrt(sum_of_squares(src, args.width, mean) / width + args.eps);
  if (rstd_out) *rstd_out = rstd;
  if (kLayer && mean_out) *mean_out = mean;
  const V center = V::broadcast(mean);
  const V factor = V::broadcast(rstd);
  const V offset = weight_offset(args.weight_adds_one);
  for_each_vector<V>(args.width, [&](int64_t i, int lanes) {
    V x = load_lanes<V>(src + i, lanes);
    if constexpr (kLayer) x = x - center;
    V y = x * factor * factor_at(args.weight, offset, i, lanes);
    if (kLayer && args.bias) y = y + load_lanes<V>(args.bias + i, lanes);
    store_lanes(y, dst + i, lanes);
  });
}

template <bool kLayer>
void forward(const NormForwardArgs& args, int64_t row_begin, int64_t row_end) {
  with_element_type(args.dst.type, [&](auto dst_tag) {
    with_element_type(args.src.type, [&](auto src_tag) {
      for (int64_t t = row_begin; t < row_end; ++t) {
        auto* dst = row_of<typename decltype(dst_tag)::Type>(args.dst, t);
        const auto* src = row_of<typename decltype(src_tag)::Type>(args.src, t);
        float* rstd = args.rstd.data ? args.rstd.data + t * args.rstd.stride : nullptr;
        float* mean = args.mean.data ? args.mean.data + t * args.mean.stride : nullptr;
        for (int64_t g = 0; g < args.group_count; ++g) {
          forward_group<kLayer>(args, dst + g * args.width, src + g * args.width,
                                rstd ? rstd + g : nullptr, mean ? mean + g : nullptr);
        }
      }
    });
  });
}

template <bool kLayer, typename GradSrc, typename GradDst, typename Src>
JIGE_FLATTEN void backward_input_group(const NormBackwardInputArgs& args, GradSrc* grad_src,
                                       const GradDst* grad_dst, const Src* src, float rstd,
                                       float mean) {
  const V factor = V::broadcast(rstd);
  const V center = V::broadcast(mean);
  const V offset = weight_offset(args.weight_adds_one);
  V sum_g = V::zero();
  V sum_gx = V::zero();
  const auto weighted = [&](int64_t i, int lanes) {  // zero beyond the end
    return load_lanes<V>(grad_dst + i, lanes) * factor_at(args.weight, offset, i, lanes);
  };
  const auto normalised = [&](int64_t i, int lanes) {
    V x = load_lanes<V>(src + i, lanes);
    if constexpr (kLayer) x = x - center;
    return x * factor;
  };
  for_each_vector<V>(args.width, [&](int64_t i, int lanes) {
    fetch_ahead(grad_dst + i);
    fetch_ahead(src + i);
    fetch_ahead(grad_src + i);
    const V g = weighted(i, lanes);
    if constexpr (kLayer) sum_g = sum_g + g;
    sum_gx = fma(g, normalised(i, lanes), sum_gx);
  });
  const auto width = static_cast<float>(args.width);
  const V mean_g = V::broadcast(kLayer ? horizontal_sum(sum_g) / width : 0.0f);
  const V mean_gx = V::broadcast(horizontal_sum(sum_gx) / width);
  for_each_vector<V>(args.width, [&](int64_t i, int lanes) {
    V g = weighted(i, lanes);
    if constexpr (kLayer) g = g - mean_g;
    V result = fma(-normalised(i, lanes), mean_gx, g) * factor;
    if (args.accumulate) result = load_lanes<V>(grad_src + i, lanes) + result;
    store_lanes(result, grad_src + i, lanes);
  });
}

template <bool kLayer>
void backward_input(const NormBackwardInputArgs& args, int64_t row_begin, int64_t row_end) {
  with_element_type(args.grad_src.type, [&](auto grad_src_tag) {
    with_element_type(args.grad_dst.type, [&](auto grad_dst_tag) {
      with_element_type(args.src.type, [&](auto src_tag) {
        for (int64_t t = row_begin; t < row_end; ++t) {
          auto* grad_src = row_of<typename decltype(grad_src_tag)::Type>(args.grad_src, t);
          const auto* grad_dst = row_of<typename decltype(grad_dst_tag)::Type>(args.grad_dst, t);
          const auto* src = row_of<typename decltype(src_tag)::Type>(args.src, t);
          for (int64_t g = 0; g < args.group_count; ++g) {
            const int64_t begin = g * args.width;
            backward_input_group<kLayer>(args, grad_src + begin, grad_dst + begin, src + begin,
                                         args.rstd.data[t * args.rstd.stride + g],
                                         kLayer ? args.mean.data[t * args.mean.stride + g] : 0.0f);
          }
        }
      });
    });
  });
}

// Groups of rows that are added together: the sums are loaded and stored once for all of them.
constexpr int kGroupsAtOnce = 8;

// One group of one row, and its statistics.
template <typename GradDst, typename Src>
struct NormGroup {
  const GradDst* grad_dst;
  const Src* src;
  float rstd;
  float mean;
};

// The groups of all rows in ascending order, from `first` on; 0 where none is left.
template <bool kLayer, typename GradDst, typename Src>
JIGE_INLINE int take_groups(const NormBackwardWeightArgs& args, int64_t first,
                            NormGroup<GradDst, Src> (&groups)[kGroupsAtOnce]) {
  int64_t t = first / args.group_count;
  int64_t g = first % args.group_count;
  int count = 0;
  for (; count < kGroupsAtOnce && t < args.row_count; ++count) {
    groups[count] = {row_of<GradDst>(args.grad_dst, t) + g * args.width,
                     row_of<Src>(args.src, t) + g * args.width,
                     args.rstd.data[t * args.rstd.stride + g],
                     kLayer ? args.mean.data[t * args.mean.stride + g] : 0.0f};
    if (++g == args.group_count) {
      g = 0;
      ++t;
    }
  }
  return count;
}

// Adds groups to columns [column_begin, column_end), in order. Meanwhile the same columns of `next`
// ones come in: pieces of rows are too short for the processor to foresee.
template <bool kLayer, typename Group>
JIGE_FLATTEN void add_groups(const NormBackwardWeightArgs& args, const Group* groups, int count,
                             const Group* next, int next_count, int64_t column_begin,
                             int64_t column_end) {
  for_each_vector<V>(column_end - column_begin, [&](int64_t offset, int lanes) {
    const int64_t i = column_begin + offset;
    for (int j = 0; j < next_count; ++j) {
      _mm_prefetch(reinterpret_cast<const char*>(next[j].grad_dst + i), _MM_HINT_T0);
      _mm_prefetch(reinterpret_cast<const char*>(next[j].src + i), _MM_HINT_T0);
    }
    V weight = load_lanes<V>(args.grad_weight + i, lanes);
    V bias = kLayer && args.grad_bias ? load_lanes<V>(args.grad_bias + i, lanes) : V::zero();
    for (int j = 0; j < count; ++j) {
      const V g = load_lanes<V>(groups[j].grad_dst + i, lanes);
      V x = load_lanes<V>(groups[j].src + i, lanes);
      if constexpr (kLayer) x = x - V::broadcast(groups[j].mean);
      weight = fma(g, x * V::broadcast(groups[j].rstd), weight);
      if constexpr (kLayer) bias = bias + g;
    }
    store_lanes(weight, args.grad_weight + i, lanes);
    if (kLayer && args.grad_bias) store_lanes(bias, args.grad_bias + i, lanes);
  });
}

template <bool kLayer>
void backward_weight(const NormBackwardWeightArgs& args, int64_t column_begin, int64_t column_end) {
  with_element_type(args.grad_dst.type, [&](auto grad_dst_tag) {
    with_element_type(args.src.type, [&](auto src_tag) {
      using Group =
          NormGroup<typename decltype(grad_dst_tag)::Type, typename decltype(src_tag)::Type>;
      Group groups[2][kGroupsAtOnce];
      int64_t first = 0;
      int count = take_groups<kLayer>(args, first, groups[0]);
      for (int present = 0; count > 0; present ^= 1) {
        first += count;
        const int next_count = take_groups<kLayer>(args, first, groups[present ^ 1]);
        add_groups<kLayer>(args, groups[present], count, groups[present ^ 1], next_count,
                           column_begin, column_end);
        count = next_count;
      }
    });
  });
}

void rms_forward(const NormForwardArgs& args, int64_t begin, int64_t end) noexcept {
  forward<false>(args, begin, end);
}
void layer_forward(const NormForwardArgs& args, int64_t begin, int64_t end) noexcept {
  forward<true>(args, begin, end);
}
void rms_backward_input(const NormBackwardInputArgs& args, int64_t begin, int64_t end) noexcept {
  backward_input<false>(args, begin, end);
}
void layer_backward_input(const NormBackwardInputArgs& args, int64_t begin, int64_t end) noexcept {
  backward_input<true>(args, begin, end);
}
void rms_backward_weight(const NormBackwardWeightArgs& args, int64_t begin, int64_t end) noexcept {
  backward_weight<false>(args, begin, end);
}
void layer_backward_weight(const NormBackwardWeightArgs& args, int64_t begin,
                           int64_t end) noexcept {
  backward_weight<true>(args, begin, end);
}

}  // namespace

extern const NormKernels kNormKernels;
const NormKernels kNormKernels = {rms_forward,          layer_forward,       rms_backward_input,
                                  layer_backward_input, rms_backward_weight, layer_backward_weight};

}  // namespace jige::cpu::JIGE_ISA_NS
