#include "plan/layer_split.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "base/rng.h"

namespace jige::plan {
namespace {

constexpr double kNothing = std::numeric_limits<double>::infinity();

// What a split costs, or infinity where it does not fit.
double cost_of_split(const std::vector<int64_t>& counts, const std::vector<int64_t>& layers,
                     const std::vector<LayerMachine>& machines) {
  double worst = 0;
  size_t layer = 0;
  for (size_t m = 0; m < counts.size(); ++m) {
    const std::span<const int64_t> own =
        machines[m].layer_bytes.empty() ? std::span(layers) : machines[m].layer_bytes;
    int64_t bytes = 0;
    for (int64_t i = 0; i < counts[m]; ++i) bytes += own[layer++];
    if (counts[m] > 0 && bytes > machines[m].room_bytes) return kNothing;
    bytes += machines[m].beside_bytes;
    worst = std::max(worst, static_cast<double>(bytes) / machines[m].speed);
  }
  return layer == layers.size() ? worst : kNothing;
}

double least_cost(const std::vector<int64_t>& layers, const std::vector<LayerMachine>& machines) {
  double least = kNothing;
  std::vector<int64_t> counts(machines.size(), 0);
  const std::function<void(size_t, int64_t)> choose = [&](size_t m, int64_t left) {
    if (m + 1 == machines.size()) {
      counts[m] = left;
      least = std::min(least, cost_of_split(counts, layers, machines));
      return;
    }
    for (counts[m] = 0; counts[m] <= left; ++counts[m]) choose(m + 1, left - counts[m]);
  };
  choose(0, static_cast<int64_t>(layers.size()));
  return least;
}

TEST(LayerSplit, IsTheBestOfAllSplits) {
  Rng rng(7);
  int fitting = 0, too_large = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<int64_t> layers(1 + rng.below(8));
    for (int64_t& bytes : layers) bytes = 1 + static_cast<int64_t>(rng.below(20));
    std::vector<LayerMachine> machines(1 + rng.below(4));
    std::vector<int64_t> elsewhere = layers;  // of machines that pack them in another way
    for (int64_t& bytes : elsewhere) bytes += static_cast<int64_t>(rng.below(5));
    for (LayerMachine& machine : machines) {
      machine = {.name = "m",
                 .room_bytes = static_cast<int64_t>(rng.below(90)) - 10,
                 .speed = 1 + static_cast<double>(rng.below(4)),
                 .beside_bytes = static_cast<int64_t>(rng.below(3) * rng.below(30))};
      if (rng.below(3) == 0) machine.layer_bytes = elsewhere;
    }
    const double least = least_cost(layers, machines);
    const auto counts = split_layers(layers, machines);
    ASSERT_EQ(counts.has_value(), least != kNothing);
    if (counts) {
      ++fitting;
      EXPECT_DOUBLE_EQ(cost_of_split(*counts, layers, machines), least);
    } else {
      ++too_large;
    }
  }
  EXPECT_GT(fitting, 1000);
  EXPECT_GT(too_large, 300);
}

TEST(LayerSplit, GivesLikeMachinesLikeSharesAndFastOnesMore) {
  const std::vector<int64_t> layers(12, 100);
  const LayerMachine slow{.name = "slow", .room_bytes = 5000, .speed = 1};
  const LayerMachine fast{.name = "fast", .room_bytes = 5000, .speed = 2};
  EXPECT_EQ(*split_layers(layers, std::vector{slow, slow, slow}), (std::vector<int64_t>{4, 4, 4}));
  EXPECT_EQ(*split_layers(layers, std::vector{slow, fast}), (std::vector<int64_t>{4, 8}));
  EXPECT_EQ(*split_layers(layers, std::vector{fast}), (std::vector<int64_t>{12}));
}

// As serve/layer_computer.h weighs them: 16 threads of a processor and two GPUs, one of which has a
// third of the memory.
TEST(LayerSplit, GivesGpusNearlyAllUntilTheyAreFull) {
  const std::vector<int64_t> layers(80, int64_t{1} << 30);
  const std::vector<LayerMachine> machines = {
      {.name = "processor", .room_bytes = int64_t{200} << 30, .speed = 80e9},
      {.name = "large GPU", .room_bytes = int64_t{75} << 30, .speed = 3350e9},
      {.name = "small GPU", .room_bytes = int64_t{22} << 30, .speed = 936e9}};
  EXPECT_EQ(*split_layers(layers, machines), (std::vector<int64_t>{1, 62, 17}));
  std::vector<LayerMachine> full = machines;
  full[1].room_bytes = int64_t{40} << 30;
  EXPECT_EQ(*split_layers(layers, full), (std::vector<int64_t>{18, 40, 22}));
  EXPECT_DOUBLE_EQ(cost_of_split({18, 40, 22}, layers, full), least_cost(layers, full));
}

TEST(LayerSplit, SaysWhatIsMissing) {
  const std::vector<int64_t> layers(4, int64_t{1} << 30);
  const std::vector<LayerMachine> machines = {{.name = "here", .room_bytes = int64_t{1} << 30},
                                              {.name = "node-b:29610", .room_bytes = -5}};
  const auto counts = split_layers(layers, machines);
  ASSERT_FALSE(counts);
  EXPECT_EQ(counts.error().code, Code::kExhausted);
  EXPECT_NE(counts.error().message.find("4.00 GiB"), std::string::npos) << counts.error().message;
  EXPECT_NE(counts.error().message.find("node-b:29610 0 B"), std::string::npos)
      << counts.error().message;
}

}  // namespace
}  // namespace jige::plan
