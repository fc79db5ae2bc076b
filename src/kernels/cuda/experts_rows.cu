// What is done to rows of experts, which waits for memory: walks over elements, a warp a row where
// there is a sum along it, and a thread a column where there is one down it.
#include "kernels/cuda/exact_math.cuh"
#include "kernels/cuda/experts.h"
#include "kernels/cuda/vectors.cuh"

namespace jige::cuda {
namespace {

constexpr int kRowWarps = 8;  // of a block
constexpr int kExpertThreads = 256;

struct GatherRows {
  Rows dst;
  ConstRows src;
  const int32_t* places;
  int64_t chosen;

  template <int W>
  __device__ void at(int64_t row, int64_t column) const {
    const int64_t token = divide(places[row], chosen).quotient;
    float x[W];
    load_packed<W>(src, token, column).unpack(src.type, x);
    store_vector(dst, row, column, x);
  }
};

struct Combine {
  cpu::CombineArgs args;
  ConstRows addend;

  template <int W>
  __device__ void at(int64_t token, int64_t column) const {
    const int32_t* rows = args.rows + token * args.chosen;
    const float* weights = args.weights ? args.weights + token * args.chosen : nullptr;
    float sum[W] = {};
    if (args.base) load_vector(args.base, token * args.width + column, sum);
#pragma unroll 4
    for (int64_t j = 0; j < args.chosen; ++j) {
      const float weight = weights ? weights[j] : 1.0f;
      float x[W];
      load_packed<W>(args.src, rows[j], column).unpack(args.src.type, x);
      for (int i = 0; i < W; ++i) sum[i] = fmaf(weight, x[i], sum[i]);
    }
    if (addend.data) {
      float x[W];
      load_packed<W>(addend, token, column).unpack(addend.type, x);
      for (int i = 0; i < W; ++i) sum[i] += x[i];
    }
    store_vector(args.dst, token, column, sum);
  }
};

template <int W>
__device__ void load_own(const Rows& rows, int64_t row, int64_t column, float (&x)[W]) {
  load_packed<W>({rows.data, rows.type, rows.stride}, row, column).unpack(rows.type, x);
}

struct ScaleRows {
  cpu::ScaleRowsArgs args;

  template <int W>
  __device__ void at(int64_t row, int64_t column) const {
    const float factor = args.factors[args.places[row]];
    float x[W];
    load_own(args.data, row, column, x);
    for (int i = 0; i < W; ++i) x[i] *= factor;
    store_vector(args.data, row, column, x);
  }
};

struct GateRows {
  cpu::RowGateArgs args;

  template <int W>
  __device__ void at(int64_t row, int64_t column) const {
    const float gate = exact_sigmoid(args.logits[row * args.logits_stride]);
    float x[W];
    load_own(args.data, row, column, x);
    for (int i = 0; i < W; ++i) x[i] *= gate;
    store_vector(args.data, row, column, x);
  }
};

struct AddBiases {
  cpu::ExpertBiasArgs args;

  template <int W>
  __device__ void at(int64_t row, int64_t column) const {
    const int64_t expert = args.experts_of[args.places[row]];
    float x[W], bias[W];
    load_own(args.data, row, column, x);
    load_vector(args.biases, expert * args.width + column, bias);
    for (int i = 0; i < W; ++i) x[i] += bias[i];
    store_vector(args.data, row, column, x);
  }
};

// A gate and what it multiplies, with their biases, and whether they were in bounds.
template <int W>
struct Bounded {
  float gate[W], up[W];
  bool gate_inside[W], up_inside[W];

  __device__ Bounded(const cpu::BoundedGateArgs& args, int64_t row, int64_t column) {
    const int64_t expert = args.experts_of[args.places[row]];
    const float* biases = args.biases + expert * 2 * args.width;
    float gate_bias[W], up_bias[W];
    const auto packed_gate = load_packed<W>(args.gate_up, row, column);
    const auto packed_up = load_packed<W>(args.gate_up, row, args.width + column);
    load_vector(biases, column, gate_bias);
    load_vector(biases, args.width + column, up_bias);
    packed_gate.unpack(args.gate_up.type, gate);
    packed_up.unpack(args.gate_up.type, up);
    for (int i = 0; i < W; ++i) {
      gate[i] += gate_bias[i];
      up[i] += up_bias[i];
      gate_inside[i] = gate[i] <= args.limit;
      up_inside[i] = -args.limit <= up[i] && up[i] <= args.limit;
      if (args.limit < gate[i]) gate[i] = args.limit;
      if (args.limit < up[i]) up[i] = args.limit;
      if (up[i] < -args.limit) up[i] = -args.limit;
    }
  }
};

struct BoundedGate {
  cpu::BoundedGateArgs args;

  template <int W>
  __device__ void at(int64_t row, int64_t column) const {
    const Bounded<W> x(args, row, column);
    float y[W];
    for (int i = 0; i < W; ++i) {
      y[i] = (x.up[i] + 1.0f) * (x.gate[i] * sigmoid(x.gate[i] * args.alpha));
    }
    store_vector(args.dst, row, column, y);
  }
};

struct BoundedGateBackward {
  cpu::BoundedGateArgs args;

  template <int W>
  __device__ void at(int64_t row, int64_t column) const {
    const Bounded<W> x(args, row, column);
    float grad[W], grad_gate[W], grad_up[W], activated[W];
    load_packed<W>(args.grad, row, column).unpack(args.grad.type, grad);
    for (int i = 0; i < W; ++i) {
      const float bent = x.gate[i] * args.alpha;
      const float s = sigmoid(bent);
      const float raised = x.up[i] + 1.0f;
      const float slope = grad[i] * raised * s * fmaf(bent, 1.0f - s, 1.0f);
      activated[i] = raised * (x.gate[i] * s);
      grad_gate[i] = x.gate_inside[i] ? slope : 0.0f;
      grad_up[i] = x.up_inside[i] ? grad[i] * (x.gate[i] * s) : 0.0f;
    }
    store_vector(args.activated, row, column, activated);
    store_vector(args.dst, row, column, grad_gate);
    store_vector(args.dst, row, args.width + column, grad_up);
  }
};

// The inner product of two rows, by a whole warp.
template <int W>
__device__ float row_dot(const ConstRows& a, const ConstRows& b, int64_t row, int64_t b_row,
                         int64_t width) {
  float sum = 0.0f;
  for (int64_t column = lane_id() * W; column < width; column += kWarp * W) {
    float x[W], y[W];
    const auto packed_a = load_packed<W>(a, row, column);
    const auto packed_b = load_packed<W>(b, b_row, column);
    packed_a.unpack(a.type, x);
    packed_b.unpack(b.type, y);
    for (int i = 0; i < W; ++i) sum = fmaf(x[i], y[i], sum);
  }
  return warp_sum(sum);
}

// The row of this warp.
__device__ int64_t warp_row() { return int64_t{blockIdx.x} * kRowWarps + warp_id(); }

template <int W>
__global__ void __launch_bounds__(kRowWarps* kWarp)
    row_dots_kernel(cpu::RowDotsArgs args, int64_t rows) {
  begin_kernel();
  const int64_t row = warp_row();
  if (row >= rows) return;
  const float dot = row_dot<W>(args.a, args.b, row, row, args.width);
  if (lane_id() == 0) args.dst[args.places[row]] = dot;
}

template <int W>
__global__ void __launch_bounds__(kRowWarps* kWarp)
    bias_dots_kernel(cpu::ExpertBiasArgs args, int64_t rows) {
  begin_kernel();
  const int64_t row = warp_row();
  if (row >= rows) return;
  const int32_t place = args.places[row];
  const float dot = row_dot<W>({args.data.data, args.data.type, args.data.stride},
                               {args.biases, ElementType::kF32, args.width}, row,
                               args.experts_of[place], args.width);
  if (lane_id() == 0) args.dots[place] = args.dots[place] + dot;
}

template <int W>
__global__ void __launch_bounds__(kRowWarps* kWarp)
    gate_rows_backward_kernel(cpu::RowGateArgs args, int64_t rows) {
  begin_kernel();
  const int64_t row = warp_row();
  if (row >= rows) return;
  const float gate = exact_sigmoid(args.logits[row * args.logits_stride]);
  const float dot = row_dot<W>(args.grad, {args.data.data, args.data.type, args.data.stride}, row,
                               row, args.width);
  if (lane_id() == 0) args.grad_logits[row * args.grad_stride] = (1.0f - gate) * dot;
  for (int64_t column = lane_id() * W; column < args.width; column += kWarp * W) {
    float x[W];
    load_own(args.data, row, column, x);
    for (int i = 0; i < W; ++i) x[i] *= gate;
    store_vector(args.data, row, column, x);
  }
}

// A block has columns of one expert.
__global__ void __launch_bounds__(kExpertThreads) bias_gradients_kernel(BiasGradientArgs args) {
  begin_kernel();
  const int64_t expert = blockIdx.y;
  const int64_t column = int64_t{blockIdx.x} * kExpertThreads + threadIdx.x;
  float* const grad = args.grads[expert];
  if (!grad || column >= args.width) return;
  const int32_t begin = expert > 0 ? args.row_ends[expert - 1] : 0;
  const int32_t end = args.row_ends[expert];
  float sum = grad[column];
#pragma unroll 8
  for (int64_t row = begin; row < end; ++row) {
    const float factor = args.factors ? args.factors[args.places[row]] : 1.0f;
    const float value =
        load_element(args.rows.data, args.rows.type, row * args.rows.stride + column);
    sum = fmaf(factor, value, sum);
  }
  grad[column] = sum;
}

__global__ void __launch_bounds__(kExpertThreads)
    scale_slopes_kernel(ScaleSlopesArgs args, int64_t places) {
  begin_kernel();
  const int64_t place = int64_t{blockIdx.x} * kExpertThreads + threadIdx.x;
  if (place >= places) return;
  args.slopes[place] = args.weights[place] * args.grads[place];
  args.grads[place] = args.grads[place] * args.scales[args.experts_of[place]];
}

// A warp has an expert.
__global__ void __launch_bounds__(kRowWarps* kWarp) scale_gradients_kernel(ScaleGradientArgs args) {
  begin_kernel();
  const int64_t expert = warp_row();
  if (expert >= args.experts) return;
  const int32_t begin = expert > 0 ? args.row_ends[expert - 1] : 0;
  const int32_t end = args.row_ends[expert];
  float sum = args.grads[expert];
  for (int32_t first = begin; first < end; first += kWarp) {
    const int32_t row = first + lane_id();
    const float slope = row < end ? args.slopes[args.places[row]] : 0.0f;
    for (int i = 0; i < kWarp; ++i) {
      const float next = __shfl_sync(kAllLanes, slope, i);
      if (first + i < end) sum = sum + next;
    }
  }
  if (lane_id() == 0) args.grads[expert] = sum;
}

// A warp for each row; kVector: whether rows are aligned and whole vectors.
template <typename Args>
void launch_row_warps(const LaunchStream& stream, int64_t rows, bool vectors,
                      void (*of_vectors)(Args, int64_t), void (*of_elements)(Args, int64_t),
                      const Args& args) {
  launch(stream, {blocks_for(rows, kRowWarps), kRowWarps * kWarp},
         vectors ? of_vectors : of_elements, args, rows);
}

bool gate_aligned(const cpu::BoundedGateArgs& args, int64_t rows) {
  return whole_vectors(args.width) && aligned(rows, args.dst, args.gate_up) && aligned(args.biases);
}

}  // namespace

void gather_rows(const LaunchStream& stream, const GatherArgs& args, int64_t rows) {
  // Rows of src are taken in another order, whatever their number.
  launch_elementwise(stream, {rows, args.width}, aligned(2, args.dst, args.src),
                     GatherRows{args.dst, args.src, args.places, args.chosen});
}

void combine_rows(const LaunchStream& stream, const cpu::CombineArgs& args, int64_t tokens,
                  const cpu::ConstRows& addend) {
  const bool vectors = aligned(2, args.dst, args.src) && (!addend.data || aligned(2, addend)) &&
                       (!args.base || (aligned(args.base) && whole_vectors(args.width)));
  launch_elementwise(stream, {tokens, args.width}, vectors, Combine{args, addend});
}

void scale_rows(const LaunchStream& stream, const cpu::ScaleRowsArgs& args, int64_t rows) {
  launch_elementwise(stream, {rows, args.width}, aligned(rows, args.data), ScaleRows{args});
}

void gate_rows(const LaunchStream& stream, const cpu::RowGateArgs& args, int64_t rows) {
  launch_elementwise(stream, {rows, args.width}, aligned(rows, args.data), GateRows{args});
}

void add_biases(const LaunchStream& stream, const cpu::ExpertBiasArgs& args, int64_t rows) {
  const bool vectors =
      whole_vectors(args.width) && aligned(rows, args.data) && aligned(args.biases);
  launch_elementwise(stream, {rows, args.width}, vectors, AddBiases{args});
}

void bounded_gate(const LaunchStream& stream, const cpu::BoundedGateArgs& args, int64_t rows) {
  launch_elementwise(stream, {rows, args.width}, gate_aligned(args, rows), BoundedGate{args});
}

void bounded_gate_backward(const LaunchStream& stream, const cpu::BoundedGateArgs& args,
                           int64_t rows) {
  const bool vectors = gate_aligned(args, rows) && aligned(rows, args.grad, args.activated);
  launch_elementwise(stream, {rows, args.width}, vectors, BoundedGateBackward{args});
}

void row_dots(const LaunchStream& stream, const cpu::RowDotsArgs& args, int64_t rows) {
  const bool vectors = whole_vectors(args.width) && aligned(rows, args.a, args.b);
  launch_row_warps(stream, rows, vectors, row_dots_kernel<kVector>, row_dots_kernel<1>, args);
}

void bias_dots(const LaunchStream& stream, const cpu::ExpertBiasArgs& args, int64_t rows) {
  const bool vectors =
      whole_vectors(args.width) && aligned(rows, args.data) && aligned(args.biases);
  launch_row_warps(stream, rows, vectors, bias_dots_kernel<kVector>, bias_dots_kernel<1>, args);
}

void gate_rows_backward(const LaunchStream& stream, const cpu::RowGateArgs& args, int64_t rows) {
  const bool vectors = whole_vectors(args.width) && aligned(rows, args.data, args.grad);
  launch_row_warps(stream, rows, vectors, gate_rows_backward_kernel<kVector>,
                   gate_rows_backward_kernel<1>, args);
}

void bias_gradients(const LaunchStream& stream, const BiasGradientArgs& args) {
  const LaunchShape shape = {
      {blocks_for(args.width, kExpertThreads), static_cast<unsigned>(args.experts)},
      kExpertThreads};
  launch(stream, shape, bias_gradients_kernel, args);
}

void scale_slopes(const LaunchStream& stream, const ScaleSlopesArgs& args, int64_t places) {
  launch(stream, {blocks_for(places, kExpertThreads), kExpertThreads}, scale_slopes_kernel, args,
         places);
}

void scale_gradients(const LaunchStream& stream, const ScaleGradientArgs& args) {
  launch(stream, {blocks_for(args.experts, kRowWarps), kRowWarps * kWarp}, scale_gradients_kernel,
         args);
}

}  // namespace jige::cuda
