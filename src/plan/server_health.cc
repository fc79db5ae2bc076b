#include "plan/server_health.h"

#include <algorithm>

namespace jige::plan {

double ServerHealth::next_event_s(double now_s) const {
  const double probe_s = probing_ ? std::numeric_limits<double>::infinity() : probe_at_s_;
  if (silent(now_s)) return std::min(probe_s, silent_until_s_);
  return now_s < rests_until_s_ ? std::min(probe_s, rests_until_s_) : probe_s;
}

void ServerHealth::probe_answered(double now_s, bool well) {
  probing_ = false;
  probe_failed_ = !well;
  if (well) {
    if (!up_) {
      up_since_s_ = now_s;
      rests_until_s_ = refuses_until_s_ = -std::numeric_limits<double>::infinity();
      request_answered();  // as if it had: it may be another process
    }
    up_ = true;
    failures_ = 0;
    probe_at_s_ = now_s + options_.probe_s;
    probe_at_least_s_ = now_s + std::min(options_.probe_s, options_.backoff_s);
    return;
  }
  ++failures_;
  if (up_ && failures_ < options_.probe_failures_max) {
    probe_at_s_ = probe_at_least_s_ = now_s + std::min(options_.probe_s, options_.backoff_s);
    return;
  }
  go_down(now_s);
}

void ServerHealth::request_failed(double now_s) {
  if (up_) go_down(now_s);  // one that is down already is being looked at
}

void ServerHealth::doubted() {
  if (up_) probe_at_s_ = std::min(probe_at_s_, probe_at_least_s_);
}

void ServerHealth::go_down(double now_s) {
  const bool was_steady = up_ && now_s - up_since_s_ >= options_.steady_s;
  if (was_steady) backoff_s_ = options_.backoff_s;
  up_ = false;
  failures_ = 0;
  probe_at_s_ = now_s + backoff_s_;
  backoff_s_ = std::min(backoff_s_ * 2, options_.backoff_max_s);
}

void ServerHealth::request_refused(double now_s, double retry_after_s) {
  const double rest_s = std::clamp(retry_after_s, options_.rest_min_s, options_.rest_max_s);
  rests_until_s_ = std::max(rests_until_s_, now_s + rest_s);
  refuses_until_s_ = now_s + retry_after_s;
}

void ServerHealth::request_silent(double now_s) {
  if (silent(now_s)) return;
  if (++silent_ >= options_.silent_max || doubtful_) rest_for_silence(now_s);
}

void ServerHealth::request_abandoned(double now_s, double waited_s) {
  if (waited_s < options_.abandoned_s || silent(now_s)) return;
  // One that rested for its silence need not be silent as often again: so of request_silent().
  if (++abandoned_ >= options_.abandoned_max || doubtful_) rest_for_silence(now_s);
}

void ServerHealth::rest_for_silence(double now_s) {
  silent_until_s_ = now_s + silent_rest_s_;
  silent_rest_s_ = std::min(silent_rest_s_ * 2, options_.silent_rest_max_s);
  doubtful_ = true;
  trial_ = false;
}

bool ServerHealth::request_begun(double now_s) {
  if (!doubtful_ || trial_ || silent(now_s)) return false;
  trial_ = true;
  return true;
}

void ServerHealth::request_answered() {
  silent_ = abandoned_ = 0;
  doubtful_ = trial_ = false;
  silent_rest_s_ = options_.silent_rest_s;
  silent_until_s_ = -std::numeric_limits<double>::infinity();
}

double ServerHealth::rest_left_s(double now_s) const {
  if (state(now_s) != ServerState::kResting) return 0;
  return std::max({rests_until_s_, refuses_until_s_, now_s}) - now_s;
}

ServerState ServerHealth::state(double now_s) const {
  if (!up_ || silent(now_s)) return ServerState::kDown;
  return trial_ || now_s < rests_until_s_ ? ServerState::kResting : ServerState::kUp;
}

}  // namespace jige::plan
