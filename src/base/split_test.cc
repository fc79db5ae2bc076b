#include "base/split.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace jige {
namespace {

using Items = std::vector<std::string_view>;

TEST(Split, HasAnItemMoreThanMarks) {
  EXPECT_EQ(split_at("a,bc,d", ','), (Items{"a", "bc", "d"}));
  EXPECT_EQ(split_at("a,bc,d", ':'), (Items{"a,bc,d"}));
  EXPECT_EQ(split_at("1:2", ':'), (Items{"1", "2"}));
}

TEST(Split, KeepsItemsThatAreEmpty) {
  EXPECT_EQ(split_at("", ','), (Items{""}));
  EXPECT_EQ(split_at(",", ','), (Items{"", ""}));
  EXPECT_EQ(split_at("a,,b", ','), (Items{"a", "", "b"}));
  EXPECT_EQ(split_at(",a,", ','), (Items{"", "a", ""}));
}

}  // namespace
}  // namespace jige
