// A kind of meter that commands about links can use: its flags, and how it opens.
//
//   class ShmKind final : public MeterKind { … };   // in meter_shm.cc, listed in meter_kinds.cc
//
// A new kind is a file of its own and a line in meter_kinds.cc. Threads: one thread.
#pragma once

#include <limits>
#include <memory>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/result.h"
#include "cli/interrupt.h"
#include "cli/topology_flags.h"
#include "profile/collective_meter.h"
#include "topology/topology.h"

namespace jige::cli {

class Flags;

// What every kind heeds.
struct MeterRequest {
  int64_t transfer_bytes = 0;         // 0: by the kind of the links
  std::optional<double> set_seconds;  // for the repeats of one set; none: by the budget
  double budget_s = std::numeric_limits<double>::infinity();  // for all sets
  double timeout_s = 10;
  int64_t seed = 1;

  double seconds_per_set() const;
};

// A meter and the machine or network it is of.
struct OpenedMeter {
  std::unique_ptr<const topology::Topology> topology;
  std::unique_ptr<profile::LinkMeter> meter;
  profile::CollectiveMeter* collectives = nullptr;  // the meter, where it is one
  bool copy_engines = false;                        // it uses them, asked or not
  bool kernels = true;                              // it can have kernels copy
};

class MeterKind {
 public:
  virtual ~MeterKind() = default;

  // Declares flag() and own_flags().
  virtual void declare(Flags& flags) = 0;
  // By which it is asked for, as "--shm".
  virtual std::string_view flag() const = 0;
  // What no other kind understands.
  virtual std::vector<std::string_view> own_flags() const { return {}; }
  // Whether --source says what its machine is read from.
  virtual bool takes_source() const { return false; }
  // Fails as the meter does.
  virtual Result<OpenedMeter> open(const TopologyFlags& source,
                                   const MeterRequest& request) const = 0;
};

// A file of each. Commands list them through MeterKinds (meter_kinds.h).
std::unique_ptr<MeterKind> make_hosts_kind();
std::unique_ptr<MeterKind> make_shm_kind();
std::unique_ptr<MeterKind> make_mpi_kind();
std::unique_ptr<MeterKind> make_gpus_kind();

// What a meter knows of its network, or what is given of it with the meter's facts.
Result<topology::Description> described(topology::Description known, const TopologyFlags& source);

// Options that all meters of real links have.
template <typename Options>
void heed(const MeterRequest& request, Options& options) {
  options.bytes = request.transfer_bytes;
  options.repeats.seconds_max = request.seconds_per_set();
  options.cancelled = &interrupt_flag();
}

// A meter of real links, for what `description` says; `where` is for errors.
template <typename Meter>
Result<OpenedMeter> opened(std::unique_ptr<Meter> meter, topology::Description description,
                           std::string_view where) {
  JIGE_TRY(topology::Topology network, topology::Topology::create(std::move(description), where));
  OpenedMeter result{.topology = std::make_unique<topology::Topology>(std::move(network))};
  JIGE_DO(meter->use(*result.topology));
  if constexpr (std::is_base_of_v<profile::CollectiveMeter, Meter>) {
    result.collectives = meter.get();
  }
  result.meter = std::move(meter);
  return result;
}

}  // namespace jige::cli
