#include "plan/ring_problem.h"

#include <algorithm>
#include <set>

namespace jige::plan {

using topology::ComponentKind;
using topology::Engine;
using topology::Topology;
using topology::Transfer;
using topology::TransferKind;

namespace {

// All ways from one component to another that the options and the topology allow.
std::vector<Transfer> ways(const Topology& t, int32_t src, int32_t dst,
                           const RingOptions& options) {
  std::vector<Transfer> list;
  const auto add = [&](Transfer transfer) {
    if (options.kernels && t.usage(transfer)) list.push_back(transfer);
    transfer.engine = Engine::kCopy;
    if (options.copy_engines && t.usage(transfer)) list.push_back(transfer);
  };
  if (t.component(src).kind == ComponentKind::kHost) {
    const Transfer send{TransferKind::kSend, src, dst};
    if (t.usage(send)) list.push_back(send);
    return list;
  }
  if (options.push) add({TransferKind::kPush, src, dst});
  // A NIC is told what to move by its own machine: there is one way between it and a device.
  const bool nic =
      t.component(src).kind == ComponentKind::kNic || t.component(dst).kind == ComponentKind::kNic;
  if (options.pull && !nic) add({TransferKind::kPull, src, dst});
  if (!options.staged) return list;
  for (const int32_t memory : t.of_kind(ComponentKind::kMemory)) {
    add({TransferKind::kStaged, src, dst, memory});
  }
  return list;
}

Status add_edge(RingProblem& problem, int32_t from, int32_t to, int32_t src, int32_t dst,
                const RingOptions& options) {
  const Topology& t = *problem.topology;
  for (const Transfer& transfer : ways(t, src, dst, options)) {
    JIGE_TRY(std::vector<topology::Usage> usage, t.usage(transfer));
    problem.between[static_cast<size_t>(from * problem.node_count + to)].push_back(
        static_cast<int32_t>(problem.candidates.size()));
    problem.candidates.push_back({transfer, from, to, std::move(usage)});
  }
  if (!problem.edge(from, to).empty()) return {};
  return fail(
      Code::kInvalidArgument,
      "{}: no transfer from \"{}\" to \"{}\" is allowed; without peer access they need host "
      "memory, described as a component of kind memory",
      t.name(), t.component(src).name, t.component(dst).name);
}

Status check_devices(const Topology& t, std::span<const int32_t> devices, size_t least) {
  if (devices.size() < least) {
    return fail(Code::kInvalidArgument, "{}: {} device{} to plan for, a ring needs at least {}",
                t.name(), devices.size(), devices.size() == 1 ? "" : "s", least);
  }
  std::set<int32_t> seen;
  for (const int32_t device : devices) {
    const topology::Component& c = t.component(device);
    if (c.kind != ComponentKind::kDevice && c.kind != ComponentKind::kHost) {
      return fail(Code::kInvalidArgument, "{}: \"{}\" is a {}, rings join devices or hosts",
                  t.name(), c.name, component_kind_name(c.kind));
    }
    if (c.kind != t.component(devices[0]).kind) {
      return fail(Code::kInvalidArgument, "{}: a ring cannot join device and host (\"{}\")",
                  t.name(), c.name);
    }
    if (!seen.insert(device).second) {
      return fail(Code::kInvalidArgument, "{}: \"{}\" is named twice", t.name(), c.name);
    }
  }
  return {};
}

RingProblem empty_problem(const Topology& topology, std::vector<int32_t> components) {
  RingProblem problem{.topology = &topology,
                      .node_count = static_cast<int32_t>(components.size()),
                      .components = std::move(components)};
  problem.between.resize(problem.components.size() * problem.components.size());
  return problem;
}

}  // namespace

std::vector<Transfer> RingProblem::transfers() const {
  std::vector<Transfer> list;
  for (const RingCandidate& candidate : candidates) list.push_back(candidate.transfer);
  return list;
}

std::vector<int32_t> ring_devices(const Topology& topology) {
  std::vector<int32_t> devices = topology.of_kind(ComponentKind::kDevice);
  return devices.empty() ? topology.of_kind(ComponentKind::kHost) : devices;
}

Result<RingProblem> ring_problem(const Topology& topology, std::span<const int32_t> devices,
                                 const RingOptions& options) {
  JIGE_DO(check_devices(topology, devices, 2));
  RingProblem problem = empty_problem(topology, {devices.begin(), devices.end()});
  for (int32_t a = 0; a < problem.node_count; ++a) {
    for (int32_t b = 0; b < problem.node_count; ++b) {
      if (a == b) continue;
      JIGE_DO(add_edge(problem, a, b, devices[static_cast<size_t>(a)],
                       devices[static_cast<size_t>(b)], options));
    }
  }
  return problem;
}

Result<RingProblem> chain_problem(const Topology& topology, std::span<const int32_t> devices,
                                  int32_t entry_nic, int32_t exit_nic, const RingOptions& options) {
  JIGE_DO(check_devices(topology, devices, 1));
  std::vector<int32_t> components{-1};
  components.insert(components.end(), devices.begin(), devices.end());
  RingProblem problem = empty_problem(topology, std::move(components));
  for (int32_t a = 0; a < problem.node_count; ++a) {
    for (int32_t b = 0; b < problem.node_count; ++b) {
      if (a == b) continue;
      const int32_t src = a == 0 ? entry_nic : problem.components[static_cast<size_t>(a)];
      const int32_t dst = b == 0 ? exit_nic : problem.components[static_cast<size_t>(b)];
      JIGE_DO(add_edge(problem, a, b, src, dst, options));
    }
  }
  return problem;
}

std::vector<Transfer> ring_transfers(const RingProblem& problem, std::span<const int32_t> ring) {
  std::vector<Transfer> list;
  for (const int32_t candidate : ring) list.push_back(problem.at(candidate).transfer);
  return list;
}

std::string ring_text(const RingProblem& problem, std::span<const int32_t> ring) {
  const Topology& t = *problem.topology;
  std::string text;
  for (const int32_t candidate : ring) {
    const Transfer& transfer = problem.at(candidate).transfer;
    const std::string name = topology::transfer_text(t, transfer);
    text +=
        fmt::format("{} -{}-> ", t.component(transfer.src).name, name.substr(name.find(':') + 1));
  }
  if (!ring.empty()) text += t.component(problem.at(ring.back()).transfer.dst).name;
  return text;
}

}  // namespace jige::plan
