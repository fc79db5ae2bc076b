// Conclusions from measured rates hold as long as these do: work that draws them is done anew when
// the profiler found a rate changed, or a symmetry wrong, on the way.
//
//   JIGE_TRY(const Steadiness steady, until_rates_hold(profiler, [&]() -> Status {
//     return plan_from_scratch();
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

// Three times at most. Fails as `attempt` does.
Result<Steadiness> until_rates_hold(profile::Profiler& profiler,
                                    const std::function<Status()>& attempt);

// kUnavailable, with what changed last.
tl::unexpected<Error> rates_keep_changing(const profile::Profiler& profiler);

}  // namespace jige::plan
