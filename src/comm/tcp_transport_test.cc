// Connections that take nothing for a while.

#include "comm/tcp_transport.h"

#include <gtest/gtest.h>

#include <vector>

#include "comm/test_support.h"

namespace jige::comm {
namespace {

// Connections take any number of bytes, so what is left of a full buffer may be less than a unit.
TEST(TcpTransport, WaitsForRoomAndIsHeardMeanwhile) {
  const RingPlan plan = RingPlan::in_rank_order(2);
  const std::vector<std::byte> bytes(1 << 20);
  for (int round = 0; round < 4; ++round) {
    Transports ranks = tcp_transports(2, plan);
    const Link link = {.peer = 1, .lane = 0};
    const Want room = {.link = link, .receive = false};
    int waits = 0;
    const Deadline end = Deadline::after(0.4);
    while (!end.passed()) {
      ASSERT_TRUE(ranks[0]->write(link, bytes));
      ASSERT_TRUE(ranks[0]->wait(std::span(&room, 1), end));
      ++waits;
    }
    EXPECT_LT(waits, 2000);
    EXPECT_TRUE(ranks[1]->wait({}, Deadline::after(0.01)));
    EXPECT_LT(ranks[1]->silent_seconds(0), 0.2);
  }
}

}  // namespace
}  // namespace jige::comm
