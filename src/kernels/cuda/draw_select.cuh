// Choosing among the positive weights of a row, in [0, 1], by sums of whole numbers: so the order
// in which threads come does not matter. Weights are their bits, which are in their order.
//
// Threads: device code; blocks of kDrawThreads, all threads call.
#pragma once

#include <cstdint>

#include "kernels/cuda/exact_math.cuh"

namespace jige::cuda {

constexpr int kDrawThreads = 512;
constexpr int kExponents = 128;  // of weights up to 1
constexpr int kMantissaBits = 23;
constexpr uint32_t kMantissaMask = (1u << kMantissaBits) - 1;
constexpr int kBins = 256;

__device__ inline int exponent_of(uint32_t weight) {
  return static_cast<int>(weight >> kMantissaBits);
}
// A weight in units of unit_of() its exponent.
__device__ inline uint32_t mantissa_of(uint32_t weight) {
  const uint32_t fraction = weight & kMantissaMask;
  return exponent_of(weight) > 0 ? fraction | 1u << kMantissaBits : fraction;
}
__device__ inline double unit_of(int exponent) {
  return ldexp(1.0, (exponent > 0 ? exponent : 1) - 127 - kMantissaBits);
}

// Whole numbers of 64 bits by bin, in shared memory, and what was found among them.
struct Bins {
  uint32_t low[kBins], high[kBins];
  uint32_t bin;
  uint64_t rest, amount, total;

  __device__ void clear() {
    for (int i = static_cast<int>(threadIdx.x); i < kBins; i += kDrawThreads) low[i] = high[i] = 0;
    __syncthreads();
  }
  __device__ void add(uint32_t to, uint64_t value) {
    const auto low_part = static_cast<uint32_t>(value);
    const uint32_t before = atomicAdd(&low[to], low_part);
    const auto high_part =
        static_cast<uint32_t>(value >> 32) + (before + low_part < before ? 1u : 0u);
    if (high_part > 0) atomicAdd(&high[to], high_part);
  }
  __device__ uint64_t value(int of) const { return uint64_t{high[of]} << 32 | low[of]; }
  // The first bin with which the sum reaches `target`: `rest` of it is left for the bin, which has
  // `amount`. REQUIRES: 0 < target <= the sum of all.
  __device__ void find(uint64_t target) {
    __syncthreads();
    if (warp_id() == 0) find_by_warp(target);
    __syncthreads();
  }
  // Σ value over the block.
  __device__ uint64_t sum(uint64_t value_of_thread) {
    clear();
    uint64_t value = value_of_thread;
    for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) {
      value += __shfl_xor_sync(kAllLanes, value, lanes);
    }
    if (lane_id() == 0) add(0, value);
    __syncthreads();
    if (threadIdx.x == 0) total = this->value(0);
    __syncthreads();
    return total;
  }

 private:
  __device__ void find_by_warp(uint64_t target) {
    constexpr int kOwn = kBins / kWarp;
    uint64_t own = 0;
    for (int i = 0; i < kOwn; ++i) own += value(lane_id() * kOwn + i);
    uint64_t until = own;
    for (int lanes = 1; lanes < kWarp; lanes *= 2) {
      const uint64_t before = __shfl_up_sync(kAllLanes, until, lanes);
      if (lane_id() >= lanes) until += before;
    }
    uint64_t before = until - own;
    if (before >= target || until < target) return;
    for (int i = 0; i < kOwn; ++i) {
      const uint64_t here = value(lane_id() * kOwn + i);
      if (before + here >= target) {
        bin = static_cast<uint32_t>(lane_id() * kOwn + i);
        rest = target - before;
        amount = here;
        return;
      }
      before += here;
    }
  }
};

// The weights of a row that may matter, and their tokens: in a list, in any order, or computed anew
// for every pass.
struct Weighted {
  const float* logits;
  int32_t columns;
  float largest, factor;
  uint32_t least;  // lighter ones are passed over
  const uint32_t* listed_weights;
  const int32_t* listed_tokens;
  int listed_count;  // -1: there is no list

  template <typename Work>
  __device__ void for_each(const Work& work) const {
    if (listed_count >= 0) {
      for (int i = static_cast<int>(threadIdx.x); i < listed_count; i += kDrawThreads) {
        work(listed_weights[i], listed_tokens[i]);
      }
      return;
    }
    // Below this an exponential is less than `least`, by far more than it is rounded.
    constexpr float kLogOfTwo = 0.693147181f;
    constexpr float kSlack = 0.01f;
    const int exponent = exponent_of(least);
    const float bar =
        exponent > 0 ? static_cast<float>(exponent - 127) * kLogOfTwo - kSlack : -200.0f;
    constexpr int kAtOnce = 8;  // loads that do not wait for one another
    const int thread = static_cast<int>(threadIdx.x);
    for (int begin = thread; begin < columns; begin += kAtOnce * kDrawThreads) {
      float x[kAtOnce];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const int i = begin + j * kDrawThreads;
        x[j] = i < columns ? logits[i] : -INFINITY;
      }
      for (int j = 0; j < kAtOnce; ++j) {
        const float below = (x[j] - largest) * factor;
        if (below < bar) continue;
        const uint32_t weight = float_to_bits(exact_exp(below));
        if (weight >= least) work(weight, begin + j * kDrawThreads);
      }
    }
  }
};

struct Found {
  uint32_t key;
  uint64_t rest, amount;  // of what was looked for: left for the key, and what it has
};

// In ascending order of keys of up to `key_bits` (24 at most): the first with which the sum of the
// values reaches `target`. REQUIRES: 0 < target <= the sum of all that `takes` takes.
template <typename Takes, typename Key, typename Value>
__device__ Found select(Bins& bins, const Weighted& row, int key_bits, uint64_t target,
                        const Takes& takes, const Key& key, const Value& value) {
  const int level_bits = (key_bits + 2) / 3;
  uint32_t prefix = 0;
  for (int shift = 2 * level_bits; shift >= 0; shift -= level_bits) {
    bins.clear();
    row.for_each([&](uint32_t weight, int32_t token) {
      if (!takes(weight, token)) return;
      const uint32_t own = key(weight, token);
      if (own >> (shift + level_bits) != prefix) return;
      bins.add(own >> shift & ((1u << level_bits) - 1), value(weight));
    });
    bins.find(target);
    prefix = prefix << level_bits | bins.bin;
    target = bins.rest;
  }
  return {prefix, bins.rest, bins.amount};
}

// What is kept: what is heavier, and of equal weights those up to a token.
struct Cut {
  uint32_t weight = 0;
  int32_t token = INT32_MAX;
  __device__ bool keeps(uint32_t other, int32_t of) const {
    return other > weight || (other == weight && of <= token);
  }
};

// Heaviest first, the lower token of equals: keeps what `keeps` does up to the one with which the
// sum over those of one exponent reaches `target`. `value`: one() or mantissa_of.
template <typename Value>
__device__ Cut cut_inside(Bins& bins, const Weighted& row, int token_bits, const Cut& before,
                          int exponent, uint64_t target, const Value& value) {
  const Found found = select(
      bins, row, kMantissaBits, target,
      [&](uint32_t weight, int32_t token) {
        return exponent_of(weight) == exponent && before.keeps(weight, token);
      },
      [](uint32_t weight, int32_t) { return ~weight & kMantissaMask; }, value);
  Cut cut;
  cut.weight = static_cast<uint32_t>(exponent) << kMantissaBits | (~found.key & kMantissaMask);
  if (cut.weight == before.weight) cut.token = before.token;
  const uint64_t each = value(cut.weight);
  const uint64_t wanted = (found.rest + each - 1) / each;
  if (wanted == found.amount / each) return cut;
  cut.token =
      static_cast<int32_t>(select(
                               bins, row, token_bits, wanted,
                               [&](uint32_t weight, int32_t token) {
                                 return weight == cut.weight && before.keeps(weight, token);
                               },
                               [](uint32_t, int32_t token) { return static_cast<uint32_t>(token); },
                               [](uint32_t) { return uint64_t{1}; })
                               .key);
  return cut;
}

}  // namespace jige::cuda
