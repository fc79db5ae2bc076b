// Which topology a command is about: a file, a reference by name, hosts with agents, ranks of MPI,
// processes of this machine, or this machine; and the profiler that measures it.
//
//   JIGE_TRY(const auto bench, LinkBench::open(source_, links_));   // topology, meter, store
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
#include "plan/ring_problem.h"
#include "profile/gpu_meter.h"
#include "profile/mpi_meter.h"
#include "profile/profiler.h"
#include "profile/shm_meter.h"
#include "profile/tcp_meter.h"
#include "topology/topology.h"

namespace jige::cli {

class Flags;

struct TopologyFlags {
  std::string file, reference, source = "auto";

  // `file_flag` is --file or --topology.
  void declare(Flags& flags, std::string_view file_flag);
  bool given() const { return !file.empty() || !reference.empty(); }
  // This machine when neither is given. Fails with kInvalidArgument when both are, or one of them
  // and --source.
  Result<topology::Topology> load() const;
};

// How links are measured, and which transfers count.
struct LinkFlags {
  std::string hosts;  // with agents, to be measured
  std::string shm;    // processes of this machine, likewise
  std::string mpi;    // ranks of an MPI program, likewise
  std::string mpirun = "mpirun";
  bool gpus = false;  // those of this machine; without any of the four, rates are simulated
  std::string token, congestion = "auto";
  std::string devices, store_file;
  bool no_push = false, no_pull = false, no_staged = false, copy_engines = false;
  bool no_kernels = false;
  double noise = 0, set_seconds = 4, timeout_s = 10;
  int64_t seed = 1;
  int64_t kernel_blocks = 16;
  int64_t transfer_bytes = 0;  // 0: by the kind of the links

  void declare(Flags& flags);
  plan::RingOptions ring_options() const {
    const bool kernels = !no_kernels && !(gpus && profile::copy_kernel_image().empty());
    return {!no_push, !no_pull, !no_staged, copy_engines || gpus, kernels};
  }
  // Those named by --devices, otherwise all. Fails with kNotFound.
  Result<std::vector<int32_t>> chosen_devices(const topology::Topology& topology) const;
};

// "12.5", "0.0239": GB/s with three significant digits, so that slow networks show as well.
std::string rate_text(double gb_per_s);

// A topology, the meter for it, the store behind that, and the profiler that uses them. With hosts,
// ranks or processes the topology is the one given, whose hosts are these, or all of them around
// one router.
class LinkBench {
 public:
  static Result<std::unique_ptr<LinkBench>> open(const TopologyFlags& source,
                                                 const LinkFlags& flags);
  // Of a machine that is not at hand.
  static Result<std::unique_ptr<LinkBench>> simulate(topology::Topology topology,
                                                     const LinkFlags& flags);
  const topology::Topology& topology() const { return *topology_; }
  profile::Profiler& profiler() { return *profiler_; }
  // What the store holds of a set, null if nothing. Members are in the order of their names.
  const profile::Measurement* stored(std::span<const topology::Transfer> set) const;
  // Whether rates are those of real links.
  bool measures() const { return measures_; }
  // The meter, where it runs collectives as well: between hosts or processes. Null otherwise.
  profile::CollectiveMeter* collectives() { return collectives_; }

 private:
  LinkBench() = default;
  Status connect(const TopologyFlags& source, const LinkFlags& flags);
  Status start_processes(const TopologyFlags& source, const LinkFlags& flags);
  Status start_mpi(const TopologyFlags& source, const LinkFlags& flags);
  Status start_gpus(const TopologyFlags& source, const LinkFlags& flags);
  // A meter of real links, for the machine or network it is of.
  template <typename Meter>
  Status take(std::unique_ptr<Meter> meter, topology::Description description,
              std::string_view where);
  Status open_profiler(const LinkFlags& flags);

  std::optional<topology::Topology> topology_;
  bool measures_ = false;
  profile::CollectiveMeter* collectives_ = nullptr;  // the meter, where it is one
  std::unique_ptr<profile::LinkMeter> meter_;
  std::optional<profile::MeasurementStore> store_;
  std::optional<profile::Profiler> profiler_;
};

}  // namespace jige::cli
