#include "cli/machine_rates.h"

#include <unistd.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"
#include "kernels/cpu/probe.h"
#include "ops/elementwise.h"
#include "ops/linear.h"
#include "tensor/arena.h"

namespace jige::cli {
namespace {

// Units of work per second, ascending, of at least three runs of `work`, which does `units` of it,
// that take `seconds` in all.
std::vector<double> sorted_rates(double units, double seconds, const std::function<void()>& work) {
  work();
  std::vector<double> rates;
  const StopWatch all;
  while (rates.size() < 3 || all.seconds() < seconds) {
    const StopWatch watch;
    work();
    rates.push_back(units / std::max(watch.seconds(), 1e-9));
  }
  std::sort(rates.begin(), rates.end());
  return rates;
}

double best_rate(double units, double seconds, const std::function<void()>& work) {
  return sorted_rates(units, seconds, work).back();
}

void fill_random(const TensorView& view) {
  Rng rng(derive_key(1, "bench values"));
  float* values = view.as<float>();
  for (int64_t i = 0; i < view.count(); ++i) values[i] = static_cast<float>(rng.uniform() - 0.5);
}

}  // namespace

double measure_fma_flops_per_s(CpuDevice& device) {
  const cpu::ProbeKernels& kernels = cpu::probe_kernels(active_isa());
  constexpr int64_t kRounds = 1 << 20;
  const int threads = device.team().size();
  volatile float sink = 0;
  const double flops = static_cast<double>(kRounds * kernels.fma_chain_flops) * threads;
  return best_rate(flops, 0.3, [&] {
    device.team().parallel_for(threads, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) sink = kernels.fma_chain(kRounds);
    });
  });
}

Result<double> measure_read_bytes_per_s(CpuDevice& device, int64_t bytes) {
  const cpu::ProbeKernels& kernels = cpu::probe_kernels(active_isa());
  Arena arena(device, "bandwidth measurement");
  const int64_t count = bytes / 4;
  JIGE_TRY(const Tensor array, arena.make_zero(DType::kF32, Shape{count}));
  const float* data = array.view().as<float>();
  volatile float sink = 0;
  return best_rate(static_cast<double>(count) * 4, 0.5, [&] {
    const int64_t share = (count + device.team().size() - 1) / device.team().size();
    device.team().parallel_for(count, share, [&](int64_t begin, int64_t end, int) {
      sink = kernels.read_stream(data + begin, end - begin);
    });
  });
}

Result<double> measure_gemm_flops_per_s(CpuDevice& device, DType compute, const GemmShape& shape,
                                        double seconds) {
  Arena arena(device, "matrix product measurement");
  JIGE_TRY(const std::unique_ptr<Stream> stream, device.make_stream());
  const auto [tokens, inputs, outputs] = shape;
  JIGE_TRY(const Tensor weight, arena.make(DType::kF32, Shape{outputs, inputs}));
  JIGE_TRY(const Tensor packed,
           arena.make(DType::kU8, Shape{ops::packed_weight_bytes(compute, ops::PackUse::kForward,
                                                                 outputs, inputs)}));
  JIGE_TRY(const Tensor values, arena.make(DType::kF32, Shape{tokens, inputs}));
  JIGE_TRY(const Tensor src, arena.make(compute, Shape{tokens, inputs}));
  JIGE_TRY(const Tensor dst, arena.make(compute, Shape{tokens, outputs}));
  fill_random(weight.view());
  fill_random(values.view());
  ops::scale(*stream, src.view(), values.view(), 1.0f);
  const ops::PackedWeight form{packed.view().data, compute, ops::PackUse::kForward, outputs,
                               inputs};
  ops::pack_weight(*stream, form, weight.view());
  const double flops = 2.0 * static_cast<double>(tokens) * static_cast<double>(inputs) *
                       static_cast<double>(outputs);
  const std::vector<double> rates = sorted_rates(flops, seconds, [&] {
    ops::linear_forward(*stream, {.dst = dst.view(), .src = src.view(), .weight = form});
    stream->synchronize();
  });
  return rates[rates.size() / 2];
}

int64_t streaming_bytes() {
  const long last_level = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return std::clamp<int64_t>(4 * static_cast<int64_t>(std::max(last_level, 0L)), int64_t{256} << 20,
                             int64_t{1} << 30);
}

}  // namespace jige::cli
