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

// What each stage of a cut has of `values`.
template <typename T>
std::vector<T> stage_sums(const std::vector<T>& values, const std::vector<int32_t>& cuts) {
  std::vector<T> sums;
  for (size_t s = 0; s < cuts.size(); ++s) {
    const auto end = s + 1 < cuts.size() ? values.begin() + cuts[s + 1] : values.end();
    sums.push_back(std::accumulate(values.begin() + cuts[s], end, T{0}));
  }
  return sums;
}

struct PartitionCase {
  std::vector<double> work, paces;
  std::vector<int64_t> bytes, bytes_max;
};

PartitionCase random_case(Rng& rng) {
  PartitionCase made;
  const auto count = static_cast<int32_t>(1 + rng.below(10));
  for (int32_t b = 0; b < count; ++b) {
    made.work.push_back(static_cast<double>(rng.below(10)));
    made.bytes.push_back(static_cast<int64_t>(rng.below(10)));
  }
  const uint64_t stages = 1 + rng.below(static_cast<uint64_t>(count));
  for (uint64_t s = 0; s < stages; ++s) {
    made.paces.push_back(static_cast<double>(1 + rng.below(4)));
    made.bytes_max.push_back(static_cast<int64_t>(5 + rng.below(30)));
  }
  return made;
}

// Of a cut: the heaviest stage and the sum of squares, and the largest part of a stage's bytes.
struct CutValue {
  double heaviest = 0, squares = 0, fullest = 0;
};

CutValue value_of(const PartitionCase& given, const std::vector<int32_t>& cuts) {
  CutValue value;
  const std::vector<double> work = stage_sums(given.work, cuts);
  const std::vector<int64_t> bytes = stage_sums(given.bytes, cuts);
  for (size_t s = 0; s < cuts.size(); ++s) {
    const double taken = work[s] * given.paces[s];
    value.heaviest = std::max(value.heaviest, taken);
    value.squares += taken * taken;
    value.fullest = std::max(
        value.fullest, static_cast<double>(bytes[s]) / static_cast<double>(given.bytes_max[s]));
  }
  return value;
}

TEST(Partition, IsTheBestOfAllCutsForUnequalStages) {
  Rng rng(derive_key(1, "cuts"));
  int refused = 0;
  for (int round = 0; round < 400; ++round) {
    const PartitionCase given = random_case(rng);
    const auto stages = static_cast<int32_t>(given.paces.size());
    CutValue best{.heaviest = INFINITY, .squares = INFINITY, .fullest = INFINITY};
    std::vector<int32_t> cuts;
    all_cuts(
        static_cast<int32_t>(given.work.size()), stages, cuts, [&](const std::vector<int32_t>& at) {
          const CutValue value = value_of(given, at);
          best.fullest = std::min(best.fullest, value.fullest);
          if (value.fullest > 1) return;
          if (std::pair(value.heaviest, value.squares) < std::pair(best.heaviest, best.squares)) {
            best.heaviest = value.heaviest;
            best.squares = value.squares;
          }
        });
    const Result<Partition> partition =
        balance_stages(given.work, stages,
                       {.paces = given.paces, .bytes = given.bytes, .bytes_max = given.bytes_max});
    if (best.heaviest == INFINITY) {
      ASSERT_FALSE(partition);
      EXPECT_EQ(partition.error().code, Code::kExhausted);
      EXPECT_NE(partition.error().message.find(
                    fmt::format("; {:.3f} times as many would do", best.fullest)),
                std::string::npos)
          << partition.error().message;
      ++refused;
      continue;
    }
    ASSERT_TRUE(partition) << partition.error().message;
    EXPECT_EQ(partition->heaviest, best.heaviest);
    ASSERT_EQ(std::ssize(partition->cuts), stages);
    EXPECT_EQ(value_of(given, partition->cuts).squares, best.squares);
  }
  EXPECT_GT(refused, 20);
  EXPECT_LT(refused, 300);
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
