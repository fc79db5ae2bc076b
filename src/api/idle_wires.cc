#include "api/idle_wires.h"

#include <utility>

namespace jige::api {

void IdleWires::put(HttpWire wire, double now_s) {
  if (options_.count_max == 0 || options_.seconds <= 0) return;
  if (idle_.size() >= options_.count_max) idle_.pop_front();
  idle_.push_back({std::move(wire), now_s});
}

std::optional<HttpWire> IdleWires::take(double now_s) {
  while (!idle_.empty()) {
    Idle one = std::move(idle_.back());
    idle_.pop_back();
    if (!old(one, now_s) && one.wire.quiet()) return std::move(one.wire);
  }
  return std::nullopt;
}

void IdleWires::sweep(double now_s) {
  std::erase_if(idle_, [&](Idle& one) { return old(one, now_s) || !one.wire.quiet(); });
}

}  // namespace jige::api
