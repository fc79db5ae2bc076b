#include "plan/pipeline_residency.h"

#include <limits>
#include <map>
#include <tuple>

#include "base/check.h"

namespace jige::plan {
namespace {

constexpr size_t kNeverUsed = std::numeric_limits<size_t>::max();

// For every use, the next one of the same range, or kNeverUsed.
std::vector<size_t> next_uses(const std::vector<BlockRange>& uses) {
  std::vector<size_t> next(uses.size(), kNeverUsed);
  std::map<BlockRange, size_t> seen;
  for (size_t i = uses.size(); i-- > 0;) {
    if (const auto found = seen.find(uses[i]); found != seen.end()) next[i] = found->second;
    seen[uses[i]] = i;
  }
  return next;
}

}  // namespace

ResidencyPlan plan_residency(const std::vector<BlockRange>& uses, int32_t capacity) {
  JIGE_CHECK(capacity >= 1, "room for {} stages", capacity);
  const std::vector<size_t> next = next_uses(uses);
  ResidencyPlan plan;
  plan.visit_of_use.assign(uses.size(), -1);
  std::map<BlockRange, int32_t> resident;
  for (size_t i = 0; i < uses.size(); ++i) {
    if (uses[i].size() == 0) continue;
    auto found = resident.find(uses[i]);
    if (found == resident.end()) {
      ResidencyVisit visit{.blocks = uses[i]};
      if (static_cast<int32_t>(resident.size()) >= capacity) {
        auto victim = resident.begin();
        const auto key_of = [&](int32_t id) {
          const size_t last = plan.visits[static_cast<size_t>(id)].last_use;
          return std::tuple(next[last], kNeverUsed - last);
        };
        for (auto it = resident.begin(); it != resident.end(); ++it) {
          if (key_of(it->second) > key_of(victim->second)) victim = it;
        }
        visit.follows = victim->second;
        resident.erase(victim);
      }
      found = resident.emplace(uses[i], static_cast<int32_t>(plan.visits.size())).first;
      plan.visits.push_back(visit);
    }
    plan.visit_of_use[i] = found->second;
    plan.visits[static_cast<size_t>(found->second)].last_use = i;
  }
  return plan;
}

}  // namespace jige::plan
