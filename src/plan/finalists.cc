#include "plan/finalists.h"

#include <algorithm>

namespace jige::plan {
namespace {

constexpr size_t kTurns = 3;
constexpr size_t kLeast = 2;  // for there to be a choice

}  // namespace

Result<std::vector<double>> measure_in_turns(size_t count, const std::function<double()>& left_s,
                                             const std::function<Result<double>(size_t)>& measure) {
  std::vector<std::vector<double>> found(count);
  const double first_s = left_s();
  size_t met = 0;
  for (; met < count; ++met) {
    // One more in every turn, at what they took so far.
    const double one_s = met == 0 ? 0 : (first_s - left_s()) / static_cast<double>(met);
    if (met >= kLeast && one_s * static_cast<double>((met + 1) * kTurns) > first_s) break;
    JIGE_TRY(const double now, measure(met));
    found[met].push_back(now);
  }
  const double turn_s = first_s - left_s();
  for (size_t turn = 1; turn < kTurns && turn_s <= left_s(); ++turn) {
    for (size_t i = 0; i < met; ++i) {
      JIGE_TRY(const double now, measure(i));
      found[i].push_back(now);
    }
  }
  std::vector<double> middle;
  for (std::vector<double>& all : found) {
    std::ranges::sort(all);
    middle.push_back(all.empty() ? 0 : all[all.size() / 2]);
  }
  return middle;
}

}  // namespace jige::plan
