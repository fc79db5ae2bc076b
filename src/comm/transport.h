// Transport: ordered streams of bytes between the ranks of a group, and news of who has failed.
//
// A link is a pair of streams with one peer, on a lane (plan_links.h says which a plan has): lane 0
// for single messages, one for each ring, one for each tree. Streams are written and read
// in place, in whole units of kUnitBytes, so that a reduction reads what came and writes what goes
// without a copy between:
//
//   JIGE_TRY(const std::span<const std::byte> in, transport.ready(from));
//   JIGE_TRY(const std::span<std::byte> out, transport.room(to));
//   if (in.empty() || out.empty()) JIGE_DO(transport.wait(wants, deadline));
//   … transport.consume(from, n); transport.commit(to, n);
//
// Invariants: (1) a stream holds at least stream_bytes() that nobody has read yet, so a sender so
// far ahead never waits. (2) What was committed reaches the peer after flush() or while wait()
// runs. (3) Once a call has failed, or abort() was called, every later call fails with the same
// error, and the other ranks fail too, naming the rank that is to blame. Threads: one thread per
// transport; interrupt() from any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "comm/deadline.h"
#include "comm/plan_links.h"
#include "comm/ring_plan.h"

namespace jige::comm {

struct Link {
  int peer = 0;
  int lane = 0;

  bool operator==(const Link&) const = default;
};

// What a rank waits for: bytes from a link, or room in it.
struct Want {
  Link link;
  bool receive = true;
};

class Transport {
 public:
  virtual ~Transport() = default;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(hosts_.size()); }
  const std::string& host(int rank) const { return hosts_[static_cast<size_t>(rank)]; }
  // "rank 2 (node-b)".
  std::string name(int rank) const;
  int64_t stream_bytes() const { return stream_bytes_; }
  // "threads", "shm" or "tcp".
  virtual const char* kind() const = 0;

  // What has come and not been consumed, contiguous, in whole units; empty if nothing.
  virtual Result<std::span<const std::byte>> ready(Link link) = 0;
  // The same for who only looks around: nothing where the sender has gone, which is no error here.
  virtual std::span<const std::byte> glance(Link link);
  // Forgets the first bytes of ready(). REQUIRES: whole units, no more than ready() gave.
  virtual void consume(Link link, int64_t bytes) = 0;
  // Contiguous room for what goes next, in whole units; empty if none.
  virtual Result<std::span<std::byte>> room(Link link) = 0;
  // Sends the first bytes of room(). REQUIRES: whole units, no more than room() gave.
  virtual Status commit(Link link, int64_t bytes) = 0;

  // The same with a copy, for data that lies elsewhere; gives the bytes moved, maybe 0.
  // REQUIRES: whole units.
  virtual Result<int64_t> write(Link link, std::span<const std::byte> bytes);
  virtual Result<int64_t> read(Link link, std::span<std::byte> bytes);

  // Hands over everything committed.
  virtual Status flush(Deadline deadline) = 0;
  // Returns when a want may be met, when interrupted, or at the deadline; the last two are no error
  // here.
  virtual Status wait(std::span<const Want> wants, Deadline deadline) = 0;
  // For who expects something small at once: whether to look again, having looked `looks` times in
  // vain, rather than to wait(). Lets others run meanwhile where they need the processor.
  virtual bool linger(int looks);
  // Ends the wait() that runs, or else the next one.
  virtual void interrupt() = 0;
  // Tells all ranks that the group has failed, and keeps the error.
  virtual void abort(const Error& error) = 0;
  // The error of a group in which nothing moved for `seconds`: names the ranks that were not heard
  // of meanwhile. Does not abort.
  virtual Error timeout_error(std::span<const Want> wants, double seconds) = 0;
  // Since a rank last said that it is there.
  virtual double silent_seconds(int rank) const = 0;

 protected:
  Transport(int rank, std::vector<std::string> hosts, int64_t stream_bytes)
      : rank_(rank), hosts_(std::move(hosts)), stream_bytes_(stream_bytes) {}

  // Text of timeout_error() from the seconds since each rank was last heard of.
  Error silence_error(std::span<const Want> wants, double seconds,
                      std::span<const double> silent_seconds) const;

 private:
  int rank_;
  std::vector<std::string> hosts_;
  int64_t stream_bytes_;
};

// What a failure that `peer` reports is here. Where that one was stopped, this rank has lost a
// peer, but nobody has stopped it.
Error reported_error(const std::string& peer, Code code, std::string_view text);

// How large the streams are for a plan: a ring cannot block itself when its links hold two pieces
// and a header.
int64_t stream_bytes_of(const RingPlan& plan);

// Of a stream of lane 0, or of a tree, in shared memory.
inline constexpr int64_t kDirectStreamBytes = 128 << 10;

// Memory that the streams of one rank take at most, over a transport of this kind().
int64_t stream_memory_bytes(std::string_view kind, int size, const RingPlan& plan);

// How often a waiting rank says that it is there, and looks after the others.
inline constexpr int64_t kHeartbeatNs = 50'000'000;

}  // namespace jige::comm
