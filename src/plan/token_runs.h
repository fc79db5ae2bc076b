// Runs of a prompt's tokens that see one another, as the rows of an image do in some models: who
// cuts a prompt into pieces cuts none of them, since each needs the keys of all of its run.
//
// A piece may begin inside a run where the run's beginning was found in a cache; the rest of it
// runs as one then. Threads: pure functions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

namespace jige::plan {

// Tokens [begin, end) of a prompt.
struct TokenRun {
  int32_t begin = 0;
  int32_t end = 0;

  bool operator==(const TokenRun&) const = default;
};

// Of the tokens from `begin` on how many make a piece of at most `count_max` that cuts no run; 0:
// none, since a run's tokens that come first are more. REQUIRES: ascending runs.
inline int32_t uncut_count(std::span<const TokenRun> runs, int32_t begin, int32_t count_max) {
  const int64_t end = int64_t{begin} + count_max;
  for (const TokenRun& run : runs) {
    if (run.begin < end && end < run.end) return std::max(run.begin - begin, 0);
  }
  return count_max;
}

// The same where the first piece of a run may be longer: at least its tokens that come first.
inline int32_t uncut_count_at_least(std::span<const TokenRun> runs, int32_t begin,
                                    int32_t count_max) {
  const int32_t count = uncut_count(runs, begin, count_max);
  if (count > 0) return count;
  for (const TokenRun& run : runs) {
    if (run.begin <= begin && begin < run.end) return run.end - begin;
  }
  return count;
}

}  // namespace jige::plan
