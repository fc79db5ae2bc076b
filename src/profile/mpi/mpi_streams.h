// The data of a run that this rank sends or takes, by MPI: a few chunks under way a flow, and a
// moment for the beginning and the end of each.
//
//   MpiStreams streams(options, rank, size);
//   JIGE_TRY(auto own, streams.of(order));              // what of it is this rank's
//   JIGE_DO(streams.move(own, start_ns, deadline));     // own[i].times, from start_ns
//
// The first run of a flow carries pattern_byte's bytes, which are compared; wrong ones are told
// after all of the run was moved, so that nobody waits for what does not come.
// Threads: one, that of MPI.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "comm/deadline.h"
#include "profile/agent_protocol.h"

namespace jige::profile {

struct MpiRankOptions {
  int64_t buffer_bytes = int64_t{16} << 20;  // each, to read from and to write to
  // For tests: what happens to checked bytes on their way out.
  std::function<void(int rank, std::span<std::byte> bytes)> spoil;
};

struct MpiStream {
  struct Chunk {
    MPI_Request request = MPI_REQUEST_NULL;
    int64_t at = 0, bytes = 0;  // of the flow
  };

  int64_t flow = 0;
  int peer = 0;
  bool sends = false;
  int64_t bytes = 0;
  int64_t begun = 0;            // bytes whose chunks are under way or over
  std::deque<Chunk> under_way;  // in order
  std::vector<std::byte> own;   // what is checked has memory of its own; empty: it is not
  int64_t wrong_at = -1;        // the first byte that came wrong
  FlowTimes times;
};

class MpiStreams {
 public:
  MpiStreams(const MpiRankOptions& options, int rank, int size);

  // Fails with kInvalidArgument for a flow between ranks that are not there.
  Result<std::vector<MpiStream>> of(const RunMessage& order) const;
  // Fails with kUnavailable past the deadline, naming a peer, and kCorrupt for wrong bytes.
  Status move(std::vector<MpiStream>& streams, int64_t start_ns, comm::Deadline deadline);

 private:
  bool advance(MpiStream& stream);
  void begin_chunk(MpiStream& stream);
  void look_at(MpiStream& stream, const MpiStream::Chunk& chunk) const;
  std::byte* place(MpiStream& stream, int64_t at);

  const MpiRankOptions& options_;
  int rank_, size_;
  std::vector<std::byte> source_, sink_;
  std::set<int64_t> checked_;  // flows
};

}  // namespace jige::profile
