#include "kernels/cpu/attention_sinks.h"

#include "kernels/cpu/simd_math.h"

namespace jige::cpu::JIGE_ISA_NS {
namespace {

template <typename Dst, typename Grad>
JIGE_FLATTEN void sink_slopes_of_row(const SinkSlopesArgs& args, int64_t row, const Dst* dst,
                                     const Grad* grad_dst) {
  for (int64_t head = 0; head < args.head_count; ++head) {
    F32x16 sum = F32x16::zero();
    for_each_vector<F32x16>(args.head_dim, [&](int64_t c, int lanes) {
      sum = fma(load_lanes<F32x16>(dst + head * args.head_dim + c, lanes),
                load_lanes<F32x16>(grad_dst + head * args.head_dim + c, lanes), sum);
    });
    const float lse = args.lse[row * args.lse_stride + head];
    float weight[16];
    exp_weight(F32x16::broadcast(args.sinks[head] - lse)).store(weight);
    args.slopes[row * args.head_count + head] = -weight[0] * horizontal_sum(sum);
  }
}

void sink_slopes(const SinkSlopesArgs& args, int64_t begin, int64_t end) noexcept {
  with_element_type(args.dst.type, [&](auto dst_tag) {
    with_element_type(args.grad_dst.type, [&](auto grad_tag) {
      for (int64_t t = begin; t < end; ++t) {
        sink_slopes_of_row(args, t, row_of<typename decltype(dst_tag)::Type>(args.dst, t),
                           row_of<typename decltype(grad_tag)::Type>(args.grad_dst, t));
      }
    });
  });
}

}  // namespace

extern const AttentionSinkKernels kAttentionSinkKernels;
const AttentionSinkKernels kAttentionSinkKernels = {sink_slopes};

}  // namespace jige::cpu::JIGE_ISA_NS
