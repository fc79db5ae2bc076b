#include "kernels/cpu/cross_entropy.h"

#include "kernels/cpu/simd_softmax.h"

namespace jige::cpu::JIGE_ISA_NS {
namespace {

using V = F32x16;

JIGE_FLATTEN void scale_row(float* row, int64_t count, float factor) {
  const V factors = V::broadcast(factor);
  for_each_vector<V>(count, [&](int64_t i, int lanes) {
    store_lanes(load_lanes<V>(row + i, lanes) * factors, row + i, lanes);
  });
}

JIGE_FLATTEN void scaled_exponentials(Bf16* dst, const float* x, int64_t count, float largest,
                                      float factor) {
  const V shift = V::broadcast(largest);
  const V factors = V::broadcast(factor);
  for_each_vector<V>(count, [&](int64_t i, int lanes) {
    store_lanes(exp(load_lanes<V>(x + i, lanes) - shift) * factors, dst + i, lanes);
  });
}

// Σ exp(x - largest); stores the exponentials where `dst` is not null (it may be x).
double sum_of_exponentials(float* dst, const float* x, int64_t count, float largest) {
  double total = 0;
  for (int64_t begin = 0; begin < count; begin += kSoftmaxBlock) {
    const int64_t size = count - begin < kSoftmaxBlock ? count - begin : kSoftmaxBlock;
    total += block_exponentials(dst ? dst + begin : nullptr, x + begin, size, largest, 1.0f);
  }
  return total;
}

struct Softmax {
  float largest;
  float factor;  // weight / s
  float target_grad;
};

// Loss of one row; leaves the exponentials in `exponentials` where that is not null.
float row_loss(const float* x, int64_t count, int32_t target, float weight, float largest,
               float* exponentials, Softmax* softmax) {
  const float target_logit = x[target];  // before exponentials may overwrite it
  const double total = sum_of_exponentials(exponentials, x, count, largest);
  const float sum = static_cast<float>(total);
  const float factor = weight / sum;
  const float target_exponential = first_lane(exp(F32::broadcast(target_logit - largest)));
  *softmax = {largest, factor, target_exponential * factor - weight};
  return (largest - target_logit) + first_lane(log(F32::broadcast(sum)));
}

void one_row(const CrossEntropyArgs& args, int64_t t) {
  const float* x = args.logits + t * args.logits_stride;
  const int64_t count = args.vocabulary;
  const int32_t target = args.targets[t];
  const bool f32_grad = args.grad.data && args.grad.type == ElementType::kF32;
  float* grad_f32 = f32_grad ? row_of<float>(args.grad, t) : nullptr;
  Bf16* grad_bf16 = args.grad.data && !f32_grad ? row_of<Bf16>(args.grad, t) : nullptr;

  float largest = 0;
  if (target >= 0 || args.argmax) largest = max_of(x, count);
  if (args.argmax) args.argmax[t] = first_index_of(x, count, largest);
  if (target < 0) {
    args.loss[t] = 0;
    if (grad_f32) std::memset(grad_f32, 0, static_cast<uint64_t>(count) * sizeof(float));
    if (grad_bf16) std::memset(grad_bf16, 0, static_cast<uint64_t>(count) * sizeof(Bf16));
    return;
  }
  Softmax softmax;
  const float weight = args.weights ? args.weights[t] : 1.0f;
  args.loss[t] = row_loss(x, count, target, weight, largest, grad_f32, &softmax);
  if (grad_f32) {
    scale_row(grad_f32, count, softmax.factor);
    store_one(softmax.target_grad, grad_f32 + target);
  } else if (grad_bf16) {
    scaled_exponentials(grad_bf16, x, count, softmax.largest, softmax.factor);
    store_one(softmax.target_grad, grad_bf16 + target);
  }
}

void rows(const CrossEntropyArgs& args, int64_t row_begin, int64_t row_end) noexcept {
  for (int64_t t = row_begin; t < row_end; ++t) one_row(args, t);
}

}  // namespace

extern const CrossEntropyKernels kCrossEntropyKernels;
const CrossEntropyKernels kCrossEntropyKernels = {rows};

}  // namespace jige::cpu::JIGE_ISA_NS
