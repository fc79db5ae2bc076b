#include "plan/finalists.h"

#include <algorithm>

namespace jige::plan {
namespace {

constexpr size_t kTurns = 3;

}  // namespace

Result<std::vector<double>> measure_in_turns(size_t count,
                                             const std::function<Result<double>(size_t)>& measure) {
  std::vector<std::vector<double>> found(count);
  for (size_t turn = 0; turn < kTurns; ++turn) {
    for (size_t i = 0; i < count; ++i) {
      JIGE_TRY(const double now, measure(i));
      found[i].push_back(now);
    }
  }
  std::vector<double> middle;
  for (std::vector<double>& all : found) {
    std::ranges::sort(all);
    middle.push_back(all[kTurns / 2]);
  }
  return middle;
}

}  // namespace jige::plan
