#include "kernels/cpu/elementwise.h"

#include "kernels/cpu/simd_math.h"

namespace jige::cpu::JIGE_ISA_NS {
namespace {

using V = F32x16;

template <typename Dst, typename A, typename B>
JIGE_FLATTEN void add_arrays(Dst* dst, const A* a, const B* b, int64_t count) {
  for_each_vector<V>(count, [&](int64_t i, int lanes) {
    fetch_ahead(a + i);
    fetch_ahead(b + i);
    fetch_ahead(dst + i);
    store_lanes(load_lanes<V>(a + i, lanes) + load_lanes<V>(b + i, lanes), dst + i, lanes);
  });
}

template <typename Dst, typename Src>
JIGE_FLATTEN void scale_array(Dst* dst, const Src* src, float factor, int64_t count) {
  const V factors = V::broadcast(factor);
  for_each_vector<V>(count, [&](int64_t i, int lanes) {
    store_lanes(load_lanes<V>(src + i, lanes) * factors, dst + i, lanes);
  });
}

void add(Array dst, ConstArray a, ConstArray b, int64_t count) noexcept {
  with_element_type(dst.type, [&](auto dst_tag) {
    with_element_type(a.type, [&](auto a_tag) {
      with_element_type(b.type, [&](auto b_tag) {
        add_arrays(static_cast<typename decltype(dst_tag)::Type*>(dst.data),
                   static_cast<const typename decltype(a_tag)::Type*>(a.data),
                   static_cast<const typename decltype(b_tag)::Type*>(b.data), count);
      });
    });
  });
}

void scale(Array dst, ConstArray src, float factor, int64_t count) noexcept {
  with_element_type(dst.type, [&](auto dst_tag) {
    with_element_type(src.type, [&](auto src_tag) {
      scale_array(static_cast<typename decltype(dst_tag)::Type*>(dst.data),
                  static_cast<const typename decltype(src_tag)::Type*>(src.data), factor, count);
    });
  });
}

template <typename Dst, typename Src>
JIGE_FLATTEN void scale_columns_of(Dst* dst, const Src* src, const float* factor,
                                   const float* addend, int64_t count) {
  for_each_vector<V>(count, [&](int64_t i, int lanes) {
    V x = load_lanes<V>(src + i, lanes);
    if (factor && addend) {
      x = fma(x, load_lanes<V>(factor + i, lanes), load_lanes<V>(addend + i, lanes));
    } else if (factor) {
      x = x * load_lanes<V>(factor + i, lanes);
    } else if (addend) {
      x = x + load_lanes<V>(addend + i, lanes);
    }
    store_lanes(x, dst + i, lanes);
  });
}

void scale_columns(Array dst, ConstArray src, const float* factor, const float* addend,
                   int64_t count) noexcept {
  with_element_type(dst.type, [&](auto dst_tag) {
    with_element_type(src.type, [&](auto src_tag) {
      scale_columns_of(static_cast<typename decltype(dst_tag)::Type*>(dst.data),
                       static_cast<const typename decltype(src_tag)::Type*>(src.data), factor,
                       addend, count);
    });
  });
}

JIGE_FLATTEN void cap_array(float* data, float cap, int64_t count) noexcept {
  const float reciprocal = 1.0f / cap;
  for_each_vector<V>(count, [&](int64_t i, int lanes) {
    store_lanes(soft_cap(load_lanes<V>(data + i, lanes), cap, reciprocal), data + i, lanes);
  });
}

// Applies a function object of vectors to an array.
template <typename Function>
JIGE_FLATTEN void map(float* dst, const float* src, int64_t count) noexcept {
  for_each_vector<V>(count, [&](int64_t i, int lanes) {
    store_lanes(Function()(load_lanes<V>(src + i, lanes)), dst + i, lanes);
  });
}

struct Exp {
  JIGE_INLINE V operator()(V x) const { return exp(x); }
};
struct Log {
  JIGE_INLINE V operator()(V x) const { return log(x); }
};
struct Tanh {
  JIGE_INLINE V operator()(V x) const { return tanh(x); }
};
struct Sigmoid {
  JIGE_INLINE V operator()(V x) const { return sigmoid(x); }
};
struct Erf {
  JIGE_INLINE V operator()(V x) const { return erf(x); }
};

}  // namespace

extern const ElementwiseKernels kElementwiseKernels;
const ElementwiseKernels kElementwiseKernels = {add, scale, scale_columns, cap_array};

extern const VectorMath kVectorMath;
const VectorMath kVectorMath = {map<Exp>, map<Log>, map<Tanh>, map<Sigmoid>, map<Erf>};

}  // namespace jige::cpu::JIGE_ISA_NS
