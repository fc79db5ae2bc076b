#include "kernels/cpu/rope.h"

#include "kernels/cpu/simd.h"

namespace jige::cpu::JIGE_ISA_NS {
namespace {

using V = F32x16;

// Fetches the same head of the next row: where rows hold more than these heads, the processor would
// wait for it. Nothing need be there.
template <typename Element>
JIGE_INLINE void fetch_below(const Element* head, int64_t row_stride, int64_t rotary_dim) {
  constexpr uintptr_t kLineBytes = 64;
  const auto stride_bytes = static_cast<uintptr_t>(row_stride) * sizeof(Element);
  const uintptr_t begin = reinterpret_cast<uintptr_t>(head) + stride_bytes;
  const uintptr_t end = begin + static_cast<uintptr_t>(rotary_dim) * sizeof(Element);
  for (uintptr_t line = begin; line < end; line += kLineBytes) {
    _mm_prefetch(reinterpret_cast<const char*>(line), _MM_HINT_T0);
  }
}

template <typename Element>
JIGE_FLATTEN void rotate_head(Element* head, const float* cos_sin, int64_t half, bool inverse) {
  for_each_vector<V>(half, [&](int64_t i, int lanes) {
    const V cosine = load_lanes<V>(cos_sin + i, lanes);
    V sine = load_lanes<V>(cos_sin + half + i, lanes);
    if (inverse) sine = -sine;
    const V a = load_lanes<V>(head + i, lanes);
    const V b = load_lanes<V>(head + half + i, lanes);
    store_lanes(fma(a, cosine, -(b * sine)), head + i, lanes);
    store_lanes(fma(b, cosine, a * sine), head + half + i, lanes);
  });
}

// The halves of a head of one full vector each and `rest` more lanes.
struct ShortHead {
  V a, a_rest, b, b_rest;

  template <typename Element>
  static JIGE_INLINE ShortHead load(const Element* head, int64_t half, int rest) {
    return {V::load(head), V::load_partial(head + V::kLanes, rest), V::load(head + half),
            V::load_partial(head + half + V::kLanes, rest)};
  }
  template <typename Element>
  JIGE_INLINE void store(Element* head, int64_t half, int rest) const {
    a.store(head);
    a_rest.store_partial(head + V::kLanes, rest);
    b.store(head + half);
    b_rest.store_partial(head + half + V::kLanes, rest);
  }
  JIGE_INLINE ShortHead rotated(const ShortHead& table) const {
    return {fma(a, table.a, -(b * table.b)), fma(a_rest, table.a_rest, -(b_rest * table.b_rest)),
            fma(b, table.a, a * table.b), fma(b_rest, table.a_rest, a_rest * table.b_rest)};
  }
};

// All heads of a row whose halves end within their second vector. A load that overlaps a store of
// a moment before waits for it, in lanes that are masked too; so a head is loaded as a whole before
// the one ahead of it is stored.
template <typename Element>
JIGE_FLATTEN void rotate_short_heads(Element* row, const RopeArgs& args, const float* cos_sin) {
  const int64_t half = args.rotary_dim / 2;
  const int rest = static_cast<int>(half - V::kLanes);
  ShortHead table = ShortHead::load(cos_sin, half, rest);
  if (args.inverse) {
    table.b = -table.b;
    table.b_rest = -table.b_rest;
  }
  ShortHead present = ShortHead::load(row, half, rest);
  for (int64_t h = 0; h < args.head_count; ++h, row += args.head_dim) {
    const ShortHead result = present.rotated(table);
    if (h + 1 < args.head_count) present = ShortHead::load(row + args.head_dim, half, rest);
    result.store(row, half, rest);
  }
}

void rotate(const RopeArgs& args, int64_t row_begin, int64_t row_end) noexcept {
  const int64_t half = args.rotary_dim / 2;
  const bool short_heads = half > V::kLanes && half < 2 * V::kLanes && args.head_count > 0;
  with_element_type(args.data.type, [&](auto tag) {
    for (int64_t t = row_begin; t < row_end; ++t) {
      auto* row = row_of<typename decltype(tag)::Type>(args.data, t);
      const float* cos_sin = args.cos_sin + args.positions[t] * args.cos_sin_stride;
      if (short_heads) {
        rotate_short_heads(row, args, cos_sin);
        continue;
      }
      for (int64_t h = 0; h < args.head_count; ++h) {
        auto* head = row + h * args.head_dim;
        fetch_below(head, args.data.stride, args.rotary_dim);
        rotate_head(head, cos_sin, half, args.inverse);
      }
    }
  });
}

}  // namespace

extern const RopeKernels kRopeKernels;
const RopeKernels kRopeKernels = {rotate};

}  // namespace jige::cpu::JIGE_ISA_NS
