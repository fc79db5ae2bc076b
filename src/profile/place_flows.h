// The transfers between places that are processes or hosts, as the meters of these number them:
// flow src * places + dst goes from the one place to the other.
//
//   PlaceFlows flows({"rank0", "rank1"}, "--shm");
//   JIGE_DO(flows.use(machine));                       // whose hosts are the places
//   JIGE_TRY(const auto members, flows.members_of(set, shares));
//
// Content is checked once a flow: unchecked() says of which it was not yet.
// Threads: one caller.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "topology/topology.h"

namespace jige::profile {

struct FlowMember {
  size_t src = 0, dst = 0;  // places
  int64_t flow = 0;
  double share = 1;
};

class PlaceFlows {
 public:
  // `flag` is what names places, for errors.
  PlaceFlows(std::vector<std::string> names, std::string flag)
      : names_(std::move(names)), flag_(std::move(flag)) {}

  // Whose transfers will be asked for. Fails with kInvalidArgument where it has a host that is no
  // place.
  Status use(const topology::Topology& machine);
  // Fails with kInvalidArgument for what is no a>b:send between two places.
  Result<std::vector<FlowMember>> members_of(std::span<const topology::Transfer> set,
                                             std::span<const double> shares) const;
  std::optional<size_t> place_of(int32_t component) const;

  // Those whose content was not checked, with a whole share each.
  std::vector<FlowMember> unchecked(std::span<const FlowMember> members) const;
  void checked(std::span<const FlowMember> members);
  void forget_checked() { checked_.clear(); }

 private:
  std::vector<std::string> names_;
  std::string flag_;
  std::map<int32_t, size_t> place_of_;  // by component
  std::set<int64_t> checked_;           // flows
};

}  // namespace jige::profile
