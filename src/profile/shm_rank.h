// A process of this machine between which, and others like it, a profiler measures: the side that
// moves the data.
//
// It obeys RunMessages (agent_protocol.h) on its control connection, one at a time, and takes part
// in collectives as an agent does (agent_collective.h), over shared memory. Flow src * size + dst
// is the stream of that lane from one rank to another; both ends get it in their message, the
// sender copies out of its own memory into the shared region, the receiver out of that into its
// own, on one thread each, whatever the number of flows: as a rank of a collective does. The first
// run of a flow is checked, byte by byte. The answer holds for every flow when this rank began it,
// and when it had the last byte of it moved.
//
// Memory of a stream is first touched by its sender, so it lies on the sender's NUMA node, as in
// the collectives. Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "comm/socket.h"
#include "comm/transport.h"
#include "profile/local_places.h"

namespace jige::profile {

struct ShmRankOptions {
  LocalPlace place;
  int64_t buffer_bytes = int64_t{16} << 20;  // each, to read from and to write to
  // For tests: what happens to checked bytes on their way out.
  std::function<void(int rank, std::span<std::byte> bytes)> spoil;
};

// Serves until the control connection ends: 0. After an error, which the profiler is told, 1.
int serve_shm_rank(const ShmRankOptions& options, std::unique_ptr<comm::Transport> transport,
                   comm::Socket& control);

}  // namespace jige::profile
