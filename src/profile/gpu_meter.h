// Measures sets of transfers between the GPUs of this machine and its memory, by copy engines and
// by kernels, through the CUDA driver.
//
//   JIGE_TRY(const auto meter, GpuMeter::start(machine, {}));       // machine: a Description
//   JIGE_TRY(const auto box, Topology::create(meter->description(), "--gpus"));
//   JIGE_DO(meter->use(box));
//   JIGE_TRY(const Measurement m, meter->measure(set));
//
// Transfers are gpu0>gpu1:push+copy, :pull+copy, :via-numa0+copy, gpu0>numa0:push+copy and
// numa0>gpu0:pull+copy, and all of these by a kernel (copy_kernel.h) without the +copy: a push runs
// on the sender's multiprocessors, a pull on the receiver's, what is staged on both, a few blocks
// of it alone, as in NCCL. Builds without nvcc refuse kernels. Each transfer is checked once, byte
// by byte and under the timeout, before anything of its set is timed. Members start at one moment,
// a thread each that hands the whole transfer to the driver and then looks for its end. Sizes,
// repeats and changes of rates are set_timer.h's.
//
// It has never run on a GPU: what tests it is a library in the driver's place.
// After a transfer that does not end, every measurement fails: only a new process gets its GPU
// back. Threads: one caller.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "profile/gpu_flow.h"
#include "profile/link_meter.h"
#include "profile/set_timer.h"
#include "topology/topology.h"

namespace jige::profile {

struct GpuMeterOptions {
  GpuBoxOptions box;
  int64_t bytes = 0;  // of each transfer; 0: what takes `run_s`
  double run_s = 0.1;
  double run_timeout_s = 30;
  RepeatLimits repeats;
  const std::atomic<bool>* cancelled = nullptr;
};

class GpuMeter final : public LinkMeter {
 public:
  // Fails as GpuBox::open does, and with kNotFound where the machine has a device at an address
  // where the driver shows none.
  static Result<std::unique_ptr<GpuMeter>> start(topology::Description machine,
                                                 const GpuMeterOptions& options);

  // The machine, with copy engines that limit nothing, what measurements depend on, and the pairs
  // that have no peer access as the driver says: there only ways through a memory are left.
  const topology::Description& description() const { return machine_; }
  // Whose transfers will be asked for; its devices as in start().
  Status use(const topology::Topology& machine);

  Result<Measurement> measure(std::span<const topology::Transfer> set) override;
  Result<Measurement> measure_shares(std::span<const topology::Transfer> set,
                                     std::span<const double> shares) override;
  std::string_view source() const override { return "measured"; }

 private:
  GpuMeter(topology::Description machine, const GpuMeterOptions& options,
           std::unique_ptr<GpuBox> box)
      : machine_(std::move(machine)), options_(options), box_(std::move(box)) {}
  Result<std::map<int32_t, size_t>> match(const topology::Description& machine) const;
  Status ask_for_peers(const std::map<int32_t, size_t>& found);
  Result<GpuRoute> route_of(const topology::Transfer& transfer) const;
  Result<std::vector<GpuFlow*>> flows_of(std::span<const topology::Transfer> set);
  Result<SetRun> run_once(const std::vector<GpuFlow*>& flows, std::span<const double> shares,
                          int64_t bytes);

  topology::Description machine_;
  GpuMeterOptions options_;
  std::unique_ptr<GpuBox> box_;
  std::map<int32_t, size_t> gpu_of_;                    // by component
  std::map<int32_t, int32_t> node_of_;                  // of memories, by component
  std::map<GpuRoute, std::unique_ptr<GpuFlow>> flows_;  // those that were checked
};

}  // namespace jige::profile
