// A topology, the meter for it, the store behind that, and the profiler that uses them: what
// commands about links measure with.
//
//   JIGE_TRY(const auto bench, LinkBench::open(source_, links_));
//   JIGE_TRY(const plan::RingProblem problem, bench->ring_problem(links_));
//
// Threads: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/meter_kinds.h"
#include "cli/topology_flags.h"
#include "plan/ring_problem.h"
#include "profile/profiler.h"
#include "topology/topology.h"

namespace jige::cli {

// How links are measured, and which transfers count.
struct LinkFlags {
  MeterKinds meters;
  MeterRequest request;
  std::string devices, store_file;
  bool no_push = false, no_pull = false, no_staged = false, copy_engines = false;
  bool no_kernels = false;

  void declare(Flags& flags);
  // Those named by --devices, otherwise all. Fails with kNotFound, and with
  // kInvalidArgument for one that is there twice.
  Result<std::vector<int32_t>> chosen_devices(const topology::Topology& topology) const;
};

// "12.5", "0.0239": GB/s with three significant digits, so that slow networks show as well.
std::string rate_text(double gb_per_s);

// With hosts, ranks or processes the topology is the one given, whose hosts are these, or all of
// them around one router.
class LinkBench {
 public:
  static Result<std::unique_ptr<LinkBench>> open(const TopologyFlags& source,
                                                 const LinkFlags& flags);
  // Of a machine that is not at hand.
  static Result<std::unique_ptr<LinkBench>> simulate(topology::Topology topology,
                                                     const LinkFlags& flags);
  const topology::Topology& topology() const { return *opened_.topology; }
  profile::Profiler& profiler() { return *profiler_; }
  // What a ring may use, by the flags and the meter. It refers to topology().
  Result<plan::RingProblem> ring_problem(const LinkFlags& flags) const;
  // What the store holds of a set, if anything, its members in the order of `set`.
  std::optional<profile::Measurement> stored(std::span<const topology::Transfer> set) const;
  // Whether rates are those of real links.
  bool measures() const { return measures_; }
  // The meter, where it runs collectives as well: between hosts or processes. Null otherwise.
  profile::CollectiveMeter* collectives() { return opened_.collectives; }

 private:
  LinkBench(OpenedMeter opened, bool measures) : opened_(std::move(opened)), measures_(measures) {}
  static Result<std::unique_ptr<LinkBench>> over(OpenedMeter opened, bool measures,
                                                 const std::string& store_file);

  OpenedMeter opened_;
  bool measures_;
  std::optional<profile::MeasurementStore> store_;
  std::optional<profile::Profiler> profiler_;
};

}  // namespace jige::cli
