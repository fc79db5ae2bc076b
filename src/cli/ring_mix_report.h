// What `jige plan rings --rings N` says about mixtures of rings.
//
// Threads: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "plan/ring_mix_planner.h"

namespace jige::cli {

std::string ring_mix_report(const plan::RingProblem& problem, const plan::RingMixPlan& plan,
                            std::string_view source);

}  // namespace jige::cli
