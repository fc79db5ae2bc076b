// For tests: an agent on loopback, with the token "t".
//
// Threads: the test's.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "profile/link_agent.h"

namespace jige::profile {

// On a free port where `port` is 0. One that does not start is a failed test.
inline std::unique_ptr<LinkAgent> start_agent(int port = 0) {
  auto agent = LinkAgent::start({.listen = {"127.0.0.1", port}, .token = "t", .hello_s = 0.3});
  EXPECT_TRUE(agent) << agent.error().message;
  return std::move(*agent);
}

}  // namespace jige::profile
