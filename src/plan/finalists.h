// Measuring of finalists against one another, in turns, so that a busy moment hits all alike.
//
//   JIGE_TRY(const std::vector<double> rates, measure_in_turns(3, run_number));
//
// Threads: one caller.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "base/result.h"

namespace jige::plan {

// Each of `count` measured three times; the middle one of each. Fails as measuring does.
Result<std::vector<double>> measure_in_turns(size_t count,
                                             const std::function<Result<double>(size_t)>& measure);

}  // namespace jige::plan
