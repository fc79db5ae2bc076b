// SharedRegion: the memory through which ranks on one machine talk, for threads of a process or for
// several processes.
//
// Layout: a head (magic, numbers and sizes of streams), a status block per rank, then a control
// block and a buffer per stream, in the order of the list that they stand for (plan_links.h), the
// small ones first. A stream is a circular buffer with one writer and one reader; `tail` counts the
// bytes written, `head` those read, both from the beginning of time.
//
// Memory of processes is a memfd: it has no name, so nothing is left behind however they end.
// Invariants: tail - head is within [0, capacity], or the region is damaged (kCorrupt).
// Threads: the object is moved about by one thread; the memory is shared as the layout says.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/result.h"

namespace jige::comm {

struct RegionShape {
  int size = 1;
  int small_streams = 0;
  int large_streams = 0;
  int64_t small_bytes = 0;  // of each small stream; a multiple of kUnitBytes
  int64_t large_bytes = 0;  // likewise

  bool operator==(const RegionShape&) const = default;
};

// What a rank says of itself.
struct alignas(128) RankStatus {
  std::atomic<uint32_t> doorbell{0};  // a futex: rung when one of the rank's streams has moved
  std::atomic<uint32_t> sleeping{0};
  std::atomic<int64_t> heard_ns{0};   // when it last waited or finished something
  std::atomic<uint32_t> left{0};      // it has taken its leave
  std::atomic<uint32_t> aborting{0};  // 1: abort_text is being written, 2: it is there
  int32_t abort_code = 0;
  char abort_text[1024] = {};
};

struct StreamControl {
  alignas(128) std::atomic<uint64_t> tail{0};
  alignas(128) std::atomic<uint64_t> head{0};
};

static_assert(std::atomic<uint64_t>::is_always_lock_free);

class SharedRegion {
 public:
  // Private memory for the threads of this process.
  static Result<SharedRegion> for_threads(const RegionShape& shape);
  // Memory that other processes can map by its descriptor.
  static Result<SharedRegion> for_processes(const RegionShape& shape);
  // Maps what for_processes() made, given an open descriptor of it, which the region then owns.
  // Fails with kCorrupt when it has another shape.
  static Result<SharedRegion> attach(int fd, const RegionShape& shape);

  SharedRegion(SharedRegion&& other) noexcept;
  SharedRegion& operator=(SharedRegion&& other) noexcept;
  ~SharedRegion();

  // -1 for threads.
  int fd() const { return fd_; }
  const RegionShape& shape() const { return shape_; }
  RankStatus& status(int rank) const;
  // By number in the list.
  StreamControl& control(int stream) const;
  std::byte* buffer(int stream) const;
  int64_t capacity(int stream) const;

 private:
  SharedRegion(const RegionShape& shape, int fd) : shape_(shape), fd_(fd) {}
  int stream_count() const { return shape_.small_streams + shape_.large_streams; }
  int64_t control_offset() const;
  int64_t buffer_offset() const;
  int64_t total_bytes() const;
  Status map();
  void construct();

  RegionShape shape_;
  int fd_ = -1;
  std::byte* base_ = nullptr;
};

}  // namespace jige::comm
