// A plan of `jige plan rings` as the ring of collectives.

#include "cli/ring_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"

namespace jige::cli {
namespace {

TEST(RingFile, NumbersRanksAsThePlannerNumberedItsHosts) {
  const std::string path = testing::TempDir() + "jige_ring_file.json";
  EXPECT_TRUE(is_ring_file(path));
  EXPECT_FALSE(is_ring_file("0,2,1@0.5"));
  ASSERT_TRUE(write_file_atomic(
      path, R"({"format": "jige.ring-plan", "ring": {"order": ["c", "a", "d", "b"]},
                "baselines": {"rank order": {"order": ["a", "b", "c", "d"]}}})"));
  const auto ring = read_ring_file(path);
  ASSERT_TRUE(ring) << ring.error().message;
  EXPECT_EQ(ring->order, (std::vector<int>{2, 0, 3, 1}));
  for (const char* bad : {R"([])", R"({})", R"({"ring": {"order": ["a"]}, "baselines": 3})",
                          R"({"ring": {"order": [1]}, "baselines": {"rank order": {}}})",
                          R"({"ring": {"order": ["x"]}, "baselines": {"rank order": {"order":
                              ["a"]}}})"}) {
    ASSERT_TRUE(write_file_atomic(path, bad));
    const auto refused = read_ring_file(path);
    ASSERT_FALSE(refused) << bad;
    EXPECT_THAT(refused.error().message, testing::HasSubstr(path));
  }
}

}  // namespace
}  // namespace jige::cli
