#include "kernels/cuda/adamw.h"

#include "kernels/cuda/portable.cuh"

namespace jige::cuda {
namespace {

constexpr int kAdamWThreads = 256;
constexpr int kAdamWElements = 4;  // of a thread
constexpr int64_t kPerBlock = int64_t{kAdamWThreads} * kAdamWElements;
static_assert(cpu::kMomentBlock == kWarp * kAdamWElements);

constexpr float kCode1Max = 127;
constexpr float kCode2Max = 255;
constexpr float kCode2Shift = 128;
constexpr float kRootMax = 0x1p63f;
constexpr float kScaleMin = 0x1p-100f;

bool aligned_to(const void* data, uintptr_t bytes) {
  return reinterpret_cast<uintptr_t>(data) % bytes == 0;
}

bool copies_aligned(const WeightCopies& copies) {
  bool aligned = true;
  for (int i = 0; i < copies.count; ++i) {
    const WeightCopies::Copy& copy = copies.copies[i];
    const uintptr_t bytes = copy.type == ElementType::kF32 ? 16 : 8;
    aligned = aligned && aligned_to(copy.data, bytes);
  }
  return aligned;
}

// The four elements of a thread: at once where all addresses allow it and the array has so many.
struct Four {
  int64_t first;
  int count;  // at most 4, of which there are any
  bool whole;

  __device__ Four(int64_t first_in, int64_t all, bool aligned)
      : first(first_in),
        count(static_cast<int>(max(min(all - first_in, int64_t{kAdamWElements}), int64_t{0}))),
        whole(aligned && count == kAdamWElements) {}

  // Zeros behind the end.
  __device__ void load(const float* array, float (&values)[kAdamWElements]) const {
    if (whole) {
      const float4 four = *reinterpret_cast<const float4*>(array + first);
      values[0] = four.x;
      values[1] = four.y;
      values[2] = four.z;
      values[3] = four.w;
      return;
    }
    for (int i = 0; i < kAdamWElements; ++i) values[i] = i < count ? array[first + i] : 0.0f;
  }
  __device__ void store_in(float* array, const float (&values)[kAdamWElements]) const {
    if (whole) {
      *reinterpret_cast<float4*>(array + first) =
          make_float4(values[0], values[1], values[2], values[3]);
      return;
    }
    for (int i = 0; i < kAdamWElements; ++i) {
      if (i < count) array[first + i] = values[i];
    }
  }
  __device__ void store_in(Bf16* array, const float (&values)[kAdamWElements]) const {
    if (whole) {
      *reinterpret_cast<uint2*>(array + first) = make_uint2(floats_to_bf16x2(values[0], values[1]),
                                                            floats_to_bf16x2(values[2], values[3]));
      return;
    }
    for (int i = 0; i < kAdamWElements; ++i) {
      if (i < count) store(array + first + i, values[i]);
    }
  }
  __device__ void store_in(const WeightCopies& copies,
                           const float (&values)[kAdamWElements]) const {
    for (int i = 0; i < WeightCopies::kMax; ++i) {  // unrolled
      if (i >= copies.count) break;
      if (copies.copies[i].type == ElementType::kF32) {
        store_in(static_cast<float*>(copies.copies[i].data), values);
      } else {
        store_in(static_cast<Bf16*>(copies.copies[i].data), values);
      }
    }
  }
};

// New moments of an element from the old ones.
__device__ inline void update_moments(const cpu::AdamWFactors& f, float grad, float& m, float& v) {
  const float g = grad * f.grad_scale;
  m = fmaf(f.one_minus_beta1, g, f.beta1 * m);
  v = fmaf(f.one_minus_beta2 * g, g, f.beta2 * v);
}

__device__ inline float updated(const cpu::AdamWFactors& f, float weight, float m, float root) {
  const float quotient = m / fmaf(root, f.root_correction, f.epsilon);
  return fmaf(-f.step_size, quotient, weight * f.decay);
}

__global__ void __launch_bounds__(kAdamWThreads)
    adamw_kernel(cpu::AdamWArrays arrays, cpu::AdamWFactors f, WeightCopies copies, int64_t count,
                 bool aligned) {
  begin_kernel();
  const Four at(blockIdx.x * kPerBlock + int64_t{kAdamWElements} * threadIdx.x, count, aligned);
  float grad[kAdamWElements], m[kAdamWElements], v[kAdamWElements], weight[kAdamWElements];
  at.load(arrays.grad, grad);
  at.load(arrays.moment1, m);
  at.load(arrays.moment2, v);
  at.load(arrays.weight, weight);
  for (int i = 0; i < kAdamWElements; ++i) {
    update_moments(f, grad[i], m[i], v[i]);
    weight[i] = updated(f, weight[i], m[i], sqrtf(v[i]));
  }
  at.store_in(arrays.moment1, m);
  at.store_in(arrays.moment2, v);
  at.store_in(arrays.weight, weight);
  at.store_in(copies, weight);
}

__device__ inline float moment_scale(float largest, float code_max) {
  const float scale = largest * (1 / (code_max * code_max * code_max * code_max));
  return scale >= kScaleMin ? scale : 0.0f;
}

// Bytes of four codes, the first one lowest.
__device__ inline uint32_t packed_codes(const float (&codes)[kAdamWElements]) {
  uint32_t packed = 0;
  for (int i = 0; i < kAdamWElements; ++i) {
    packed |= (static_cast<uint32_t>(static_cast<int>(rintf(codes[i]))) & 0xffu) << (8 * i);
  }
  return packed;
}

__device__ inline float code_of(uint32_t packed, int i) {
  return static_cast<float>(static_cast<int8_t>(packed >> (8 * i)));
}

// Four codes of the lane, in the words behind the scale.
__device__ inline uint32_t* codes_of(cpu::MomentBlock& block) {
  return reinterpret_cast<uint32_t*>(block.codes) + lane_id();
}

// Writes the lane's part of a block's new moments: m, and the root of v.
__device__ inline void encode(const float (&m)[kAdamWElements], const float (&root)[kAdamWElements],
                              cpu::MomentBlock& moment1, cpu::MomentBlock& moment2) {
  float most1 = 0;
  float most2 = 0;
  for (int i = 0; i < kAdamWElements; ++i) {
    most1 = fmaxf(most1, fabsf(m[i]));
    most2 = fmaxf(most2, root[i]);
  }
  const float scale1 = moment_scale(warp_max(most1), kCode1Max);
  const float scale2 = moment_scale(warp_max(most2), kCode2Max);
  const float inverse1 = scale1 > 0 ? 1 / scale1 : 0.0f;
  const float inverse2 = scale2 > 0 ? 1 / scale2 : 0.0f;
  float codes1[kAdamWElements], codes2[kAdamWElements];
  for (int i = 0; i < kAdamWElements; ++i) {
    codes1[i] = copysignf(fminf(sqrtf(sqrtf(fabsf(m[i]) * inverse1)), kCode1Max), m[i]);
    const float code2 = fminf(sqrtf(sqrtf(root[i] * inverse2)), kCode2Max);
    codes2[i] = fmaxf(code2, 1.0f) - kCode2Shift;
  }
  *codes_of(moment1) = packed_codes(codes1);
  *codes_of(moment2) = packed_codes(codes2);
  if (lane_id() == 0) {
    moment1.scale = scale1;
    moment2.scale = scale2;
  }
}

// A warp takes a block of moments.
__global__ void __launch_bounds__(kAdamWThreads)
    adamw_blocks_kernel(cpu::AdamWBlockArrays arrays, cpu::AdamWFactors f, WeightCopies copies,
                        int64_t count, bool aligned) {
  begin_kernel();
  const int64_t block = blockIdx.x * int64_t{kAdamWThreads / kWarp} + warp_id();
  if (block * cpu::kMomentBlock >= count) return;
  cpu::MomentBlock& moment1 = arrays.moment1[block];
  cpu::MomentBlock& moment2 = arrays.moment2[block];
  const Four at(block * cpu::kMomentBlock + kAdamWElements * lane_id(), count, aligned);
  const uint32_t codes1 = *codes_of(moment1);
  const uint32_t codes2 = *codes_of(moment2);
  const float scale1 = moment1.scale;
  const float scale2 = moment2.scale;
  float grad[kAdamWElements], weight[kAdamWElements], m[kAdamWElements], root[kAdamWElements];
  at.load(arrays.grad, grad);
  at.load(arrays.weight, weight);
  for (int i = 0; i < kAdamWElements; ++i) {
    const float code1 = code_of(codes1, i);
    const float code2 = code_of(codes2, i) + kCode2Shift;
    const float square1 = code1 * code1;
    const float square2 = code2 * code2;
    const float old_root = square2 * square2 * scale2;
    float v = old_root * old_root;
    m[i] = square1 * copysignf(square1, code1) * scale1;
    update_moments(f, grad[i], m[i], v);
    root[i] = fminf(sqrtf(v), kRootMax);
    weight[i] = updated(f, weight[i], m[i], root[i]);
    if (i >= at.count) m[i] = root[i] = 0;
  }
  at.store_in(arrays.weight, weight);
  at.store_in(copies, weight);
  encode(m, root, moment1, moment2);  // behind the scales' last use, by the warp's maxima
}

}  // namespace

void adamw(const LaunchStream& stream, const cpu::AdamWArrays& arrays,
           const cpu::AdamWFactors& factors, const WeightCopies& copies, int64_t count) {
  const bool aligned = copies_aligned(copies) && aligned_to(arrays.weight, 16) &&
                       aligned_to(arrays.moment1, 16) && aligned_to(arrays.moment2, 16) &&
                       aligned_to(arrays.grad, 16);
  launch(stream, {blocks_for(count, kPerBlock), kAdamWThreads}, adamw_kernel, arrays, factors,
         copies, count, aligned);
}

void adamw_blocks(const LaunchStream& stream, const cpu::AdamWBlockArrays& arrays,
                  const cpu::AdamWFactors& factors, const WeightCopies& copies, int64_t count) {
  const bool aligned =
      copies_aligned(copies) && aligned_to(arrays.weight, 16) && aligned_to(arrays.grad, 16);
  launch(stream, {blocks_for(count, kPerBlock), kAdamWThreads}, adamw_blocks_kernel, arrays,
         factors, copies, count, aligned);
}

}  // namespace jige::cuda
