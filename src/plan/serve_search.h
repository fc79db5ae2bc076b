// The setting with the greatest throughput under a latency bound, by branch and bound over boxes
// of settings where both only grow along every variable (Oh et al., ExeGPT, ASPLOS 2024), and
// by looking at all of them.
//
//   const SearchResult found = search_settings({12, 8}, evaluate, {.latency_max = 2});
//   if (found.best) …found.best->at, found.best->score.throughput…
//
// A setting is a point of a grid: for each variable which of its values, counted so that more of
// it gives more throughput and more latency. Of a box the lowest corner has the least of both and
// the highest the most, so that
//   - no setting keeps the bound where the lowest corner does not: the box is dropped
//   - none is better than the highest corner: it is the one where it keeps the bound, and the box
//     is dropped where it is no better than what was found
//   - else the box is cut in two, across its longest side
// Boxes are taken by the throughput of their highest corner, the greatest first, and every setting
// is evaluated once.
//
// What cannot run has an infinite latency. Real settings are only nearly monotone. Say that along
// no variable throughput falls below 1 / (1 + throughput_tolerance) of an earlier value, and
// latency below 1 / (1 + latency_tolerance): then what is found has at least
// 1 / (1 + throughput_tolerance) of the greatest throughput. With tolerances of 0 and a monotone
// grid it is the greatest. Larger ones look at more settings.
// Threads: none.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <vector>

namespace jige::plan {

using Setting = std::vector<int32_t>;  // an index for each variable

struct SettingScore {
  double throughput = 0;
  double latency = std::numeric_limits<double>::infinity();
};
using EvaluateSetting = std::function<SettingScore(const Setting&)>;

struct ScoredSetting {
  Setting at;
  SettingScore score;
};

struct SearchOptions {
  double latency_max = std::numeric_limits<double>::infinity();  // settings at it keep it
  double throughput_tolerance = 0;
  double latency_tolerance = 0;
};

struct SearchResult {
  std::optional<ScoredSetting> best;    // none: no setting keeps the bound
  std::optional<ScoredSetting> lowest;  // of the least latency that was seen, if any can run
  int64_t evaluations = 0;
};

// REQUIRES: at least one variable, all with at least one value; tolerances >= 0.
SearchResult search_settings(std::span<const int32_t> sizes, const EvaluateSetting& evaluate,
                             const SearchOptions& options);

// All settings. Of equal throughputs the one with less latency, then the first.
SearchResult search_all_settings(std::span<const int32_t> sizes, const EvaluateSetting& evaluate,
                                 const SearchOptions& options);

}  // namespace jige::plan
