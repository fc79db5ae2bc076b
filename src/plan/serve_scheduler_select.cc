// Who runs in the next batch, by policy.
#include <algorithm>
#include <utility>

#include "plan/serve_scheduler.h"

namespace jige::plan {

// Those who may take part in the next batch, the first first, as they stood when the batch was
// begun: all who were inside then, and of those who waited as many as are asked for.
class ServeScheduler::ScanOrder {
 public:
  explicit ScanOrder(ServeScheduler& scheduler) {
    for (const auto& [id, request] : scheduler.inside_) {
      if (in_flight(*request) || request->finished) continue;
      Rank own = rank_in_queue(*request);
      own.tenant_tokens = scheduler.tenant_tokens(request->spec.tenant);
      inside_.emplace_back(own, request);
    }
    std::ranges::sort(inside_);
    for (const auto& [name, queue] : scheduler.waiting_) {
      heads_.push_back({.tenant_tokens = scheduler.tenant_tokens(name),
                        .next = queue.begin(),
                        .end = queue.end()});
      push_last();
    }
  }

  // Those who were inside.
  std::span<const std::pair<Rank, Request*>> inside() const { return inside_; }

  // Null at the end. Without `door_open` nobody who waits comes any more.
  Request* next(bool door_open) {
    if (!door_open) heads_.clear();
    const bool inside_left = next_inside_ < inside_.size();
    if (heads_.empty()) return inside_left ? inside_[next_inside_++].second : nullptr;
    if (inside_left && inside_[next_inside_].first < heads_.front().rank()) {
      return inside_[next_inside_++].second;
    }
    std::ranges::pop_heap(heads_, later);
    Request* const request = heads_.back().next->second;
    // Before the request leaves its queue.
    if (++heads_.back().next == heads_.back().end) {
      heads_.pop_back();
    } else {
      push_last();
    }
    return request;
  }

 private:
  struct Head {
    int64_t tenant_tokens = 0;
    Queue::const_iterator next, end;
    Rank rank() const {
      Rank whole = next->first;
      whole.tenant_tokens = tenant_tokens;
      return whole;
    }
  };
  static bool later(const Head& a, const Head& b) { return a.rank() > b.rank(); }
  void push_last() { std::ranges::push_heap(heads_, later); }

  std::vector<std::pair<Rank, Request*>> inside_;
  size_t next_inside_ = 0;
  std::vector<Head> heads_;  // a heap
};

int32_t ServeScheduler::remaining(const Request& request) {
  return static_cast<int32_t>(request.tokens.size()) - request.computed;
}

bool ServeScheduler::runs_next_token(const Request& request) {
  return request.admitted && !request.finished && remaining(request) == 1;
}

int32_t ServeScheduler::batches_allowed() const {
  const int32_t count = waiting_count() + running_count();
  return std::clamp(count / options_.in_flight_requests_min, 1, options_.batches_in_flight_max);
}

// As many as make the batches in flight alike: one that took all who are ready would leave nothing
// for the next.
int32_t ServeScheduler::next_token_share() const {
  const auto count = static_cast<int32_t>(std::ranges::count_if(
      inside_, [](const auto& entry) { return runs_next_token(*entry.second); }));
  const int32_t batches = batches_allowed();
  return (count + batches - 1) / batches;
}

// A request that does not fit closes the door to those behind it, but who is inside goes on: room
// comes from nobody else. Nobody passes one that the next batch is to run.
void ServeScheduler::select_by_iteration(Batch& batch) {
  bool door_open = true;
  int32_t share = next_token_share();
  ScanOrder order(*this);
  while (Request* const request = order.next(door_open)) {
    if (static_cast<int32_t>(batch.items.size()) >= places_) break;
    const bool next_token = runs_next_token(*request);
    if (next_token && share == 0) break;
    if (!request->admitted) {
      door_open = door_open && admit(*request);
      if (!door_open) continue;
    }
    if (schedule(*request, remaining(*request), batch) > 0 && next_token) --share;
  }
}

// Whoever came first, inside or not, of those who may run.
ServeScheduler::Request* ServeScheduler::first_arrived() {
  Request* first = nullptr;
  const auto look_at = [&first](Request* request) {
    if (!first || rank_in_queue(*request) < rank_in_queue(*first)) first = request;
  };
  for (const auto& [id, request] : inside_) {
    if (!in_flight(*request) && !request->finished) look_at(request);
  }
  for (const auto& [name, queue] : waiting_) look_at(queue.begin()->second);
  return first;
}

int32_t ServeScheduler::piece_of(const Request& request, int32_t budget, bool first_in_batch) {
  const int32_t most = std::min(std::max(budget, 0), remaining(request));
  const std::span<const TokenRun> runs = request.spec.whole_runs;
  return first_in_batch ? uncut_count_at_least(runs, request.computed, most)
                        : uncut_count(runs, request.computed, most);
}

void ServeScheduler::select_chunked(Batch& batch) {
  int32_t budget = token_budget();
  bool door_open = true;
  Request* first = options_.shortest_first ? first_arrived() : nullptr;
  if (first && !first->admitted && !admit(*first)) {
    first = nullptr;
    door_open = false;  // until there is room for it
  }
  const bool whole = options_.whole_prompt_tokens > 0;
  const int32_t most = whole ? budget : budget - budget / 2;
  const int32_t kept = first ? std::min(most, remaining(*first) + first->again) : 0;
  budget -= kept;
  int32_t share = next_token_share();
  ScanOrder order(*this);
  const auto full = [&] {
    const auto items = static_cast<int32_t>(batch.items.size()) + (first ? 1 : 0);
    return budget <= 0 || items >= places_;
  };
  for (const auto& [rank, request] : order.inside()) {  // decodes first: one token each
    if (full() || share == 0) break;
    if (request == first || !runs_next_token(*request)) continue;
    const bool alone = batch.items.empty() && !first;
    if (!alone && request->again >= budget) continue;
    const int32_t ran = schedule(*request, 1, batch);  // 0: no block; the next may need none
    if (ran > 0) budget -= request->again;
    budget -= ran;
    share -= ran;
  }
  bool any_piece = first != nullptr;
  while (Request* const request = order.next(door_open)) {  // then prompts, in pieces
    if (full()) break;
    if (request == first || request->in_flight_tokens > 0 || runs_next_token(*request)) continue;
    if (whole && remaining(*request) > budget) break;
    if (!request->admitted) {
      door_open = door_open && admit(*request);
      if (!door_open) continue;
    }
    const int32_t count = piece_of(*request, budget, !any_piece);
    const int32_t ran = count > 0 ? schedule(*request, count, batch) : 0;
    any_piece |= ran > 0;
    budget -= ran;
  }
  // With what nobody else wants; unless it gave its blocks to another meanwhile.
  if (first && first->admitted) schedule(*first, piece_of(*first, kept + budget, true), batch);
}

void ServeScheduler::select_static(Batch& batch) {
  const bool batch_is_open = inside_.empty();  // nobody of the last batch is left
  int32_t member_count = 0;
  int32_t share = next_token_share();
  ScanOrder order(*this);
  while (Request* const request = order.next(batch_is_open)) {
    if (member_count >= places_) break;
    const bool next_token = runs_next_token(*request);
    if (next_token && share == 0) break;
    if (!request->admitted) {
      if (!batch_is_open) continue;
      if (!admit(*request)) break;
    }
    ++member_count;
    if (schedule(*request, remaining(*request), batch) > 0 && next_token) --share;
  }
}

// A prompt, or what is computed again, that is not at its end.
bool ServeScheduler::has_prompt_left(const Request& request) {
  return request.generated == 0 || remaining(request) > 1;
}

// What has nothing to do ends at once: without prompts next tokens go on, and without those another
// round begins.
void ServeScheduler::select_rounds(Batch& batch) {
  select_phase(batch);
  if (!batch.items.empty() || round_steps_left_ == 0) return;
  round_steps_left_ = 0;
  select_phase(batch);
}

void ServeScheduler::select_phase(Batch& batch) {
  select_prompts(batch, /*door_open=*/round_steps_left_ == 0);
  if (!batch.items.empty()) return;
  // Of those who begin, too, where the cache has all but the last token.
  select_next_tokens(batch);
  if (!batch.items.empty()) round_steps_left_ = std::max(round_steps_left_ - 1, 0);
}

// Prompts that were begun go on; of those who wait, round_prompts begin where the door is open and
// as there are places for their next tokens.
void ServeScheduler::select_prompts(Batch& batch, bool door_open) {
  auto places = static_cast<int32_t>(std::ranges::count_if(inside_, [](const auto& entry) {
    return in_flight(*entry.second) && !entry.second->finished;
  }));
  int32_t begun = 0;
  ScanOrder order(*this);
  while (Request* const request = order.next(door_open)) {
    if (static_cast<int32_t>(batch.items.size()) >= places_) break;
    if (!request->admitted) {
      door_open =
          door_open && begun < options_.round_prompts && places < places_ && admit(*request);
      if (!door_open) continue;
      ++begun;
    }
    ++places;
    if (has_prompt_left(*request)) schedule(*request, remaining(*request), batch);
  }
  if (begun > 0) round_steps_left_ = options_.round_steps;
}

void ServeScheduler::select_next_tokens(Batch& batch) {
  int32_t share = next_token_share();
  ScanOrder order(*this);
  for (const auto& [rank, request] : order.inside()) {
    if (static_cast<int32_t>(batch.items.size()) >= places_) break;
    // One in front may have taken its blocks.
    if (!request->admitted || has_prompt_left(*request)) continue;
    if (share == 0) break;
    share -= schedule(*request, 1, batch);
  }
}

}  // namespace jige::plan
