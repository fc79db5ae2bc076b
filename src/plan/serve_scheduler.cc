#include "plan/serve_scheduler.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace jige::plan {
namespace {

// States are in no block: without those that are kept no prompt can begin with cached blocks.
KvBlockPoolOptions pool_options(KvBlockPoolOptions pool, bool states, bool keeps_states) {
  pool.prefix_cache = pool.prefix_cache && (!states || keeps_states);
  return pool;
}

}  // namespace

std::string_view policy_name(ServePolicy policy) {
  switch (policy) {
    case ServePolicy::kOrca:
      return "orca";
    case ServePolicy::kChunked:
      return "chunked";
    case ServePolicy::kStatic:
      return "static";
    case ServePolicy::kRounds:
      return "rounds";
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
    : options_(options),
      places_(options.batch_requests_max),
      pool_(pool_options(options.pool, options.state_count > 0, keeps_states(options))),
      kept_(options.state_count, keeps_states(options) ? options.kept_state_count : 0) {
  JIGE_CHECK(options.batch_requests_max > 0 && options.batch_tokens_max > 0 &&
                 options.batches_in_flight_max > 0 && options.in_flight_requests_min > 0,
             "limits must be positive");
  JIGE_CHECK(options.round_prompts > 0 && options.round_steps > 0, "rounds of {} prompts, {} steps",
             options.round_prompts, options.round_steps);
  JIGE_CHECK(options.state_count >= 0 && options.kept_state_count >= 0 && options.kept_margin >= 0,
             "{} states, {} kept at least {} tokens before the end", options.state_count,
             options.kept_state_count, options.kept_margin);
  JIGE_CHECK(!options.fair_share || !options.shortest_first, "tenants have one order");
  for (int32_t i = options.state_count; i > 0; --i) free_states_.push_back(i - 1);
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
  if (spec.prompt.empty() || spec.max_new_tokens < 0 || spec.fork_count < 0) {
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
  if (options_.state_count > 0 && spec.fork_count >= options_.state_count) {
    return fail(Code::kExhausted,
                "request {} needs {} states, one for each of its answers; the server has {}",
                spec.id, int64_t{spec.fork_count} + 1, options_.state_count);
  }
  Request request;
  request.arrival = next_arrival_++;
  request.tokens = spec.prompt;
  request.prefix = {prefix_seed(spec.cache_salt, spec.adapter)};
  request.spec = std::move(spec);
  insert(std::move(request));
  return {};
}

void ServeScheduler::insert(Request request) {
  Tenant& tenant = tenants_[request.spec.tenant];
  tenant.unfinished_tokens += std::ssize(request.spec.prompt);
  if (tenant.request_count++ == 0) {
    // A newcomer starts level with the tenant served least, not with a credit for its absence.
    int64_t least = INT64_MAX;
    for (const auto& [name, other] : tenants_) {
      if (&other != &tenant) least = std::min(least, other.served_tokens);
    }
    tenant.served_tokens = least == INT64_MAX ? 0 : least;
  }
  const RequestId id = request.spec.id;
  Request& there = requests_.emplace(id, std::move(request)).first->second;
  there.admitted ? enter(there) : wait(there);
}

uint64_t ServeScheduler::queue_name(const Request& request) const {
  return options_.fair_share || options_.shortest_first ? request.spec.tenant : 0;
}

ServeScheduler::Rank ServeScheduler::rank_in_queue(const Request& request) {
  return {.behind = -int64_t{request.spec.priority}, .arrival = request.arrival};
}

int64_t ServeScheduler::tenant_tokens(uint64_t tenant) const {
  if (options_.shortest_first) return tenants_.at(tenant).unfinished_tokens;
  return options_.fair_share ? tenants_.at(tenant).served_tokens : 0;
}

void ServeScheduler::wait(Request& request) {
  waiting_[queue_name(request)].emplace(rank_in_queue(request), &request);
}

// Out of its queue, if it is in one.
void ServeScheduler::enter(Request& request) {
  leave_queue(request);
  request.admitted = true;
  inside_.emplace(request.spec.id, &request);
}

void ServeScheduler::leave_queue(const Request& request) {
  const auto queue = waiting_.find(queue_name(request));
  if (queue == waiting_.end()) return;
  queue->second.erase(rank_in_queue(request));
  if (queue->second.empty()) waiting_.erase(queue);
}

std::optional<Batch> ServeScheduler::next_batch() {
  if (in_flight_count() >= batches_allowed()) return std::nullopt;
  change_at_border();
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
    case ServePolicy::kRounds:
      select_rounds(batch);
      break;
  }
  for (const RequestId id : batch.preempted) {
    if (Request& victim = at(id); !victim.admitted) wait(victim);
  }
  if (batch.items.empty()) return std::nullopt;
  add_drafts(batch);
  batch.id = next_batch_++;
  add_state_copies(batch);
  InFlight& entry = in_flight_[batch.id];
  for (const WorkItem& item : batch.items) entry.members.push_back(item.request);
  return batch;
}

// Of those who run their next token alone, in the order of the batch. What comes behind a prompt
// may be forked and has no draft.
void ServeScheduler::add_drafts(Batch& batch) {
  int64_t rows = batch.token_count();
  int64_t sample_rows = 0;
  for (const WorkItem& item : batch.items) sample_rows += item.sample_rows();
  for (WorkItem& item : batch.items) {
    Request& request = at(item.request);
    if (request.draft.empty() || request.generated == 0) continue;
    if (!item.samples || std::ssize(item.tokens) - item.again_count != 1) continue;
    const int64_t room =
        std::min(options_.batch_tokens_max - rows, options_.sample_rows_max - sample_rows);
    add_draft(request, room, item);
    rows += item.draft_count;
    sample_rows += item.draft_count;
  }
}

void ServeScheduler::add_draft(Request& request, int64_t room, WorkItem& item) {
  // One token more comes than are drafted, and all of them were foreseen.
  room = std::min<int64_t>(room, request.spec.max_new_tokens - request.generated - 1);
  const bool alone = request.state != kNoState && free_states_.empty();  // without a spare slot
  const int64_t most = alone ? request.certain_drafts : std::ssize(request.draft);
  const auto count = static_cast<int32_t>(std::clamp<int64_t>(room, 0, most));
  int32_t end = request.computed + 1 + count;
  while (static_cast<int32_t>(request.blocks.size()) < blocks_for(end)) {
    const auto block = pool_.acquire();
    if (!block) break;
    request.blocks.push_back(*block);
  }
  end = std::min(end, static_cast<int32_t>(request.blocks.size()) * pool_.block_tokens());
  item.draft_count = end - request.computed - 1;
  item.tokens.insert(item.tokens.end(), request.draft.begin(),
                     request.draft.begin() + item.draft_count);
  item.blocks = request.blocks;
  request.in_flight_drafts = item.draft_count;
  request.in_flight_tokens += item.draft_count;
  take_spare(request, item);
}

bool ServeScheduler::admit(Request& request) {
  if (states_for(request) > static_cast<int32_t>(free_states_.size())) return false;
  if (options_.admission == Admission::kReserve) {
    const int32_t needed = worst_case_blocks(request.spec);
    if (promised_blocks_ + needed > pool_.capacity()) return false;
    promised_blocks_ += needed;
    request.promised_blocks = needed;
  } else {
    const int32_t needed = blocks_for(static_cast<int64_t>(request.tokens.size()));
    if (needed > pool_.available_count()) return false;
    if (spared(request)) {
      for (const auto& [id, other] : inside_) {
        if (spared(*other)) return false;
      }
    }
  }
  enter(request);
  take_states(request);
  match_prefix(request);
  return true;
}

void ServeScheduler::match_prefix(Request& request) {
  const int32_t size = pool_.block_tokens();
  // At least one token is left to compute, since its logits are needed.
  const auto most = static_cast<int32_t>(request.tokens.size()) - 1;
  const int32_t whole = std::min(most, request.spec.cached_max) / size;
  for (int32_t i = 0; i < whole; ++i) {
    const std::span<const int32_t> tokens(request.tokens.data() + i * size,
                                          static_cast<size_t>(size));
    const auto found = pool_.find(request.prefix.back(), tokens);
    if (!found) break;
    request.blocks.push_back(*found);
    request.prefix.push_back(extend_prefix(request.prefix.back(), tokens));
    request.computed += size;
  }
  if (options_.state_count > 0) begin_at_kept_state(request);
  if (request.counters.iterations == 0) request.counters.cached_tokens = request.computed;
}

int32_t ServeScheduler::schedule(Request& request, int32_t token_count, Batch& batch) {
  token_count = up_to_border(request, token_count);
  const int32_t end = request.computed + token_count;
  if (!make_room(request, end, batch)) return 0;
  WorkItem item;
  item.request = request.spec.id;
  item.adapter = request.spec.adapter;
  item.again_count = request.again;
  item.context_count = request.computed - request.again;
  item.tokens.assign(request.tokens.begin() + item.context_count, request.tokens.begin() + end);
  item.blocks = request.blocks;
  item.samples = end == static_cast<int32_t>(request.tokens.size());
  item.state = request.state;
  std::ranges::copy_if(
      request.spec.whole_runs, std::back_inserter(item.whole_runs),
      [&](const TokenRun& run) { return run.begin < end && item.context_count < run.end; });
  batch.items.push_back(std::move(item));
  request.in_flight_tokens = token_count;
  ++request.counters.iterations;
  tenants_.at(request.spec.tenant).served_tokens += token_count;
  return token_count;
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
  for (const auto& [id, other] : inside_) {
    const bool may = other != &request && other->in_flight_tokens == 0 && !other->finished &&
                     !other->blocks.empty() && !spared(*other) &&
                     (spared(request) || behind(*other, request));
    if (may && (!victim || behind(*other, *victim))) victim = other;
  }
  if (!victim) return false;
  give_back(*victim);
  victim->admitted = false;
  inside_.erase(victim->spec.id);
  ++victim->counters.preemptions;
  batch.preempted.push_back(victim->spec.id);
  return true;
}

bool ServeScheduler::spared(const Request& request) const {
  return request.counters.preemptions >= options_.preemptions_max;
}

}  // namespace jige::plan
