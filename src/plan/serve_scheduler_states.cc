// The slots of states: who holds which, and the copies that requests begin with.
#include <cstdint>
#include <utility>

#include "base/check.h"
#include "plan/serve_scheduler.h"

namespace jige::plan {

// Forks are made with the first token.
int32_t ServeScheduler::states_for(const Request& request) const {
  if (options_.state_count == 0) return 0;
  return request.generated > 0 ? 1 : 1 + request.spec.fork_count;
}

// REQUIRES: as many are free.
void ServeScheduler::take_states(Request& request) {
  const auto take = [this] {
    const int32_t state = free_states_.back();
    free_states_.pop_back();
    return state;
  };
  const int32_t count = states_for(request);
  if (count > 0) request.state = take();
  for (int32_t i = 1; i < count; ++i) request.fork_states.push_back(take());
}

void ServeScheduler::give_back_fork_states(Request& request) {
  free_states_.insert(free_states_.end(), request.fork_states.rbegin(), request.fork_states.rend());
  request.fork_states.clear();
}

bool ServeScheduler::drafts_states() const { return options_.batches_in_flight_max == 1; }

int32_t ServeScheduler::spare_count() const {
  if (options_.state_count == 0) return INT32_MAX;
  return drafts_states() ? static_cast<int32_t>(free_states_.size()) : 0;
}

int32_t ServeScheduler::again_count(RequestId id) const {
  const auto found = requests_.find(id);
  return found == requests_.end() ? 0 : found->second.again;
}

// REQUIRES: one is free where the drafts of the item need it.
void ServeScheduler::take_spare(Request& request, WorkItem& item) {
  if (request.state == kNoState || item.draft_count <= request.certain_drafts) return;
  item.spare = request.spare = free_states_.back();
  free_states_.pop_back();
}

void ServeScheduler::give_back_spare(Request& request) {
  if (request.spare != kNoState) free_states_.push_back(request.spare);
  request.spare = kNoState;
}

// False where its state has tokens that did not come.
bool ServeScheduler::end_drafts(Request& request, int32_t accepted) {
  const bool wrong = request.state != kNoState && accepted < request.in_flight_drafts;
  const bool goes_back = wrong && request.spare != kNoState;
  if (goes_back) {
    std::swap(request.state, request.spare);
    request.again = accepted;
  }
  give_back_spare(request);
  return !wrong || goes_back;
}

// Forks of the request may still have to be copied from its slot: that is done before anything runs
// that takes the slot from now on.
void ServeScheduler::give_back(Request& request) {
  give_back_blocks(request);
  give_back_fork_states(request);
  give_back_spare(request);
  if (request.state != kNoState) free_states_.push_back(request.state);
  request.state = request.state_source = kNoState;
  request.state_copy.reset();
}

// Parents, which may move on in this batch, have not run since. Forks come first: a slot that they
// are copied from may have been given on to one that begins with a kept state.
void ServeScheduler::add_state_copies(Batch& batch) {
  for (const bool kept : {false, true}) {
    for (const auto& [id, request] : inside_) {
      const int32_t source = request->state_source;
      if (source == kNoState || (source >= options_.state_count) != kept) continue;
      batch.state_copies.push_back({.src = source, .dst = request->state});
      request->state_source = kNoState;
      request->state_copy = batch.id;
    }
  }
  keep_states(batch);
}

void ServeScheduler::end_state_copies(BatchId batch, bool lost) {
  for (const auto& [id, request] : inside_) {
    if (request->state_copy != batch) continue;
    request->state_copy.reset();
    if (lost) begin_again(*request);
  }
}

bool ServeScheduler::in_flight(const Request& request) {
  return request.in_flight_tokens > 0 || request.state_copy;
}

void ServeScheduler::check_states() const {
  check_kept_states();
  std::vector<int32_t> users(static_cast<size_t>(options_.state_count), 0);
  std::vector<int32_t> copies(users.size() + static_cast<size_t>(kept_.capacity()),
                              0);  // into each
  for (const int32_t state : free_states_) ++users[static_cast<size_t>(state)];
  for (const auto& [id, request] : requests_) {
    for (const int32_t state : request.fork_states) ++users[static_cast<size_t>(state)];
    if (request.state != kNoState) ++users[static_cast<size_t>(request.state)];
    if (request.spare != kNoState) ++users[static_cast<size_t>(request.spare)];
    JIGE_CHECK(request.spare == kNoState || request.in_flight_drafts > 0,
               "request {} holds a spare state for nothing", id);
    JIGE_CHECK(
        request.again == 0 || (request.state != kNoState && request.again < request.computed),
        "request {} runs {} of {} tokens again", id, request.again, request.computed);
    JIGE_CHECK(request.admitted || (request.state == kNoState && request.fork_states.empty()),
               "waiting request {} holds states", id);
    const bool runs = request.admitted && !request.finished && options_.state_count > 0;
    JIGE_CHECK(!runs || request.state != kNoState, "request {} has no state", id);
    JIGE_CHECK(!runs || std::ssize(request.fork_states) == states_for(request) - 1,
               "request {} keeps {} states for its forks", id, request.fork_states.size());
    JIGE_CHECK(!request.state_copy || in_flight_.contains(*request.state_copy),
               "request {}: the copy of its state is in no batch", id);
    if (request.state_source == kNoState) continue;
    JIGE_CHECK(request.state != kNoState && !in_flight(request) && request.computed > 0,
               "request {} waits for a copy of state {}", id, request.state_source);
    ++copies[static_cast<size_t>(request.state)];
  }
  for (size_t state = 0; state < users.size(); ++state) {
    JIGE_CHECK(users[state] == 1, "state {} is free or held {} times", state, users[state]);
  }
  for (const auto& [id, request] : requests_) {
    if (request.state_source == kNoState) continue;
    JIGE_CHECK(copies[static_cast<size_t>(request.state_source)] == 0,
               "state {} is copied before its own copy is made", request.state_source);
  }
}

}  // namespace jige::plan
