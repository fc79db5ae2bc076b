// Ctrl-C, SIGTERM and the end of the terminal (SIGHUP) as a flag that long work looks at.
//
// While an InterruptScope lives, the first signal sets the flag and the second, if nobody has taken
// the first, ends the process at once with exit code 130. Blocking reads return early. A process
// that was started with SIGHUP ignored (nohup) goes on ignoring it. One SIGHUP behind another ends
// nothing: the kernel and a shell both tell of one terminal.
// Threads: one scope at a time; interrupted() from any thread.
#pragma once

#include <atomic>
#include <chrono>

namespace jige::cli {

class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;
};

// Between looks at interrupted(), where there is nothing else to do.
inline constexpr std::chrono::milliseconds kSignalPoll(50);

// Whether a signal came since the scope began or since take_interrupt().
bool interrupted();

// The flag itself, for work that takes a pointer to one.
const std::atomic<bool>& interrupt_flag();

// interrupted(), and forgets the signal.
bool take_interrupt();

}  // namespace jige::cli
