// The engine's thread: events, one iteration, endings, in this order every turn.
#include "serve/engine_loop.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"

namespace jige::serve {
namespace {

int64_t now_ns() { return RealClock().now_ns(); }

// Whether a choice's logits are those behind the prompt, from which every choice begins.
bool forks(const LiveRequest& live, int32_t choice) {
  return choice == 0 && !live.got_first_token();
}

}  // namespace

EngineLoop::EngineLoop(model::InferenceModel& model, const text::Tokenizer& tokenizer,
                       std::vector<int32_t> eos_ids, RecordedScheduler scheduler, Shared shared)
    : tokenizer_(tokenizer),
      eos_ids_(std::move(eos_ids)),
      context_max_(
          std::min(model.context_max(), model.sizes().kv_block_count * ops::kKvBlockTokens)),
      embeds_(model.sizes().embeds),
      shared_(shared),
      scheduler_(std::move(scheduler)),
      runner_(model),
      drafts_(shared.options.drafts, concurrent_requests_max(shared.options), model.context_max(),
              std::min(model.sizes().logit_rows_max, model.sizes().batch_tokens_max),
              shared.options.drafts.tokens_max > 0 ? shared.options.draft_model : nullptr) {
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
  if (events_.stop) cancel_all();
  if (!scheduler_.state().idle()) iterate();
  end_over();
  publish();
  return !events_.stop;
}

void EngineLoop::take_events() {
  shared_.inbox.take(events_, scheduler_.state().idle());
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

void EngineLoop::iterate() {
  const StopWatch watch;
  std::optional<plan::Batch> batch = scheduler_.next_batch();
  if (!batch) {
    // Cannot be, by the scheduler's invariants; to fail is better than to wait for ever.
    log_error("no request can be scheduled; all {} fail", requests_.size());
    while (!requests_.empty()) {
      LiveRequest& live = *requests_.begin()->second;
      live.set_error({Code::kInternal, "the request could not be scheduled"});
      fail(live);
    }
    return;
  }
  if (shared_.prepare) shared_.prepare(*batch);
  begin(*batch);
  const Status status = run_batch(*batch);
  if (status) {
    settle(*batch);
  } else {
    lose(*batch, status.error());
  }
  account(*batch, watch.seconds(), !status);
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

Status EngineLoop::run_batch(const plan::Batch& batch) {
  sampled_.clear();
  ++turn_.counters.iterations;
  const EngineFaults& faults = shared_.options.faults;
  if (faults.before_forward) JIGE_DO(faults.before_forward(turn_.counters.iterations));
  return runner_.run(
      batch,
      {.sampled =
           [&](std::span<const size_t> items, const model::LogitRows& rows) {
             embeds_ ? finish_vectors(batch, items) : sample(batch, items, rows);
           },
       .row_draw = [&](const plan::WorkItem& item, int32_t row) { return row_draw(item, row); },
       .wanted_range =
           [&](const plan::WorkItem& item) { return live_of(item.request).wanted_range(item); },
       .wanted =
           [&](std::span<const BatchRunner::WantedRow> rows, std::span<const float> values) {
             embeds_ ? pool(batch, rows, values) : score(batch, rows, values);
           }});
}

void EngineLoop::score(const plan::Batch& batch, std::span<const BatchRunner::WantedRow> rows,
                       std::span<const float> logits) {
  const size_t width = logits.size() / rows.size();
  const auto item_of = [&](int64_t row) -> const plan::WorkItem& {
    return batch.items[rows[static_cast<size_t>(row)].item];
  };
  const auto position_of = [&](int64_t row) {
    return int64_t{item_of(row).context_count} + rows[static_cast<size_t>(row)].index;
  };
  share(std::ssize(rows), [&](int64_t row) {
    live_of(item_of(row).request)
        .score(position_of(row), logits.subspan(static_cast<size_t>(row) * width, width));
  });
  for (int64_t row = 0; row < std::ssize(rows); ++row) {
    LiveRequest& live = live_of(item_of(row).request);
    if (live.has_error()) continue;
    if (Status status = live.take_score(position_of(row)); !status) {
      live.set_error(std::move(status.error()));
    }
  }
}

void EngineLoop::pool(const plan::Batch& batch, std::span<const BatchRunner::WantedRow> rows,
                      std::span<const float> values) {
  const size_t width = values.size() / rows.size();
  for (size_t row = 0; row < rows.size(); ++row) {
    const plan::WorkItem& item = batch.items[rows[row].item];
    live_of(item.request)
        .pool(int64_t{item.context_count} + rows[row].index, values.subspan(row * width, width));
  }
}

void EngineLoop::finish_vectors(const plan::Batch& batch, std::span<const size_t> items) {
  for (const size_t index : items) {
    LiveRequest& live = live_of(batch.items[index].request);
    if (Status status = live.finish_vector(now_ns()); !status) {
      live.set_error(std::move(status.error()));
    }
    turn_.counters.prompt_tokens += live.prompt_tokens();
    sampled_.push_back({.request = live.id(), .finished = true});
  }
}

ops::RowDraw EngineLoop::row_draw(const plan::WorkItem& item, int32_t row) {
  if (shared_.options.faults.on_logits) return {};
  const LiveRequest& live = live_of(item.request);
  const auto choice = static_cast<int32_t>(item.request - live.id());
  const ops::RowDraw draw = live.answer(choice).row_draw(row);
  // Choices that begin at one row draw from it with numbers of their own.
  const bool shared = forks(live, choice) && live.choice_count() > 1;
  return shared && draw.kind == ops::RowDraw::kSample ? ops::RowDraw{} : draw;
}

// Drawing costs up to a pass over the vocabulary for each row, and a row touches its own answer
// alone, so the team shares it. What follows is told to sinks, in the order of the items.
void EngineLoop::sample(const plan::Batch& batch, std::span<const size_t> items,
                        const model::LogitRows& rows) {
  samplings_.clear();
  size_t row = 0;
  for (const size_t index : items) {
    const plan::WorkItem& item = batch.items[index];
    samplings_.push_back({&item, rows.from(row), {.request = item.request}});
    row += static_cast<size_t>(item.sample_rows());
  }
  for (bool any = true; any;) {
    draws_.clear();
    spoiled_.clear();
    for (const Sampling& one : samplings_) {
      if (one.goes_on) add_draws(one);
    }
    draw_all();
    any = false;
    for (Sampling& one : samplings_) {
      if (one.goes_on) take_drawn(one);
      any = any || one.goes_on;
    }
  }
  for (Sampling& one : samplings_) {
    live_of(one.item->request).drafted(one.item->draft_count, one.next.accepted);
    turn_.counters.drafted_tokens += one.item->draft_count;
    turn_.counters.accepted_tokens += one.next.accepted;
    turn_.counters.guesses.add(drafts_.sources(one.item->request, one.item->draft_count),
                               one.next.accepted);
    sampled_.push_back(std::move(one.next));
  }
}

void EngineLoop::add_draws(const Sampling& sampling) {
  LiveRequest& live = live_of(sampling.item->request);
  if (live.has_error()) return;
  const model::LogitRows& rows = sampling.rows;
  const auto at = static_cast<size_t>(sampling.row);
  const auto choice = static_cast<int32_t>(sampling.item->request - live.id());
  const int32_t end = forks(live, choice) ? live.choice_count() : choice + 1;
  const auto& on_logits = shared_.options.faults.on_logits;
  for (int32_t i = choice; i < end; ++i) {
    if (const int32_t token = rows.token(at); token >= 0) {
      draws_.push_back({&live, i, {}, token, rows.logprob(at)});
      continue;
    }
    std::span<const float> row = rows.row(at);
    if (on_logits) {
      std::vector<float>& spoiled = spoiled_.emplace_back(row.begin(), row.end());
      on_logits(live.id(), i, spoiled);
      row = spoiled;
    }
    draws_.push_back({&live, i, row});
  }
}

void EngineLoop::draw_all() {
  share(std::ssize(draws_), [this](int64_t i) {
    const Draw& one = draws_[static_cast<size_t>(i)];
    if (one.logits.empty()) return one.live->take_drawn(one.choice, one.token, one.logprob);
    one.live->draw(one.choice, one.logits);
  });
}

void EngineLoop::share(int64_t count, const std::function<void(int64_t)>& one) {
  const auto part = [&one](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) one(i);
  };
  ThreadTeam* team = shared_.options.sampling_team;
  if (team && count > 1) {
    team->parallel_for(count, 1, part);
  } else {
    part(0, count, 0);
  }
}

void EngineLoop::take_drawn(Sampling& sampling) {
  const plan::WorkItem& item = *sampling.item;
  plan::SampledNext& next = sampling.next;
  LiveRequest& live = live_of(item.request);
  const auto choice = static_cast<int32_t>(item.request - live.id());
  const bool begins = forks(live, choice);
  next.accepted = sampling.row;
  next.finished = !take(live, choice);
  next.token = live.answer(choice).last_drawn();
  for (int32_t i = 1; begins && i < live.choice_count(); ++i) {
    const bool goes_on = take(live, i);
    next.forks.push_back(
        {.child = live.id() + i, .token = live.answer(i).last_drawn(), .finished = !goes_on});
  }
  if (begins) turn_.counters.prompt_tokens += live.prompt_tokens();
  if (live.has_error()) {  // nothing of it is to go on
    next.forks.clear();
    next.finished = true;
  }
  const size_t guess = item.tokens.size() - static_cast<size_t>(item.draft_count - sampling.row);
  sampling.goes_on =
      !next.finished && guess < item.tokens.size() && next.token == item.tokens[guess];
  ++sampling.row;
}

bool EngineLoop::take(LiveRequest& live, int32_t choice) {
  if (live.has_error()) return false;
  const auto before = std::ssize(live.answer(choice).tokens());
  Status status = live.take(choice, now_ns());
  turn_.counters.generated_tokens += std::ssize(live.answer(choice).tokens()) - before;
  if (!status) live.set_error(std::move(status.error()));
  return status && !live.answer(choice).done();
}

void EngineLoop::settle(const plan::Batch& batch) {
  for (const plan::WorkItem& item : batch.items) {
    const LiveRequest& live = live_of(item.request);
    if (live.has_error()) discard_sequences(live);  // before anything of it is published
  }
  const std::vector<RequestId> over = scheduler_.complete(batch.id, sampled_);
  over_.insert(over_.end(), over.begin(), over.end());
  turn_.counters.computed_tokens += batch.token_count();
  for (const plan::WorkItem& item : batch.items) {
    LiveRequest* live = find(item.request);
    if (live && live->has_error()) fail(*live);
  }
  if (drafts_.enabled()) draft();
}

void EngineLoop::draft() {
  for (const plan::SampledNext& next : sampled_) {
    if (!next.finished) draft_behind(next.request);
    for (const plan::ForkedNext& fork : next.forks) {
      if (!fork.finished) draft_behind(fork.child);
    }
  }
  drafts_.decide([this](RequestId sequence, std::span<const int32_t> tokens) {
    scheduler_.draft(sequence, tokens);
  });
  turn_.counters.draft_model_read_tokens = drafts_.model_counts().read_tokens;
  turn_.counters.draft_model_known_tokens = drafts_.model_counts().known_tokens;
}

void EngineLoop::draft_behind(RequestId sequence) {
  const LiveRequest* const live = find(sequence);
  if (!live) return;
  const auto choice = static_cast<int32_t>(sequence - live->id());
  drafts_.follow(sequence, live->tokens(choice), live->tokens_left(choice),
                 {.answer = &live->answer(choice), .cache_salt = live->cache_salt()});
}

void EngineLoop::lose(const plan::Batch& batch, const Error& error) {
  ++turn_.counters.iterations_lost;
  log_error("an iteration over {} tokens of {} requests failed: {}", batch.token_count(),
            batch.items.size(), error.message);
  const std::vector<RequestId> over = scheduler_.lose(batch.id);
  over_.insert(over_.end(), over.begin(), over.end());
  for (const plan::WorkItem& item : batch.items) {
    LiveRequest* live = find(item.request);
    if (!live) continue;  // another choice of it was in the batch
    live->set_error(error);
    fail(*live);
  }
}

void EngineLoop::account(const plan::Batch& batch, double seconds, bool lost) {
  turn_.counters.preemptions += std::ssize(batch.preempted);
  turn_.iteration = runner_.work();
  turn_.iteration->seconds = seconds;
  turn_.iteration_lost = lost;
  const auto decodes = [](const plan::WorkItem& item) {
    return item.sample_rows() == std::ssize(item.tokens);
  };
  if (!lost && std::ranges::all_of(batch.items, decodes)) {
    drafts_.add_step(batch.token_count(), seconds - drafts_.model_seconds());
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
