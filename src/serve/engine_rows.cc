// What becomes of the rows of a batch: scores, vectors, and the next tokens that are drawn of them.
// Whoever was in it and has been cancelled since, or has failed with another batch, gets none.
#include <utility>

#include "base/clock.h"
#include "serve/engine_loop.h"

namespace jige::serve {
namespace {

// Whether a choice's logits are those behind the prompt, from which every choice begins.
bool forks(const LiveRequest& live, int32_t choice) {
  return choice == 0 && !live.got_first_token();
}

}  // namespace

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
    LiveRequest* const live = find(item_of(row).request);
    if (!live) return;
    live->score(position_of(row), logits.subspan(static_cast<size_t>(row) * width, width));
  });
  for (int64_t row = 0; row < std::ssize(rows); ++row) {
    LiveRequest* const live = find(item_of(row).request);
    if (!live || live->has_error()) continue;
    if (Status status = live->take_score(position_of(row)); !status) {
      live->set_error(std::move(status.error()));
    }
  }
}

void EngineLoop::pool(const plan::Batch& batch, std::span<const BatchRunner::WantedRow> rows,
                      std::span<const float> values) {
  const size_t width = values.size() / rows.size();
  for (size_t row = 0; row < rows.size(); ++row) {
    const plan::WorkItem& item = batch.items[rows[row].item];
    LiveRequest* const live = find(item.request);
    if (!live) continue;
    live->pool(int64_t{item.context_count} + rows[row].index, values.subspan(row * width, width));
  }
}

void EngineLoop::finish_vectors(UnderWay& one, std::span<const size_t> items) {
  for (const size_t index : items) {
    const RequestId request = one.batch.items[index].request;
    one.sampled.push_back({.request = request, .finished = true});
    LiveRequest* const live = find(request);
    if (!live) continue;
    if (Status status = live->finish_vector(RealClock().now_ns()); !status) {
      live->set_error(std::move(status.error()));
    }
    turn_.counters.prompt_tokens += live->prompt_tokens();
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
void EngineLoop::sample(UnderWay& one, std::span<const size_t> items,
                        const model::LogitRows& rows) {
  samplings_.clear();
  size_t row = 0;
  for (const size_t index : items) {
    const plan::WorkItem& item = one.batch.items[index];
    const bool gone = !find(item.request);
    samplings_.push_back({.item = &item,
                          .rows = rows.from(row),
                          .next = {.request = item.request, .finished = gone},
                          .goes_on = !gone});
    row += static_cast<size_t>(item.sample_rows());
  }
  for (bool any = true; any;) {
    draws_.clear();
    spoiled_.clear();
    for (const Sampling& each : samplings_) {
      if (each.goes_on) add_draws(each);
    }
    draw_all();
    any = false;
    for (Sampling& each : samplings_) {
      if (each.goes_on) take_drawn(each);
      any = any || each.goes_on;
    }
  }
  for (Sampling& each : samplings_) {
    if (LiveRequest* const live = find(each.item->request)) count_drafts(each, *live);
    one.sampled.push_back(std::move(each.next));
  }
}

void EngineLoop::count_drafts(const Sampling& sampling, LiveRequest& live) {
  const int32_t drafted = sampling.item->draft_count;
  const int32_t accepted = sampling.next.accepted;
  live.drafted(drafted, accepted);
  turn_.counters.drafted_tokens += drafted;
  turn_.counters.accepted_tokens += accepted;
  turn_.counters.guesses.add(drafts_.sources(sampling.item->request, drafted), accepted);
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
  Status status = live.take(choice, RealClock().now_ns());
  turn_.counters.generated_tokens += std::ssize(live.answer(choice).tokens()) - before;
  if (!status) live.set_error(std::move(status.error()));
  return status && !live.answer(choice).done();
}

}  // namespace jige::serve
