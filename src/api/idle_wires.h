// IdleWires: connections to one server that nobody uses at the moment, for those who will.
//
// The one that was used last is given first, so that what is not needed falls out of use. One that
// is unused for `seconds` ends, before most servers would end it (some after five); so does one on
// which something comes, as its end may.
// Invariants: never more than count_max.
// Threads: none; one caller.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>

#include "api/http_wire.h"

namespace jige::api {

struct IdleOptions {
  size_t count_max = 64;
  double seconds = 4;  // 0: none is kept
};

class IdleWires {
 public:
  explicit IdleWires(IdleOptions options) : options_(options) {}

  void put(HttpWire wire, double now_s);
  // None where there is none that can be used.
  std::optional<HttpWire> take(double now_s);
  // Ends those that nobody may use any more.
  void sweep(double now_s);
  void clear() { idle_.clear(); }
  size_t count() const { return idle_.size(); }

 private:
  struct Idle {
    HttpWire wire;
    double since_s;
  };
  bool old(const Idle& one, double now_s) const { return now_s - one.since_s >= options_.seconds; }

  IdleOptions options_;
  std::deque<Idle> idle_;  // the one used last is behind
};

}  // namespace jige::api
