#include "kernels/cpu/embedding.h"

#include "kernels/cpu/simd.h"

namespace jige::cpu::JIGE_ISA_NS {
namespace {

template <typename Element>
JIGE_FLATTEN void widen_row(float* dst, const Element* src, int64_t width) {
  for_each_vector<F32>(width, [&](int64_t i, int lanes) {
    store_lanes(load_lanes<F32>(src + i, lanes), dst + i, lanes);
  });
}

JIGE_FLATTEN void add_row(float* dst, const float* src, int64_t width) {
  for_each_vector<F32>(width, [&](int64_t i, int lanes) {
    store_lanes(load_lanes<F32>(dst + i, lanes) + load_lanes<F32>(src + i, lanes), dst + i, lanes);
  });
}

void forward(const EmbeddingForwardArgs& args, int64_t begin, int64_t end) noexcept {
  for (int64_t t = begin; t < end; ++t) {
    float* dst = args.dst + t * args.dst_stride;
    const int64_t token = args.tokens[t];
    switch (args.table.type) {
      case ElementType::kF32:
        widen_row(dst, row_of<float>(args.table, token), args.width);
        break;
      case ElementType::kBf16:
        widen_row(dst, row_of<Bf16>(args.table, token), args.width);
        break;
      case ElementType::kF16:
        widen_row(dst, row_of<F16>(args.table, token), args.width);
        break;
    }
  }
}

void backward(const EmbeddingBackwardArgs& args, int64_t begin, int64_t end) noexcept {
  for (int64_t t = 0; t < args.row_count; ++t) {
    add_row(args.grad_table + args.tokens[t] * args.grad_table_stride + begin,
            args.grad_dst + t * args.grad_dst_stride + begin, end - begin);
  }
}

}  // namespace

extern const EmbeddingKernels kEmbeddingKernels;
const EmbeddingKernels kEmbeddingKernels = {forward, backward};

}  // namespace jige::cpu::JIGE_ISA_NS
