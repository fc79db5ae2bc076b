// Measuring of finalists against one another, in turns, so that a busy moment hits all alike.
//
//   JIGE_TRY(const std::vector<double> rates, measure_in_turns(3, left_s, run_number));
//
// Threads: one caller.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "base/result.h"

namespace jige::plan {

// Of a budget, for the search; the rest is for the finalists it finds.
inline constexpr double kSearchShare = 2.0 / 3;

// Each of `count` measured three times; the middle one of each. left_s() gives the seconds that are
// left: where they will not do, the first ones are measured, two at least, in as many whole turns
// as there is time for, one at least; 0 stands for the others. Fails as measuring does.
Result<std::vector<double>> measure_in_turns(size_t count, const std::function<double()>& left_s,
                                             const std::function<Result<double>(size_t)>& measure);

}  // namespace jige::plan
