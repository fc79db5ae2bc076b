#include "kernels/cpu/head_parts.h"

#include <cstring>

#include "kernels/cpu/simd.h"

namespace jige::cpu::JIGE_ISA_NS {
namespace {

using V = F32x16;

// dst[0, dst_columns) = src[0, src_columns), cut or followed by zeros.
template <typename Element>
JIGE_INLINE void copy_columns(Element* dst, int64_t dst_columns, const Element* src,
                              int64_t src_columns) {
  const int64_t count = dst_columns < src_columns ? dst_columns : src_columns;
  std::memcpy(dst, src, sizeof(Element) * static_cast<size_t>(count));
  if (count == dst_columns) return;
  std::memset(dst + count, 0, sizeof(Element) * static_cast<size_t>(dst_columns - count));
}

void join(const HeadPartsArgs& args, int64_t row_begin, int64_t row_end) noexcept {
  const int64_t width = args.own + args.shared_columns;
  with_element_type(args.parts.type, [&](auto tag) {
    using Element = typename decltype(tag)::Type;
    for (int64_t t = row_begin; t < row_end; ++t) {
      Element* key = row_of<Element>(args.keys, t);
      Element* value = row_of<Element>(args.values, t);
      const Element* part = row_of<Element>(args.parts, t);
      const Element* shared = row_of<Element>(args.shared, t);
      for (int64_t h = 0; h < args.head_count; ++h) {
        copy_columns(key, args.own, part, args.own);
        copy_columns(key + args.own, args.shared_columns, shared, args.shared_columns);
        copy_columns(value, width, part + args.own, args.value_columns);
        key += width;
        value += width;
        part += args.own + args.value_columns;
      }
    }
  });
}

// sum[i] = the sum over heads, in ascending order, of columns that lie `stride` apart.
template <typename Element>
JIGE_FLATTEN void sum_heads(Element* sum, const Element* first, int64_t columns, int64_t stride,
                            int64_t head_count) {
  for_each_vector<V>(columns, [&](int64_t i, int lanes) {
    V total = V::zero();
    for (int64_t h = 0; h < head_count; ++h) {
      total = total + load_lanes<V>(first + h * stride + i, lanes);
    }
    store_lanes(total, sum + i, lanes);
  });
}

void split(const HeadPartsArgs& args, int64_t row_begin, int64_t row_end) noexcept {
  const int64_t width = args.own + args.shared_columns;
  with_element_type(args.parts.type, [&](auto tag) {
    using Element = typename decltype(tag)::Type;
    for (int64_t t = row_begin; t < row_end; ++t) {
      const Element* key = row_of<Element>(args.keys, t);
      const Element* value = row_of<Element>(args.values, t);
      Element* part = row_of<Element>(args.parts, t);
      sum_heads(row_of<Element>(args.shared, t), key + args.own, args.shared_columns, width,
                args.head_count);
      for (int64_t h = 0; h < args.head_count; ++h) {
        copy_columns(part, args.own, key, args.own);
        copy_columns(part + args.own, args.value_columns, value, args.value_columns);
        key += width;
        value += width;
        part += args.own + args.value_columns;
      }
    }
  });
}

void fit(const HeadColumnsArgs& args, int64_t row_begin, int64_t row_end) noexcept {
  with_element_type(args.dst.type, [&](auto tag) {
    using Element = typename decltype(tag)::Type;
    for (int64_t t = row_begin; t < row_end; ++t) {
      Element* dst = row_of<Element>(args.dst, t);
      const Element* src = row_of<Element>(args.src, t);
      for (int64_t h = 0; h < args.head_count; ++h) {
        copy_columns(dst + h * args.dst_columns + args.dst_first, args.dst_columns - args.dst_first,
                     src + h * args.src_columns + args.src_first,
                     args.src_columns - args.src_first);
      }
    }
  });
}

}  // namespace

extern const HeadPartsKernels kHeadPartsKernels;
const HeadPartsKernels kHeadPartsKernels = {join, split, fit};

}  // namespace jige::cpu::JIGE_ISA_NS
