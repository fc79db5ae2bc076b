// Replays an event log: the same events to a new scheduler, and its decisions beside the recorded
// ones. What happened in production can so be looked at again, step by step, without its model.
//
// Threads: none.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace jige::serve {

struct ReplayCounts {
  int64_t events = 0;  // lines
  int64_t requests = 0;
  int64_t batches = 0;
  int64_t preemptions = 0;
  int32_t live_blocks = 0;  // at the end
};

// Fails with kCorrupt, naming the line, where the log contradicts itself or is no log, and with
// kInternal where the scheduler decides otherwise than recorded, showing both decisions. A last
// line that was cut off is passed over.
Result<ReplayCounts> replay_event_log(const std::string& path);

}  // namespace jige::serve
