// ServerLoad: how many requests of others a server has, by what it tells of all it has: a pure
// state machine on whatever clock its caller has.
//
//   if (load.due(now_s)) { load.asked(own_count); …GET /metrics… }
//   load.own_is(own_count);                       // whenever that changes
//   load.told(now_s, {.running = 3, .waiting = 9});
//   policy.set_others(server, load.others(now_s));
//
// What a server tells is of some moment between question and answer, and it may still count a
// request that is over here. So as many as the caller had there at most since it asked count as its
// own, and others are what is left: rather too few than those that are none. They run and wait as
// all do.
//
// A new number counts half and what was believed before the other half, so that routers that do not
// know of each other do not all run to the server that was idle a moment ago. What was told counts
// in full for fresh_s, then less and less, and from gone_s on not at all: it is from long ago. A
// server that does not tell (not_told) is asked again after silent_s.
//
// Invariants: others() is never negative, and nothing from gone_s on.
// Threads: none; one caller.
#pragma once

#include <cstdint>
#include <limits>

#include "plan/route_policy.h"

namespace jige::plan {

struct LoadOptions {
  double fresh_s = 3;
  double gone_s = 10;
  double silent_s = 30;
};

// Of all requests at a server, whoever sent them.
struct LoadReport {
  double running = 0;
  double waiting = 0;
};

class ServerLoad {
 public:
  explicit ServerLoad(LoadOptions options) : options_(options) {}

  bool due(double now_s) const { return now_s >= ask_at_s_; }
  void asked(int64_t own) { own_max_ = own; }
  void own_is(int64_t own);
  // REQUIRES: finite numbers, none negative.
  void told(double now_s, LoadReport report);
  void not_told(double now_s);
  // It was away: whoever was there is not any more.
  void forget();

  OtherRequests others(double now_s) const;
  // Whether it tells at all.
  bool known(double now_s) const { return now_s < told_s_ + options_.gone_s; }

 private:
  LoadOptions options_;
  int64_t own_max_ = 0;
  OtherRequests last_;
  double told_s_ = -std::numeric_limits<double>::infinity();
  double ask_at_s_ = -std::numeric_limits<double>::infinity();
};

}  // namespace jige::plan
