// Connections that the system makes in ways of its own.

#include "comm/socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cstring>
#include <fstream>

#include "comm/local_ranks.h"

namespace jige::comm {
namespace {

constexpr int kNoNamespace = 77;

// A network of its own, in which connections leave from few ports; false where that is not allowed.
bool enter_network_of_few_ports() {
  if (unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return false;
  const Socket any(::socket(AF_INET, SOCK_STREAM, 0), "");
  ifreq request = {};
  std::memcpy(request.ifr_name, "lo", sizeof "lo");
  request.ifr_flags = IFF_UP;
  if (ioctl(any.fd(), SIOCSIFFLAGS, &request) != 0) return false;
  std::ofstream ports("/proc/sys/net/ipv4/ip_local_port_range");
  ports << "40000 40003" << std::flush;
  return ports.good();
}

TEST(Sockets, OfAnEmptyHostTakeConnectionsOfBothFamilies) {
  Listener listener = *Listener::open({"", 0});
  const int port = listener.address().port;
  for (const char* host : {"127.0.0.1", "::1"}) {
    const auto out = connect_to({host, port}, {}, Deadline::after(0.1));
    if (!out && std::string(host) == "::1" && !Listener::open({host, 0})) {
      GTEST_SKIP() << "no IPv6 here";
    }
    ASSERT_TRUE(out) << out.error().message;
    const auto in = listener.accept({}, Deadline::after(5));
    ASSERT_TRUE(in);
    EXPECT_EQ(in->peer(), out->local_address().text());
  }
}

// Where nobody listens, a connection from that very port to itself is one by the rules of TCP.
TEST(Sockets, DoNotTakeThemselvesForThePeer) {
  auto ranks = LocalRanks::start(1, [](int) {
    if (!enter_network_of_few_ports()) return kNoNamespace;
    return connect_to({"127.0.0.1", 40000}, {}, Deadline::after(1)) ? 1 : 0;
  });
  ASSERT_TRUE(ranks);
  const int code = ranks->wait()[0];
  if (code == kNoNamespace) GTEST_SKIP() << "no namespaces of networks here";
  EXPECT_EQ(code, 0) << "connected to itself";
}

}  // namespace
}  // namespace jige::comm
