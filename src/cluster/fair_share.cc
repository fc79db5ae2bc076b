#include "cluster/fair_share.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "base/check.h"

namespace jige::cluster {
namespace {

// Sums of caps are kept by adding and subtracting; a link this close to full counts as one that can
// be, which costs time and changes nothing.
constexpr double kCertainlyFree = 1 - 1e-9;
// Below this part of its first value a demand is summed anew: subtraction has eaten its digits.
constexpr double kDigitsGone = 1e-6;

}  // namespace

FairShare::FairShare(std::vector<double> capacities)
    : capacities_(std::move(capacities)), links_(capacities_.size()) {}

bool FairShare::can_fill(int32_t link) const {
  const auto i = static_cast<size_t>(link);
  return links_[i].wanted > capacities_[i] * kCertainlyFree;
}

void FairShare::join(Group group) {
  const GroupState& state = at(group);
  for (const LinkLoad& load : state.loads) {
    LinkState& link = link_at(load.link);
    link.members.push_back({group, load.bytes});
    link.wanted += load.bytes * state.cap;
  }
}

void FairShare::add(Group group, std::vector<LinkLoad> loads, double cap, double speed) {
  if (static_cast<size_t>(group) >= groups_.size()) groups_.resize(static_cast<size_t>(group) + 1);
  GroupState& state = at(group);
  JIGE_CHECK(!state.present, "group {} is there already", group);
  JIGE_CHECK(cap > 0 && speed > 0, "group {}: cap {}, speed {}", group, cap, speed);
  state.loads = std::move(loads);
  state.cap = cap;
  state.speed = speed;
  state.present = true;
  join(group);
  dirty_groups_.push_back(group);
}

void FairShare::remove(Group group) {
  GroupState& state = at(group);
  JIGE_CHECK(state.present, "group {} is not there", group);
  for (const LinkLoad& load : state.loads) {
    if (can_fill(load.link)) dirty_links_.push_back(load.link);
    LinkState& link = link_at(load.link);
    const auto member = std::ranges::find(link.members, group, &Member::group);
    link.members.erase(member);
    link.wanted = link.members.empty() ? 0 : link.wanted - load.bytes * state.cap;
  }
  state.present = false;
}

void FairShare::reach_group(Group group) {
  GroupState& state = at(group);
  if (state.stamp == stamp_ || !state.present) return;
  state.stamp = stamp_;
  state.frozen = false;
  reached_.push_back(group);
  for (const LinkLoad& load : state.loads) {
    if (can_fill(load.link)) reach(load.link);
  }
}

void FairShare::reach(int32_t link) {
  if (link_at(link).stamp == stamp_) return;
  link_at(link).stamp = stamp_;
  reached_links_.push_back(link);
}

void FairShare::new_stamp() {
  if (++stamp_ != 0) return;
  // After 2^32 computations old stamps would look new.
  for (GroupState& group : groups_) group.stamp = 0;
  for (LinkState& link : links_) link.stamp = 0;
  stamp_ = 1;
}

// Everything that the dirty groups and links reach over links that can be full; beyond the first
// links only while there are fewer than `groups_max` groups.
void FairShare::collect(size_t groups_max) {
  new_stamp();
  reached_.clear();
  reached_links_.clear();
  for (const int32_t link : dirty_links_) reach(link);
  for (const Group group : dirty_groups_) reach_group(group);
  const size_t first_links = reached_links_.size();
  for (size_t i = 0; i < reached_links_.size(); ++i) {
    if (i >= first_links && reached_.size() >= groups_max) break;
    for (const Member& member : link_at(reached_links_[i]).members) reach_group(member.group);
  }
  dirty_links_.clear();
  dirty_groups_.clear();
  std::ranges::sort(reached_);
}

void FairShare::push_level(int32_t link, double level) {
  levels_.emplace_back(level, link);
  std::ranges::push_heap(levels_, std::greater<>());
}

// REQUIRES: a group there still grows.
double FairShare::level_of(int32_t link) {
  LinkState& state = link_at(link);
  if (state.demand < state.demand_first * kDigitsGone) {
    state.demand = 0;
    for (const Member& member : state.members) {
      if (!counts(member.group)) continue;
      if (!at(member.group).frozen) state.demand += member.bytes * at(member.group).speed;
    }
    state.demand_first = state.demand;
  }
  return state.slack / state.demand;
}

void FairShare::freeze(Group group, double rate) {
  GroupState& state = at(group);
  state.frozen = true;
  state.filled = rate;
  for (const LinkLoad& load : state.loads) {
    LinkState& link = link_at(load.link);
    if (link.stamp != stamp_) continue;
    link.slack -= load.bytes * rate;
    link.demand -= load.bytes * state.speed;
    --link.active;
  }
}

// Progressive filling of what was reached. Levels of links only grow: the one in the heap may be
// too low, and is put right when it comes up.
void FairShare::fill() {
  for (const int32_t link : reached_links_) {
    LinkState& state = link_at(link);
    state.slack = capacities_[static_cast<size_t>(link)];
    state.active = 0;
    state.demand = 0;
    for (const Member& member : state.members) {
      if (counts(member.group)) {
        ++state.active;
        state.demand += member.bytes * at(member.group).speed;
      } else {
        state.slack -= member.bytes * at(member.group).rate;
      }
    }
    state.slack = std::max(state.slack, 0.0);
    state.demand_first = state.demand;
  }
  levels_.clear();
  for (const int32_t link : reached_links_) {
    if (link_at(link).active > 0) push_level(link, level_of(link));
  }
  cap_levels_.clear();
  for (const Group group : reached_) {
    cap_levels_.emplace_back(at(group).cap / at(group).speed, group);
  }
  std::ranges::sort(cap_levels_);
  double level = 0;
  size_t next_cap = 0;
  while (true) {
    while (next_cap < cap_levels_.size() && at(cap_levels_[next_cap].second).frozen) ++next_cap;
    if (next_cap == cap_levels_.size()) return;
    const auto [link_level, link] =
        levels_.empty() ? std::pair(std::numeric_limits<double>::infinity(), -1) : levels_.front();
    if (cap_levels_[next_cap].first <= link_level) {
      const auto [cap_level, group] = cap_levels_[next_cap];
      level = std::max(level, cap_level);
      freeze(group, at(group).cap);
      continue;
    }
    std::ranges::pop_heap(levels_, std::greater<>());
    levels_.pop_back();
    const LinkState& full = link_at(link);
    if (full.active == 0) continue;
    if (const double now = std::max(level, level_of(link)); now > link_level) {
      push_level(link, now);
      continue;
    }
    level = link_level;
    for (const Member& member : full.members) {
      GroupState& state = at(member.group);
      if (counts(member.group) && !state.frozen)
        freeze(member.group, std::min(state.cap, level * state.speed));
    }
  }
}

const std::vector<FairShare::Group>& FairShare::settle() {
  reached_.clear();
  if (dirty_links_.empty() && dirty_groups_.empty()) return reached_;
  collect(groups_.size());
  fill();
  for (const Group group : reached_) at(group).rate = at(group).filled;
  return reached_;
}

FairShare::Forecast FairShare::forecast(const std::vector<LinkLoad>& loads, double cap,
                                        double speed) {
  JIGE_CHECK(dirty_links_.empty() && dirty_groups_.empty(), "a forecast needs settled rates");
  // A guest behind all groups; what it adds to the sums is taken back bit by bit.
  const auto guest = static_cast<Group>(groups_.size());
  std::vector<double> wanted_before;
  for (const LinkLoad& load : loads) wanted_before.push_back(link_at(load.link).wanted);
  groups_.push_back({.loads = loads, .cap = cap, .speed = speed, .present = true});
  join(guest);
  dirty_groups_.push_back(guest);
  collect(kForecastGroups);
  fill();
  Forecast forecast;
  forecast.rate = groups_.back().filled;
  for (const Group group : reached_) {
    if (group != guest) forecast.others.emplace_back(group, at(group).filled);
  }
  for (size_t i = 0; i < loads.size(); ++i) {
    LinkState& link = link_at(loads[i].link);
    link.members.pop_back();
    link.wanted = wanted_before[i];
  }
  groups_.pop_back();
  return forecast;
}

// The level up to which members of a link keep what they have, when a newcomer grows with `demand`
// and takes `taken` besides; infinite where all fit.
double FairShare::level_on(int32_t link, double taken, double demand) {
  steps_.clear();
  double left = capacities_[static_cast<size_t>(link)] - taken, weight = demand;
  for (const Member& member : link_at(link).members) {
    const GroupState& state = at(member.group);
    left -= member.bytes * state.rate;
    steps_.emplace_back(state.rate / state.speed, member.bytes * state.speed);
  }
  if (left >= 0 && demand == 0) return std::numeric_limits<double>::infinity();
  // From the highest level down: those above it are cut to it.
  std::ranges::sort(steps_, std::greater<>());
  for (const auto& [level, bytes] : steps_) {
    if (weight > 0 && left / weight >= level) break;
    weight += bytes;
    left += bytes * level;
  }
  return weight > 0 ? std::max(0.0, left / weight) : 0;
}

FairShare::Forecast FairShare::estimate(const std::vector<LinkLoad>& loads, double cap,
                                        double speed) {
  double level = cap / speed;
  for (const LinkLoad& load : loads) {
    level = std::min(level, level_on(load.link, 0, load.bytes * speed));
  }
  Forecast forecast;
  forecast.rate = level * speed;
  new_stamp();
  for (const LinkLoad& load : loads) {
    const double others = level_on(load.link, load.bytes * forecast.rate, 0);
    for (const Member& member : link_at(load.link).members) {
      GroupState& state = at(member.group);
      const double rate = others * state.speed;
      if (rate >= state.rate) continue;
      if (state.stamp != stamp_) {
        state.stamp = stamp_;
        state.filled = state.rate;
        forecast.others.emplace_back(member.group, 0);
      }
      state.filled = std::min(state.filled, rate);
    }
  }
  for (auto& [group, rate] : forecast.others) rate = at(group).filled;
  return forecast;
}

}  // namespace jige::cluster
