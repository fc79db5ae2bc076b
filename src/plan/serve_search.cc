#include "plan/serve_search.h"

#include <algorithm>
#include <map>
#include <queue>
#include <utility>

#include "base/check.h"

namespace jige::plan {
namespace {

// What was seen, each setting evaluated once.
class SeenSettings {
 public:
  SeenSettings(const EvaluateSetting& evaluate, double latency_max)
      : evaluate_(evaluate), latency_max_(latency_max) {}

  const SettingScore& score(const Setting& at) {
    const auto [found, is_new] = scores_.try_emplace(at);
    if (!is_new) return found->second;
    found->second = evaluate_(at);
    ++result_.evaluations;
    keep_best(at, found->second);
    return found->second;
  }

  bool keeps_bound(const Setting& at) { return keeps(score(at), latency_max_); }
  // What cannot run keeps no bound.
  static bool keeps(const SettingScore& score, double latency_max) {
    return score.latency <= latency_max && score.latency < std::numeric_limits<double>::infinity();
  }
  double best_throughput() const {
    return result_.best ? result_.best->score.throughput : -std::numeric_limits<double>::infinity();
  }
  SearchResult result() && { return std::move(result_); }

 private:
  void keep_best(const Setting& at, const SettingScore& score) {
    const auto better = [](const SettingScore& a, const SettingScore& b) {
      return a.throughput != b.throughput ? a.throughput > b.throughput : a.latency < b.latency;
    };
    const bool runs = score.latency < std::numeric_limits<double>::infinity();
    if (runs && (!result_.lowest || score.latency < result_.lowest->score.latency)) {
      result_.lowest = {at, score};
    }
    if (!keeps(score, latency_max_)) return;
    if (!result_.best || better(score, result_.best->score)) result_.best = {at, score};
  }

  const EvaluateSetting& evaluate_;
  const double latency_max_;
  std::map<Setting, SettingScore> scores_;
  SearchResult result_;
};

struct Box {
  Setting low, high;
  double throughput_max = 0;  // of the highest corner
  bool operator<(const Box& other) const { return throughput_max < other.throughput_max; }
};

class BoxSearch {
 public:
  BoxSearch(const EvaluateSetting& evaluate, const SearchOptions& options)
      : seen_(evaluate, options.latency_max), options_(options) {}

  SearchResult run(const Setting& low, const Setting& high) {
    add(low, high);
    while (!boxes_.empty()) {
      const Box box = boxes_.top();
      boxes_.pop();
      if (!promising(box)) break;  // the others promise less
      split(box);
    }
    return std::move(seen_).result();
  }

 private:
  bool promising(const Box& box) const {
    return box.throughput_max * (1 + options_.throughput_tolerance) > seen_.best_throughput();
  }

  // Unless it is known what is in the box, or that it is of no use.
  void add(const Setting& low, const Setting& high) {
    const double latency_max = options_.latency_max * (1 + options_.latency_tolerance);
    if (!SeenSettings::keeps(seen_.score(low), latency_max)) return;
    Box box{low, high, seen_.score(high).throughput};
    if (low == high || seen_.keeps_bound(high) || !promising(box)) return;
    boxes_.push(std::move(box));
  }

  void split(const Box& box) {
    size_t axis = 0;  // the longest side
    for (size_t i = 1; i < box.low.size(); ++i) {
      if (box.high[i] - box.low[i] > box.high[axis] - box.low[axis]) axis = i;
    }
    const int32_t middle = box.low[axis] + (box.high[axis] - box.low[axis]) / 2;
    Setting end = box.high;
    end[axis] = middle;
    Setting begin = box.low;
    begin[axis] = middle + 1;
    add(begin, box.high);
    add(box.low, end);
  }

  SeenSettings seen_;
  const SearchOptions& options_;
  std::priority_queue<Box> boxes_;
};

Setting highest(std::span<const int32_t> sizes) {
  JIGE_CHECK(!sizes.empty() && std::ranges::min(sizes) > 0, "{} variables", sizes.size());
  Setting high(sizes.begin(), sizes.end());
  for (int32_t& index : high) --index;
  return high;
}

}  // namespace

SearchResult search_settings(std::span<const int32_t> sizes, const EvaluateSetting& evaluate,
                             const SearchOptions& options) {
  return BoxSearch(evaluate, options).run(Setting(sizes.size(), 0), highest(sizes));
}

SearchResult search_all_settings(std::span<const int32_t> sizes, const EvaluateSetting& evaluate,
                                 const SearchOptions& options) {
  const Setting high = highest(sizes);
  SeenSettings seen(evaluate, options.latency_max);
  Setting at(sizes.size(), 0);
  for (;;) {
    seen.score(at);
    size_t axis = at.size();
    while (axis > 0 && at[axis - 1] == high[axis - 1]) at[--axis] = 0;
    if (axis == 0) return std::move(seen).result();
    ++at[axis - 1];
  }
}

}  // namespace jige::plan
