#include "plan/pipeline_partition.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"

namespace jige::plan {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Best ways to cut the first `end` blocks into stages, by stage count: first the heaviest stage,
// then, with that bound known, the sum of squares.
class Cutter {
 public:
  Cutter(std::span<const double> work, const StageLimits& limits)
      : count_(work.size()), limits_(limits), work_(count_ + 1, 0), bytes_(count_ + 1, 0) {
    for (size_t b = 0; b < count_; ++b) {
      work_[b + 1] = work_[b] + work[b];
      bytes_[b + 1] = bytes_[b] + (limits.bytes.empty() ? 0 : limits.bytes[b]);
    }
  }

  // The lightest possible heaviest stage, or infinity.
  double lightest(size_t stages) const {
    return solve(stages, kInfinity, [](double a, double b) { return std::max(a, b); }).first;
  }

  std::vector<int32_t> even_cuts(size_t stages, double heaviest) const {
    return solve(stages, heaviest, [](double a, double b) { return a + b * b; }).second;
  }

 private:
  template <typename Join>
  std::pair<double, std::vector<int32_t>> solve(size_t stages, double work_max, Join join) const {
    std::vector<double> best(count_ + 1, kInfinity);
    best[0] = 0;
    std::vector<std::vector<int32_t>> from(stages, std::vector<int32_t>(count_ + 1, -1));
    for (size_t s = 0; s < stages; ++s) {
      const double pace = limits_.paces.empty() ? 1 : limits_.paces[s];
      const int64_t bytes_max = limits_.bytes_max.empty() ? INT64_MAX : limits_.bytes_max[s];
      std::vector<double> next(count_ + 1, kInfinity);
      for (size_t end = s + 1; end <= count_; ++end) {
        for (size_t begin = s; begin < end; ++begin) {
          const double work = (work_[end] - work_[begin]) * pace;
          if (work > work_max || bytes_[end] - bytes_[begin] > bytes_max) continue;
          const double total = join(best[begin], work);
          if (total >= next[end]) continue;
          next[end] = total;
          from[s][end] = static_cast<int32_t>(begin);
        }
      }
      best = std::move(next);
    }
    std::vector<int32_t> cuts;
    for (size_t s = stages, end = count_; s-- > 0 && best[count_] < kInfinity;) {
      cuts.insert(cuts.begin(), from[s][end]);
      end = static_cast<size_t>(from[s][end]);
    }
    return {best[count_], cuts};
  }

  size_t count_;
  StageLimits limits_;
  std::vector<double> work_;    // of the first b blocks
  std::vector<int64_t> bytes_;  // of the first b blocks
};

}  // namespace

Result<Partition> balance_stages(std::span<const double> work, int32_t stage_count,
                                 const StageLimits& limits) {
  const auto stages = static_cast<size_t>(std::max(stage_count, 0));
  const auto fits = [](size_t given, size_t wanted) { return given == 0 || given == wanted; };
  JIGE_CHECK(fits(limits.bytes.size(), work.size()) && fits(limits.paces.size(), stages) &&
                 fits(limits.bytes_max.size(), stages),
             "bytes of {} blocks, paces of {} stages, limits of {}; {} blocks, {} stages",
             limits.bytes.size(), limits.paces.size(), limits.bytes_max.size(), work.size(),
             stages);
  if (stage_count < 1 || stages > work.size()) {
    return fail(Code::kInvalidArgument, "{} blocks cannot be cut into {} stages", work.size(),
                stage_count);
  }
  const Cutter cutter(work, limits);
  const double heaviest = cutter.lightest(stages);
  if (heaviest == kInfinity) {
    // The same problem with bytes for work, as parts of what each stage may have.
    const std::vector<double> sizes(limits.bytes.begin(), limits.bytes.end());
    std::vector<double> parts;
    for (const int64_t most : limits.bytes_max) {
      parts.push_back(1 / static_cast<double>(std::max<int64_t>(most, 1)));
    }
    return fail(Code::kExhausted,
                "{} stages of {} blocks cannot all stay within their bytes; {:.3f} times as many "
                "would do",
                stage_count, work.size(), Cutter(sizes, {.paces = parts}).lightest(stages));
  }
  return Partition{cutter.even_cuts(stages, heaviest), heaviest};
}

}  // namespace jige::plan
