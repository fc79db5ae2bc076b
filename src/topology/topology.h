// A checked description of a machine or network, and the answer to one question: which resources
// does a transfer use, and how much of each?
//
//   JIGE_TRY(const Topology box, Topology::create(description, "box.json"));
//   JIGE_TRY(const auto usage, box.usage({TransferKind::kPush, gpu0, gpu1}));
//
// A resource is whatever has a rate: each direction of a link, a component that all traffic through
// it shares, a device's copy engine. A route is the path of fewest links on which only bridges,
// ports, switches, NICs and routers are passed, among equal ones the one whose links come first;
// the description may name another. A staged transfer is a write into host memory and a read out of
// it that run at one rate, so its usage is the sum of both.
//
// Invariants: immutable. Every device, host and memory reaches every other; rates are positive.
// Threads: const member functions may be called from several threads.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "topology/description.h"
#include "topology/transfer.h"

namespace jige::topology {

enum class ResourceKind { kLink, kComponent, kCopyEngine };

struct Resource {
  std::string name;  // "gpu0-port0 >", "gpu0-port0 <", "bridge0", "gpu0 copy engine"
  ResourceKind kind = ResourceKind::kLink;
  int32_t origin = -1;  // the link or component
  bool backward = false;
  double gb_per_s = 0;
  Penalty penalty;
};

// A transfer at x GB/s takes cost * x of the resource's rate.
struct Usage {
  int32_t resource;
  double cost;
  bool operator==(const Usage&) const = default;
};

struct Hop {
  int32_t link;
  bool backward;  // from `to` to `from`
};

class Topology {
 public:
  // Checks what the header promises. `where` names the source in errors, which name the component
  // or link, the field and the value. Fails with kInvalidArgument for a value out of range and
  // kCorrupt for a description that contradicts itself.
  static Result<Topology> create(Description description, std::string_view where);

  const Description& description() const { return description_; }
  const std::string& name() const { return description_.name; }
  const std::vector<Component>& components() const { return description_.components; }
  const std::vector<Link>& links() const { return description_.links; }
  const std::vector<Resource>& resources() const { return resources_; }
  const Component& component(int32_t index) const {
    return description_.components[static_cast<size_t>(index)];
  }
  int32_t find(std::string_view name) const { return description_.find(name); }
  std::vector<int32_t> of_kind(ComponentKind kind) const;

  // The links from one endpoint to another; empty where there is no path. REQUIRES: endpoints.
  std::span<const Hop> route(int32_t src, int32_t dst) const;
  // Whether a route meets a component of this kind between its ends.
  bool passes(int32_t src, int32_t dst, ComponentKind kind) const;
  // How many of the links on a route are of this kind.
  int32_t count_links(int32_t src, int32_t dst, LinkKind kind) const;

  // In the order of resources, each once. Fails with kInvalidArgument where the transfer makes no
  // sense here (same ends, not an endpoint, no copy engine, no peer access), saying which.
  Result<std::vector<Usage>> usage(const Transfer& transfer) const;

 private:
  friend class TopologyBuilder;
  size_t pair_index(int32_t src, int32_t dst) const;

  Description description_;
  std::vector<Resource> resources_;
  std::vector<int32_t> component_resource_, copy_resource_;    // -1: unlimited, none
  std::vector<int32_t> forward_resource_, backward_resource_;  // of links
  std::vector<int32_t> endpoint_rank_;                         // -1: not an endpoint
  int32_t endpoint_count_ = 0;
  std::vector<std::vector<Hop>> routes_;
};

}  // namespace jige::topology
