#include "plan/server_load.h"

#include <algorithm>

#include "base/check.h"

namespace jige::plan {

void ServerLoad::own_is(int64_t own) { own_max_ = std::max(own_max_, own); }

void ServerLoad::told(double now_s, LoadReport report) {
  JIGE_CHECK(report.running >= 0 && report.waiting >= 0, "a server has some requests, or none");
  const double all = report.running + report.waiting;
  const double others = std::max(all - static_cast<double>(own_max_), 0.0);
  const double share = all > 0 ? others / all : 0;
  OtherRequests now{.running = share * report.running, .waiting = share * report.waiting};
  if (known(now_s)) {
    const OtherRequests before = this->others(now_s);
    now.running = (now.running + before.running) / 2;
    now.waiting = (now.waiting + before.waiting) / 2;
  }
  last_ = now;
  told_s_ = now_s;
}

void ServerLoad::not_told(double now_s) { ask_at_s_ = now_s + options_.silent_s; }

void ServerLoad::forget() { *this = ServerLoad(options_); }

OtherRequests ServerLoad::others(double now_s) const {
  const double left_s = told_s_ + options_.gone_s - now_s;
  const double share = std::clamp(left_s / (options_.gone_s - options_.fresh_s), 0.0, 1.0);
  return {.running = share * last_.running, .waiting = share * last_.waiting};
}

}  // namespace jige::plan
