#include "profile/gpu_meter.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/ascii.h"
#include "profile/link_agent.h"
#include "profile/start_line.h"

namespace jige::profile {
namespace {

using topology::ComponentKind;
using topology::Transfer;
using topology::TransferKind;

constexpr int64_t kProbeBytes = int64_t{4} << 20;
constexpr int64_t kBytesMax = int64_t{1} << 36;
constexpr int64_t kThreadLeadNs = 1'000'000;  // for the threads to be there
constexpr double kEngineGbPerSUnknown = 1e5;  // more than any; a claim of nothing

}  // namespace

Result<std::unique_ptr<GpuMeter>> GpuMeter::start(topology::Description machine,
                                                  const GpuMeterOptions& options) {
  JIGE_TRY(std::unique_ptr<GpuBox> box, GpuBox::open(options.box));
  std::unique_ptr<GpuMeter> meter(new GpuMeter(std::move(machine), options, std::move(box)));
  JIGE_TRY(const auto found, meter->match(meter->machine_));
  for (const auto& [component, gpu] : found) {
    double& engine =
        meter->machine_.components[static_cast<size_t>(component)].copy_engine_gb_per_s;
    if (engine <= 0) engine = kEngineGbPerSUnknown;
  }
  JIGE_DO(meter->ask_for_peers(found));
  auto& facts = meter->machine_.environment;
  facts.insert_or_assign("kernel", kernel_release());
  facts.insert_or_assign("cuda", meter->box_->version());
  const GpuBoxOptions& box_options = meter->box_->options();
  if (!box_options.kernel_image.empty()) {
    facts.insert_or_assign(
        "copy kernel",
        fmt::format("{} blocks of {} threads", box_options.kernel_blocks, kCopyKernelThreads));
  }
  return meter;
}

Status GpuMeter::ask_for_peers(const std::map<int32_t, size_t>& found) {
  machine_.no_peer.clear();
  for (const auto& [from, from_gpu] : found) {
    for (const auto& [to, to_gpu] : found) {
      if (from == to) continue;
      JIGE_TRY(const bool reaches, box_->can_connect(from_gpu, to_gpu));
      if (!reaches) machine_.no_peer.push_back({from, to});
    }
  }
  return {};
}

Result<std::map<int32_t, size_t>> GpuMeter::match(const topology::Description& machine) const {
  std::map<int32_t, size_t> found;
  for (size_t i = 0; i < machine.components.size(); ++i) {
    const topology::Component& c = machine.components[i];
    if (c.kind != ComponentKind::kDevice) continue;
    const auto gpu = std::ranges::find(box_->gpus(), lower_ascii(c.address), &Gpu::address);
    if (gpu == box_->gpus().end()) {
      return fail(Code::kNotFound,
                  "{}: the CUDA driver shows no GPU at \"{}\", where {} should be "
                  "(CUDA_VISIBLE_DEVICES hides some)",
                  machine.name, c.address, c.name);
    }
    found[static_cast<int32_t>(i)] = static_cast<size_t>(gpu - box_->gpus().begin());
  }
  return found;
}

Status GpuMeter::use(const topology::Topology& machine) {
  JIGE_TRY(gpu_of_, match(machine.description()));
  node_of_.clear();
  for (const int32_t memory : machine.of_kind(ComponentKind::kMemory)) {
    node_of_[memory] = machine.component(memory).numa;
  }
  return {};
}

Result<GpuRoute> GpuMeter::route_of(const Transfer& t) const {
  const auto src = gpu_of_.find(t.src), dst = gpu_of_.find(t.dst);
  const auto end = gpu_of_.end();
  const auto from = node_of_.find(t.src), to = node_of_.find(t.dst), via = node_of_.find(t.via);
  const auto none = node_of_.end();
  GpuRoute route{.kernel = t.engine == topology::Engine::kKernel};
  if (src != end) route.src = src->second;
  if (dst != end) route.dst = dst->second;
  const auto taking = [&](GpuPath path, int32_t numa) {
    route.path = path;
    route.numa = numa;
    return route;
  };
  if (src != end && dst != end && src != dst) {
    if (t.kind == TransferKind::kPush) return taking(GpuPath::kPush, -1);
    if (t.kind == TransferKind::kPull) return taking(GpuPath::kPull, -1);
    if (t.kind == TransferKind::kStaged && via != none) {
      return taking(GpuPath::kStaged, via->second);
    }
  }
  if (src != end && to != none && t.kind == TransferKind::kPush) {
    return taking(GpuPath::kToHost, to->second);
  }
  if (from != none && dst != end && t.kind == TransferKind::kPull) {
    return taking(GpuPath::kFromHost, from->second);
  }
  return fail(Code::kInvalidArgument,
              "only transfers between GPUs, from a GPU into a memory (push) and out of a memory to "
              "a GPU (pull) are measured");
}

Result<std::vector<GpuFlow*>> GpuMeter::flows_of(std::span<const Transfer> set) {
  std::vector<GpuFlow*> flows;
  for (const Transfer& transfer : set) {
    JIGE_TRY(const GpuRoute route, route_of(transfer));
    std::unique_ptr<GpuFlow>& flow = flows_[route];
    if (!flow) {
      auto made = GpuFlow::create(*box_, route);
      Status checked = made ? (*made)->check_content(comm::Deadline::after(options_.run_timeout_s))
                            : Status(tl::unexpected<Error>(made.error()));
      if (!checked) {
        flows_.erase(route);
        return tl::unexpected<Error>(std::move(checked.error()));
      }
      flow = std::move(*made);
    }
    flows.push_back(flow.get());
  }
  return flows;
}

Result<Measurement> GpuMeter::measure(std::span<const Transfer> set) {
  return measure_shares(set, std::vector<double>(set.size(), 1));
}

Result<Measurement> GpuMeter::measure_shares(std::span<const Transfer> set,
                                             std::span<const double> shares) {
  if (box_->abandoned()) {
    return fail(Code::kUnavailable,
                "a transfer did not end; run this again, which goes on from the store");
  }
  JIGE_TRY(const std::vector<GpuFlow*> flows, flows_of(set));
  JIGE_TRY(TimedSet timed,
           time_set({.bytes = options_.bytes,
                     .run_s = options_.run_s,
                     .probe_bytes = kProbeBytes,
                     .bytes_max = kBytesMax,
                     .repeats = options_.repeats,
                     .cancelled = options_.cancelled},
                    shares, [&](int64_t bytes) { return run_once(flows, shares, bytes); }));
  return std::move(timed.measurement);
}

Result<SetRun> GpuMeter::run_once(const std::vector<GpuFlow*>& flows,
                                  std::span<const double> shares, int64_t bytes) {
  const int64_t start_ns = comm::monotonic_ns() + kThreadLeadNs;
  const comm::Deadline deadline = comm::Deadline::after(options_.run_timeout_s);
  std::vector<FlowTimes> times(flows.size());
  std::vector<Status> results(flows.size());
  const auto move = [&](size_t i) {
    wait_until(start_ns);
    times[i].begin_ns = comm::monotonic_ns();
    results[i] = flows[i]->start(member_bytes(bytes, shares[i]));
    if (results[i]) results[i] = flows[i]->finish(deadline);
    times[i].end_ns = comm::monotonic_ns();
  };
  std::vector<std::jthread> threads;
  for (size_t i = 1; i < flows.size(); ++i) threads.emplace_back(move, i);
  move(0);
  threads.clear();
  for (Status& result : results) JIGE_DO(std::move(result));
  return set_run(times);
}

}  // namespace jige::profile
