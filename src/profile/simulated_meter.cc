#include "profile/simulated_meter.h"

#include <algorithm>
#include <cmath>

#include "base/rng.h"
#include "topology/fluid.h"

namespace jige::profile {
namespace {

// Mean and sample deviation, kept as repeats come in.
struct Series {
  double sum = 0, squares = 0;
  int32_t count = 0;
  void add(double x) {
    sum += x;
    squares += x * x;
    ++count;
  }
  double mean() const { return sum / count; }
  double deviation() const {
    if (count < 2) return 0;
    return std::sqrt(std::max(0.0, (squares - sum * sum / count) / (count - 1)));
  }
};

}  // namespace

Result<Measurement> SimulatedMeter::measure(std::span<const topology::Transfer> set) {
  return measure_shares(set, std::vector<double>(set.size(), 1));
}

Result<Measurement> SimulatedMeter::measure_shares(std::span<const topology::Transfer> set,
                                                   std::span<const double> shares) {
  std::vector<topology::Flow> flows;
  std::vector<double> bytes;
  for (size_t i = 0; i < set.size(); ++i) {
    JIGE_TRY(std::vector<topology::Usage> usage, truth_.usage(set[i]));
    flows.push_back({std::move(usage), shares[i]});
    bytes.push_back(options_.bytes * shares[i]);
  }
  const topology::FluidRun run = topology::run_flows(truth_.resources(), flows, bytes);
  if (!(run.makespan_s > 0)) {
    return fail(Code::kInvalidArgument,
                "{}: a set of transfers meets no link with a rate; describe one on its way",
                truth_.name());
  }
  Rng rng(derive_key(options_.seed, "simulated meter", calls_++));
  Measurement m;
  m.gb_per_s.assign(set.size(), 0);
  Series makespans;
  std::vector<Series> members(set.size());
  // The first repeat warms up: it costs time and is not counted.
  for (int32_t repeat = 0; repeat <= options_.repeats_max; ++repeat) {
    double makespan = 0;
    for (size_t i = 0; i < set.size(); ++i) {
      const double noise = options_.noise > 0 ? std::exp(options_.noise * rng.normal()) : 1;
      const double time = run.end_s[i] * noise;
      makespan = std::max(makespan, time);
      if (repeat > 0) members[i].add(time);
    }
    m.cost_s += makespan;
    if (repeat > 0) makespans.add(makespan);
    if (makespans.count < options_.repeats_min) continue;
    m.half_width = 1.96 * makespans.deviation() / std::sqrt(makespans.count) / makespans.mean();
    if (m.half_width <= options_.half_width_max) break;
  }
  m.repeats = makespans.count;
  m.rate = options_.bytes / makespans.mean() / 1e9;
  m.deviation = makespans.deviation() / makespans.mean();
  for (size_t i = 0; i < set.size(); ++i) {
    const double mean = members[i].mean();
    m.gb_per_s[i] = mean > 0 ? bytes[i] / mean / 1e9 : topology::kUnlimited;
  }
  return m;
}

}  // namespace jige::profile
