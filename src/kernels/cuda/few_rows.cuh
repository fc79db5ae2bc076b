// What kernels of few rows share (linear_few_rows.cu, quant_few_rows.cu): the shape of their
// blocks, rows of src normalised on the way, groups of rows, and what becomes of sums.
//
// Eight warps of a block share k and put their sums where V::kWarpBytes of dynamic shared memory
// are each one's; they are added in the warps' order. V: kTiles tiles of rows of the weight, with
// kGated half of them the gate's, kOutputs in a row of out; kTokenTiles tiles of rows of src;
// kStride, from token to token of the sums, and kOutputsOfThread. Threads: device code.
#pragma once

#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/groups.cuh"
#include "kernels/cuda/linear.h"
#include "kernels/cuda/row_norm.cuh"

namespace jige::cuda {

constexpr int kFewWarps = 8;
constexpr int kFewThreads = kFewWarps * kWarp;
constexpr int kTileRows = 16;   // of the weight, in a product
constexpr int kTileTokens = 8;  // rows of src in a product
// Elements of k, side by side, that a lane multiplies at a step, which is two products.
constexpr int kLaneElements = 8;
// Normalised rows in shared memory: numbers of all, and between two of them, for the sake of banks.
constexpr int kNormedMax = 8192;
constexpr int kNormedGap = 32;
constexpr int kNormedBytesMax = (kNormedMax + 8 * kNormedGap) * int{sizeof(Bf16)};
constexpr int kNormStaticBytes = kWarp * int{sizeof(float)};  // beside dynamic shared memory
static_assert(kNormedMax <= kRowNormColumns && kFewThreads == kRowNormThreads);

// sums += the products of a step: w has rows g and g + 8 of a tile of the weight.
__device__ inline void multiply_step(float (&sums)[4], const uint4 (&w)[2], const uint4& x) {
  mma_bf16(sums, {w[0].x, w[1].x, w[0].y, w[1].y}, {x.x, x.y});
  mma_bf16(sums, {w[0].z, w[1].z, w[0].w, w[1].w}, {x.z, x.w});
}

// Memory of a lane for its copies that are under way, V::kSlots of them at each of V::kStages.
template <typename V>
struct LaneSlots {
  unsigned char* memory;

  __device__ uint4* slot(int stage, int index) const {
    return reinterpret_cast<uint4*>(memory + (stage * V::kSlots + index) * (kWarp * kCopyBytes));
  }
};

// Rows of src, normalised, in shared memory.
__device__ inline int normed_stride(const FewRowsProduct& product) {
  return static_cast<int>(product.k) + kNormedGap;
}
template <typename V>
__device__ Bf16* normed_rows() {
  return reinterpret_cast<Bf16*>(dynamic_shared() + kFewWarps * V::kWarpBytes);
}
template <typename V>
__device__ void norm_rows(const FewRowsProduct& product) {
  __shared__ float shared[kNormStaticBytes / sizeof(float)];
  const ProductNorm& given = product.norm;
  const RowNorm norm = {given.weight, given.eps, given.adds_one, static_cast<int>(product.k)};
  Bf16* to = normed_rows<V>();
  const auto* row = static_cast<const float*>(product.src.data);
  for (int i = 0; i < product.rows; ++i) {
    norm_row(norm, row, shared, [&](int column, const float(&x)[kVector]) {
      store_vector(to, ElementType::kBf16, column, x);
    });
    row += product.src.stride;
    to += normed_stride(product);
  }
  __syncthreads();
}

// Makes the product that of the group whose first row is the block's, blockIdx.y, but for its
// weight, and gives the group; -1: there is none.
__device__ inline int take_group(FewRowsProduct& product) {
  const int row = static_cast<int>(blockIdx.y);
  FewRowsGroups& groups = product.groups;
  const Group group = find_row(groups.row_ends, static_cast<int>(groups.count), row);
  if (group.begin != row) return -1;
  product.rows = group.end - row;
  if (product.bias) product.bias += group.index * groups.bias_stride;
  product.out = from_row(product.out, row);
  if (groups.rows_of) {
    groups.rows_of += row;
  } else {
    product.src = from_row(product.src, row);
  }
  return group.index;
}
// The row of src that a row of the group's product has.
__device__ inline int64_t source_row(const FewRowsGroups& groups, int64_t row) {
  return groups.rows_of ? divide(groups.rows_of[row], groups.rows_by).quotient : row;
}

// Makes the product that of a head, blockIdx.y.
__device__ inline void take_head(FewRowsProduct& product) {
  const int64_t head = blockIdx.y;
  product.weight += head * product.heads.weight_step;
  product.src = from_column(product.src, head * product.heads.src_step);
  product.out = from_column(product.out, head * product.heads.out_step);
}

// What is added to the sums that a thread stores: outputs threadIdx.x, + kFewThreads, …
template <typename V>
struct Extras {
  float bias[V::kOutputsOfThread], up_bias[V::kOutputsOfThread], addend[V::kOutputsOfThread];

  __device__ Extras(const FewRowsProduct& product, int64_t first) {
#pragma unroll
    for (int i = 0; i < V::kOutputsOfThread; ++i) {
      const int index = static_cast<int>(threadIdx.x) + i * kFewThreads;
      const int64_t token = index / V::kOutputs;
      const int64_t row = first + index % V::kOutputs;
      const bool valid = token < product.rows && row < product.n;
      bias[i] = valid && product.bias ? product.bias[row] : 0.0f;
      up_bias[i] = V::kGated && valid && product.bias ? product.bias[product.n + row] : 0.0f;
      addend[i] = 0.0f;
      if (V::kGated || !valid || !product.addend.data) continue;
      addend[i] = load_element(product.addend.data, product.addend.type,
                               token * product.addend.stride + row);
    }
  }
};

// Numbers of a gate and of what it multiplies.
struct GatePair {
  float gate, up;
};

__device__ inline float bounded_gate_of(const ProductBounds& bounds, const GatePair& x) {
  const float gate = bounds.limit < x.gate ? bounds.limit : x.gate;
  float up = bounds.limit < x.up ? bounds.limit : x.up;
  up = up < -bounds.limit ? -bounds.limit : up;
  return (up + 1.0f) * (gate * sigmoid(gate * bounds.alpha));
}

// What comes of two sums and their biases.
__device__ inline float gated(const FewRowsProduct& product, GatePair sums,
                              const GatePair& biases) {
  const auto rounded = [](float x) {
    return bits_to_float(static_cast<uint32_t>(float_to_bf16(x)) << 16);
  };
  if (product.gate == ProductGate::kBounded) {
    return bounded_gate_of(product.bounds,
                           {rounded(sums.gate) + biases.gate, rounded(sums.up) + biases.up});
  }
  if (product.bias) sums = {sums.gate + biases.gate, sums.up + biases.up};
  const float x = rounded(sums.gate);
  return (product.gate == ProductGate::kSilu ? Silu::at(x).value : GeluTanh::at(x).value) *
         rounded(sums.up);
}

// Puts the sums of a warp where its copies were.
template <typename V>
__device__ void put_sums(float* to, const float (&sums)[V::kTiles][V::kTokenTiles][4]) {
  const int g = lane_id() / 4;
  const int t = lane_id() % 4;
#pragma unroll
  for (int m = 0; m < V::kTiles; ++m) {
#pragma unroll
    for (int j = 0; j < V::kTokenTiles; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int token = j * kTileTokens + 2 * t + e % 2;
        const int row = m * kTileRows + e / 2 * 8 + g;
        to[token * V::kStride + row] = sums[m][j][e];
      }
    }
  }
}

// Adds the warps' sums and stores what comes of them, outputs [first, first + kOutputs).
template <typename V>
__device__ void store_sums(const FewRowsProduct& product, int64_t first, const Extras<V>& extras) {
  const auto total = [](int token, int row) {
    float sum = 0.0f;
#pragma unroll
    for (int warp = 0; warp < kFewWarps; ++warp) {
      const auto* of_warp = reinterpret_cast<const float*>(dynamic_shared() + warp * V::kWarpBytes);
      sum += of_warp[token * V::kStride + row];
    }
    return sum;
  };
#pragma unroll
  for (int i = 0; i < V::kOutputsOfThread; ++i) {
    const int index = static_cast<int>(threadIdx.x) + i * kFewThreads;
    const int token = index / V::kOutputs;
    const int row = index % V::kOutputs;
    if (token >= product.rows || first + row >= product.n) continue;
    float value = total(token, row);
    if constexpr (V::kGated) {
      value = gated(product, {value, total(token, row + V::kOutputs)},
                    {extras.bias[i], extras.up_bias[i]});
    } else {
      if (product.bias) value += extras.bias[i];
      if (product.addend.data) value += extras.addend[i];
    }
    store_element(product.out.data, product.out.type, token * product.out.stride + first + row,
                  value);
  }
}

}  // namespace jige::cuda
