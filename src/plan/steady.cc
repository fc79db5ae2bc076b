#include "plan/steady.h"

namespace jige::plan {
namespace {

constexpr int32_t kRestartsMax = 3;

}  // namespace

Result<Steadiness> until_rates_hold(profile::Profiler& profiler,
                                    const std::function<double()>& left_s,
                                    const std::function<Result<int32_t>()>& attempt) {
  Steadiness steady;
  for (;; ++steady.restarts) {
    JIGE_TRY(const int32_t epoch, attempt());
    steady.held = profiler.epoch() == epoch;
    const int32_t most = left_s() > 0 ? kRestartsMax : 1;
    if (steady.held || steady.restarts >= most) return steady;
  }
}

tl::unexpected<Error> rates_keep_changing(const profile::Profiler& profiler) {
  return fail(Code::kUnavailable,
              "{}: rates keep changing while they are measured (last: {}); stop what else uses the "
              "links",
              profiler.topology().name(), profiler.last_change());
}

}  // namespace jige::plan
