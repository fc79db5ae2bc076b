// Why a set of transfers ran slower than a plan's rows promised: the smallest part of it that does,
// found by measuring, becomes another row.
//
// Threads: one caller.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/ring_capacity.h"
#include "profile/profiler.h"

namespace jige::plan {

inline constexpr double kNews =
    1e-6;  // a measurement that differs less, relative, says nothing new
inline constexpr double kRounding = 1e-9;  // a promise that is higher by less, relative, is as high

// Whether there was such a part: one whose members, with equal amounts, run slower than `capacity`
// says by more than `tolerance`, and none of which can be left out. Fails as measuring does.
Result<bool> learn_shortfall(const RingProblem& problem, profile::Profiler& profiler,
                             RingCapacity& capacity, std::vector<int32_t> set, double tolerance);

}  // namespace jige::plan
