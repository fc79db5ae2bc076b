// The curves of activations that gate: what they make of a number, and their slopes.
//
// Threads: device code.
#pragma once

#include "kernels/cuda/vectors.cuh"

namespace jige::cuda {

// What an activation makes of a number, and its slope there.
struct Point {
  float value, slope;
};

// GELU in the tanh form.
struct GeluTanh {
  static __device__ Point at(float x) {
    constexpr float kLinear = 1.59576912160573f;   // 2 √(2/π)
    constexpr float kCubic = 0.0713548162726009f;  // 2 √(2/π) · 0.044715
    const float square = x * x;
    const float s = sigmoid(x * fmaf(square, kCubic, kLinear));
    const float slope = fmaf(square, 3 * kCubic, kLinear);
    return {x * s, fmaf(x * slope, s * (1.0f - s), s)};
  }
};

struct Silu {
  static __device__ Point at(float x) {
    const float s = sigmoid(x);
    return {x * s, s * fmaf(x, 1.0f - s, 1.0f)};
  }
};

}  // namespace jige::cuda
