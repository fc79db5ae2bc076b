// Conclusions from measured rates hold as long as these do: work that draws them is done anew when
// the profiler found a rate changed, or a symmetry wrong, on the way.
//
//   JIGE_TRY(const Steadiness steady, until_rates_hold(profiler, left_s, [&]() -> Result<int32_t> {
//     const int32_t epoch = profiler.epoch();
//     JIGE_DO(plan_from_scratch());
//     return epoch;
//   }));
//   if (!steady.held) return rates_keep_changing(profiler);   // or go on with a warning
//
// Threads: one caller.
#pragma once

#include <cstdint>
#include <functional>

#include "base/result.h"
#include "profile/profiler.h"

namespace jige::plan {

struct Steadiness {
  int32_t restarts = 0;
  bool held = true;  // during the last attempt
};

// `attempt` gives the profiler's epoch that its result rests on: that in which its own last
// beginning lay. It is repeated three times at most, and where left_s(), what is left of the
// budget, is not above 0, only if it was not repeated yet. Fails as `attempt` does.
Result<Steadiness> until_rates_hold(profile::Profiler& profiler,
                                    const std::function<double()>& left_s,
                                    const std::function<Result<int32_t>()>& attempt);

// kUnavailable, with what changed last.
tl::unexpected<Error> rates_keep_changing(const profile::Profiler& profiler);

}  // namespace jige::plan
