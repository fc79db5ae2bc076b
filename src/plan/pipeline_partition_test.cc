#include "plan/pipeline_partition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "base/rng.h"
#include "plan/pipeline_residency.h"

namespace jige::plan {
namespace {

// Calls `visit` with every way to cut `count` blocks into `stages`.
void all_cuts(int32_t count, int32_t stages, std::vector<int32_t>& cuts,
              const std::function<void(const std::vector<int32_t>&)>& visit) {
  if (static_cast<int32_t>(cuts.size()) == stages) return visit(cuts);
  const int32_t first = cuts.empty() ? 0 : cuts.back() + 1;
  const int32_t last = cuts.empty() ? 0 : count - (stages - static_cast<int32_t>(cuts.size()));
  for (int32_t cut = first; cut <= last; ++cut) {
    cuts.push_back(cut);
    all_cuts(count, stages, cuts, visit);
    cuts.pop_back();
  }
}

TEST(Partition, IsTheBestOfAllCuts) {
  Rng rng(derive_key(1, "cuts"));
  int refused = 0;
  for (int round = 0; round < 300; ++round) {
    const auto count = static_cast<int32_t>(1 + rng.below(10));
    const auto stages = static_cast<int32_t>(1 + rng.below(static_cast<uint64_t>(count)));
    std::vector<double> work;
    std::vector<int64_t> bytes;
    for (int32_t b = 0; b < count; ++b) {
      work.push_back(static_cast<double>(rng.below(10)));
      bytes.push_back(static_cast<int64_t>(rng.below(10)));
    }
    const auto limit = static_cast<int64_t>(5 + rng.below(30));
    double heaviest = INFINITY, squares = INFINITY;
    double lightest_bytes = INFINITY;
    std::vector<int32_t> cuts;
    all_cuts(count, stages, cuts, [&](const std::vector<int32_t>& at) {
      double most = 0, sum = 0;
      int64_t most_bytes = 0;
      for (size_t s = 0; s < at.size(); ++s) {
        const auto begin = at[s], end = s + 1 < at.size() ? at[s + 1] : count;
        const double stage = std::accumulate(work.begin() + begin, work.begin() + end, 0.0);
        most = std::max(most, stage);
        sum += stage * stage;
        most_bytes = std::max(
            most_bytes, std::accumulate(bytes.begin() + begin, bytes.begin() + end, int64_t{0}));
      }
      lightest_bytes = std::min(lightest_bytes, static_cast<double>(most_bytes));
      if (most_bytes > limit) return;
      if (std::pair(most, sum) < std::pair(heaviest, squares)) {
        heaviest = most;
        squares = sum;
      }
    });
    const Result<Partition> partition = balance_stages(work, stages, bytes, limit);
    if (heaviest == INFINITY) {
      ASSERT_FALSE(partition);
      EXPECT_EQ(partition.error().code, Code::kExhausted);
      EXPECT_NE(partition.error().message.find(fmt::format("; {:.0f} would do", lightest_bytes)),
                std::string::npos)
          << partition.error().message;
      ++refused;
      continue;
    }
    ASSERT_TRUE(partition) << partition.error().message;
    EXPECT_EQ(partition->heaviest, heaviest);
    double sum = 0;
    for (size_t s = 0; s < partition->cuts.size(); ++s) {
      const int32_t begin = partition->cuts[s];
      const int32_t end = s + 1 < partition->cuts.size() ? partition->cuts[s + 1] : count;
      ASSERT_LT(begin, end);
      const double stage = std::accumulate(work.begin() + begin, work.begin() + end, 0.0);
      sum += stage * stage;
    }
    EXPECT_EQ(sum, squares);
  }
  EXPECT_GT(refused, 20);
}

TEST(Partition, AHeavyHeadGetsAStageOfItsOwn) {
  const std::vector<double> work{0, 1, 1, 1, 1, 1, 1, 3};
  const Result<Partition> partition = balance_stages(work, 3);
  ASSERT_TRUE(partition);
  EXPECT_EQ(partition->cuts, (std::vector<int32_t>{0, 4, 7}));
  EXPECT_FALSE(balance_stages(work, 9));
  EXPECT_FALSE(balance_stages(work, 0));
}

// Fewest fetches by trying every victim at every miss.
int32_t fewest_fetches(const std::vector<BlockRange>& uses, size_t at,
                       const std::vector<BlockRange>& resident, size_t capacity) {
  while (at < uses.size() && std::ranges::find(resident, uses[at]) != resident.end()) ++at;
  if (at == uses.size()) return 0;
  int32_t best = INT32_MAX;
  const size_t choices = resident.size() < capacity ? 1 : resident.size();
  for (size_t victim = 0; victim < choices; ++victim) {
    std::vector<BlockRange> next = resident;
    if (resident.size() < capacity) {
      next.push_back(uses[at]);
    } else {
      next[victim] = uses[at];
    }
    best = std::min(best, 1 + fewest_fetches(uses, at + 1, next, capacity));
  }
  return best;
}

TEST(Residency, FetchesAsSeldomAsPossibleWithinItsRoom) {
  Rng rng(derive_key(2, "uses"));
  for (int round = 0; round < 200; ++round) {
    std::vector<BlockRange> uses;
    for (uint64_t k = 1 + rng.below(10); k-- > 0;) {
      const auto begin = static_cast<int32_t>(rng.below(4));
      uses.push_back({begin, begin + 1});
    }
    const auto capacity = static_cast<int32_t>(1 + rng.below(3));
    const ResidencyPlan plan = plan_residency(uses, capacity);
    EXPECT_EQ(static_cast<int32_t>(plan.visits.size()),
              fewest_fetches(uses, 0, {}, static_cast<size_t>(capacity)));
    for (size_t i = 0; i < uses.size(); ++i) {
      const ResidencyVisit& visit = plan.visits[static_cast<size_t>(plan.visit_of_use[i])];
      EXPECT_EQ(visit.blocks, uses[i]);
      EXPECT_GE(visit.last_use, i);
    }
    // Every visit beyond the room follows another one, each at most once.
    std::vector<int32_t> followed;
    for (const ResidencyVisit& visit : plan.visits) {
      if (visit.follows >= 0) followed.push_back(visit.follows);
    }
    std::ranges::sort(followed);
    EXPECT_EQ(std::ranges::adjacent_find(followed), followed.end());
    EXPECT_LE(plan.visits.size() - followed.size(), static_cast<size_t>(capacity));
  }
}

}  // namespace
}  // namespace jige::plan
