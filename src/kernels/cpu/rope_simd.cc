#include "kernels/cpu/rope.h"

#include "kernels/cpu/simd.h"

namespace jige::cpu::JIGE_ISA_NS {
namespace {

using V = F32x16;

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

void rotate(const RopeArgs& args, int64_t row_begin, int64_t row_end) noexcept {
  with_element_type(args.data.type, [&](auto tag) {
    for (int64_t t = row_begin; t < row_end; ++t) {
      auto* row = row_of<typename decltype(tag)::Type>(args.data, t);
      const float* cos_sin = args.cos_sin + args.positions[t] * args.cos_sin_stride;
      for (int64_t h = 0; h < args.head_count; ++h) {
        rotate_head(row + h * args.head_dim, cos_sin, args.rotary_dim / 2, args.inverse);
      }
    }
  });
}

}  // namespace

extern const RopeKernels kRopeKernels;
const RopeKernels kRopeKernels = {rotate};

}  // namespace jige::cpu::JIGE_ISA_NS
