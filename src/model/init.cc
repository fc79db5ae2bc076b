#include "model/init.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "base/cpu.h"
#include "base/rng.h"
#include "base/threads.h"

namespace jige::model {
namespace {

constexpr int64_t kInitElements = int64_t{1} << 20;
constexpr int64_t kGrain = 4096;  // a multiple of the four elements of one counter

// Uniform in (0, 1], so that its logarithm is finite.
double open_uniform(uint32_t bits) { return (static_cast<double>(bits) + 1.0) * 0x1.0p-32; }

// Four values of one counter: two Box–Muller pairs.
void four_normals(std::array<double, 4>& out, const std::array<uint32_t, 4>& bits) {
  for (size_t pair = 0; pair < 4; pair += 2) {
    const double radius = std::sqrt(-2.0 * std::log(open_uniform(bits[pair])));
    const double angle = 2.0 * std::numbers::pi * open_uniform(bits[pair + 1]);
    out[pair] = radius * std::cos(angle);
    out[pair + 1] = radius * std::sin(angle);
  }
}

void four_values(std::array<double, 4>& out, const std::array<uint32_t, 4>& bits, InitKind kind) {
  if (kind == InitKind::kNormal) return four_normals(out, bits);
  for (size_t i = 0; i < 4; ++i) {
    const double value = open_uniform(bits[i]);
    out[i] = kind == InitKind::kUniform ? 2.0 * value - 1.0 : value;
  }
}

// Of a number as four_values() gives it.
double initial_value(double value, const ParamSpec& spec) {
  if (spec.init == InitKind::kLogUniform) return std::log(spec.init_std * value);
  if (spec.init == InitKind::kStep)
    return std::log(std::expm1(spec.init_std * std::pow(1e-2, value)));
  return spec.init_std * value;
}

void fill_random(std::span<float> dst, const ParamSpec& spec, uint64_t key, int64_t first) {
  std::array<double, 4> values{};
  for (size_t i = 0; i < dst.size(); ++i) {
    const auto element = static_cast<uint64_t>(first) + i;
    if (i == 0 || element % 4 == 0) {
      const auto bits = philox(key, 0, element / 4);
      four_values(values, bits, spec.init);
    }
    dst[i] = static_cast<float>(initial_value(values[element % 4], spec));
  }
}

void fill_log_columns(std::span<float> dst, int64_t columns, int64_t first) {
  for (size_t i = 0; i < dst.size(); ++i) {
    const int64_t column = (first + static_cast<int64_t>(i)) % columns;
    dst[i] = static_cast<float>(std::log(static_cast<double>(column + 1)));
  }
}

}  // namespace

void fill_initial(std::span<float> dst, const ParamSpec& spec, uint64_t seed, int64_t first) {
  switch (spec.init) {
    case InitKind::kZero:
      std::fill(dst.begin(), dst.end(), 0.0f);
      return;
    case InitKind::kOne:
      std::fill(dst.begin(), dst.end(), 1.0f);
      return;
    case InitKind::kConstant:
      std::fill(dst.begin(), dst.end(), static_cast<float>(spec.init_std));
      return;
    case InitKind::kLogColumn:
      fill_log_columns(dst, spec.shape[spec.shape.rank() - 1], first);
      return;
    case InitKind::kNormal:
    case InitKind::kUniform:
    case InitKind::kLogUniform:
    case InitKind::kStep:
      fill_random(dst, spec, derive_key(seed, spec.name), first);
  }
}

void initialise_weights(ModelWeights& weights, const NodeStreams& streams, uint64_t seed) {
  ThreadTeam team(std::max(cpu_features().logical_count, 1));
  std::vector<float> host;
  for (const NamedParam& param : weights.trainable()) {
    Stream& stream = streams[param.node];
    const int64_t count = param.value.count();
    for (int64_t begin = 0; begin < count; begin += kInitElements) {
      const int64_t size = std::min(kInitElements, count - begin);
      host.resize(static_cast<size_t>(size));
      team.parallel_for(size, kGrain, [&](int64_t from, int64_t to, int) {
        fill_initial(
            std::span(host).subspan(static_cast<size_t>(from), static_cast<size_t>(to - from)),
            *param.spec, seed, begin + from);
      });
      stream.copy(param.value.as<float>() + begin, host.data(), size * 4, CopyKind::kHostToDevice);
      stream.synchronize();
    }
  }
  weights.start_magnitudes(streams);
  weights.pack(streams);
  streams.synchronize();
}

}  // namespace jige::model
