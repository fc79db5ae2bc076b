// What a machine or a network is made of, as a person or a probe describes it: components joined by
// links, with the rates they carry. `topology.h` checks a description and answers which resources a
// transfer uses.
//
// Rates are GB/s (10^9 bytes). A link carries each direction on its own; what both directions share
// (a host bridge, a memory controller) is a component with a rate.
// Threads: values.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace jige::topology {

inline constexpr double kUnlimited = std::numeric_limits<double>::infinity();

enum class ComponentKind {
  kDevice,      // a GPU: sends, receives, never forwards
  kMemory,      // the memory controller of a NUMA node; holds buffers
  kHost,        // a machine of a network
  kHostBridge,  // where the PCIe ports of a NUMA node meet memory and sockets
  kRootPort,
  kSwitch,  // a PCIe switch
  kNic,     // between PCIe and a network
  kRouter,  // a switch of a network
};
inline constexpr int kComponentKindCount = 8;
std::string_view component_kind_name(ComponentKind kind);  // "device", "host_bridge" …

// Devices, memories, hosts and NICs are where transfers begin and end.
bool is_endpoint(ComponentKind kind);
// Whether a route may pass through such a component.
bool forwards(ComponentKind kind);

enum class LinkKind { kPcie, kMemoryBus, kSocket, kNetwork, kTrunk, kNvlink };
inline constexpr int kLinkKindCount = 6;
std::string_view link_kind_name(LinkKind kind);  // "pcie", "memory", "socket", "network" …

// An assumption beyond fair sharing: with more than `flows` transfers at once, the component
// carries only `factor` of its rate. `assumption` says why one believes so; reports repeat it.
struct Penalty {
  int32_t flows = 0;  // 0: no penalty
  double factor = 1;
  std::string assumption;
  bool operator==(const Penalty&) const = default;
};

struct Component {
  std::string name;  // letters, digits, '.', '_', '-'
  ComponentKind kind = ComponentKind::kDevice;
  int32_t numa = -1;             // the NUMA node it belongs to; -1: none
  int32_t index = -1;            // the number other programs know it by; -1: its rank in its kind
  std::string address;           // PCI address; may be empty
  double gb_per_s = kUnlimited;  // through it, both directions together
  double pull_cost = 1;          // what a byte that its receiver fetches costs, in bytes
  double copy_engine_gb_per_s = 0;  // devices; 0: no copy engine is described
  Penalty penalty;
};

struct Link {
  std::string name;
  int32_t from = -1;  // component
  int32_t to = -1;
  LinkKind kind = LinkKind::kPcie;
  double gb_per_s = kUnlimited;       // from -> to
  double back_gb_per_s = kUnlimited;  // to -> from
  int32_t width = 0;                  // PCIe lanes; 0: not known
  double gt_per_s = 0;                // PCIe rate of a lane; 0: not known
};

// Which devices reach each other without a buffer in host memory.
enum class PeerAccess { kAll, kSwitch, kNone };  // kSwitch: where no host bridge lies between
inline constexpr int kPeerAccessCount = 3;
std::string_view peer_access_name(PeerAccess access);  // "all", "switch", "none"

// A route that is not the shortest one, or one of several shortest.
struct RouteOverride {
  int32_t src = -1;
  int32_t dst = -1;
  std::vector<int32_t> links;  // in the order of travel
};

// One device that cannot reach the memory of another one, though `PeerAccess` would let it: what a
// driver says of single pairs.
struct PeerRefusal {
  int32_t from = -1;  // who would read or write
  int32_t to = -1;    // whose memory
};

struct Description {
  std::string name;
  PeerAccess peer = PeerAccess::kAll;
  std::vector<PeerRefusal> no_peer;
  std::vector<Component> components;
  std::vector<Link> links;
  std::vector<RouteOverride> routes;
  // Facts that change what is measured without changing the picture: driver, kernel, ACS …
  std::map<std::string, std::string> environment;

  // Appends and returns the index.
  int32_t add(Component component);
  int32_t join(Link link);                              // an empty name becomes "FROM-TO"
  int32_t find(std::string_view component_name) const;  // -1: none
  bool refuses_peer(int32_t from, int32_t to) const;    // whether no_peer has the pair
};

// What `width` lanes of `gt_per_s` carry at most, after the line code.
double pcie_gb_per_s(int32_t width, double gt_per_s);

}  // namespace jige::topology
