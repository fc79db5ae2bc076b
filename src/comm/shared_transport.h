// The transport over shared memory: threads of one process, or processes of one machine.
//
// A rank that waits first yields the processor for a short while, then sleeps on its doorbell,
// which peers ring only when it sleeps. For small messages it looks again and again before that
// (linger), without yielding where there is a processor for every rank. A process that ends,
// however it does, is noticed through its pidfd within a heartbeat (50 ms); a thread, through the
// leave its transport takes.
//
// Threads: one thread per transport.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/shared_region.h"
#include "comm/transport.h"

namespace jige::comm {

struct SharedMember {
  std::string host;
  int pid = 0;  // 0: a thread of this process
};

// `region` is shared among the transports of a process where these are threads. Fails with
// kUnavailable when a member's process is gone already.
Result<std::unique_ptr<Transport>> make_shared_transport(std::shared_ptr<SharedRegion> region,
                                                         int rank, const RingPlan& plan,
                                                         const std::vector<SharedMember>& members);

// The region's shape for a plan.
RegionShape region_shape(int size, const RingPlan& plan);

// Transports for `size` threads of this process.
Result<std::vector<std::unique_ptr<Transport>>> make_thread_transports(int size,
                                                                       const RingPlan& plan);

}  // namespace jige::comm
