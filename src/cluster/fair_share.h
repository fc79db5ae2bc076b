// FairShare: max-min fair rates of flow groups over links with capacities, kept up to date as
// groups come and go.
//
// A group has one rate r (the slowest of its flows paces all), puts r * bytes on every link it
// uses, and never passes its cap. Progressive filling: all rates grow together, group j with speed
// g_j, until a link is full or a cap is reached; what reaches one is frozen, the rest grows on. The
// speed says which fairness this is: 1 gives equal rates, 1 / bytes equal bytes a second, the cap
// equal shares of what each would have alone.
//
//   (1) no link carries more than its capacity, but for rounding
//   (2) every group is at its cap, or crosses a full link on which no group has a higher r / g
//
// These two describe the rates completely. A link on which even all caps together fit ties nobody
// to anybody, so a change recomputes only what it reaches over links that can be full.
// Threads: one thread. The same calls in the same order give the same bits.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "cluster/traffic.h"

namespace jige::cluster {

class FairShare {
 public:
  using Group = int32_t;
  static constexpr size_t kForecastGroups = 64;

  explicit FairShare(std::vector<double> capacities);

  // REQUIRES: the group is not there; loads, cap and speed are above zero.
  void add(Group group, std::vector<LinkLoad> loads, double cap, double speed);
  // REQUIRES: the group is there.
  void remove(Group group);

  // Brings rates up to date. The groups that were computed anew, ascending; valid until the next
  // call.
  const std::vector<Group>& settle();
  // REQUIRES: settled, the group is there.
  double rate(Group group) const { return groups_[static_cast<size_t>(group)].rate; }
  const std::vector<LinkLoad>& loads(Group group) const {
    return groups_[static_cast<size_t>(group)].loads;
  }

  // What would change if a group came: its own rate and that of every other one that was computed
  // anew. Changes nothing. Where more than kForecastGroups are tied together, those on its own
  // links and the nearest others count, and the rest is taken to stay as it is: the change fades
  // with distance, and the cost no longer grows with the network. REQUIRES: settled.
  struct Forecast {
    double rate = 0;
    std::vector<std::pair<Group, double>> others;
  };
  Forecast forecast(const std::vector<LinkLoad>& loads, double cap, double speed);
  // The same from the group's own links alone: others have there what they have now, or less.
  Forecast estimate(const std::vector<LinkLoad>& loads, double cap, double speed);

  const std::vector<double>& capacities() const { return capacities_; }

 private:
  struct Member {
    Group group = 0;
    double bytes = 0;
  };
  struct GroupState {
    std::vector<LinkLoad> loads;
    double cap = 0, speed = 0, rate = 0;
    double filled = 0;  // the rate of the computation that runs
    uint32_t stamp = 0;
    bool present = false, frozen = false;
  };
  struct LinkState {
    std::vector<Member> members;
    double wanted = 0;  // with all at their caps
    double slack = 0, demand = 0, demand_first = 0;
    int32_t active = 0;
    uint32_t stamp = 0;
  };

  GroupState& at(Group group) { return groups_[static_cast<size_t>(group)]; }
  LinkState& link_at(int32_t link) { return links_[static_cast<size_t>(link)]; }
  bool can_fill(int32_t link) const;
  double level_on(int32_t link, double taken, double demand);
  void join(Group group);
  void reach(int32_t link);
  void reach_group(Group group);
  bool counts(Group group) const { return groups_[static_cast<size_t>(group)].stamp == stamp_; }
  void new_stamp();
  void collect(size_t groups_max);
  void fill();
  void freeze(Group group, double rate);
  void push_level(int32_t link, double level);
  double level_of(int32_t link);

  std::vector<double> capacities_;
  std::vector<GroupState> groups_;
  std::vector<LinkState> links_;
  std::vector<int32_t> dirty_links_;
  std::vector<Group> dirty_groups_;

  std::vector<std::pair<double, double>> steps_;  // of level_on

  // Of the computation that runs.
  uint32_t stamp_ = 0;
  std::vector<Group> reached_;
  std::vector<int32_t> reached_links_;
  std::vector<std::pair<double, int32_t>> levels_;    // heap: when which link is full
  std::vector<std::pair<double, Group>> cap_levels_;  // sorted
};

}  // namespace jige::cluster
