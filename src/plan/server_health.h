// ServerHealth: whether a server may be sent requests, by what was seen of it: a pure state machine
// on whatever clock its caller has.
//
//   ServerHealth health({});
//   if (health.probe_due(now_s)) { health.probe_sent(now_s); …GET /health… }
//   health.probe_answered(now_s, status == 200);
//   if (health.state(now_s) == ServerState::kUp) …
//
// It is down until a probe has been answered well. Once up it is probed every probe_s; it is down
// again when probe_failures_max probes in a row failed, or at once when a request to it did
// (request_failed): the next request is another's, and a probe soon tells. While it is down probes
// come after backoff_s, then twice that, and so on up to backoff_max_s; what went down again within
// steady_s goes on from where it was, so that what comes and goes is asked less and less.
// A server that refuses (request_refused: it is full, loads, or drains) rests for as long as it
// says, within bounds, and gets nothing meanwhile; what it said before it went down counts no more
// when it is up again, as it may be another process by then.
// One that is well by its probes and has answered none of the last silent_max requests in their
// time (request_silent) gets nothing for silent_rest_s either, then twice that for each one more,
// up to silent_rest_max_s, until it answers one (request_answered) or has been down otherwise. So
// does one whose last abandoned_max clients went without a byte of it, each after abandoned_s or
// more (request_abandoned). Behind such a rest one request is a trial: until that is answered, or
// over, there are no others.
//
// Invariants: one probe is under way at most; between two lie at least min(probe_s, backoff_s).
// Threads: none; one caller.
#pragma once

#include <cstdint>
#include <limits>

#include "plan/route_policy.h"

namespace jige::plan {

struct HealthOptions {
  double probe_s = 1;
  double backoff_s = 0.25;
  double backoff_max_s = 10;
  double steady_s = 30;
  double rest_min_s = 0.2;
  double rest_max_s = 5;
  int32_t probe_failures_max = 2;
  int32_t silent_max = 3;
  double silent_rest_s = 60;
  double silent_rest_max_s = 600;
  int32_t abandoned_max = 5;
  double abandoned_s = 30;
};

class ServerHealth {
 public:
  explicit ServerHealth(HealthOptions options)
      : options_(options), backoff_s_(options.backoff_s), silent_rest_s_(options.silent_rest_s) {}

  bool probe_due(double now_s) const { return !probing_ && now_s >= probe_at_s_; }
  // When to look again: the next probe, or the end of a rest.
  double next_event_s(double now_s) const;
  void probe_sent() { probing_ = true; }
  // `well`: it can take requests. A probe that has no answer failed.
  void probe_answered(double now_s, bool well);
  // A request found it gone, or got no HTTP of it.
  void request_failed(double now_s);
  // A sign that it may have gone: where it is up the next probe comes sooner than it would.
  void doubted();
  // It refused a request and wants no more for so long; negative: it does not say.
  void request_refused(double now_s, double retry_after_s);
  // A request, or the rest of an answer, has been waited for as long as it may take.
  void request_silent(double now_s);
  // The client of a request that had no byte of an answer has gone, after so long.
  void request_abandoned(double now_s, double waited_s);
  // A byte of an answer has come.
  void request_answered();
  // A request goes to it. True: it is a trial, whose end has to be told.
  bool request_begun(double now_s);
  // A trial is over, whatever came of it.
  void trial_over() { trial_ = false; }

  ServerState state(double now_s) const;
  // How long it wants no more, by its own word or while it rests; 0 where it takes requests.
  double rest_left_s(double now_s) const;
  // It is down for the requests that it has not answered.
  bool silent(double now_s) const { return up_ && now_s < silent_until_s_; }
  // It is down, and not for a request alone: a probe had no good answer either.
  bool unanswering() const { return !up_ && probe_failed_; }

 private:
  void go_down(double now_s);
  void rest_for_silence(double now_s);

  HealthOptions options_;
  bool up_ = false;
  bool probing_ = false;
  bool probe_failed_ = false;  // the last one
  int32_t failures_ = 0;       // of probes, in a row
  double backoff_s_;
  double up_since_s_ = 0;
  double probe_at_s_ = -std::numeric_limits<double>::infinity();
  double probe_at_least_s_ = -std::numeric_limits<double>::infinity();  // while it is up
  double rests_until_s_ = -std::numeric_limits<double>::infinity();
  double refuses_until_s_ = -std::numeric_limits<double>::infinity();  // as it said
  int32_t silent_ = 0;     // requests, since it answered one
  int32_t abandoned_ = 0;  // likewise
  bool doubtful_ = false;  // it rests, or has rested, and has answered none since
  bool trial_ = false;     // one is under way
  double silent_rest_s_;
  double silent_until_s_ = -std::numeric_limits<double>::infinity();
};

}  // namespace jige::plan
