// A meter for machines that are not at hand: the fluid model of a topology, with seeded noise.
//
//   SimulatedMeter meter(box, {.noise = 0.02, .seed = 7});
//   JIGE_TRY(const Measurement m, meter.measure(set));
//
// The topology is the truth; what a planner believes may be another one with the same components in
// front (a trunk nobody described). `cost_s` counts what the measurement would have taken there.
// Members with different shares of the bytes divide what they meet in proportion to these: an
// assumption, that of streams cut into equally many pieces.
// Same seed, same sequence of calls: same numbers. Threads: one caller.
#pragma once

#include <cstdint>
#include <span>

#include "profile/link_meter.h"
#include "topology/topology.h"

namespace jige::profile {

struct SimulatedMeterOptions {
  double bytes = 32.0 * (1 << 20);  // of each transfer
  double noise = 0;                 // relative deviation of a member's time in one repeat
  uint64_t seed = 1;
  int32_t repeats_min = 9;  // timed ones, after one for warming up
  int32_t repeats_max = 60;
  double half_width_max = 0.03;  // repeats end once the interval is this narrow
};

class SimulatedMeter final : public LinkMeter {
 public:
  explicit SimulatedMeter(const topology::Topology& truth, SimulatedMeterOptions options = {})
      : truth_(truth), options_(options) {}

  Result<Measurement> measure(std::span<const topology::Transfer> set) override;
  Result<Measurement> measure_shares(std::span<const topology::Transfer> set,
                                     std::span<const double> shares) override;
  std::string_view source() const override { return "simulated"; }

  // The machine changes under the meter's hands, as links do that train down.
  void change(const topology::Topology& truth) { truth_ = truth; }

 private:
  topology::Topology truth_;
  SimulatedMeterOptions options_;
  uint64_t calls_ = 0;
};

}  // namespace jige::profile
