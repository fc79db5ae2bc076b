#include "sim/serve_trace.h"

#include <fmt/format.h>

#include <algorithm>

#include "plan/serve_settings.h"

namespace jige::sim {
namespace {

constexpr int32_t kBlockTokens = 4;
constexpr int32_t kEmpty = -1;
constexpr int32_t kTokenKinds = 7;  // few, so that prompts have beginnings in common
constexpr int32_t kDraftMax = 6;
constexpr int32_t kAdapterKinds = 2;  // besides the base

// Uniform over [low, high].
int32_t between(Rng& rng, int32_t low, int32_t high) {
  return low + static_cast<int32_t>(rng.below(static_cast<uint64_t>(high - low + 1)));
}

plan::ServeSchedulerOptions draw_limits(Rng& rng) {
  using plan::ServePolicy;
  constexpr ServePolicy kPolicies[] = {ServePolicy::kOrca, ServePolicy::kChunked,
                                       ServePolicy::kStatic};
  plan::ServeSchedulerOptions limits;
  limits.policy = kPolicies[rng.below(3)];
  limits.admission = rng.below(2) == 0 ? plan::Admission::kReserve : plan::Admission::kOptimistic;
  limits.batch_requests_max = between(rng, 1, 5);
  limits.batch_tokens_max = between(rng, 1, 12);
  limits.batches_in_flight_max = between(rng, 1, 3);
  limits.preemptions_max = between(rng, 0, 3);
  limits.fair_share = rng.below(4) == 0;
  limits.pool = {.block_count = between(rng, 3, 7),
                 .block_tokens = kBlockTokens,
                 .prefix_cache = rng.below(4) != 0};
  return limits;
}

// A function of all that is read, so that a wrong token anywhere changes what follows.
int32_t token_behind(std::span<const int32_t> tokens) {
  uint32_t hash = 2166136261u;
  for (const int32_t token : tokens) hash = (hash ^ static_cast<uint32_t>(token)) * 16777619u;
  return static_cast<int32_t>((hash >> 8) % kTokenKinds);
}

}  // namespace

TraceCounts& TraceCounts::operator+=(const TraceCounts& other) {
  traces += other.traces;
  requests += other.requests;
  cancelled += other.cancelled;
  iterations += other.iterations;
  iterations_lost += other.iterations_lost;
  preemptions += other.preemptions;
  cached_tokens += other.cached_tokens;
  drafted_tokens += other.drafted_tokens;
  accepted_tokens += other.accepted_tokens;
  restarts += other.restarts;
  kept_state_tokens += other.kept_state_tokens;
  changes += other.changes;
  return *this;
}

TraceSetup draw_trace(uint64_t seed) {
  Rng rng(derive_key(seed, "serve trace"));
  TraceSetup setup;
  setup.options.scheduler = draw_limits(rng);
  setup.options.step = {.base_s = 0.01, .token_s = 0.001, .kv_token_s = 0.0001};
  if (rng.below(4) == 0) setup.options.users = between(rng, 1, 4);
  setup.options.faults = {.cancel_share = rng.below(2) == 0 ? 0.3 : 0,
                          .cancel_after_s = 0.05,
                          .lose_share = rng.below(3) == 0 ? 0.2 : 0,
                          .stop_share = rng.below(3) == 0 ? 0.2 : 0};
  setup.options.seed = seed;
  Rng draft_rng(derive_key(seed, "serve trace with drafts"));
  setup.drafts = draft_rng.below(2) == 0;
  setup.options.scheduler.sample_rows_max = between(draft_rng, 1, 10);
  Rng state_rng(derive_key(seed, "serve trace with states"));
  if (state_rng.below(3) == 0) {
    plan::ServeSchedulerOptions& limits = setup.options.scheduler;
    limits.state_count = between(state_rng, 1, 4);
    limits.kept_state_count = between(state_rng, 0, 3);
    limits.kept_margin = between(state_rng, 0, kBlockTokens);
  }
  Rng in_flight_rng(derive_key(seed, "serve trace with batches in flight"));
  if (in_flight_rng.below(3) == 0) {
    setup.options.scheduler.in_flight_requests_min = between(in_flight_rng, 2, 3);
  }
  Rng round_rng(derive_key(seed, "serve trace of rounds"));
  if (round_rng.below(4) == 0) {
    setup.options.scheduler.policy = plan::ServePolicy::kRounds;
    setup.options.scheduler.round_prompts = between(round_rng, 1, 4);
    setup.options.scheduler.round_steps = between(round_rng, 1, 4);
  }
  Rng change_rng(derive_key(seed, "serve trace with changes"));
  setup.changes = change_rng.below(4) == 0;
  setup.priorities = rng.below(4) == 0;
  setup.requests =
      make_workload({.request_count = between(rng, 1, 8),
                     .rate_per_s = static_cast<double>(between(rng, 0, 3)) * 20,
                     .burst_shape = rng.below(2) == 0 ? 1 : 0.3,
                     .lengths = {.prompt = {.low = 1, .high = 12}, .output = {.low = 1, .high = 6}},
                     .seed = seed})
          .requests;
  return setup;
}

TraceChecker::TraceChecker(const TraceSetup& setup, uint64_t seed)
    : setup_(setup),
      limits_(setup.options.scheduler),
      places_(setup.options.scheduler.batch_requests_max),
      rng_(derive_key(seed, "serve trace prompts")),
      draft_rng_(derive_key(seed, "serve trace drafts")),
      certain_rng_(derive_key(seed, "serve trace of what is certain")),
      adapter_rng_(derive_key(seed, "serve trace adapters")),
      change_rng_(derive_key(seed, "serve trace changes")),
      cells_(static_cast<size_t>(limits_.pool.block_count) *
                 static_cast<size_t>(limits_.pool.block_tokens),
             Cell{kEmpty, kEmpty}),
      states_(static_cast<size_t>(limits_.state_count + limits_.kept_state_count), {kEmpty}),
      requests_(setup.requests.size()) {}

void TraceChecker::broken(std::string what) {
  if (!violation_) violation_ = std::move(what);
}

TraceChecker::Cell& TraceChecker::cell(plan::BlockId block, int32_t position) {
  return cells_[static_cast<size_t>(block * limits_.pool.block_tokens +
                                    position % limits_.pool.block_tokens)];
}

void TraceChecker::complete_spec(const RequestShape& shape, plan::RequestSpec& spec) {
  // A beginning that others have too, then tokens of its own.
  const auto shared = static_cast<int64_t>(rng_.below(3)) * kBlockTokens;
  for (int64_t i = 0; i < shape.prompt_tokens; ++i) {
    spec.prompt.push_back(i < shared ? 1 : between(rng_, 0, kTokenKinds - 1));
  }
  spec.cache_salt = rng_.below(8) == 0 ? 1 : 0;
  spec.tenant = rng_.below(2);
  spec.adapter = between(adapter_rng_, plan::kBaseAdapter, kAdapterKinds - 1);
  if (setup_.priorities) spec.priority = between(rng_, 0, 2);
}

void TraceChecker::on_arrival(const plan::RequestSpec& spec) {
  Tracked& request = at(spec.id);
  request.tokens = spec.prompt;
  request.prompt_tokens = std::ssize(spec.prompt);
  request.adapter = spec.adapter;
  request.tokens_max = std::ssize(spec.prompt) + spec.max_new_tokens;
  request.iterations_max = limits_.policy == plan::ServePolicy::kChunked
                               ? request.tokens_max
                               : pieces_max() + spec.max_new_tokens;
  int64_t in_front = 0;
  for (const Tracked& other : requests_) {
    // 0 for those to come; its own among them.
    if (!other.over) in_front += other.iterations_max;
  }
  request.deadline = turns_ + iterations_for(in_front);
}

int64_t TraceChecker::pieces_max() const {
  return limits_.state_count > 0 && limits_.kept_state_count > 0 ? 3 : 1;
}

int64_t TraceChecker::iterations_for(int64_t own) const {
  int64_t of_others = 0;
  if (limits_.policy == plan::ServePolicy::kRounds) {
    of_others = pieces_max() * (own / limits_.round_steps + 1);
  }
  return (own + of_others) * limits_.batches_in_flight_max;
}

void TraceChecker::before_batch(plan::ServeScheduler& scheduler) {
  if (setup_.changes) change_settings(scheduler);
  if (setup_.drafts) draft(scheduler);
}

void TraceChecker::change_settings(plan::ServeScheduler& scheduler) {
  scheduler_ = &scheduler;
  if (change_rng_.below(5) > 0) return;
  scheduler.change({.policy = plan::kServePolicies[change_rng_.below(4)],
                    .batch_requests_max = between(change_rng_, 1, 5),
                    .batch_tokens_max = between(change_rng_, 1, 12),
                    .round_prompts = between(change_rng_, 1, 4),
                    .round_steps = between(change_rng_, 1, 4)});
}

// More places than the settings have are of those inside. Of a static batch some may be done, and
// who gives its blocks back leaves its place.
void TraceChecker::follow_change(const plan::ServeScheduler& scheduler, const plan::Batch& batch) {
  changes_ += plan::settings_of(limits_) != plan::settings_of(scheduler.options());
  limits_ = scheduler.options();
  places_ = scheduler.places();
  const int64_t inside = scheduler.running_count() + std::ssize(batch.preempted);
  if (places_ > limits_.batch_requests_max && places_ > inside &&
      limits_.policy != plan::ServePolicy::kStatic) {
    broken(fmt::format("{} places for {} requests", places_, inside));
  }
}

void TraceChecker::draft(plan::ServeScheduler& scheduler) {
  for (size_t id = 0; id < requests_.size(); ++id) {
    const Tracked& request = requests_[id];
    if (request.tokens.empty() || request.over || request.in_flight) continue;
    std::vector<int32_t> tokens = request.tokens;
    const size_t known = tokens.size();
    int32_t certain = 0;
    for (int32_t left = between(draft_rng_, 0, kDraftMax); left > 0; --left) {
      const bool wrong = draft_rng_.below(4) == 0;
      if (!wrong && known + static_cast<size_t>(certain) == tokens.size()) ++certain;
      tokens.push_back(wrong ? between(draft_rng_, 0, kTokenKinds - 1) : token_behind(tokens));
    }
    // Sometimes it is known what is certain.
    if (certain_rng_.below(3) > 0) certain = 0;
    scheduler.draft(static_cast<plan::RequestId>(id), std::span(tokens).subspan(known), certain);
  }
}

void TraceChecker::on_batch(const plan::Batch& batch) {
  if (batch.items.empty()) broken("an empty batch");
  if (scheduler_) follow_change(*scheduler_, batch);
  if (std::ssize(batch.items) > places_) broken("too many requests in a batch");
  const int32_t spare_places = places_ > limits_.batch_requests_max ? places_ : 0;
  if (limits_.policy == plan::ServePolicy::kChunked &&
      batch.token_count() > std::max(limits_.batch_tokens_max, spare_places)) {
    broken("too many tokens in a batch");
  }
  int64_t sample_rows = 0;
  int64_t drafts = 0;
  for (const plan::WorkItem& item : batch.items) {
    sample_rows += item.sample_rows();
    drafts += item.draft_count;
  }
  if (drafts > 0 && sample_rows > limits_.sample_rows_max) broken("drafts take too many rows");
  drafted_tokens_ += drafts;
  for (const plan::RequestId id : batch.preempted) {
    if (++at(id).preemptions > limits_.preemptions_max) broken("preempted too often");
  }
  for (const plan::BlockCopy& copy : batch.copies) {
    for (int32_t i = 0; i < limits_.pool.block_tokens; ++i) cell(copy.dst, i) = cell(copy.src, i);
  }
  for (const plan::StateCopy& copy : batch.state_copies) state(copy.dst) = state(copy.src);
  if (limits_.policy == plan::ServePolicy::kRounds) check_round(batch);
  for (const plan::WorkItem& item : batch.items) {
    Tracked& request = at(item.request);
    if (request.in_flight) broken(fmt::format("request {} is in two batches", item.request));
    if (!request.began) {
      cached_tokens_ += item.context_count;
      if (item.state != plan::kNoState) kept_state_tokens_ += item.context_count;
    }
    request.in_flight = request.began = true;
    feed_state(item);
    for (size_t i = 0; i < item.tokens.size(); ++i) {
      const int32_t position = item.context_count + static_cast<int32_t>(i);
      cell(item.blocks[static_cast<size_t>(position / limits_.pool.block_tokens)], position) = {
          item.tokens[i], item.adapter};
    }
  }
}

void TraceChecker::check_round(const plan::Batch& batch) {
  int32_t begun = 0, prompts = 0;
  for (const plan::WorkItem& item : batch.items) {
    const Tracked& request = at(item.request);
    begun += !request.began;
    // What is left of a prompt, or is computed again from the beginning.
    prompts += item.context_count < request.prompt_tokens ||
               std::ssize(item.tokens) - item.draft_count - item.again_count > 1;
  }
  if (prompts > 0 && prompts < std::ssize(batch.items)) broken("prompts beside next tokens");
  if (begun > limits_.round_prompts) broken("too many prompts begin a round");
}

void TraceChecker::feed_state(const plan::WorkItem& item) {
  if (limits_.state_count == 0 && item.state == plan::kNoState) return;
  if (item.state < 0 || item.state >= limits_.state_count) {
    return broken(fmt::format("request {} runs with state {}", item.request, item.state));
  }
  if (item.draft_count > 0) check_spare(item);
  std::vector<int32_t>& fed = state(item.state);
  if (item.context_count == 0) fed.clear();
  const std::vector<int32_t>& own = at(item.request).tokens;
  if (std::ssize(fed) != item.context_count || std::ssize(own) < item.context_count ||
      !std::equal(fed.begin(), fed.end(), own.begin())) {
    broken(fmt::format("request {} goes on from another state than its own", item.request));
  }
  const auto drafts = item.tokens.end() - item.draft_count;
  fed.insert(fed.end(), item.tokens.begin(), drafts);
  if (item.spare != plan::kNoState) state(item.spare) = fed;
  fed.insert(fed.end(), drafts, item.tokens.end());
}

// None is needed where all that is drafted has to come.
void TraceChecker::check_spare(const plan::WorkItem& item) {
  if (limits_.batches_in_flight_max > 1) broken("drafts with states of several batches in flight");
  if (item.spare == plan::kNoState) {
    std::vector<int32_t> tokens = at(item.request).tokens;
    for (auto draft = item.tokens.end() - item.draft_count; draft != item.tokens.end(); ++draft) {
      if (*draft != token_behind(tokens)) broken("a draft without a spare state");
      tokens.push_back(*draft);
    }
    return;
  }
  if (item.spare < 0 || item.spare >= limits_.state_count || item.spare == item.state) {
    broken(fmt::format("request {} has the spare state {}", item.request, item.spare));
  }
}

std::vector<int32_t> TraceChecker::context(const plan::WorkItem& item, int32_t count) {
  std::vector<int32_t> tokens;
  const int32_t end = item.context_count + count;
  tokens.reserve(static_cast<size_t>(end));
  for (int32_t i = 0; i < end; ++i) {
    const Cell& read = cell(item.blocks[static_cast<size_t>(i / limits_.pool.block_tokens)], i);
    if (read.adapter != at(item.request).adapter) {
      broken(fmt::format("request {} reads what another adapter has written", item.request));
    }
    tokens.push_back(read.token);
  }
  return tokens;
}

int32_t TraceChecker::next_token(const plan::WorkItem& item, int32_t count) {
  const int32_t token = token_behind(context(item, count));
  at(item.request).tokens.push_back(token);
  accepted_tokens_ += count > std::ssize(item.tokens) - item.draft_count;
  return token;
}

void TraceChecker::land(const plan::Batch& batch) {
  for (const plan::WorkItem& item : batch.items) at(item.request).in_flight = false;
}

void TraceChecker::on_lost(const plan::Batch& batch) {
  land(batch);
  turns_ -= iterations_for(1) - 1;
  for (const plan::StateCopy& copy : batch.state_copies) state(copy.dst) = {kEmpty};
  if (limits_.state_count == 0) return;
  for (const plan::WorkItem& item : batch.items) {
    state(item.state) = {kEmpty};
    if (item.spare != plan::kNoState) state(item.spare) = {kEmpty};
    ++at(item.request).restarts;
    turns_ -= iterations_for(item.context_count + item.again_count);
  }
}

void TraceChecker::on_complete(const plan::Batch& batch) {
  land(batch);
  ++turns_;
  for (const plan::WorkItem& item : batch.items) {
    std::vector<int32_t> read = context(item, static_cast<int32_t>(item.tokens.size()));
    const std::vector<int32_t>& own = at(item.request).tokens;
    // Guesses that did not come true are not its own; the last token has come, and was not run.
    if (item.draft_count > 0) read.resize(std::min(read.size(), own.size() - 1));
    if (read.size() > own.size() || !std::equal(read.begin(), read.end(), own.begin())) {
      broken(fmt::format("request {} reads other tokens than its own", item.request));
    }
    if (item.samples && std::ssize(own) == at(item.request).tokens_max) {
      check_deadline(item.request);
    }
  }
}

void TraceChecker::on_over(plan::RequestId id) {
  at(id).over = true;
  if (limits_.policy != plan::ServePolicy::kStatic) check_deadline(id);
}

void TraceChecker::check_deadline(plan::RequestId id) {
  const Tracked& request = at(id);
  const bool nobody_overtakes = limits_.admission == plan::Admission::kReserve &&
                                !limits_.fair_share && !setup_.priorities && !setup_.changes;
  if (nobody_overtakes && request.tokens_max > 0 && turns_ > request.deadline) {
    broken(fmt::format("request {} is over {} iterations too late", id, turns_ - request.deadline));
  }
}

int64_t TraceChecker::restarts() const {
  int64_t count = 0;
  for (const Tracked& request : requests_) count += request.restarts;
  return count;
}

void TraceChecker::check(const plan::ServeScheduler& scheduler) {
  scheduler.check_invariants();
  scheduler.pool().check_invariants();
}

void TraceChecker::check_end(const ServeSimulationResult& result) {
  if (result.kv_blocks_live_end != 0) {
    broken(fmt::format("{} blocks are live at the end", result.kv_blocks_live_end));
  }
  int64_t work = 0;
  for (size_t i = 0; i < requests_.size(); ++i) {
    const Tracked& request = requests_[i];
    const RequestOutcome& outcome = result.outcomes[i];
    work += request.tokens_max * (1 + request.preemptions + request.restarts);
    if (!request.over) broken(fmt::format("request {} never ended", i));
    if (!outcome.failure.empty()) continue;
    const int64_t asked = setup_.requests[i].output_tokens;
    const bool may_stop = setup_.options.faults.stop_share > 0;
    if (outcome.output_tokens > asked || (!may_stop && outcome.output_tokens < asked)) {
      broken(fmt::format("request {} got {} tokens of {}", i, outcome.output_tokens, asked));
    }
  }
  if (result.iterations > work) {
    broken(fmt::format("{} iterations for {} tokens", result.iterations, work));
  }
}

Result<TraceCounts> run_checked_trace(uint64_t seed) {
  const TraceSetup setup = draw_trace(seed);
  TraceChecker checker(setup, seed);
  Result<ServeSimulationResult> result = simulate_serve(setup.requests, setup.options, &checker);
  if (!result) return with_context(std::move(result.error()), "trace {}", seed);
  checker.check_end(*result);
  if (checker.violation()) {
    return fail(Code::kInternal, "trace {}: {}", seed, *checker.violation());
  }
  TraceCounts counts{.traces = 1,
                     .requests = std::ssize(setup.requests),
                     .iterations = result->iterations,
                     .iterations_lost = result->iterations_lost,
                     .preemptions = result->preemptions,
                     .cached_tokens = checker.cached_tokens(),
                     .drafted_tokens = checker.drafted_tokens(),
                     .accepted_tokens = checker.accepted_tokens(),
                     .restarts = checker.restarts(),
                     .kept_state_tokens = checker.kept_state_tokens(),
                     .changes = checker.changes()};
  for (const RequestOutcome& outcome : result->outcomes) {
    counts.cancelled += outcome.failure == "cancelled";
  }
  return counts;
}

}  // namespace jige::sim
