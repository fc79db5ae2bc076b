// The engine's thread: events, a part of an iteration, endings, in this order every turn.
#include "serve/engine_loop.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"

namespace jige::serve {
namespace {

// Lost layers are asked for so often.
constexpr std::chrono::milliseconds kRestorePoll{20};

int64_t now_ns() { return RealClock().now_ns(); }

}  // namespace

EngineLoop::EngineLoop(model::InferenceModel& model, const text::Tokenizer& tokenizer,
                       std::vector<int32_t> eos_ids, RecordedScheduler scheduler, Shared shared)
    : tokenizer_(tokenizer),
      eos_ids_(std::move(eos_ids)),
      beyond_(model.beyond()),
      context_max_(
          std::min(model.context_max(), model.sizes().kv_block_count * ops::kKvBlockTokens)),
      embeds_(model.sizes().embeds),
      shared_(shared),
      scheduler_(std::move(scheduler)),
      runner_(model),
      drafts_(shared.options.drafts, concurrent_requests_max(shared.options), model.context_max(),
              std::min(model.sizes().logit_rows_max, model.sizes().batch_tokens_max),
              shared.options.drafts.tokens_max > 0 ? shared.options.draft_model : nullptr,
              state_costs(model)) {
  if (shared.options.planned_load) {
    turn_.drift = drift_.emplace(*shared.options.planned_load, shared.options.drift).state();
  }
}

void EngineLoop::run() {
  while (turn()) {
  }
}

bool EngineLoop::turn() {
  take_events();
  if (events_.stop) {
    cancel_all();
    while (!under_way_.empty()) end_first();
  } else if (layers_are_there() && !scheduler_.state().idle()) {
    iterate();
  }
  end_over();
  publish();
  return !events_.stop;
}

void EngineLoop::take_events() {
  const bool idle = scheduler_.state().idle();
  shared_.inbox.take(events_, turn_.layers_lost ? kRestorePoll
                              : idle            ? Inbox::kForEver
                                                : Inbox::kNoWait);
  for (Submission& submission : events_.arrivals) arrive(std::move(submission));
  for (const RequestId id : events_.cancels) cancel(id);
  if (events_.change) change_plan(std::move(*events_.change));
}

void EngineLoop::arrive(Submission submission) {
  auto live = std::make_unique<LiveRequest>(std::move(submission), tokenizer_, eos_ids_,
                                            context_max_, shared_.histograms);
  LiveRequest& request = *live;
  if (drift_) drift_->arrive(static_cast<double>(request.submit_ns()) * 1e-9);
  requests_.emplace(request.id(), std::move(live));
  ++not_begun_count_;
  Status status = scheduler_.arrive(request.spec());
  if (status) return;
  request.set_error(std::move(status.error()));
  fail(request);
}

void EngineLoop::cancel(RequestId id) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return;
  LiveRequest& live = *found->second;
  live.cancel();
  drop_sequences(live);
  for (int32_t i = 0; i < live.choice_count(); ++i) {
    if (!live.is_over(i)) live.end_choice(i);
  }
  finish(live);
}

void EngineLoop::cancel_all() {
  while (!requests_.empty()) cancel(requests_.begin()->first);
}

// Orca's loop: batches begin until as many are under way as may be, then the first of them ends.
void EngineLoop::iterate() {
  const bool begun = begin_next();
  if (under_way_.empty()) return;
  const bool full = std::ssize(under_way_) == shared_.options.batches_in_flight;
  if (!begun || full) end_first();
}

bool EngineLoop::begin_next() {
  const StopWatch watch;
  std::optional<plan::Batch> batch = scheduler_.next_batch();
  if (!batch) {
    // Cannot be, by the scheduler's invariants; to fail is better than to wait for ever.
    if (under_way_.empty()) fail_all({Code::kInternal, "the request could not be scheduled"});
    return false;
  }
  if (shared_.prepare) shared_.prepare(*batch);
  begin(*batch);
  UnderWay one{.batch = std::move(*batch), .watch = watch};
  const Status status = begin_forwards(one);
  if (status) {
    under_way_.push_back(std::move(one));
  } else {
    lose(one, status.error());
  }
  return true;
}

void EngineLoop::fail_all(const Error& error) {
  if (!requests_.empty()) log_error("all {} requests fail: {}", requests_.size(), error.message);
  while (!requests_.empty()) {
    LiveRequest& live = *requests_.begin()->second;
    live.set_error(error);
    fail(live);
  }
}

bool EngineLoop::layers_are_there() {
  if (!beyond_ || !beyond_->lost()) return true;
  if (!turn_.layers_lost) {
    while (!under_way_.empty()) end_first();
    scheduler_.lose_caches();
    turn_.layers_lost = true;
    shared_.inbox.pause(
        "layers of the model are on a machine that is lost; it takes no new requests until they "
        "are back");
  }
  const Result<bool> back = beyond_->restore();
  if (!back) fail_all(back.error());
  if (!back || !*back) return false;
  turn_.layers_lost = false;
  ++turn_.counters.layers_restored;
  shared_.inbox.go_on();
  return true;
}

void EngineLoop::end_first() {
  UnderWay one = std::move(under_way_.front());
  under_way_.pop_front();
  const Status status = runner_.finish(readers_of(one));
  if (!status) return lose(one, status.error());
  settle(one);
  account(one, /*lost=*/false);
}

void EngineLoop::begin(const plan::Batch& batch) {
  // Before they cease to wait, so that nobody who asks during a long prefill misses them.
  shared_.board.running(scheduler_.state().running_count());
  const int64_t now = now_ns();
  for (const RequestId sequence : batch.preempted) {
    LiveRequest& live = live_of(sequence);
    live.preempted();
    touched_.push_back(live.id());
  }
  for (const plan::WorkItem& item : batch.items) {
    LiveRequest& live = live_of(item.request);
    touched_.push_back(live.id());
    live.computed(static_cast<int32_t>(item.request - live.id()),
                  item.context_count + std::ssize(item.tokens) - item.draft_count);
    if (live.begun()) continue;
    const int64_t cached = scheduler_.state().counters(item.request).cached_tokens;
    live.begin(cached, now);
    --not_begun_count_;
    shared_.inbox.begun(live.prompt_tokens());
    if (!shared_.options.prefix_cache) continue;
    turn_.counters.prefix_query_tokens += live.prompt_tokens();
    turn_.counters.prefix_hit_tokens += cached;
  }
}

Status EngineLoop::begin_forwards(UnderWay& one) {
  ++turn_.counters.iterations;
  const EngineFaults& faults = shared_.options.faults;
  if (faults.before_forward) JIGE_DO(faults.before_forward(turn_.counters.iterations));
  return runner_.begin(one.batch, readers_of(one));
}

BatchRunner::Readers EngineLoop::readers_of(UnderWay& one) {
  return {
      .sampled =
          [this, &one](std::span<const size_t> items, const model::LogitRows& rows) {
            embeds_ ? finish_vectors(one, items) : sample(one, items, rows);
          },
      .row_draw = [this](const plan::WorkItem& item, int32_t row) { return row_draw(item, row); },
      .second_begin =
          [this](const plan::WorkItem& item) { return live_of(item.request).second_begin(); },
      .given = [this](const plan::WorkItem& item) { return live_of(item.request).given(); },
      .wanted_range =
          [this](const plan::WorkItem& item) { return live_of(item.request).wanted_range(item); },
      .wanted =
          [this, &one](std::span<const BatchRunner::WantedRow> rows,
                       std::span<const float> values) {
            embeds_ ? pool(one.batch, rows, values) : score(one.batch, rows, values);
          }};
}

void EngineLoop::settle(const UnderWay& one) {
  const plan::Batch& batch = one.batch;
  for (const plan::WorkItem& item : batch.items) {
    const LiveRequest* live = find(item.request);
    // Before anything of it is published.
    if (live && live->has_error()) discard_sequences(*live);
  }
  const std::vector<RequestId> over = scheduler_.complete(batch.id, one.sampled);
  over_.insert(over_.end(), over.begin(), over.end());
  turn_.counters.computed_tokens += batch.token_count();
  for (const plan::WorkItem& item : batch.items) {
    LiveRequest* live = find(item.request);
    if (live && live->has_error()) fail(*live);
  }
  if (drafts_.enabled()) draft(one.sampled);
}

void EngineLoop::draft(std::span<const plan::SampledNext> sampled) {
  for (const plan::SampledNext& next : sampled) {
    if (!next.finished) draft_behind(next.request);
    for (const plan::ForkedNext& fork : next.forks) {
      if (!fork.finished) draft_behind(fork.child);
    }
  }
  drafts_.decide(
      [this](RequestId sequence, std::span<const int32_t> tokens, int32_t certain_count) {
        scheduler_.draft(sequence, tokens, certain_count);
      },
      scheduler_.state().spare_count());
  turn_.counters.draft_model_read_tokens = drafts_.model_counts().read_tokens;
  turn_.counters.draft_model_known_tokens = drafts_.model_counts().known_tokens;
}

void EngineLoop::draft_behind(RequestId sequence) {
  const LiveRequest* const live = find(sequence);
  if (!live) return;
  const auto choice = static_cast<int32_t>(sequence - live->id());
  drafts_.follow(sequence, live->tokens(choice), live->tokens_left(choice),
                 {.answer = &live->answer(choice),
                  .cache_salt = live->cache_salt(),
                  .again_count = scheduler_.state().again_count(sequence)});
}

void EngineLoop::lose(const UnderWay& one, const Error& error) {
  const plan::Batch& batch = one.batch;
  ++turn_.counters.iterations_lost;
  const bool runs_again = beyond_ && beyond_->lost();
  if (!runs_again) {
    log_error("an iteration over {} tokens of {} requests failed: {}", batch.token_count(),
              batch.items.size(), error.message);
  }
  const std::vector<RequestId> over = scheduler_.lose(batch.id);
  over_.insert(over_.end(), over.begin(), over.end());
  for (const plan::WorkItem& item : batch.items) {
    LiveRequest* live = find(item.request);
    if (!live) continue;  // another choice of it was in the batch
    const auto is_own = [&](const plan::SampledNext& next) { return next.request == item.request; };
    if (runs_again && std::ranges::none_of(one.sampled, is_own)) continue;
    live->set_error(error);
    fail(*live);
  }
  account(one, /*lost=*/true);
}

void EngineLoop::account(const UnderWay& one, bool lost) {
  const plan::Batch& batch = one.batch;
  const double seconds = one.watch.seconds();
  turn_.counters.preemptions += std::ssize(batch.preempted);
  turn_.iteration = runner_.work();
  // Of batches beside one another the time is counted once.
  turn_.iteration->seconds = std::min(seconds, since_end_.seconds());
  since_end_ = StopWatch();
  turn_.iteration_lost = lost;
  const auto decodes = [](const plan::WorkItem& item) {
    return item.sample_rows() + item.again_count == std::ssize(item.tokens);
  };
  if (!lost && std::ranges::all_of(batch.items, decodes)) {
    const auto spares = std::ranges::count_if(
        batch.items, [](const plan::WorkItem& item) { return item.spare != plan::kNoState; });
    drafts_.add_step(batch.token_count(), seconds - drafts_.model_seconds(), spares);
  }
  shared_.histograms.iteration_seconds.observe(seconds);
  shared_.histograms.iteration_tokens.observe(static_cast<double>(batch.token_count()));
}

// Takes a request's sequences out of the scheduler; those that were not forked yet it does not
// know.
void EngineLoop::drop_sequences(const LiveRequest& live) {
  for (int32_t i = 0; i < live.choice_count(); ++i) {
    if (live.is_over(i)) continue;
    const std::vector<RequestId> over = scheduler_.cancel(live.id() + i);
    over_.insert(over_.end(), over.begin(), over.end());
  }
}

void EngineLoop::discard_sequences(const LiveRequest& live) {
  for (int32_t i = 0; i < live.choice_count(); ++i) scheduler_.discard(live.id() + i);
}

void EngineLoop::fail(LiveRequest& live) {
  drop_sequences(live);
  live.fail();
  ++turn_.counters.requests_failed;
  forget(live);
}

// A sequence of a request that failed meanwhile is passed over.
void EngineLoop::end_over() {
  for (const RequestId sequence : over_) {
    LiveRequest* live = find(sequence);
    if (!live) continue;
    touched_.push_back(live->id());
    drafts_.forget(sequence);
    live->end_choice(static_cast<int32_t>(sequence - live->id()));
    if (live->all_over()) finish(*live);
  }
  over_.clear();
}

void EngineLoop::finish(LiveRequest& live) {
  live.finish(now_ns());
  ++turn_.counters.requests_finished[static_cast<size_t>(live.finish_reason())];
  if (drift_ && live.finish_reason() != FinishReason::kCancelled) look_for_drift(live);
  forget(live);
}

void EngineLoop::forget(const LiveRequest& live) {
  const RequestId id = live.id();
  if (!live.begun()) {
    --not_begun_count_;
    shared_.inbox.begun(live.prompt_tokens());
  }
  for (int32_t i = 0; i < live.choice_count(); ++i) drafts_.forget(id + i);
  turn_.over.push_back(id);
  requests_.erase(id);
}

void EngineLoop::publish() {
  for (const RequestId id : touched_) {
    const auto found = requests_.find(id);
    if (found != requests_.end()) turn_.changed.push_back(found->second->row());
  }
  const plan::ServeScheduler& state = scheduler_.state();
  turn_.running_sequences = state.running_count();
  turn_.preempted_sequences =
      std::max<int64_t>(0, int64_t{state.waiting_count()} - not_begun_count_);
  turn_.kv_blocks_live = state.pool().live_count();
  turn_.kv_blocks_cached = state.pool().cached_count();
  turn_.kv_evictions = state.pool().eviction_count();
  turn_.settings = plan::settings_of(state.options());
  shared_.board.publish(turn_, now_ns());
  touched_.clear();
  turn_.changed.clear();
  turn_.over.clear();
  turn_.iteration.reset();
}

LiveRequest* EngineLoop::find(RequestId sequence) {
  auto found = requests_.upper_bound(sequence);
  if (found == requests_.begin()) return nullptr;
  LiveRequest& live = *(--found)->second;
  return sequence < live.id() + live.choice_count() ? &live : nullptr;
}

LiveRequest& EngineLoop::live_of(RequestId sequence) {
  LiveRequest* live = find(sequence);
  JIGE_CHECK(live, "the scheduler knows a sequence {} of no request", sequence);
  return *live;
}

}  // namespace jige::serve
