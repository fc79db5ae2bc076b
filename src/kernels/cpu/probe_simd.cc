#include "kernels/cpu/probe.h"

#include "kernels/cpu/simd.h"

namespace jige::cpu::JIGE_ISA_NS {
namespace {

constexpr int kChains = 12;  // two units with a latency of four or five cycles need ten at least

float fma_chain(int64_t round_count) noexcept {
  // Values stay near 1, so no chain becomes infinite or subnormal, which would be slower.
  const F32 factor = F32::broadcast(0.999f);
  const F32 term = F32::broadcast(0.001f);
  F32 chains[kChains];
  for (int i = 0; i < kChains; ++i) chains[i] = F32::broadcast(1.0f + static_cast<float>(i));
  for (int64_t round = 0; round < round_count; ++round) {
    for (int i = 0; i < kChains; ++i) chains[i] = fma(chains[i], factor, term);
  }
  F32 sum = F32::zero();
  for (int i = 0; i < kChains; ++i) sum = sum + chains[i];
  float lanes[F32::kLanes];
  sum.store(lanes);
  return lanes[0];
}

float read_stream(const float* src, int64_t count) noexcept {
  constexpr int kSums = 8;
  constexpr int64_t kStep = kSums * F32::kLanes;
  F32 sums[kSums];
  for (int i = 0; i < kSums; ++i) sums[i] = F32::zero();
  int64_t at = 0;
  for (; at + kStep <= count; at += kStep) {
    for (int i = 0; i < kSums; ++i) sums[i] = sums[i] + F32::load(src + at + i * F32::kLanes);
  }
  float total = 0;
  for (int i = 0; i < kSums; ++i) {
    float lanes[F32::kLanes];
    sums[i].store(lanes);
    for (int j = 0; j < F32::kLanes; ++j) total += lanes[j];
  }
  for (; at < count; ++at) total += src[at];
  return total;
}

}  // namespace

extern const ProbeKernels kProbeKernels;
const ProbeKernels kProbeKernels = {fma_chain, 2 * kChains* F32::kLanes, read_stream};

}  // namespace jige::cpu::JIGE_ISA_NS
