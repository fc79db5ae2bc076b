#include "profile/place_flows.h"

#include <algorithm>

namespace jige::profile {

Status PlaceFlows::use(const topology::Topology& machine) {
  place_of_.clear();
  for (const int32_t component : machine.of_kind(topology::ComponentKind::kHost)) {
    const std::string& name = machine.component(component).name;
    const auto place = std::ranges::find(names_, name);
    if (place == names_.end()) {
      return fail(Code::kInvalidArgument, "{}: host \"{}\" is none of {}; name it there",
                  machine.name(), name, flag_);
    }
    place_of_[component] = static_cast<size_t>(place - names_.begin());
  }
  return {};
}

std::optional<size_t> PlaceFlows::place_of(int32_t component) const {
  const auto found = place_of_.find(component);
  return found == place_of_.end() ? std::nullopt : std::optional<size_t>(found->second);
}

Result<std::vector<FlowMember>> PlaceFlows::members_of(std::span<const topology::Transfer> set,
                                                       std::span<const double> shares) const {
  std::vector<FlowMember> members;
  for (const topology::Transfer& transfer : set) {
    const auto src = place_of(transfer.src), dst = place_of(transfer.dst);
    if (transfer.kind != topology::TransferKind::kSend || !src || !dst || *src == *dst) {
      return fail(Code::kInvalidArgument,
                  "between hosts or processes only transfers a>b:send are measured");
    }
    const auto flow = static_cast<int64_t>(*src * names_.size() + *dst);
    members.push_back({*src, *dst, flow, shares[members.size()]});
  }
  return members;
}

std::vector<FlowMember> PlaceFlows::unchecked(std::span<const FlowMember> members) const {
  std::vector<FlowMember> fresh;
  for (const FlowMember& member : members) {
    if (checked_.contains(member.flow)) continue;
    fresh.push_back(member);
    fresh.back().share = 1;
  }
  return fresh;
}

void PlaceFlows::checked(std::span<const FlowMember> members) {
  for (const FlowMember& member : members) checked_.insert(member.flow);
}

}  // namespace jige::profile
