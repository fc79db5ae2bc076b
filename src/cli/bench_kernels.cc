#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "cli/bench.h"
#include "cli/interrupt.h"
#include "cli/machine_rates.h"
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/linear.h"
#include "tensor/arena.h"

namespace jige::cli {
namespace {

constexpr const char* kOfVectorUnits = "of the vector units";
constexpr const char* kOfMemory = "of reading memory";

Result<Tensor> random_tensor(Arena& arena, Stream& stream, DType dtype, Shape shape) {
  JIGE_TRY(Tensor values, arena.make(DType::kF32, shape));
  fill_random(stream, values.view());
  if (dtype == DType::kF32) return values;
  JIGE_TRY(Tensor converted, arena.make(dtype, shape));
  ops::scale(stream, converted.view(), values.view(), 1.0f);
  stream.synchronize();
  return converted;
}

// Bytes that random_tensor takes until it is done.
int64_t random_tensor_bytes(DType dtype, const Shape& shape) {
  return arena_bytes(DType::kF32, shape) + (dtype == DType::kF32 ? 0 : arena_bytes(dtype, shape));
}

struct GemmBench {
  const char* name;
  int64_t tokens, inputs, outputs;
};

std::vector<GemmBench> gemm_shapes(const BenchOptions& options) {
  const formats::ModelConfig& config = options.config;
  const int64_t width = config.hidden_size;
  const int64_t inner = formats::inner_columns(config);
  const int64_t square = options.square_columns;
  std::vector<GemmBench> shapes;
  if (formats::attention_layer_count(config) > 0) {
    const int64_t qkv = (config.head_count + 2 * config.kv_head_count) * config.head_dim;
    shapes.push_back({"qkv", 512, width, qkv});
  }
  const std::initializer_list<GemmBench> others = {
      {"gate and up", 512, width, 2 * inner},  {"down", 512, inner, width},
      {"head", 512, width, config.vocab_size}, {"square", square, square, square},
      {"head", 1, width, config.vocab_size},   {"square", 1, 4096, options.wide_outputs}};
  shapes.insert(shapes.end(), others);
  return shapes;
}

// Bytes that bench_one_gemm takes.
int64_t gemm_bytes(const GemmBench& shape, DType dtype) {
  const int64_t packed =
      ops::packed_weight_bytes(dtype, ops::PackUse::kForward, shape.outputs, shape.inputs);
  const Shape src{shape.tokens, shape.inputs};
  const int64_t with_dst =
      arena_bytes(dtype, src) + arena_bytes(dtype, Shape{shape.tokens, shape.outputs});
  return arena_bytes(DType::kF32, Shape{shape.outputs, shape.inputs}) + whole_lines(packed) +
         std::max(random_tensor_bytes(dtype, src), with_dst);
}

struct AttentionShapes {
  int64_t tokens;
  Shape q, kv;
};

AttentionShapes attention_shapes(const BenchOptions& options) {
  const formats::ModelConfig& config = options.config;
  const int64_t tokens = std::max(options.context, options.batch_tokens);
  return {.tokens = tokens,
          .q = Shape{tokens, config.head_count * config.head_dim},
          .kv = Shape{tokens, config.kv_head_count * config.head_dim}};
}

// Bytes that bench_attention takes.
int64_t attention_bytes(const BenchOptions& options) {
  const AttentionShapes shapes = attention_shapes(options);
  const int64_t q = arena_bytes(options.dtype, shapes.q);
  const int64_t kv = arena_bytes(options.dtype, shapes.kv);
  const int64_t making_v = q + kv + random_tensor_bytes(options.dtype, shapes.kv);
  return std::max({random_tensor_bytes(options.dtype, shapes.q), making_v, q + kv + kv + q});
}

Status check_kernel_memory(int64_t bytes, const BenchOptions& options, const char* what,
                           const char* remedy) {
  if (bytes <= options.memory_bytes_max) return {};
  return fail(Code::kExhausted, "{} takes {}, --memory-limit is {}; {}", what, format_bytes(bytes),
              format_bytes(options.memory_bytes_max), remedy);
}

Status bench_one_gemm(Device& device, const GemmBench& shape, const BenchOptions& options,
                      const MachineRates& rates, const MeasurementSink& sink) {
  Arena arena(device, "matrix product benchmark", options.memory_bytes_max);
  JIGE_TRY(const auto stream, device.make_stream());
  JIGE_TRY(const Tensor weight,
           random_tensor(arena, *stream, DType::kF32, Shape{shape.outputs, shape.inputs}));
  const int64_t packed_bytes =
      ops::packed_weight_bytes(options.dtype, ops::PackUse::kForward, shape.outputs, shape.inputs);
  JIGE_TRY(const Tensor packed, arena.make(DType::kU8, Shape{packed_bytes}));
  const ops::PackedWeight form{packed.view().data, options.dtype, ops::PackUse::kForward,
                               shape.outputs, shape.inputs};
  ops::pack_weight(*stream, form, weight.view());
  JIGE_TRY(const Tensor src,
           random_tensor(arena, *stream, options.dtype, Shape{shape.tokens, shape.inputs}));
  JIGE_TRY(const Tensor dst, arena.make(options.dtype, Shape{shape.tokens, shape.outputs}));
  const auto work = [&]() -> Status {
    ops::linear_forward(*stream, {.dst = dst.view(), .src = src.view(), .weight = form});
    stream->synchronize();
    return {};
  };
  JIGE_TRY(const Timing timing, time_runs(options.seconds / 2, work));
  const std::string detail =
      fmt::format("{} [{} x {}] x [{} x {}] {}", shape.name, shape.tokens, shape.inputs,
                  shape.inputs, shape.outputs, dtype_info(options.dtype).name);
  if (shape.tokens == 1) {
    Measurement found =
        make_measurement("gemv", detail, static_cast<double>(packed_bytes) / 1e9, "GB/s", timing);
    found.share = found.value * 1e9 / rates.read_bytes_per_s;
    found.share_of = kOfMemory;
    sink(found);
    return {};
  }
  const double flops =
      2.0 * static_cast<double>(shape.tokens * shape.inputs) * static_cast<double>(shape.outputs);
  Measurement found = make_measurement("gemm", detail, flops / 1e9, "GFLOP/s", timing);
  if (rates.fma_flops_per_s > 0) {
    found.share = found.value * 1e9 / rates.fma_flops_per_s;
    found.share_of = kOfVectorUnits;
  }
  sink(found);
  return {};
}

// REQUIRES: some times.
Timing summary_of(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return {.median_s = times[times.size() / 2],
          .fastest_s = times.front(),
          .slowest_s = times.back(),
          .run_count = static_cast<int64_t>(times.size())};
}

// Seconds of one run. Fails as the work does, and with kCancelled after a signal.
Result<double> time_one(const std::function<Status()>& work) {
  if (interrupted()) return fail(Code::kCancelled, "by a signal");
  const StopWatch watch;
  JIGE_DO(work());
  return std::max(watch.seconds(), 1e-9);
}

}  // namespace

Result<Timing> time_runs(double seconds, const std::function<Status()>& work) {
  JIGE_DO(work());
  std::vector<double> times;
  const StopWatch all;
  while (times.size() < 3 || all.seconds() < seconds) {
    JIGE_TRY(const double time_s, time_one(work));
    times.push_back(time_s);
  }
  return summary_of(std::move(times));
}

Result<TimingInTurns> time_in_turns(double seconds, double units,
                                    const std::function<Status()>& work,
                                    const Reference& reference) {
  const auto pause = [&] {
    if (reference.pause) reference.pause();
  };
  JIGE_DO(work());
  reference.run();
  std::vector<double> times, shares;
  const StopWatch all;
  while (times.size() < 3 || all.seconds() < seconds) {
    pause();
    JIGE_TRY(const double time_s, time_one(work));
    times.push_back(time_s);
    pause();
    double reference_units = 0;
    const StopWatch other;
    do {
      reference.run();
      reference_units += reference.units;
    } while (other.seconds() < times.back());
    shares.push_back(units / times.back() / (reference_units / other.seconds()));
  }
  std::sort(shares.begin(), shares.end());
  return TimingInTurns{.work = summary_of(std::move(times)),
                       .share = shares[shares.size() / 2],
                       .share_low = shares[shares.size() / 4],
                       .share_high = shares[shares.size() * 3 / 4]};
}

Measurement make_measurement(std::string name, std::string detail, double amount, std::string unit,
                             const Timing& timing) {
  return {.name = std::move(name),
          .detail = std::move(detail),
          .value = amount / timing.median_s,
          .slowest = amount / timing.slowest_s,
          .fastest = amount / timing.fastest_s,
          .unit = std::move(unit)};
}

Json measurement_json(const Measurement& measurement) {
  Json json{{"name", measurement.name},       {"detail", measurement.detail},
            {"value", measurement.value},     {"slowest", measurement.slowest},
            {"fastest", measurement.fastest}, {"unit", measurement.unit}};
  if (measurement.unit_bytes > 0) json["unit_bytes"] = measurement.unit_bytes;
  if (measurement.share > 0) {
    json["share"] = measurement.share;
    json["share_of"] = measurement.share_of;
    if (measurement.share_low > 0) {
      json["share_low"] = measurement.share_low;
      json["share_high"] = measurement.share_high;
    }
  }
  return json;
}

Status bench_machine(Device& device, double seconds, MachineRates& rates,
                     const MeasurementSink& sink, int64_t bytes_min) {
  // For the vector units, for touching memory and for reading it, each.
  const double part_s = seconds / 4;
  const bool on_gpu = device.kind() == DeviceKind::kCuda;
  if (!on_gpu) {
    rates.fma_flops_per_s =
        measure_fma_flops_per_s(static_cast<CpuDevice&>(device), std::min(0.3, part_s));
  }
  JIGE_TRY(const auto memory,
           ReadProbe::create(
               device, {.bytes = streaming_bytes(), .seconds = part_s, .bytes_min = bytes_min}));
  const auto bytes = static_cast<int64_t>(memory->bytes());
  rates.read_bytes_per_s = measure_read_bytes_per_s(*memory, std::min(0.5, part_s));
  const auto note = [&](const char* name, std::string detail, double value, const char* unit) {
    sink({.name = name,
          .detail = std::move(detail),
          .value = value,
          .slowest = value,
          .fastest = value,
          .unit = unit});
  };
  if (!on_gpu) {
    note("vector units",
         fmt::format("f32 multiply-adds in registers, {}",
                     isa_name(std::min(active_isa(), Isa::kAvx512))),
         rates.fma_flops_per_s / 1e9, "GFLOP/s");
  }
  note("memory",
       fmt::format("{} {} MiB", on_gpu ? "a copy that reads and writes" : "reading", bytes >> 20),
       rates.read_bytes_per_s / 1e9, "GB/s");
  return {};
}

Status bench_gemm(Device& device, const BenchOptions& options, const MachineRates& rates,
                  const MeasurementSink& sink) {
  JIGE_DO(check_gemm_memory(options));
  for (const GemmBench& shape : gemm_shapes(options)) {
    JIGE_DO(bench_one_gemm(device, shape, options, rates, sink));
  }
  return {};
}

Status check_gemm_memory(const BenchOptions& options) {
  int64_t most = 0;
  for (const GemmBench& shape : gemm_shapes(options)) {
    most = std::max(most, gemm_bytes(shape, options.dtype));
  }
  return check_kernel_memory(most, options, "gemm",
                             "raise it, or name what else to measure: attention, inference, train");
}

Status bench_attention(Device& device, const BenchOptions& options, const MachineRates& rates,
                       const MeasurementSink& sink) {
  JIGE_DO(check_attention_memory(options));
  Arena arena(device, "attention benchmark", options.memory_bytes_max);
  JIGE_TRY(const auto stream, device.make_stream());
  const formats::ModelConfig& config = options.config;
  const AttentionShapes shapes = attention_shapes(options);
  JIGE_TRY(const Tensor q, random_tensor(arena, *stream, options.dtype, shapes.q));
  JIGE_TRY(const Tensor k, random_tensor(arena, *stream, options.dtype, shapes.kv));
  JIGE_TRY(const Tensor v, random_tensor(arena, *stream, options.dtype, shapes.kv));
  JIGE_TRY(const Tensor dst, arena.make(options.dtype, shapes.q));
  ops::AttentionForward args{.dst = dst.view(), .q = q.view(), .k = k.view(), .v = v.view()};
  args.shape = {.head_count = config.head_count,
                .kv_head_count = config.kv_head_count,
                .head_dim = config.head_dim,
                .scale = 0.125};
  double pairs = 0;
  for (int64_t begin = 0; begin < shapes.tokens; begin += options.context) {
    const int64_t count = std::min(options.context, shapes.tokens - begin);
    args.sequences.push_back(
        {.row_begin = static_cast<int32_t>(begin), .row_count = static_cast<int32_t>(count)});
    pairs += static_cast<double>(count) * static_cast<double>(count + 1) / 2;
  }
  const auto work = [&]() -> Status {
    ops::attention_forward(*stream, args);
    stream->synchronize();
    return {};
  };
  JIGE_TRY(const Timing timing, time_runs(options.seconds, work));
  Measurement found =
      make_measurement("attention",
                       fmt::format("forward, {} sequences of {}, {} heads of {}, {}",
                                   args.sequences.size(), options.context, config.head_count,
                                   config.head_dim, dtype_info(options.dtype).name),
                       4 * pairs * static_cast<double>(shapes.q[1]) / 1e9, "GFLOP/s", timing);
  if (rates.fma_flops_per_s > 0) {
    found.share = found.value * 1e9 / rates.fma_flops_per_s;
    found.share_of = kOfVectorUnits;
  }
  sink(found);
  return {};
}

Status check_attention_memory(const BenchOptions& options) {
  return check_kernel_memory(attention_bytes(options), options, "attention",
                             "choose a smaller --batch-tokens, --context or model");
}

}  // namespace jige::cli
