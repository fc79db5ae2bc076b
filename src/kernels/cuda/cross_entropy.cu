#include "kernels/cuda/cross_entropy.h"

#include "kernels/cuda/portable.cuh"

namespace jige::cuda {
namespace {

constexpr int kCrossEntropyThreads = 1024;
constexpr int kCrossEntropyLoads = 4;  // vectors that a thread has on the way
constexpr float kLog2E = 1.44269504088896f;
constexpr float kLeastFloat = -3.402823466e38f;
// Shared memory of a block that has a multiprocessor for itself, and where two share it.
constexpr int64_t kRowBytesAlone = int64_t{160} << 10;
constexpr int64_t kRowBytesShared = int64_t{100} << 10;

__device__ inline float exponential(float x) { return fast_exp2(x * kLog2E); }

// The logit that the softmax takes, and how it changes with the one that is given.
struct Cap {
  float cap;
  float reciprocal;
  __device__ explicit Cap(float cap_in) : cap(cap_in), reciprocal(1.0f / cap_in) {}
  __device__ float bend(float x) const { return cap * tanhf(x * reciprocal); }
  __device__ float slope(float bent) const {
    const float ratio = bent * reciprocal;
    return fmaf(-ratio, ratio, 1.0f);
  }
};
struct NoCap {
  __device__ explicit NoCap(float) {}
  __device__ float bend(float x) const { return x; }
  __device__ float slope(float) const { return 1.0f; }
};

// Σ exp(x - largest) of the logits that were added.
struct OnlineSum {
  float largest = kLeastFloat;
  float sum = 0;

  template <int count>
  __device__ void add(const float (&x)[count]) {
    float most = largest;
    for (int i = 0; i < count; ++i) most = fmaxf(most, x[i]);
    if (most > largest) {
      sum *= exponential(largest - most);
      largest = most;
    }
    for (int i = 0; i < count; ++i) sum += exponential(x[i] - largest);
  }
};

// A row in three parts: `head` logits up to an address that is a multiple of 16, vectors of four,
// and fewer than four. Of the vectors the first `kept` are in shared memory once they were read.
struct Row {
  const float* x;
  int64_t count;
  int64_t head;
  int64_t vectors;
  float4* memory;
  int64_t kept;

  __device__ Row(const float* x_in, int64_t count_in, float4* memory_in, int64_t kept_in)
      : x(x_in), count(count_in), memory(memory_in) {
    const auto words = static_cast<int64_t>(reinterpret_cast<uintptr_t>(x) / sizeof(float));
    head = min(int64_t{3} - (words + 3) % 4, count);
    vectors = (count - head) / 4;
    kept = min(kept_in, vectors);
  }
  // Vectors that are kept leave the cache to others.
  __device__ float4 load(int64_t v) const {
    const float4* at = reinterpret_cast<const float4*>(x + head) + v;
    return v < kept ? load_once(at) : *at;
  }
  // Calls body(index) for the thread's element outside of vectors, if it has one.
  template <typename Body>
  __device__ void for_edge(Body body) const {
    const int64_t tail = head + 4 * vectors;
    const auto thread = static_cast<int64_t>(threadIdx.x);
    const int64_t index = thread < head ? thread : tail + thread - head;
    if (thread < head || index < count) body(index);
  }
};

// One pass over a row for the sum. Of vectors that are kept the bent logits are.
template <typename Bend>
__device__ inline OnlineSum sum_row(const Row& row, const Bend& bend) {
  OnlineSum total;
  for (int64_t first = threadIdx.x; first < row.vectors;
       first += kCrossEntropyLoads * kCrossEntropyThreads) {
    float x[4 * kCrossEntropyLoads];
    for (int i = 0; i < kCrossEntropyLoads; ++i) {
      const int64_t v = first + i * kCrossEntropyThreads;
      const float none = bits_to_float(0xff800000u);  // -infinity
      const float4 four = v < row.vectors ? row.load(v) : make_float4(none, none, none, none);
      x[4 * i] = four.x;
      x[4 * i + 1] = four.y;
      x[4 * i + 2] = four.z;
      x[4 * i + 3] = four.w;
    }
    for (int i = 0; i < kCrossEntropyLoads; ++i) {
      const int64_t v = first + i * kCrossEntropyThreads;
      float* four = x + 4 * i;
      if (v >= row.vectors) continue;
      for (int j = 0; j < 4; ++j) four[j] = bend.bend(four[j]);
      if (v < row.kept) row.memory[v] = make_float4(four[0], four[1], four[2], four[3]);
    }
    total.add(x);
  }
  row.for_edge([&](int64_t index) {
    const float x[1] = {bend.bend(row.x[index])};
    total.add(x);
  });
  return total;
}

template <typename Bend>
struct Gradient {
  float largest;
  float factor;
  Bend bend;
  __device__ float of_bent(float bent) const {
    return exponential(bent - largest) * factor * bend.slope(bent);
  }
};

__device__ inline void store_four(float* at, const float (&x)[4]) {
  store_once(reinterpret_cast<float4*>(at), make_float4(x[0], x[1], x[2], x[3]));
}
__device__ inline void store_four(Bf16* at, const float (&x)[4]) {
  store_once(reinterpret_cast<uint2*>(at),
             make_uint2(floats_to_bf16x2(x[0], x[1]), floats_to_bf16x2(x[2], x[3])));
}

// The gradient of all elements as if none were the target.
template <typename Grad, typename Bend>
__device__ inline void write_row(const Row& row, const Gradient<Bend>& gradient, Grad* grad) {
  const bool aligned = reinterpret_cast<uintptr_t>(grad + row.head) % (4 * sizeof(Grad)) == 0;
  constexpr int64_t kStep = kCrossEntropyLoads * kCrossEntropyThreads;
  const int64_t steps = (row.vectors + kStep - 1) / kStep;
  for (int64_t step = steps - 1; step >= 0; --step) {
    const int64_t first = step * kStep + threadIdx.x;
    float4 fours[kCrossEntropyLoads];
    for (int i = 0; i < kCrossEntropyLoads; ++i) {
      const int64_t v = first + i * kCrossEntropyThreads;
      if (v < row.vectors) fours[i] = v < row.kept ? row.memory[v] : row.load(v);
    }
    for (int i = 0; i < kCrossEntropyLoads; ++i) {
      const int64_t v = first + i * kCrossEntropyThreads;
      if (v >= row.vectors) continue;
      float x[4] = {fours[i].x, fours[i].y, fours[i].z, fours[i].w};
      for (int j = 0; j < 4; ++j) {
        const float bent = v < row.kept ? x[j] : gradient.bend.bend(x[j]);
        x[j] = gradient.of_bent(bent);
      }
      Grad* at = grad + row.head + 4 * v;
      if (aligned) {
        store_four(at, x);
      } else {
        for (int j = 0; j < 4; ++j) store(at + j, x[j]);
      }
    }
  }
  row.for_edge([&](int64_t index) {
    store(grad + index, gradient.of_bent(gradient.bend.bend(row.x[index])));
  });
}

template <typename Grad>
__device__ inline void fill_row(Grad* grad, int64_t count, float value) {
  for (int64_t i = threadIdx.x; i < count; i += kCrossEntropyThreads) store(grad + i, value);
}

// args.grad.data null: none.
template <typename Grad, typename Bend>
__global__ void __launch_bounds__(kCrossEntropyThreads)
    cross_entropy_kernel(cpu::CrossEntropyArgs args, int64_t kept) {
  begin_kernel();
  __shared__ float shared[kWarp];
  const int64_t t = blockIdx.x;
  const int64_t target = args.targets[t];
  Grad* grad = args.grad.data ? static_cast<Grad*>(args.grad.data) + t * args.grad.stride : nullptr;
  if (target < 0 || target >= args.vocabulary) {
    const float value = target < 0 ? 0.0f : bits_to_float(0x7fc00000u);  // NaN
    if (threadIdx.x == 0) args.loss[t] = value;
    if (grad) fill_row(grad, args.vocabulary, value);
    return;
  }
  const Bend bend(args.cap);
  const Row row(args.logits + t * args.logits_stride, args.vocabulary,
                reinterpret_cast<float4*>(dynamic_shared()), kept);
  const float own = bend.bend(row.x[target]);  // before a gradient may overwrite it
  const OnlineSum part = sum_row(row, bend);
  const float largest = block_max(part.largest, shared);
  const float sum = block_sum(part.sum * exponential(part.largest - largest), shared);
  if (threadIdx.x == 0) args.loss[t] = (largest - own) + logf(sum);
  if (!grad) return;
  const float weight = args.weights ? args.weights[t] : 1.0f;
  const Gradient<Bend> gradient = {largest, weight / sum, bend};
  write_row(row, gradient, grad);
  __syncthreads();
  if (threadIdx.x == 0) {
    const float at_target = exponential(own - largest) * gradient.factor - weight;
    store(grad + target, at_target * bend.slope(own));
  }
}

}  // namespace

void cross_entropy(const LaunchStream& stream, const cpu::CrossEntropyArgs& args, int64_t rows) {
  LaunchShape shape = {blocks_for(rows, 1), kCrossEntropyThreads};
  if (args.grad.data) {
    const int64_t row_bytes = args.vocabulary * static_cast<int64_t>(sizeof(float));
    const int64_t wanted = row_bytes > 2 * kRowBytesShared ? kRowBytesAlone : kRowBytesShared;
    constexpr int64_t kStaticBytes = kWarp * int64_t{sizeof(float)};
    const int64_t most = min(wanted, shared_bytes_max() - kStaticBytes);
    shape.shared_bytes = min(row_bytes, most) / 16 * 16;
  }
  const int64_t kept = shape.shared_bytes / 16;
  const bool capped = args.cap > 0;
  if (args.grad.type == ElementType::kBf16) {
    const auto kernel =
        capped ? cross_entropy_kernel<Bf16, Cap> : cross_entropy_kernel<Bf16, NoCap>;
    launch(stream, shape, kernel, args, kept);
  } else {
    const auto kernel =
        capped ? cross_entropy_kernel<float, Cap> : cross_entropy_kernel<float, NoCap>;
    launch(stream, shape, kernel, args, kept);
  }
}

}  // namespace jige::cuda
