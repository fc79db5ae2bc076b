#include "plan/steady.h"

namespace jige::plan {
namespace {

constexpr int32_t kRestartsMax = 3;

}  // namespace

Result<Steadiness> until_rates_hold(profile::Profiler& profiler,
                                    const std::function<Status()>& attempt) {
  Steadiness steady;
  for (;; ++steady.restarts) {
    const int32_t epoch = profiler.epoch();
    JIGE_DO(attempt());
    steady.held = profiler.epoch() == epoch;
    if (steady.held || steady.restarts == kRestartsMax) return steady;
  }
}

tl::unexpected<Error> rates_keep_changing(const profile::Profiler& profiler) {
  return fail(Code::kUnavailable,
              "{}: rates keep changing while they are measured (last: {}); stop what else uses the "
              "links",
              profiler.topology().name(), profiler.last_change());
}

}  // namespace jige::plan
