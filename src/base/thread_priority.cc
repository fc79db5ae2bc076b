#include "base/thread_priority.h"

#include <sys/resource.h>
#include <unistd.h>

namespace jige {

void lower_thread_priority(int niceness) {
  // Of this thread alone, as Linux has it. Where it is refused the thread runs as others do.
  setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), niceness);
}

}  // namespace jige
