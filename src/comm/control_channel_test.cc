// Leaving: that a farewell arrives, whatever else is under way, and soon.

#include "comm/control_channel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>
#include <thread>

#include "comm/test_support.h"

namespace {

// What connections of this program take before they are full; below 0: as much as they do.
std::atomic<int64_t> room_bytes{-1};

}  // namespace

// In place of the C library's, so that a message can end in the middle: where the kernel's buffers
// end is not to be foreseen.
extern "C" ssize_t send(int fd, const void* data, size_t size, int flags) {
  const int64_t room = room_bytes;
  if (room == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // poll() knows nothing of this
    errno = EAGAIN;
    return -1;
  }
  if (room > 0) {
    size = std::min(size, static_cast<size_t>(room));
    room_bytes -= static_cast<int64_t>(size);
  }
  return syscall(SYS_sendto, fd, data, size, flags, nullptr, 0);
}

namespace jige::comm {
namespace {

constexpr size_t kMessageBytes = 256;
constexpr char kLeaveKind = 3;

// Both ends of a connection.
struct Ends {
  Socket one;
  Socket other;
};
Ends connected_ends() {
  const SocketOptions options = {.buffer_bytes = 256 << 10};
  Listener listener = *Listener::open({"127.0.0.1", 0});
  Ends ends;
  ends.one = *connect_to(listener.address(), options, Deadline::after(5));
  ends.other = *listener.accept(options, Deadline::after(5));
  ends.one.rename("rank 1 (looped)");
  ends.other.rename("rank 0 (looped)");
  return ends;
}

// The channel of rank 0 in a group of two.
std::unique_ptr<ControlChannel> channel_over(Socket socket) {
  std::vector<Socket> sockets(2);
  sockets[1] = std::move(socket);
  return std::make_unique<ControlChannel>(std::move(sockets));
}

// Sends until nothing more goes; gives the bytes.
size_t fill(Socket& socket) {
  const std::vector<std::byte> bytes(64 << 10);
  size_t sent = 0;
  for (int idle = 0; idle < 5;) {
    const auto now = socket.send_some(bytes);
    EXPECT_TRUE(now);
    sent += *now;
    idle = *now == 0 ? idle + 1 : 0;
    if (*now == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return sent;
}

// Everything up to the end of the connection, and how it ended.
struct Reading {
  std::string bytes;
  std::string end;
};
Reading read_to_end(Socket& socket) {
  Reading reading;
  std::vector<std::byte> buffer(64 << 10);
  const Deadline deadline = Deadline::after(5);
  while (!deadline.passed()) {
    const auto came = socket.recv_some(buffer);
    if (!came) {
      reading.end = came.error().message;
      break;
    }
    reading.bytes.append(reinterpret_cast<const char*>(buffer.data()), *came);
    if (*came == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return reading;
}

void beat_from(Socket& socket) {
  const std::vector<std::byte> message(kMessageBytes);
  (void)socket.send_some(message);  // a closed connection is what some tests are about
}

double seconds_since(int64_t start_ns) {
  return static_cast<double>(monotonic_ns() - start_ns) * 1e-9;
}

// The peer has not read for so long that the connection is full, says something itself, and reads
// only then.
TEST(ControlChannel, AFarewellArrivesAtAPeerThatReadsLateAndTalksMeanwhile) {
  Ends ends = connected_ends();
  const size_t before = fill(ends.one);
  auto leaving = channel_over(std::move(ends.one));
  std::thread leaver([&] { leaving.reset(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  beat_from(ends.other);
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  const Reading reading = read_to_end(ends.other);
  leaver.join();
  ASSERT_EQ(reading.bytes.size(), before + kMessageBytes) << reading.end;
  EXPECT_EQ(reading.bytes[before + 4], kLeaveKind);
}

TEST(ControlChannel, APeerThatHearsAFarewellClosesAtOnceAndLosesNobody) {
  Ends ends = connected_ends();
  auto leaving = channel_over(std::move(ends.one));
  auto staying = channel_over(std::move(ends.other));
  int64_t took_ns = 0;
  std::thread leaver([&] {
    const int64_t start = monotonic_ns();
    leaving.reset();
    took_ns = monotonic_ns() - start;
  });
  const Deadline deadline = Deadline::after(5);
  while (!staying->has_left(1) && !deadline.passed()) EXPECT_TRUE(staying->look());
  EXPECT_TRUE(staying->has_left(1));
  EXPECT_EQ(staying->fd(1), -1);
  leaver.join();
  EXPECT_TRUE(staying->look());
  EXPECT_LT(static_cast<double>(took_ns) * 1e-9, 1.0);

  // The same seen from the other end of the connection: it ends while the channel lives.
  Ends again = connected_ends();
  channel_over(std::move(again.one)).reset();
  const std::string farewell = read_to_end(again.other).bytes;
  ASSERT_EQ(farewell.size(), kMessageBytes);
  Ends last = connected_ends();
  auto hearing = channel_over(std::move(last.other));
  ASSERT_TRUE(last.one.send_all(std::as_bytes(std::span(farewell)), Deadline::after(5)));
  while (!hearing->has_left(1) && !deadline.passed()) EXPECT_TRUE(hearing->look());
  EXPECT_THAT(read_to_end(last.one).end, testing::HasSubstr("closed the connection"));
}

TEST(ControlChannel, LeavingAPeerThatNeverReadsEndsSoon) {
  for (const bool full : {false, true}) {
    Ends ends = connected_ends();
    if (full) fill(ends.one);
    auto leaving = channel_over(std::move(ends.one));
    const int64_t start = monotonic_ns();
    leaving.reset();
    EXPECT_LT(seconds_since(start), 3) << (full ? "full" : "empty");
  }
}

// Its kernel has the farewell at once and says so; only the end of the connection, which follows,
// is acknowledged 40 ms later.
TEST(ControlChannel, LeavingAPeerThatComputesWaitsForNoDelayedAcknowledgement) {
  double shortest_s = 1;
  for (int attempt = 0; attempt < 7; ++attempt) {
    Ends ends = connected_ends();
    auto leaving = channel_over(std::move(ends.one));
    const int64_t start = monotonic_ns();
    leaving.reset();
    shortest_s = std::min(shortest_s, seconds_since(start));
    EXPECT_EQ(read_to_end(ends.other).bytes.size(), kMessageBytes);
  }
  EXPECT_LT(shortest_s, 0.02);
}

TEST(Socket, IsAcknowledgedOnceThePeersMachineHasAllOfIt) {
  Ends ends = connected_ends();
  EXPECT_TRUE(ends.one.is_acknowledged());
  const size_t sent = fill(ends.one);
  EXPECT_FALSE(ends.one.is_acknowledged());
  ends.one.end_sending();
  EXPECT_FALSE(ends.one.is_acknowledged());
  std::thread reader([&] { EXPECT_EQ(read_to_end(ends.other).bytes.size(), sent); });
  const Deadline deadline = Deadline::after(5);
  while (!ends.one.is_acknowledged() && !deadline.passed()) std::this_thread::yield();
  EXPECT_TRUE(ends.one.is_acknowledged());
  reader.join();
}

TEST(ControlChannel, OfAMessageThatHasBegunOnlyTheRestIsSentLater) {
  for (const int64_t begun : {0, 100, 255}) {
    Ends ends = connected_ends();
    auto leaving = channel_over(std::move(ends.one));
    room_bytes = begun;
    leaving->send_abort({Code::kCorrupt, "what happened"});
    room_bytes = -1;
    leaving.reset();
    const std::string bytes = read_to_end(ends.other).bytes;
    ASSERT_EQ(bytes.size(), 2 * kMessageBytes) << begun;
    EXPECT_THAT(bytes.substr(8), testing::StartsWith("what happened"));
    EXPECT_EQ(bytes[kMessageBytes + 4], kLeaveKind);
  }
}

TEST(ControlChannel, APeerThatGoesWithoutAFarewellIsLost) {
  Ends ends = connected_ends();
  auto staying = channel_over(std::move(ends.other));
  EXPECT_TRUE(staying->look());
  ends.one.close();
  const Deadline deadline = Deadline::after(5);
  Status seen;
  while (seen && !deadline.passed()) seen = staying->look();
  ASSERT_FALSE(seen);
  EXPECT_THAT(seen.error().message, testing::HasSubstr("rank 0 (looped): closed the connection"));
  EXPECT_FALSE(staying->has_left(1));
}

}  // namespace
}  // namespace jige::comm
