#include "kernels/cpu/cross_entropy.h"

#include "kernels/cpu/simd_softmax.h"

namespace jige::cpu::JIGE_ISA_NS {
namespace {

using V = F32x16;

// dst = src · factor; dst may be src.
template <typename Dst>
JIGE_FLATTEN void scale_row(Dst* dst, const float* src, int64_t count, float factor) {
  const V factors = V::broadcast(factor);
  for_each_vector<V>(count, [&](int64_t i, int lanes) {
    store_lanes(load_lanes<V>(src + i, lanes) * factors, dst + i, lanes);
  });
}

// The slope of the cap where it gives x.
template <typename Vector>
JIGE_INLINE Vector cap_slope(Vector x, float reciprocal) {
  const Vector bent = x * Vector::broadcast(reciprocal);
  return fma(-bent, bent, Vector::broadcast(1.0f));
}

// dst = src · factor · the slope of the cap at x; dst may be src.
template <typename Dst>
JIGE_FLATTEN void scale_capped_row(Dst* dst, const float* src, const float* x, int64_t count,
                                   float factor, float reciprocal) {
  const V factors = V::broadcast(factor);
  for_each_vector<V>(count, [&](int64_t i, int lanes) {
    const V slope = cap_slope(load_lanes<V>(x + i, lanes), reciprocal);
    store_lanes(load_lanes<V>(src + i, lanes) * factors * slope, dst + i, lanes);
  });
}

// dst = src under the cap.
JIGE_FLATTEN void cap_row(float* dst, const float* src, int64_t count, float cap) {
  const float reciprocal = 1.0f / cap;
  for_each_vector<V>(count, [&](int64_t i, int lanes) {
    store_lanes(soft_cap(load_lanes<V>(src + i, lanes), cap, reciprocal), dst + i, lanes);
  });
}

// Σ exp(x - largest); stores the exponentials where `dst` is not null (it may be x). Meanwhile the
// row at `ahead` comes in: its first pass would wait for memory, this one computes.
double sum_of_exponentials(float* dst, const float* x, int64_t count, float largest,
                           const float* ahead) {
  double total = 0;
  for (int64_t begin = 0; begin < count; begin += kSoftmaxBlock) {
    const int64_t size = count - begin < kSoftmaxBlock ? count - begin : kSoftmaxBlock;
    total += block_exponentials(dst ? dst + begin : nullptr, x + begin, size, largest, 1.0f,
                                ahead ? ahead + begin : nullptr);
  }
  return total;
}

struct Softmax {
  float factor;  // weight / s
  float target_grad;
};

// Loss of one row; leaves the exponentials in `exponentials` where that is not null.
float row_loss(const float* x, int64_t count, int32_t target, float weight, float largest,
               float* exponentials, const float* ahead, Softmax* softmax) {
  const float target_logit = x[target];  // before exponentials may overwrite it
  const double total = sum_of_exponentials(exponentials, x, count, largest, ahead);
  const float sum = static_cast<float>(total);
  const float factor = weight / sum;
  const float target_exponential = first_lane(exp(F32::broadcast(target_logit - largest)));
  *softmax = {factor, target_exponential * factor - weight};
  return (largest - target_logit) + first_lane(log(F32::broadcast(sum)));
}

// The gradient of one row from its exponentials, with x as the softmax took it.
template <typename Grad>
void write_gradient(const CrossEntropyArgs& args, int32_t target, const Softmax& softmax,
                    const float* exponentials, const float* x, Grad* grad) {
  if (args.cap > 0) {
    const float reciprocal = 1.0f / args.cap;
    scale_capped_row(grad, exponentials, x, args.vocabulary, softmax.factor, reciprocal);
    const F32 slope = cap_slope(F32::broadcast(x[target]), reciprocal);
    store_one(softmax.target_grad * first_lane(slope), grad + target);
    return;
  }
  scale_row(grad, exponentials, args.vocabulary, softmax.factor);
  store_one(softmax.target_grad, grad + target);
}

void one_row(const CrossEntropyArgs& args, int64_t t, bool more) {
  const float* x = args.logits + t * args.logits_stride;
  const int64_t count = args.vocabulary;
  const int32_t target = args.targets[t];
  const bool f32_grad = args.grad.data && args.grad.type == ElementType::kF32;
  float* grad_f32 = f32_grad ? row_of<float>(args.grad, t) : nullptr;
  Bf16* grad_bf16 = args.grad.data && !f32_grad ? row_of<Bf16>(args.grad, t) : nullptr;

  if (target < 0) {
    args.loss[t] = 0;
    if (grad_f32) std::memset(grad_f32, 0, static_cast<uint64_t>(count) * sizeof(float));
    if (grad_bf16) std::memset(grad_bf16, 0, static_cast<uint64_t>(count) * sizeof(Bf16));
    return;
  }
  const float* ahead = more ? x + args.logits_stride : nullptr;
  if (args.cap > 0) {
    cap_row(args.capped, x, count, args.cap);
    x = args.capped;
  }
  Softmax softmax;
  const float largest = max_of(x, count);
  const float weight = args.weights ? args.weights[t] : 1.0f;
  float* exponentials = grad_bf16 ? args.exponentials : grad_f32;
  args.loss[t] = row_loss(x, count, target, weight, largest, exponentials, ahead, &softmax);
  if (grad_f32) write_gradient(args, target, softmax, exponentials, x, grad_f32);
  if (grad_bf16) write_gradient(args, target, softmax, exponentials, x, grad_bf16);
}

void rows(const CrossEntropyArgs& args, int64_t row_begin, int64_t row_end) noexcept {
  for (int64_t t = row_begin; t < row_end; ++t) one_row(args, t, t + 1 < row_end);
}

}  // namespace

extern const CrossEntropyKernels kCrossEntropyKernels;
const CrossEntropyKernels kCrossEntropyKernels = {rows};

}  // namespace jige::cpu::JIGE_ISA_NS
