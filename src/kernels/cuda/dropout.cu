#include "kernels/cuda/dropout.h"

#include "kernels/cuda/vectors.cuh"

namespace jige::cuda {
namespace {

constexpr int kDropoutThreads = 256;
constexpr int kWords = 4;                               // of a Philox block
constexpr int kDropoutGroupColumns = kWords * kVector;  // a group has kVector blocks
constexpr int kBlocksEach = kVector / kWords;           // of a thread, four of which share a group

// Ten rounds of Philox-4x32, as base/rng.h has them.
__device__ void philox(uint64_t key, uint64_t site, uint64_t counter, uint32_t (&words)[kWords]) {
  auto key0 = static_cast<uint32_t>(key);
  auto key1 = static_cast<uint32_t>(key >> 32);
  auto c0 = static_cast<uint32_t>(counter);
  auto c1 = static_cast<uint32_t>(counter >> 32);
  auto c2 = static_cast<uint32_t>(site);
  auto c3 = static_cast<uint32_t>(site >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t first = uint64_t{c0} * 0xD2511F53u;
    const uint64_t second = uint64_t{c2} * 0xCD9E8D57u;
    c0 = static_cast<uint32_t>(second >> 32) ^ c1 ^ key0;
    c1 = static_cast<uint32_t>(second);
    c2 = static_cast<uint32_t>(first >> 32) ^ c3 ^ key1;
    c3 = static_cast<uint32_t>(first);
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  words[0] = c0;
  words[1] = c1;
  words[2] = c2;
  words[3] = c3;
}

// Four lanes have four words each: afterwards lane i has word i of all, in the order of the lanes.
__device__ void transpose(uint32_t (&words)[kWords], int lane) {
  for (int distance = 2; distance > 0; distance /= 2) {
    const bool upper = (lane & distance) != 0;
    for (int low = 0; low < kWords; ++low) {
      if ((low & distance) != 0) continue;
      uint32_t& kept = words[low];
      uint32_t& other = words[low + distance];
      const uint32_t got = __shfl_xor_sync(kAllLanes, upper ? kept : other, distance);
      (upper ? kept : other) = got;
    }
  }
}

// A thread has kVector columns, and the bits of word lane % 4 of the blocks of their group.
__global__ void __launch_bounds__(kDropoutThreads)
    dropout_kernel(cpu::DropoutArgs args, int64_t rows, int64_t groups, bool vectors) {
  begin_kernel();
  const int64_t index = int64_t{blockIdx.x} * kDropoutThreads + threadIdx.x;
  const Divided at = divide(index, groups * kWords);
  const int64_t row = at.quotient;
  const int64_t column = at.remainder * kVector;
  const int lane = static_cast<int>(at.remainder % kWords);
  // Block l of a group decides on column l of each vector; lane i makes blocks 2i and 2i + 1.
  const uint64_t first_block =
      (args.token_begin + args.token_step * static_cast<uint64_t>(row)) *
          static_cast<uint64_t>(groups * kVector) +
      static_cast<uint64_t>(at.remainder / kWords * kVector + lane * kBlocksEach);
  uint32_t even[kWords], odd[kWords];
  philox(args.key, args.site, first_block, even);
  philox(args.key, args.site, first_block + 1, odd);
  transpose(even, lane);
  transpose(odd, lane);
  if (row >= rows) return;
  float factors[kVector];
  for (int i = 0; i < kWords; ++i) {
    factors[2 * i] = even[i] >= args.threshold ? args.scale : 0.0f;
    factors[2 * i + 1] = odd[i] >= args.threshold ? args.scale : 0.0f;
  }
  if (vectors && column + kVector <= args.columns) {
    float x[kVector];
    load_packed<kVector>(args.src, row, column).unpack(args.src.type, x);
    for (int i = 0; i < kVector; ++i) x[i] *= factors[i];
    store_vector(args.dst, row, column, x);
    return;
  }
  for (int i = 0; i < kVector; ++i) {
    if (column + i >= args.columns) continue;
    const float x[1] = {factors[i] * load_element(args.src.data, args.src.type,
                                                  row * args.src.stride + column + i)};
    store_vector(args.dst, row, column + i, x);
  }
}

}  // namespace

void dropout(const LaunchStream& stream, const cpu::DropoutArgs& args, int64_t rows) {
  const int64_t groups = ceil_div(args.columns, kDropoutGroupColumns);
  const int64_t threads = rows * groups * kWords;
  if (threads == 0) return;
  launch(stream, {blocks_for(threads, kDropoutThreads), kDropoutThreads}, dropout_kernel, args,
         rows, groups, aligned(rows, args.dst, args.src));
}

}  // namespace jige::cuda
