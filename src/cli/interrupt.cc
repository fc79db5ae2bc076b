#include "cli/interrupt.h"

#include <signal.h>
#include <unistd.h>

namespace jige::cli {
namespace {

std::atomic<bool> signal_came{false};
static_assert(std::atomic<bool>::is_always_lock_free, "signal handlers may use it");

void on_signal(int signal) {
  if (signal_came.exchange(true) && signal != SIGHUP) _exit(130);
}

bool is_ignored(int signal) {
  struct sigaction action {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

void install(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  // Without SA_RESTART a read that waits for the user returns.
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  if (!is_ignored(SIGHUP)) sigaction(SIGHUP, &action, nullptr);
}

}  // namespace

InterruptScope::InterruptScope() {
  signal_came = false;
  install(on_signal);
}

InterruptScope::~InterruptScope() { install(SIG_DFL); }

bool interrupted() { return signal_came; }

const std::atomic<bool>& interrupt_flag() { return signal_came; }

bool take_interrupt() { return signal_came.exchange(false); }

}  // namespace jige::cli
