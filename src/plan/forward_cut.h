// How a batch is cut into forwards of a model: its rows and the rows that are sampled from have
// limits, and an iteration of the scheduler may be larger (whole prompts under the orca and static
// policies, more decodes than the model has rows of logits).
//
// Items of one adapter come next to each other, the base's first, so that their rows are one range;
// a forward is filled before the next one begins; a draft stays together with the tokens before
// it, and so do tokens that see one another (token_runs.h), in a forward that is too large where
// they alone are more than its limit. Threads: none.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "base/result.h"
#include "plan/serve_scheduler.h"

namespace jige::plan {

struct ForwardLimits {
  int64_t rows_max = INT64_MAX;
  int64_t sample_rows_max = INT64_MAX;
  bool samples = true;  // a model for embeddings is not sampled from
  bool whole = false;   // an item has a forward to itself before it is cut
};

// Tokens [begin, begin + count) of an item.
struct ForwardPart {
  size_t item = 0;
  int32_t begin = 0;
  int32_t count = 0;
  int32_t sample_rows = 0;  // of these rows, the last ones
};

// Calls `part` for each part, and `forward` behind the last part of each forward; both give a
// Status, and the first that fails ends it. `order` is memory that is used again. REQUIRES: limits
// that hold a draft and the tokens before it.
template <typename Part, typename Forward>
Status cut_into_forwards(const Batch& batch, const ForwardLimits& limits,
                         std::vector<size_t>& order, Part&& part, Forward&& forward) {
  order.resize(batch.items.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t item) { return batch.items[item].adapter; });
  int64_t rows = 0, sample_rows = 0;
  for (const size_t i : order) {
    const WorkItem& item = batch.items[i];
    const auto count = static_cast<int32_t>(item.tokens.size());
    const int32_t together = item.draft_count > 0 ? count : 1;
    for (int32_t begin = 0; begin < count;) {
      if (rows + together > limits.rows_max ||
          sample_rows + std::max<int64_t>(1, item.sample_rows()) > limits.sample_rows_max ||
          (limits.whole && rows > 0 && rows + count - begin > limits.rows_max)) {
        JIGE_DO(forward());
        rows = sample_rows = 0;
      }
      ForwardPart next{.item = i, .begin = begin};
      const auto room =
          static_cast<int32_t>(std::min<int64_t>(limits.rows_max - rows, count - begin));
      next.count = rows > 0
                       ? uncut_count(item.whole_runs, item.context_count + begin, room)
                       : uncut_count_at_least(item.whole_runs, item.context_count + begin, room);
      if (next.count == 0) {
        JIGE_DO(forward());
        rows = sample_rows = 0;
        continue;
      }
      const bool last = begin + next.count == count;
      if (last && limits.samples) next.sample_rows = static_cast<int32_t>(item.sample_rows());
      JIGE_DO(part(next));
      begin += next.count;
      rows += next.count;
      sample_rows += next.sample_rows;
    }
  }
  return forward();
}

}  // namespace jige::plan
