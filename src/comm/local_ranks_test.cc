#include "comm/local_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

namespace jige::comm {
namespace {

// As a daemon may start this process: then nobody keeps the exit code of a child.
TEST(LocalRanks, EndWithTheirCodesWhereChildrenAreIgnored) {
  const auto before = std::signal(SIGCHLD, SIG_IGN);
  auto ranks = LocalRanks::start(2, [](int rank) { return rank + 3; });
  ASSERT_TRUE(ranks);
  EXPECT_THAT(ranks->wait(), testing::ElementsAre(3, 4));
  std::signal(SIGCHLD, before);
}

}  // namespace
}  // namespace jige::comm
