// The events that end or change requests: completion, loss and cancellation of work.
#include <algorithm>

#include "base/check.h"
#include "plan/serve_scheduler.h"

namespace jige::plan {

void ServeScheduler::draft(RequestId id, std::span<const int32_t> tokens, int32_t certain_count) {
  JIGE_CHECK(certain_count >= 0 && certain_count <= std::ssize(tokens),
             "request {}: {} of {} drafted tokens are certain", id, certain_count, tokens.size());
  const auto found = requests_.find(id);
  if (found == requests_.end() || found->second.in_flight_tokens > 0) return;
  if (options_.state_count > 0 && !drafts_states()) return;
  found->second.draft.assign(tokens.begin(), tokens.end());
  found->second.certain_drafts = certain_count;
}

std::vector<RequestId> ServeScheduler::complete(BatchId batch_id,
                                                std::span<const SampledNext> sampled) {
  const auto batch = in_flight_.find(batch_id);
  JIGE_CHECK(batch != in_flight_.end(), "batch {} is not in flight", batch_id);
  const std::vector<RequestId> members = std::move(batch->second.members);
  in_flight_.erase(batch);
  std::vector<Request*> without_state;
  for (const RequestId id : members) at(id).again = 0;
  for (const SampledNext& next : sampled) {
    Request& request = at(next.request);
    JIGE_CHECK(next.accepted >= 0 && next.accepted <= request.in_flight_drafts,
               "request {}: {} of {} drafted tokens accepted", next.request, next.accepted,
               request.in_flight_drafts);
    request.tokens.insert(request.tokens.end(), request.draft.begin(),
                          request.draft.begin() + next.accepted);
    request.generated += next.accepted;
    tenants_.at(request.spec.tenant).served_tokens += next.accepted;
    // The others were run for nothing.
    request.in_flight_tokens -= request.in_flight_drafts - next.accepted;
    if (!end_drafts(request, next.accepted)) without_state.push_back(&request);
    request.in_flight_drafts = 0;
    request.draft.clear();
  }
  for (const RequestId id : members) {
    Request& request = at(id);
    JIGE_CHECK(request.in_flight_drafts == 0, "request {} has sampled nothing", id);
    request.computed += request.in_flight_tokens;
    request.in_flight_tokens = 0;
    give_back_blocks_behind(request, request.computed);
    publish_full_blocks(request);
  }
  for (const SampledNext& next : sampled) {
    Request& request = at(next.request);
    JIGE_CHECK(request.computed == static_cast<int32_t>(request.tokens.size()),
               "request {} sampled with {} of {} tokens computed", next.request, request.computed,
               request.tokens.size());
    request.tokens.push_back(next.token);
    ++request.generated;
    request.finished = next.finished || request.generated >= request.spec.max_new_tokens;
    for (const ForkedNext& forked : next.forks) fork(request, forked);
    give_back_fork_states(request);
  }
  for (Request* const request : without_state) {
    if (!request->finished) begin_again(*request);
  }
  end_state_copies(batch_id, /*lost=*/false);
  for (const RequestId id : members) {
    if (at(id).cancelled) remove(id);
  }
  return release_finished();
}

// A fork begins with the parent's prompt computed and a first token of its own. The parent is not
// charged: what it was promised covers its forks.
void ServeScheduler::fork(Request& parent, const ForkedNext& next) {
  JIGE_CHECK(parent.spec.fork_count > 0 && parent.generated == 1, "request {} cannot fork",
             parent.spec.id);
  JIGE_CHECK(!requests_.contains(next.child), "request {} is there already", next.child);
  --parent.spec.fork_count;
  Request child = parent;
  child.spec.id = next.child;
  child.spec.fork_count = 0;
  child.arrival = next_arrival_++;
  child.tokens.back() = next.token;
  child.finished = next.finished || child.generated >= child.spec.max_new_tokens;
  child.counters = {.cached_tokens = child.computed};
  child.promised_blocks = 0;
  child.cancelled = false;
  for (const BlockId block : child.blocks) pool_.retain(block);
  child.fork_states.clear();
  child.borders.clear();
  if (options_.state_count > 0) {
    child.state = parent.fork_states.back();
    parent.fork_states.pop_back();
    child.state_source = parent.state;
  }
  if (options_.admission == Admission::kReserve) {
    child.promised_blocks = worst_case_blocks(child.spec);
    parent.promised_blocks -= child.promised_blocks;
  }
  insert(std::move(child));
}

// Removes the requests that may be answered: the finished ones or, with request-level batching, all
// of a batch when its last member is done.
std::vector<RequestId> ServeScheduler::release_finished() {
  std::vector<RequestId> over;
  bool whole_batch = true;
  for (const auto& [id, request] : inside_) {
    whole_batch &= request->finished;
    if (!request->finished) continue;
    over.push_back(id);
    give_back(*request);  // the rest of a static batch may need them
  }
  if (options_.policy == ServePolicy::kStatic && !whole_batch) return {};
  for (const RequestId id : over) remove(id);
  if (inside_.empty() && in_flight_.empty()) change_at_border();
  return over;
}

std::vector<RequestId> ServeScheduler::lose(BatchId batch_id) {
  const auto batch = in_flight_.find(batch_id);
  JIGE_CHECK(batch != in_flight_.end(), "batch {} is not in flight", batch_id);
  const std::vector<RequestId> members = std::move(batch->second.members);
  for (const PrefixHash& prefix : batch->second.kept) kept_.forget(prefix);
  in_flight_.erase(batch);
  for (const RequestId id : members) {
    Request& request = at(id);
    request.in_flight_tokens = request.in_flight_drafts = 0;
    if (options_.state_count > 0) {
      give_back_spare(request);
      begin_again(request);
    } else {
      // The tokens that are run again keep theirs.
      give_back_blocks_behind(request, static_cast<int32_t>(request.tokens.size()));
    }
    if (request.cancelled) remove(id);
  }
  end_state_copies(batch_id, /*lost=*/true);
  return release_finished();
}

void ServeScheduler::lose_caches() {
  JIGE_CHECK(in_flight_.empty(), "caches are lost with {} batches in flight", in_flight_.size());
  for (const auto& [id, request] : inside_) {
    give_back_blocks(*request);
    request->state_source = kNoState;
  }
  pool_.forget_all();
  kept_.forget_all();
}

std::vector<RequestId> ServeScheduler::cancel(RequestId id) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return {};
  if (found->second.in_flight_tokens > 0) {
    found->second.cancelled = true;
    return {};
  }
  remove(id);
  return release_finished();
}

void ServeScheduler::discard(RequestId id) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return;
  found->second.discarded = true;
  for (const BlockId block : found->second.blocks) pool_.forget(block);
  for (const PrefixHash& prefix : found->second.prefix) kept_.forget(prefix);
}

void ServeScheduler::publish_full_blocks(Request& request) {
  if (request.discarded) return;
  const int32_t size = pool_.block_tokens();
  while (static_cast<int32_t>(request.prefix.size()) * size <= request.computed) {
    const size_t index = request.prefix.size() - 1;
    const std::span<const int32_t> tokens(request.tokens.data() + index * static_cast<size_t>(size),
                                          static_cast<size_t>(size));
    pool_.publish(request.blocks[index], request.prefix[index], tokens);
    request.prefix.push_back(extend_prefix(request.prefix[index], tokens));
  }
}

void ServeScheduler::give_back_blocks(Request& request) {
  // Later blocks first, so that the cache keeps the beginnings of prompts longest.
  for (size_t i = request.blocks.size(); i > 0; --i) pool_.release(request.blocks[i - 1]);
  request.blocks.clear();
  request.prefix.resize(1);
  request.computed = request.again = 0;
}

void ServeScheduler::give_back_blocks_behind(Request& request, int32_t token_count) {
  while (static_cast<int32_t>(request.blocks.size()) > blocks_for(token_count)) {
    pool_.release(request.blocks.back());
    request.blocks.pop_back();
  }
}

void ServeScheduler::remove(RequestId id) {
  Request& request = at(id);
  give_back(request);
  promised_blocks_ -= request.promised_blocks;
  if (inside_.erase(id) == 0) leave_queue(request);
  const auto tenant = tenants_.find(request.spec.tenant);
  tenant->second.unfinished_tokens -= std::ssize(request.spec.prompt);
  if (--tenant->second.request_count == 0) tenants_.erase(tenant);
  requests_.erase(id);
}

int32_t ServeScheduler::waiting_count() const {
  return static_cast<int32_t>(requests_.size() - inside_.size());
}

int32_t ServeScheduler::running_count() const {
  return static_cast<int32_t>(
      std::ranges::count_if(inside_, [](const auto& entry) { return !entry.second->finished; }));
}

RequestCounters ServeScheduler::counters(RequestId id) const {
  const auto found = requests_.find(id);
  JIGE_CHECK(found != requests_.end(), "request {} is unknown", id);
  return found->second.counters;
}

void ServeScheduler::check_invariants() const {
  pool_.check_invariants();
  check_states();
  std::vector<int32_t> users(static_cast<size_t>(pool_.capacity()), 0);
  int32_t promised = 0;
  int32_t flying = 0;
  for (const auto& [id, request] : requests_) {
    for (const BlockId block : request.blocks) ++users[static_cast<size_t>(block)];
    promised += request.promised_blocks;
    flying += request.in_flight_tokens > 0;
    JIGE_CHECK(request.admitted || request.blocks.empty(), "waiting request {} holds blocks", id);
    JIGE_CHECK(request.admitted == inside_.contains(id), "request {} is in the wrong list", id);
    JIGE_CHECK(static_cast<int64_t>(request.blocks.size()) * pool_.block_tokens() >=
                   request.computed + request.in_flight_tokens,
               "request {}: {} blocks for {} tokens", id, request.blocks.size(), request.computed);
    JIGE_CHECK(
        request.in_flight_drafts <= static_cast<int32_t>(request.draft.size()) &&
            (request.in_flight_drafts == 0 || request.in_flight_drafts < request.in_flight_tokens),
        "request {}: {} drafts of {} tokens in flight", id, request.in_flight_drafts,
        request.in_flight_tokens);
    JIGE_CHECK(request.counters.preemptions <= options_.preemptions_max,
               "request {} was preempted {} times", id, request.counters.preemptions);
  }
  for (BlockId block = 0; block < pool_.capacity(); ++block) {
    JIGE_CHECK(users[static_cast<size_t>(block)] == pool_.ref_count(block),
               "block {}: {} users, {} counted", block, users[static_cast<size_t>(block)],
               pool_.ref_count(block));
  }
  size_t waiting = 0;
  for (const auto& [name, queue] : waiting_) waiting += queue.size();
  JIGE_CHECK(waiting + inside_.size() == requests_.size(), "{} requests wait, {} are inside, of {}",
             waiting, inside_.size(), requests_.size());
  size_t members = 0;
  for (const auto& [id, batch] : in_flight_) members += batch.members.size();
  JIGE_CHECK(static_cast<size_t>(flying) == members, "{} requests in flight, {} members", flying,
             members);
  JIGE_CHECK(promised == promised_blocks_ && promised <= pool_.capacity(),
             "{} blocks promised, {} counted, {} there", promised, promised_blocks_,
             pool_.capacity());
}

}  // namespace jige::plan
