#include "cli/machine_rates.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
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

constexpr int64_t kTouchCount = 8 << 20;  // numbers between looks at the time

// Units of work per second, ascending, of at least `runs_min` runs of `work`, which does `units` of
// it, that take `seconds` in all.
std::vector<double> sorted_rates(double units, double seconds, size_t runs_min,
                                 const std::function<void()>& work) {
  work();
  std::vector<double> rates;
  const StopWatch all;
  while (rates.size() < runs_min || all.seconds() < seconds) {
    const StopWatch watch;
    work();
    rates.push_back(units / std::max(watch.seconds(), 1e-9));
  }
  std::sort(rates.begin(), rates.end());
  return rates;
}

double best_rate(double units, double seconds, const std::function<void()>& work) {
  return sorted_rates(units, seconds, 1, work).back();
}

}  // namespace

void fill_random(Stream& stream, const TensorView& view) {
  constexpr int64_t kDrawn = 1 << 16;
  Rng rng(derive_key(1, "bench values"));
  const int64_t count = view.count();
  std::vector<float> values(static_cast<size_t>(std::min(count, kDrawn)));
  for (float& value : values) value = static_cast<float>(rng.uniform() - 0.5);
  for (int64_t i = 0; i < count; i += kDrawn) {
    stream.copy(view.as<float>() + i, values.data(), std::min(kDrawn, count - i) * 4,
                CopyKind::kHostToDevice);
  }
  stream.synchronize();
}

double measure_fma_flops_per_s(CpuDevice& device, double seconds) {
  const cpu::ProbeKernels& kernels = cpu::probe_kernels(active_isa());
  constexpr int64_t kRounds = 1 << 20;
  const int threads = device.team().size();
  volatile float sink = 0;
  const double flops = static_cast<double>(kRounds * kernels.fma_chain_flops) * threads;
  return best_rate(flops, seconds, [&] {
    device.team().parallel_for(threads, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) sink = kernels.fma_chain(kRounds);
    });
  });
}

Result<std::unique_ptr<ReadProbe>> ReadProbe::create(Device& device, const Size& size) {
  std::unique_ptr<ReadProbe> probe(new ReadProbe(device));
  JIGE_TRY(probe->array_, probe->arena_.make(DType::kF32, Shape{size.bytes / 4}));
  if (device.kind() == DeviceKind::kCuda) {
    JIGE_TRY(probe->copies_, device.make_stream());
    probe->count_ = probe->array_.view().count();
    return probe;
  }
  probe->team_ = &static_cast<CpuDevice&>(device).team();
  probe->touch(size);
  return probe;
}

void ReadProbe::touch(const Size& size) {
  auto* data = array_.view().as<float>();
  const int64_t whole = array_.view().count();
  const StopWatch watch;
  while (count_ < whole && (count_ * 4 < size.bytes_min || watch.seconds() < size.seconds)) {
    const int64_t part = std::min(kTouchCount, whole - count_);
    team_->parallel_for(part, 1 << 16, [&](int64_t begin, int64_t end, int) {
      std::fill(data + count_ + begin, data + count_ + end, 0.0f);
    });
    count_ += part;
  }
}

double ReadProbe::bytes() const { return static_cast<double>(count_) * 4; }

void ReadProbe::run() {
  const cpu::ProbeKernels& kernels = cpu::probe_kernels(active_isa());
  float* data = array_.view().as<float>();
  const int64_t count = count_;
  if (copies_) {
    const int64_t half = count / 2;
    copies_->copy(data + half, data, half * 4, CopyKind::kDeviceToDevice);
    copies_->synchronize();
    return;
  }
  const int64_t share = (count + team_->size() - 1) / team_->size();
  volatile float sink = 0;
  team_->parallel_for(count, share, [&](int64_t begin, int64_t end, int) {
    sink = kernels.read_stream(data + begin, end - begin);
  });
}

double measure_read_bytes_per_s(ReadProbe& probe, double seconds) {
  return best_rate(probe.bytes(), seconds, [&] { probe.run(); });
}

Result<double> measure_read_bytes_per_s(Device& device, int64_t bytes) {
  JIGE_TRY(const auto probe, ReadProbe::create(device, {.bytes = bytes}));
  return measure_read_bytes_per_s(*probe, 0.5);
}

Result<std::unique_ptr<CopyProbe>> CopyProbe::create(Device& device, int64_t bytes) {
  std::unique_ptr<CopyProbe> probe(new CopyProbe(device));
  JIGE_TRY(probe->array_, probe->arena_.make(DType::kU8, Shape{bytes}));
  JIGE_TRY(probe->host_, HostBuffer::make(device, probe->array_.bytes()));
  std::memset(probe->host_.data(), 1, static_cast<size_t>(probe->array_.bytes()));
  JIGE_TRY(probe->stream_, device.make_stream());
  return probe;
}

void CopyProbe::run() {
  stream_->copy(array_.view().data, host_.data(), array_.bytes(), CopyKind::kHostToDevice);
  stream_->synchronize();
}

Result<std::unique_ptr<GemmProbe>> GemmProbe::create(Device& device, DType compute,
                                                     const GemmShape& shape) {
  std::unique_ptr<GemmProbe> probe(new GemmProbe(device, shape));
  Arena& arena = probe->arena_;
  JIGE_TRY(probe->stream_, device.make_stream());
  const auto [tokens, inputs, outputs] = shape;
  JIGE_TRY(const Tensor weight, arena.make(DType::kF32, Shape{outputs, inputs}));
  JIGE_TRY(probe->packed_,
           arena.make(DType::kU8, Shape{ops::packed_weight_bytes(compute, ops::PackUse::kForward,
                                                                 outputs, inputs)}));
  JIGE_TRY(const Tensor values, arena.make(DType::kF32, Shape{tokens, inputs}));
  JIGE_TRY(probe->src_, arena.make(compute, Shape{tokens, inputs}));
  JIGE_TRY(probe->dst_, arena.make(compute, Shape{tokens, outputs}));
  fill_random(*probe->stream_, weight.view());
  fill_random(*probe->stream_, values.view());
  ops::scale(*probe->stream_, probe->src_.view(), values.view(), 1.0f);
  probe->form_ = {probe->packed_.view().data, compute, ops::PackUse::kForward, outputs, inputs};
  ops::pack_weight(*probe->stream_, probe->form_, weight.view());
  probe->stream_->synchronize();
  return probe;
}

double GemmProbe::flops() const {
  return 2.0 * static_cast<double>(shape_.tokens) * static_cast<double>(shape_.inputs) *
         static_cast<double>(shape_.outputs);
}

void GemmProbe::run() {
  ops::linear_forward(*stream_, {.dst = dst_.view(), .src = src_.view(), .weight = form_});
  stream_->synchronize();
}

Result<double> measure_gemm_flops_per_s(Device& device, DType compute, const GemmShape& shape,
                                        double seconds) {
  JIGE_TRY(const auto probe, GemmProbe::create(device, compute, shape));
  const std::vector<double> rates = sorted_rates(probe->flops(), seconds, 3, [&] { probe->run(); });
  return rates[rates.size() / 2];
}

int64_t streaming_bytes() {
  const long last_level = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return std::clamp<int64_t>(4 * static_cast<int64_t>(std::max(last_level, 0L)), int64_t{256} << 20,
                             int64_t{1} << 30);
}

int64_t streaming_bytes_min() {
  const long last_level = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return std::clamp<int64_t>(2 * static_cast<int64_t>(std::max(last_level, 0L)), int64_t{64} << 20,
                             streaming_bytes());
}

}  // namespace jige::cli
