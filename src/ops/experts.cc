#include "ops/experts.h"

#include <cstring>
#include <type_traits>

#include "base/cpu.h"
#include "kernels/cpu/experts.h"
#include "kernels/cuda/experts.h"
#include "ops/elementwise.h"
#include "ops/kernel_rows.h"

namespace jige::ops {
namespace {

void check_routing(const Routing& r) {
  const int64_t t = r.token_count();
  const int64_t k = r.chosen_count();
  JIGE_CHECK(1 <= k && k <= r.expert_count(), "{} of {} experts", k, r.expert_count());
  JIGE_CHECK(1 <= r.chosen_groups && r.chosen_groups <= r.groups &&
                 r.expert_count() % r.groups == 0 &&
                 k <= r.expert_count() / r.groups * r.chosen_groups && r.scale > 0,
             "{} of {} experts, {} of {} groups, scale {}", k, r.expert_count(), r.chosen_groups,
             r.groups, r.scale);
  const bool ranked = r.sigmoid || r.sum_min > 0 || r.choice_bias || r.chosen_groups < r.groups;
  JIGE_CHECK(!ranked || r.expert_count() <= cpu::kRankedExpertsMax, "{} experts", r.expert_count());
  if (r.choice_bias) check_vector("choice_bias", r.choice_bias, DType::kF32, r.expert_count());
  check_typed("logits", r.logits, DType::kF32, t, r.expert_count());
  check_vector("chosen", r.chosen, DType::kI32, t * k);
  check_vector("weights", r.weights, DType::kF32, t * k);
  check_vector("row_of_place", r.row_of_place, DType::kI32, t * k);
  check_vector("place_of_row", r.place_of_row, DType::kI32, t * k);
  check_vector("row_ends", r.row_ends, DType::kI32, r.expert_count());
  if (r.scales) {
    check_vector("scales", r.scales, DType::kF32, r.expert_count());
    check_vector("scaled_weights", r.scaled_weights, DType::kF32, t * k);
  }
}

// Every place's weight times the number of its expert.
void scale_weights(const Routing& r) {
  if (!r.scales) return;
  const auto* chosen = r.chosen.as<int32_t>();
  for (int64_t place = 0; place < r.row_count(); ++place) {
    r.scaled_weights.as<float>()[place] =
        r.weights.as<float>()[place] * r.scales.as<float>()[chosen[place]];
  }
}

cpu::ChooseArgs choose_args(const Routing& r) {
  return {.logits = r.logits.as<float>(),
          .logits_stride = r.logits.row_stride,
          .experts = r.expert_count(),
          .chosen = r.chosen_count(),
          .sigmoid = r.sigmoid,
          .over_chosen = r.normalised,
          .scale = r.scale,
          .sum_offset = r.sum_offset,
          .sum_min = r.sum_min,
          .bias = static_cast<const float*>(r.choice_bias.data),
          .groups = r.groups,
          .chosen_groups = r.chosen_groups,
          .pairs = r.groups_by_pairs,
          .experts_of = r.chosen.as<int32_t>(),
          .weights = r.weights.as<float>()};
}

// Gives every place its row: a counting sort, which keeps tokens in order.
void sort_places(const Routing& r) {
  const auto* chosen = r.chosen.as<int32_t>();
  auto* ends = r.row_ends.as<int32_t>();
  const int64_t places = r.row_count();
  std::memset(ends, 0, static_cast<size_t>(r.expert_count()) * sizeof(int32_t));
  for (int64_t place = 0; place < places; ++place) ++ends[chosen[place]];
  int32_t begin = 0;
  for (int64_t e = 0; e < r.expert_count(); ++e) {
    const int32_t count = ends[e];
    ends[e] = begin;
    begin += count;
  }
  for (int64_t place = 0; place < places; ++place) {
    const int32_t row = ends[chosen[place]]++;
    r.row_of_place.as<int32_t>()[place] = row;
    r.place_of_row.as<int32_t>()[row] = static_cast<int32_t>(place);
  }
}

template <typename Args>
using CpuRowKernel = void (*cpu::ExpertKernels::*)(const Args&, int64_t, int64_t) noexcept;

// Puts kernel(args, row_begin, row_end) on the stream of a CPU, shared out by rows.
template <typename Args>
void submit_cpu_rows(Stream& stream, CpuRowKernel<std::type_identity_t<Args>> kernel,
                     const Args& args, int64_t rows, int64_t columns) {
  CpuStream& cpu_stream = as_cpu(stream);
  cpu_stream.submit([=, &device = cpu_stream.cpu()] {
    const auto run = cpu::expert_kernels(active_isa()).*kernel;
    for_row_ranges(device, rows, columns,
                   [&](int64_t begin, int64_t end) { run(args, begin, end); });
  });
}

// What is done to rows, on a CPU and on a GPU.
template <typename Args>
struct RowKernel {
  CpuRowKernel<Args> cpu;
  void (*gpu)(const cuda::LaunchStream&, const Args&, int64_t);
};

// The same on any stream.
template <typename Args>
void submit_expert_rows(Stream& stream, const RowKernel<std::type_identity_t<Args>>& kernel,
                        const Args& args, int64_t rows, int64_t columns) {
  if (on_cuda(stream)) return kernel.gpu(launch_stream(stream), args, rows);
  submit_cpu_rows(stream, kernel.cpu, args, rows, columns);
}

cpu::RowGateArgs row_gate_args(const TensorView& data, const TensorView& logits) {
  check_float("data", data, data.rows(), data.columns());
  check_typed("logits", logits, DType::kF32, data.rows(), 1);
  cpu::RowGateArgs args = {};
  args.data = rows_of(data);
  args.logits = logits.as<float>();
  args.logits_stride = logits.row_stride;
  args.width = data.columns();
  return args;
}

cpu::ExpertBiasArgs bias_args(const Routing& routing, const TensorView& data,
                              const TensorView& biases) {
  const int64_t width = data.columns();
  check_float("data", data, routing.row_count(), width);
  check_vector("biases", biases, DType::kF32, routing.expert_count() * width);
  return {.data = rows_of(data),
          .biases = biases.as<float>(),
          .experts_of = routing.chosen.as<int32_t>(),
          .places = routing.place_of_row.as<int32_t>(),
          .width = width,
          .dots = nullptr};
}

cpu::BoundedGateArgs gate_args(const Routing& routing, const BoundedGate& gate,
                               const TensorView& gate_up) {
  check_float("gate_up", gate_up, routing.row_count(), gate_up.columns());
  check_vector("biases", gate.biases, DType::kF32, routing.expert_count() * gate_up.columns());
  cpu::BoundedGateArgs args = {};
  args.gate_up = const_rows_of(gate_up);
  args.biases = gate.biases.as<float>();
  args.experts_of = routing.chosen.as<int32_t>();
  args.places = routing.place_of_row.as<int32_t>();
  args.width = gate_up.columns() / 2;
  args.alpha = gate.alpha;
  args.limit = gate.limit;
  return args;
}

void cuda_bias_gradients(Stream& stream, const Routing& r, const std::vector<TensorView>& grads,
                         const TensorView& data, RowWeights weights) {
  std::vector<float*> pointers;
  for (const TensorView& grad : grads) pointers.push_back(static_cast<float*>(grad.data));
  const auto bytes = static_cast<int64_t>(pointers.size() * sizeof(float*));
  cuda::bias_gradients(
      launch_stream(stream),
      {.grads = static_cast<float* const*>(as_cuda(stream).upload(pointers.data(), bytes)),
       .rows = const_rows_of(data),
       .factors = weights == RowWeights::kRouter ? r.weights.as<float>() : nullptr,
       .places = r.place_of_row.as<int32_t>(),
       .row_ends = r.row_ends.as<int32_t>(),
       .experts = r.expert_count(),
       .width = data.columns()});
}

static_assert(kGpuExpertsMax == cuda::kExpertsMax);

void cuda_route(Stream& stream, const Routing& r) {
  JIGE_CHECK(r.expert_count() <= kGpuExpertsMax, "{} experts on a GPU", r.expert_count());
  const cuda::RouteArgs args = {.choice = choose_args(r),
                                .tokens = r.token_count(),
                                .row_of_place = r.row_of_place.as<int32_t>(),
                                .place_of_row = r.place_of_row.as<int32_t>(),
                                .row_ends = r.row_ends.as<int32_t>(),
                                .scales = static_cast<const float*>(r.scales.data),
                                .scaled_weights = static_cast<float*>(r.scaled_weights.data)};
  void* const scratch = as_cuda(stream).scratch(cuda::route_scratch_bytes(args));
  cuda::route(launch_stream(stream), args, scratch);
}

}  // namespace

void route(Stream& stream, const Routing& routing) {
  check_routing(routing);
  if (on_cuda(stream)) return cuda_route(stream, routing);
  CpuStream& cpu_stream = as_cpu(stream);
  cpu_stream.submit([routing, &device = cpu_stream.cpu()] {
    const auto choose = cpu::expert_kernels(active_isa()).choose;
    const cpu::ChooseArgs args = choose_args(routing);
    for_row_ranges(device, routing.token_count(), args.experts * (args.chosen + 2),
                   [&](int64_t begin, int64_t end) { choose(args, begin, end); });
    sort_places(routing);
    scale_weights(routing);
  });
}

void gather_rows(Stream& stream, const Routing& routing, const TensorView& dst,
                 const TensorView& src) {
  const int64_t width = src.columns();
  check_float("src", src, routing.token_count(), width);
  check_typed("dst", dst, src.dtype, routing.row_count(), width);
  if (on_cuda(stream)) {
    return cuda::gather_rows(launch_stream(stream),
                             {.dst = rows_of(dst),
                              .src = const_rows_of(src),
                              .places = routing.place_of_row.as<int32_t>(),
                              .chosen = routing.chosen_count(),
                              .width = width},
                             routing.row_count());
  }
  CpuStream& cpu_stream = as_cpu(stream);
  cpu_stream.submit([=, &device = cpu_stream.cpu()] {
    const auto* places = routing.place_of_row.as<int32_t>();
    const auto* from = static_cast<const std::byte*>(src.data);
    auto* to = static_cast<std::byte*>(dst.data);
    const auto bytes_of = [&](int64_t count) { return dtype_bytes(src.dtype, count); };
    for_row_ranges(device, routing.row_count(), width, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t token = places[row] / routing.chosen_count();
        std::memcpy(to + bytes_of(row * dst.row_stride), from + bytes_of(token * src.row_stride),
                    static_cast<size_t>(bytes_of(width)));
      }
    });
  });
}

void combine_rows(Stream& stream, const Routing& routing, const TensorView& dst,
                  const TensorView& src, RowWeights weights, const TensorView& base,
                  const TensorView& addend) {
  const int64_t width = dst.columns();
  const int64_t tokens = routing.token_count();
  check_float("dst", dst, tokens, width);
  check_float("src", src, routing.row_count(), width);
  if (base) check_vector("base", base, DType::kF32, tokens * width);
  if (addend) {
    check_typed("addend", addend, DType::kF32, tokens, width);
    check_typed("dst", dst, DType::kF32, tokens, width);
  }
  const cpu::CombineArgs args = {
      .dst = rows_of(dst),
      .base = static_cast<const float*>(base.data),
      .src = const_rows_of(src),
      .rows = routing.row_of_place.as<int32_t>(),
      .weights = weights == RowWeights::kRouter ? routing.row_weights().as<float>() : nullptr,
      .chosen = routing.chosen_count(),
      .width = width};
  if (on_cuda(stream)) {
    return cuda::combine_rows(launch_stream(stream), args, tokens,
                              addend ? const_rows_of(addend) : cpu::ConstRows{});
  }
  submit_cpu_rows(stream, &cpu::ExpertKernels::combine, args, tokens, width * (args.chosen + 1));
  if (addend) add(stream, dst, addend, dst);
}

void weigh_rows(Stream& stream, const Routing& routing, const TensorView& data) {
  check_float("data", data, routing.row_count(), data.columns());
  submit_expert_rows(stream, {&cpu::ExpertKernels::scale_rows, cuda::scale_rows},
                     cpu::ScaleRowsArgs{.data = rows_of(data),
                                        .factors = routing.row_weights().as<float>(),
                                        .places = routing.place_of_row.as<int32_t>(),
                                        .width = data.columns()},
                     routing.row_count(), data.columns());
}

void dot_rows(Stream& stream, const Routing& routing, const TensorView& grad_weights,
              const TensorView& a, const TensorView& b) {
  check_vector("grad_weights", grad_weights, DType::kF32, routing.row_count());
  check_float("a", a, routing.row_count(), b.columns());
  check_typed("b", b, a.dtype, routing.row_count(), a.columns());
  submit_expert_rows(stream, {&cpu::ExpertKernels::row_dots, cuda::row_dots},
                     cpu::RowDotsArgs{.dst = grad_weights.as<float>(),
                                      .a = const_rows_of(a),
                                      .b = const_rows_of(b),
                                      .places = routing.place_of_row.as<int32_t>(),
                                      .width = a.columns()},
                     routing.row_count(), 2 * a.columns());
}

void gate_rows(Stream& stream, const TensorView& data, const TensorView& logits) {
  submit_expert_rows(stream, {&cpu::ExpertKernels::gate_rows, cuda::gate_rows},
                     row_gate_args(data, logits), data.rows(), data.columns());
}

void gate_rows_backward(Stream& stream, const TensorView& grad_logits, const TensorView& grad,
                        const TensorView& data, const TensorView& logits) {
  check_typed("grad_logits", grad_logits, DType::kF32, data.rows(), 1);
  check_float("grad", grad, data.rows(), data.columns());
  cpu::RowGateArgs args = row_gate_args(data, logits);
  args.grad = const_rows_of(grad);
  args.grad_logits = grad_logits.as<float>();
  args.grad_stride = grad_logits.row_stride;
  submit_expert_rows(stream, {&cpu::ExpertKernels::gate_rows_backward, cuda::gate_rows_backward},
                     args, data.rows(), 3 * data.columns());
}

void add_biases(Stream& stream, const Routing& routing, const TensorView& data,
                const TensorView& biases) {
  submit_expert_rows(stream, {&cpu::ExpertKernels::add_biases, cuda::add_biases},
                     bias_args(routing, data, biases), routing.row_count(), data.columns());
}

void dot_biases(Stream& stream, const Routing& routing, const TensorView& grad_weights,
                const TensorView& data, const TensorView& biases) {
  check_vector("grad_weights", grad_weights, DType::kF32, routing.row_count());
  cpu::ExpertBiasArgs args = bias_args(routing, data, biases);
  args.dots = grad_weights.as<float>();
  submit_expert_rows(stream, {&cpu::ExpertKernels::bias_dots, cuda::bias_dots}, args,
                     routing.row_count(), data.columns());
}

void bias_gradients(Stream& stream, const Routing& routing, const std::vector<TensorView>& grads,
                    const TensorView& data, RowWeights weights) {
  const int64_t width = data.columns();
  check_float("data", data, routing.row_count(), width);
  JIGE_CHECK(static_cast<int64_t>(grads.size()) == routing.expert_count(), "{} gradients",
             grads.size());
  for (const TensorView& grad : grads) {
    if (grad) check_vector("grad", grad, DType::kF32, width);
  }
  if (on_cuda(stream)) return cuda_bias_gradients(stream, routing, grads, data, weights);
  CpuStream& cpu_stream = as_cpu(stream);
  cpu_stream.submit([=, &device = cpu_stream.cpu()] {
    const auto run = cpu::expert_kernels(active_isa()).bias_gradient;
    const auto* ends = routing.row_ends.as<int32_t>();
    device.team().parallel_for(routing.expert_count(), 1, [&](int64_t first, int64_t last, int) {
      for (int64_t e = first; e < last; ++e) {
        const TensorView& grad = grads[static_cast<size_t>(e)];
        if (!grad) continue;
        run({.grad = grad.as<float>(),
             .rows = const_rows_of(data),
             .factors = weights == RowWeights::kRouter ? routing.weights.as<float>() : nullptr,
             .places = routing.place_of_row.as<int32_t>(),
             .width = width},
            e > 0 ? ends[e - 1] : 0, ends[e]);
      }
    });
  });
}

void bounded_gate(Stream& stream, const Routing& routing, const BoundedGate& gate,
                  const TensorView& dst, const TensorView& gate_up) {
  check_float("dst", dst, routing.row_count(), gate_up.columns() / 2);
  cpu::BoundedGateArgs args = gate_args(routing, gate, gate_up);
  args.dst = rows_of(dst);
  submit_expert_rows(stream, {&cpu::ExpertKernels::bounded_gate, cuda::bounded_gate}, args,
                     routing.row_count(), 2 * gate_up.columns());
}

void bounded_gate_backward(Stream& stream, const Routing& routing, const BoundedGate& gate,
                           const BoundedGateGradients& args) {
  const int64_t width = args.gate_up.columns() / 2;
  check_float("grad_gate_up", args.grad_gate_up, routing.row_count(), 2 * width);
  check_float("grad_dst", args.grad_dst, routing.row_count(), width);
  check_typed("activated", args.activated, args.gate_up.dtype, routing.row_count(), width);
  cpu::BoundedGateArgs kernel_args = gate_args(routing, gate, args.gate_up);
  kernel_args.dst = rows_of(args.grad_gate_up);
  kernel_args.grad = const_rows_of(args.grad_dst);
  kernel_args.activated = rows_of(args.activated);
  submit_expert_rows(stream,
                     {&cpu::ExpertKernels::bounded_gate_backward, cuda::bounded_gate_backward},
                     kernel_args, routing.row_count(), 4 * width);
}

void scale_slopes(Stream& stream, const Routing& routing, const TensorView& grad_weights,
                  const TensorView& slopes) {
  check_routing(routing);
  JIGE_CHECK(bool(routing.scales), "slopes of scales without scales");
  check_vector("grad_weights", grad_weights, DType::kF32, routing.row_count());
  check_vector("slopes", slopes, DType::kF32, routing.row_count());
  if (on_cuda(stream)) {
    return cuda::scale_slopes(launch_stream(stream),
                              {.grads = grad_weights.as<float>(),
                               .slopes = slopes.as<float>(),
                               .weights = routing.weights.as<float>(),
                               .scales = routing.scales.as<float>(),
                               .experts_of = routing.chosen.as<int32_t>()},
                              routing.row_count());
  }
  as_cpu(stream).submit([=] {
    const auto* chosen = routing.chosen.as<int32_t>();
    auto* grads = grad_weights.as<float>();
    for (int64_t place = 0; place < routing.row_count(); ++place) {
      slopes.as<float>()[place] = routing.weights.as<float>()[place] * grads[place];
      grads[place] = grads[place] * routing.scales.as<float>()[chosen[place]];
    }
  });
}

void scale_gradients(Stream& stream, const Routing& routing, const TensorView& grad_scales,
                     const TensorView& slopes) {
  check_routing(routing);
  check_vector("grad_scales", grad_scales, DType::kF32, routing.expert_count());
  check_vector("slopes", slopes, DType::kF32, routing.row_count());
  if (on_cuda(stream)) {
    return cuda::scale_gradients(launch_stream(stream),
                                 {.grads = grad_scales.as<float>(),
                                  .slopes = slopes.as<float>(),
                                  .places = routing.place_of_row.as<int32_t>(),
                                  .row_ends = routing.row_ends.as<int32_t>(),
                                  .experts = routing.expert_count()});
  }
  as_cpu(stream).submit([=] {
    const auto* ends = routing.row_ends.as<int32_t>();
    int32_t row = 0;
    for (int64_t e = 0; e < routing.expert_count(); ++e) {
      float& sum = grad_scales.as<float>()[e];
      for (; row < ends[e]; ++row) {
        sum = sum + slopes.as<float>()[routing.place_of_row.as<int32_t>()[row]];
      }
    }
  });
}

void route_backward(Stream& stream, const Routing& routing, const TensorView& grad_logits,
                    const TensorView& grad_weights) {
  check_routing(routing);
  const int64_t experts = routing.expert_count();
  check_typed("grad_logits", grad_logits, DType::kF32, routing.token_count(), experts);
  check_vector("grad_weights", grad_weights, DType::kF32, routing.row_count());
  submit_expert_rows(stream, {&cpu::ExpertKernels::slopes, cuda::route_slopes},
                     cpu::SlopesArgs{.choice = choose_args(routing),
                                     .grad_weights = grad_weights.as<float>(),
                                     .grad_logits = grad_logits.as<float>(),
                                     .grad_stride = grad_logits.row_stride},
                     routing.token_count(), 4 * experts);
}

}  // namespace jige::ops
