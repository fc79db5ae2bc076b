#include "serve/batch_runner.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace jige::serve {

BatchRunner::BatchRunner(model::InferenceModel& model)
    : model_(model), embeds_(model.sizes().embeds), roofline_(model.architecture(), model.sizes()) {
  const auto rows = static_cast<size_t>(model.sizes().batch_tokens_max);
  const auto logit_rows = static_cast<size_t>(model.sizes().logit_rows_max);
  for (int64_t i = 0; i < model.sizes().forwards_max; ++i) {
    auto forward = std::make_unique<Forward>();
    forward->tokens.reserve(rows);
    forward->sequences.reserve(rows);
    forward->adapters.reserve(rows);
    forward->places.reserve(rows);
    forward->logit_rows.reserve(logit_rows);
    forward->draws.reserve(logit_rows);
    forward->logit_items.reserve(logit_rows);
    free_.push_back(std::move(forward));
  }
}

void BatchRunner::Forward::clear() {
  tokens.clear();
  sequences.clear();
  logit_rows.clear();
  logit_items.clear();
  draws.clear();
  wanted_rows.clear();
  wanted.clear();
  adapters.clear();
  given.clear();
  places.clear();
  has_places = false;
  tables.clear();
}

BatchRunner::ForwardRef BatchRunner::take() {
  JIGE_CHECK(!free_.empty(), "{} batches are under way", under_way_.size());
  ForwardRef forward = std::move(free_.back());
  free_.pop_back();
  return forward;
}

void BatchRunner::give_back(ForwardRef forward) {
  work_ = std::exchange(forward->work, {});
  forward->clear();
  free_.push_back(std::move(forward));
}

Status BatchRunner::begin(const plan::Batch& batch, const Readers& readers) {
  ForwardRef forward = take();
  const auto run = [&]() -> Status {
    for (const plan::BlockCopy& copy : batch.copies) {
      JIGE_DO(model_.copy_block(copy.src, copy.dst));
    }
    for (const plan::StateCopy& copy : batch.state_copies) {
      JIGE_DO(model_.copy_state(copy.src, copy.dst));
    }
    return plan::cut_into_forwards(
        batch,
        {.rows_max = model_.sizes().batch_tokens_max,
         .sample_rows_max = model_.sizes().logit_rows_max,
         .samples = !embeds_,
         .whole = model_.sizes().whole_texts},
        order_,
        [&](const plan::ForwardPart& part) -> Status {
          if (forward->number >= 0) JIGE_DO(end_forward(*forward, readers));
          add_wanted(*forward, readers, batch, part);
          add(*forward, readers, batch, part);
          return {};
        },
        [&] { return begin_forward(*forward); });
  };
  Status status = run();
  if (status) {
    under_way_.push_back(std::move(forward));
  } else {
    give_back(std::move(forward));
  }
  return status;
}

Status BatchRunner::finish(const Readers& readers) {
  JIGE_CHECK(!under_way_.empty(), "no batch is under way");
  ForwardRef forward = std::move(under_way_.front());
  under_way_.pop_front();
  Status status = end_forward(*forward, readers);
  give_back(std::move(forward));
  return status;
}

void BatchRunner::add(Forward& forward, const Readers& readers, const plan::Batch& batch,
                      const plan::ForwardPart& part) {
  const plan::WorkItem& work = batch.items[part.item];
  forward.sequences.push_back(
      {.row_begin = static_cast<int32_t>(forward.tokens.size()),
       .row_count = part.count,
       .context_count = work.context_count + part.begin,
       .blocks = work.blocks.data(),
       .state = work.state,
       .spare = work.spare,
       .spare_rows = work.spare == plan::kNoState ? 0 : part.count - work.draft_count,
       .second_begin = readers.second_begin ? readers.second_begin(work) : ops::kFirstTypeAlone});
  forward.adapters.push_back(work.adapter);
  const auto first = work.tokens.begin() + part.begin;
  const auto first_row = static_cast<int32_t>(forward.tokens.size());
  forward.tokens.insert(forward.tokens.end(), first, first + part.count);
  forward.places.push_back(nullptr);
  if (auto table = readers.given ? readers.given(work) : nullptr) {
    table->place(std::span(forward.tokens).last(static_cast<size_t>(part.count)), first_row,
                 forward.given);
    forward.places.back() = table->places();
    forward.has_places = forward.has_places || table->places();
    forward.tables.push_back(std::move(table));
  }
  for (int32_t row = 0; row < part.sample_rows; ++row) {
    forward.logit_rows.push_back(static_cast<int32_t>(std::ssize(forward.tokens)) -
                                 part.sample_rows + row);
    forward.draws.push_back(readers.row_draw ? readers.row_draw(work, row) : ops::RowDraw{});
  }
  const bool last = part.begin + part.count == static_cast<int32_t>(work.tokens.size());
  if (work.samples && last) forward.logit_items.push_back(part.item);
}

// REQUIRES: add() of the same tokens is to follow.
void BatchRunner::add_wanted(Forward& forward, const Readers& readers, const plan::Batch& batch,
                             const plan::ForwardPart& part) {
  if (!readers.wanted_range) return;
  const RowRange range = readers.wanted_range(batch.items[part.item]);
  const auto first_row = static_cast<int32_t>(forward.tokens.size());
  const int32_t end = std::min(part.begin + part.count, range.end);
  for (int32_t i = std::max(part.begin, range.begin); i < end; ++i) {
    forward.wanted_rows.push_back(first_row + i - part.begin);
    forward.wanted.push_back({part.item, i});
  }
}

// Wanted rows come first, so that what a prompt is worth is known before what follows it.
Status BatchRunner::begin_forward(Forward& forward) {
  std::span<const int32_t> first_rows = forward.logit_rows;
  std::span<const ops::RowDraw> draws = forward.draws;
  if (!forward.wanted.empty()) {
    first_rows = {};
    draws = {};
  }
  std::span<const model::ImagePlaces* const> places;
  if (forward.has_places) places = forward.places;
  JIGE_TRY(forward.number, model_.begin({.tokens = forward.tokens,
                                         .sequences = forward.sequences,
                                         .logit_rows = first_rows,
                                         .adapters = forward.adapters,
                                         .given = forward.given.given,
                                         .mutual = forward.given.mutual,
                                         .places = places},
                                        draws));
  const int64_t logit_rows = std::ssize(forward.logit_rows) + std::ssize(forward.wanted_rows);
  roofline_.add_forward(forward.work, forward.sequences, embeds_ ? 0 : logit_rows);
  return {};
}

Status BatchRunner::end_forward(Forward& forward, const Readers& readers) {
  Status status = read_logits(forward, readers);
  forward.clear();
  return status;
}

Result<std::span<const float>> BatchRunner::values_of(std::span<const int32_t> rows) {
  return embeds_ ? model_.hidden_of(rows) : model_.logits_of(rows);
}

Status BatchRunner::read_logits(Forward& forward, const Readers& readers) {
  JIGE_TRY(model::LogitRows rows, model_.finish(std::exchange(forward.number, -1)));
  const std::vector<WantedRow>& wanted = forward.wanted;
  const auto rows_max = static_cast<size_t>(model_.sizes().logit_rows_max);
  for (size_t begin = 0; begin < wanted.size(); begin += rows_max) {
    const size_t count = std::min(rows_max, wanted.size() - begin);
    JIGE_TRY(const std::span<const float> values,
             values_of(std::span(forward.wanted_rows).subspan(begin, count)));
    readers.wanted(std::span(wanted).subspan(begin, count), values);
  }
  if (forward.logit_items.empty()) return {};
  if (!wanted.empty() && !embeds_) {
    JIGE_TRY(rows.logits, model_.logits_of(forward.logit_rows));
  }
  readers.sampled(forward.logit_items, rows);
  return {};
}

}  // namespace jige::serve
