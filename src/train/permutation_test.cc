#include "train/permutation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace jige::train {
namespace {

std::vector<uint64_t> order_of(uint64_t key, uint64_t size) {
  const Permutation permutation(key, size);
  std::vector<uint64_t> order;
  for (uint64_t place = 0; place < size; ++place) order.push_back(permutation(place));
  return order;
}

TEST(Permutation, ReachesEveryElementOnce) {
  for (const uint64_t size : {1, 2, 3, 4, 5, 16, 17, 63, 64, 65, 1000, 4096, 4097}) {
    std::vector<int> seen(size, 0);
    for (const uint64_t element : order_of(9, size)) {
      ASSERT_LT(element, size);
      ++seen[element];
    }
    for (const int count : seen) EXPECT_EQ(count, 1) << "size " << size;
  }
}

TEST(Permutation, DependsOnItsKeyOnly) {
  EXPECT_EQ(order_of(1, 500), order_of(1, 500));
  EXPECT_NE(order_of(1, 500), order_of(2, 500));
}

TEST(Permutation, LooksShuffled) {
  // Of a random order, neighbours stay neighbours about twice in all and the mean distance of an
  // element from its place is size/3.
  constexpr uint64_t kSize = 3000;
  const auto order = order_of(5, kSize);
  int neighbours = 0;
  double distance = 0;
  for (uint64_t place = 0; place < kSize; ++place) {
    distance += std::abs(static_cast<double>(order[place]) - static_cast<double>(place));
    if (place > 0 && (order[place] == order[place - 1] + 1 || order[place - 1] == order[place] + 1))
      ++neighbours;
  }
  EXPECT_LT(neighbours, 15);
  EXPECT_NEAR(distance / kSize, kSize / 3.0, kSize / 30.0);
}

}  // namespace
}  // namespace jige::train
