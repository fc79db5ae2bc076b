// Kept states: where requests begin with one, and where theirs are kept for others.
#include <algorithm>

#include "base/check.h"
#include "plan/serve_scheduler.h"

namespace jige::plan {

// With several batches in flight a state would be found before it is known to be there.
bool ServeScheduler::keeps_states(const ServeSchedulerOptions& options) {
  return options.state_count > 0 && options.kept_state_count > 0 && options.pool.prefix_cache &&
         options.batches_in_flight_max == 1;
}

// Of the blocks that were found, those up to the last border with a state that is kept.
void ServeScheduler::begin_at_kept_state(Request& request) {
  const int32_t size = pool_.block_tokens();
  const int32_t found = request.computed;
  while (request.computed > 0 && !kept_.find(request.prefix.back())) {
    pool_.release(request.blocks.back());
    request.blocks.pop_back();
    request.prefix.pop_back();
    request.computed -= size;
  }
  request.borders.clear();
  if (kept_.capacity() == 0) return;
  if (request.computed > 0) request.state_source = kept_.use(request.prefix.back());
  const auto prompt = static_cast<int32_t>(request.spec.prompt.size());
  const int32_t last = std::max(0, prompt - options_.kept_margin) / size * size;
  // Others begin with these blocks too, and nothing was kept for any of them.
  if (request.computed == 0 && found > 0 && found < last) request.borders.push_back(found);
  if (last > request.computed) request.borders.push_back(last);
}

int32_t ServeScheduler::up_to_border(const Request& request, int32_t token_count) {
  const auto next = std::ranges::upper_bound(request.borders, request.computed);
  return next == request.borders.end() ? token_count
                                       : std::min(token_count, *next - request.computed);
}

// Those who stand at a border have not gone on yet: what runs next comes behind the copies. Of more
// than there are slots the others are not kept.
void ServeScheduler::keep_states(Batch& batch) {
  std::vector<PrefixHash>& kept = in_flight_[batch.id].kept;
  for (const auto& [id, request] : inside_) {
    if (request->borders.empty() || request->borders.front() != request->computed) continue;
    request->borders.erase(request->borders.begin());
    const PrefixHash& prefix = request->prefix.back();
    const bool full = std::ssize(kept) == kept_.capacity();
    if (full || request->discarded || kept_.find(prefix)) continue;
    batch.state_copies.push_back({.src = request->state, .dst = kept_.keep(prefix)});
    kept.push_back(prefix);
  }
}

// As when it was admitted; it keeps its slots. REQUIRES: no copy to its slot waits for a batch.
void ServeScheduler::begin_again(Request& request) {
  JIGE_CHECK(request.state_source == kNoState, "request {} waits for its state", request.spec.id);
  give_back_blocks(request);
  request.state_copy.reset();
  match_prefix(request);
}

void ServeScheduler::check_kept_states() const {
  kept_.check_invariants();
  for (const auto& [id, request] : requests_) {
    if (request.borders.empty()) continue;
    JIGE_CHECK(std::ranges::is_sorted(request.borders) &&
                   (!request.admitted || request.borders.front() >= request.computed),
               "request {} has run past a border of {}", id, request.borders.front());
  }
}

}  // namespace jige::plan
