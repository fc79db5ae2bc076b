// Which topology a command is about: a file, a reference by name, or this machine; and the profiler
// that measures it.
// Threads: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "plan/ring_problem.h"
#include "profile/profiler.h"
#include "profile/simulated_meter.h"
#include "topology/topology.h"

namespace jige::cli {

class Flags;

struct TopologyFlags {
  std::string file, reference;

  // `file_flag` is --file or --topology.
  void declare(Flags& flags, std::string_view file_flag);
  // This machine when neither is given. Fails with kInvalidArgument when both are.
  Result<topology::Topology> load() const;
};

// How links are measured, and which transfers count.
struct LinkFlags {
  std::string devices, store_file;
  bool no_push = false, no_pull = false, no_staged = false, copy_engines = false;
  double noise = 0;
  int64_t seed = 1;
  int64_t transfer_bytes = 0;  // 0: by the kind of the links

  void declare(Flags& flags);
  plan::RingOptions ring_options() const { return {!no_push, !no_pull, !no_staged, copy_engines}; }
  // Those named by --devices, otherwise all. Fails with kNotFound.
  Result<std::vector<int32_t>> chosen_devices(const topology::Topology& topology) const;
};

// A meter, the store behind it, and the profiler that uses both.
class LinkBench {
 public:
  static Result<std::unique_ptr<LinkBench>> open(const topology::Topology& topology,
                                                 const LinkFlags& flags);
  profile::Profiler& profiler() { return *profiler_; }
  bool resumed() const { return store_ && !store_->all().empty(); }

 private:
  LinkBench(const topology::Topology& topology, const profile::SimulatedMeterOptions& options)
      : meter_(topology, options) {}
  profile::SimulatedMeter meter_;
  std::optional<profile::MeasurementStore> store_;
  std::optional<profile::Profiler> profiler_;
};

}  // namespace jige::cli
