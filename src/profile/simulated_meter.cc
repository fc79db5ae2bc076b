#include "profile/simulated_meter.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/rng.h"
#include "profile/repeats.h"
#include "topology/fluid.h"

namespace jige::profile {

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
  std::vector<double> makespans;
  std::vector<std::vector<double>> members(set.size());
  SeriesSummary summary;
  // The first repeat warms up: it costs time and is not counted.
  for (int32_t repeat = 0; repeat <= options_.repeats_max; ++repeat) {
    double makespan = 0;
    for (size_t i = 0; i < set.size(); ++i) {
      const double noise = options_.noise > 0 ? std::exp(options_.noise * rng.normal()) : 1;
      const double time = run.end_s[i] * noise;
      makespan = std::max(makespan, time);
      if (repeat > 0) members[i].push_back(time);
    }
    m.cost_s += makespan;
    if (repeat > 0) makespans.push_back(makespan);
    if (std::ssize(makespans) < options_.repeats_min) continue;
    summary = summarise(makespans);
    if (summary.half_width <= options_.half_width_max) break;
  }
  m.repeats = static_cast<int32_t>(makespans.size());
  m.rate = options_.bytes / summary.mean / 1e9;
  m.deviation = summary.deviation;
  m.half_width = summary.half_width;
  for (size_t i = 0; i < set.size(); ++i) {
    const double mean = summarise(members[i]).mean;
    m.gb_per_s.push_back(mean > 0 ? bytes[i] / mean / 1e9 : topology::kUnlimited);
  }
  return m;
}

}  // namespace jige::profile
