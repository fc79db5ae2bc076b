#include "plan/serve_scheduler.h"

#include <algorithm>

#include "base/check.h"

namespace jige::plan {

std::string_view policy_name(ServePolicy policy) {
  switch (policy) {
    case ServePolicy::kOrca:
      return "orca";
    case ServePolicy::kChunked:
      return "chunked";
    case ServePolicy::kStatic:
      return "static";
  }
  return "chunked";
}

std::optional<ServePolicy> find_policy(std::string_view name) {
  const auto found = std::ranges::find(kServePolicies, name, policy_name);
  if (found == std::end(kServePolicies)) return std::nullopt;
  return *found;
}

int64_t Batch::token_count() const {
  int64_t count = 0;
  for (const WorkItem& item : items) count += static_cast<int64_t>(item.tokens.size());
  return count;
}

ServeScheduler::ServeScheduler(ServeSchedulerOptions options)
    : options_(options), pool_(options.pool) {
  JIGE_CHECK(options.batch_requests_max > 0 && options.batch_tokens_max > 0 &&
                 options.batches_in_flight_max > 0,
             "limits must be positive");
}

int32_t ServeScheduler::blocks_for(int64_t token_count) const {
  return static_cast<int32_t>((token_count + pool_.block_tokens() - 1) / pool_.block_tokens());
}

// Forks are promised their prompt's blocks too: whoever of the family leaves last still holds them.
int32_t ServeScheduler::worst_case_blocks(const RequestSpec& spec) const {
  const int32_t own = blocks_for(static_cast<int64_t>(spec.prompt.size()) + spec.max_new_tokens);
  return own * (1 + spec.fork_count);
}

ServeScheduler::Request& ServeScheduler::at(RequestId id) {
  const auto found = requests_.find(id);
  JIGE_CHECK(found != requests_.end(), "request {} is unknown", id);
  return found->second;
}

Status ServeScheduler::arrive(RequestSpec spec) {
  if (spec.prompt.empty() || spec.max_new_tokens <= 0 || spec.fork_count < 0) {
    return fail(Code::kInvalidArgument, "request {}: {} prompt tokens, {} new tokens, {} forks",
                spec.id, spec.prompt.size(), spec.max_new_tokens, spec.fork_count);
  }
  if (requests_.contains(spec.id)) {
    return fail(Code::kInvalidArgument, "request {} is there already", spec.id);
  }
  const int32_t needed = worst_case_blocks(spec);
  if (needed > pool_.capacity()) {
    return fail(Code::kExhausted,
                "request {} needs {} key/value blocks for {} + {} tokens; the server has {}",
                spec.id, needed, spec.prompt.size(), spec.max_new_tokens, pool_.capacity());
  }
  Request request;
  request.arrival = next_arrival_++;
  request.tokens = spec.prompt;
  request.prefix = {prefix_seed(spec.cache_salt)};
  request.spec = std::move(spec);
  insert(std::move(request));
  return {};
}

void ServeScheduler::insert(Request request) {
  Tenant& tenant = tenants_[request.spec.tenant];
  if (tenant.request_count++ == 0) {
    // A newcomer starts level with the tenant served least, not with a credit for its absence.
    int64_t least = INT64_MAX;
    for (const auto& [name, other] : tenants_) {
      if (&other != &tenant) least = std::min(least, other.served_tokens);
    }
    tenant.served_tokens = least == INT64_MAX ? 0 : least;
  }
  const RequestId id = request.spec.id;
  requests_.emplace(id, std::move(request));
}

std::vector<ServeScheduler::Request*> ServeScheduler::scan_order() {
  std::vector<Request*> order;
  for (auto& [id, request] : requests_) {
    if (request.in_flight_tokens == 0 && !request.finished) order.push_back(&request);
  }
  const auto served = [&](const Request* request) -> int64_t {
    return options_.fair_share ? tenants_.at(request->spec.tenant).served_tokens : 0;
  };
  std::stable_sort(order.begin(), order.end(), [&](const Request* a, const Request* b) {
    if (a->spec.priority != b->spec.priority) return a->spec.priority > b->spec.priority;
    const int64_t served_a = served(a);
    const int64_t served_b = served(b);
    if (served_a != served_b) return served_a < served_b;
    return a->arrival < b->arrival;
  });
  return order;
}

std::optional<Batch> ServeScheduler::next_batch() {
  if (in_flight_count() >= options_.batches_in_flight_max) return std::nullopt;
  Batch batch;
  switch (options_.policy) {
    case ServePolicy::kOrca:
      select_by_iteration(batch);
      break;
    case ServePolicy::kChunked:
      select_chunked(batch);
      break;
    case ServePolicy::kStatic:
      select_static(batch);
      break;
  }
  if (batch.items.empty()) return std::nullopt;
  batch.id = next_batch_++;
  InFlight& entry = in_flight_[batch.id];
  for (const WorkItem& item : batch.items) entry.members.push_back(item.request);
  return batch;
}

// A request that does not fit closes the door to those behind it, but who is inside goes on: room
// comes from nobody else.
void ServeScheduler::select_by_iteration(Batch& batch) {
  bool door_open = true;
  for (Request* request : scan_order()) {
    if (static_cast<int32_t>(batch.items.size()) >= options_.batch_requests_max) break;
    if (!request->admitted) {
      door_open = door_open && admit(*request);
      if (!door_open) continue;
    }
    const auto remaining = static_cast<int32_t>(request->tokens.size()) - request->computed;
    schedule(*request, remaining, batch);
  }
}

void ServeScheduler::select_chunked(Batch& batch) {
  int32_t budget = options_.batch_tokens_max;
  const std::vector<Request*> order = scan_order();
  const auto full = [&] {
    return budget == 0 || static_cast<int32_t>(batch.items.size()) >= options_.batch_requests_max;
  };
  const auto remaining = [](const Request& request) {
    return static_cast<int32_t>(request.tokens.size()) - request.computed;
  };
  for (Request* request : order) {  // decodes first: one token each
    if (full()) return;
    if (!request->admitted || remaining(*request) != 1) continue;
    if (schedule(*request, 1, batch)) --budget;
  }
  bool door_open = true;
  for (Request* request : order) {  // then prompts, in pieces
    if (full()) return;
    if (request->in_flight_tokens > 0 || (request->admitted && remaining(*request) == 1)) continue;
    if (!request->admitted) {
      door_open = door_open && admit(*request);
      if (!door_open) continue;
    }
    const int32_t count = std::min(budget, remaining(*request));
    if (schedule(*request, count, batch)) budget -= count;
  }
}

void ServeScheduler::select_static(Batch& batch) {
  bool batch_is_open = true;  // nobody of the last batch is left
  for (const auto& [id, request] : requests_) batch_is_open &= !request.admitted;
  int32_t member_count = 0;
  for (Request* request : scan_order()) {
    if (member_count >= options_.batch_requests_max) break;
    if (!request->admitted) {
      if (!batch_is_open) continue;
      if (!admit(*request)) break;
    }
    ++member_count;
    const auto remaining = static_cast<int32_t>(request->tokens.size()) - request->computed;
    schedule(*request, remaining, batch);
  }
}

bool ServeScheduler::admit(Request& request) {
  if (options_.admission == Admission::kReserve) {
    const int32_t needed = worst_case_blocks(request.spec);
    if (promised_blocks_ + needed > pool_.capacity()) return false;
    promised_blocks_ += needed;
    request.promised_blocks = needed;
  } else {
    const int32_t needed = blocks_for(static_cast<int64_t>(request.tokens.size()));
    if (needed > pool_.available_count()) return false;
    if (spared(request)) {
      for (const auto& [id, other] : requests_) {
        if (other.admitted && spared(other)) return false;
      }
    }
  }
  request.admitted = true;
  match_prefix(request);
  return true;
}

void ServeScheduler::match_prefix(Request& request) {
  const int32_t size = pool_.block_tokens();
  // At least one token is left to compute, since its logits are needed.
  const auto whole = (static_cast<int32_t>(request.tokens.size()) - 1) / size;
  for (int32_t i = 0; i < whole; ++i) {
    const std::span<const int32_t> tokens(request.tokens.data() + i * size,
                                          static_cast<size_t>(size));
    const auto found = pool_.find(request.prefix.back(), tokens);
    if (!found) break;
    request.blocks.push_back(*found);
    request.prefix.push_back(extend_prefix(request.prefix.back(), tokens));
    request.computed += size;
  }
  if (request.counters.iterations == 0) request.counters.cached_tokens = request.computed;
}

bool ServeScheduler::schedule(Request& request, int32_t token_count, Batch& batch) {
  const int32_t end = request.computed + token_count;
  if (!make_room(request, end, batch)) return false;
  WorkItem item;
  item.request = request.spec.id;
  item.context_count = request.computed;
  item.tokens.assign(request.tokens.begin() + request.computed, request.tokens.begin() + end);
  item.blocks = request.blocks;
  item.samples = end == static_cast<int32_t>(request.tokens.size());
  batch.items.push_back(std::move(item));
  request.in_flight_tokens = token_count;
  ++request.counters.iterations;
  tenants_.at(request.spec.tenant).served_tokens += token_count;
  return true;
}

// Gives the request writable blocks for positions [computed, end).
bool ServeScheduler::make_room(Request& request, int32_t end, Batch& batch) {
  const auto first = static_cast<size_t>(request.computed / pool_.block_tokens());
  if (first < request.blocks.size() && pool_.ref_count(request.blocks[first]) > 1) {
    BlockId copy = -1;
    if (!take_block(request, batch, copy)) return false;
    batch.copies.push_back({request.blocks[first], copy});
    pool_.release(request.blocks[first]);
    request.blocks[first] = copy;
  }
  while (static_cast<int32_t>(request.blocks.size()) < blocks_for(end)) {
    BlockId block = -1;
    if (!take_block(request, batch, block)) return false;
    request.blocks.push_back(block);
  }
  return true;
}

bool ServeScheduler::take_block(Request& request, Batch& batch, BlockId& block) {
  for (;;) {
    const auto taken = pool_.acquire();
    if (taken) {
      block = *taken;
      return true;
    }
    JIGE_CHECK(options_.admission == Admission::kOptimistic,
               "request {} was promised a block that is not there", request.spec.id);
    if (!preempt_behind(request, batch)) return false;
  }
}

// Takes the blocks of the last request, in order of priority and arrival, that stands behind
// `request`. One that has been a victim preemptions_max times is spared; admitted again only alone
// of its kind, it may take from everybody, so it finishes and the bound holds.
bool ServeScheduler::preempt_behind(const Request& request, Batch& batch) {
  const auto behind = [](const Request& a, const Request& b) {
    if (a.spec.priority != b.spec.priority) return a.spec.priority < b.spec.priority;
    return a.arrival > b.arrival;
  };
  Request* victim = nullptr;
  for (auto& [id, other] : requests_) {
    const bool may = &other != &request && other.admitted && other.in_flight_tokens == 0 &&
                     !other.finished && !other.blocks.empty() && !spared(other) &&
                     (spared(request) || behind(other, request));
    if (may && (!victim || behind(other, *victim))) victim = &other;
  }
  if (!victim) return false;
  give_back_blocks(*victim);
  victim->admitted = false;
  ++victim->counters.preemptions;
  batch.preempted.push_back(victim->spec.id);
  return true;
}

bool ServeScheduler::spared(const Request& request) const {
  return request.counters.preemptions >= options_.preemptions_max;
}

}  // namespace jige::plan
