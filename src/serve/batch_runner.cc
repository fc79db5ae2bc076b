#include "serve/batch_runner.h"

#include <algorithm>

namespace jige::serve {

BatchRunner::BatchRunner(model::InferenceModel& model)
    : model_(model), embeds_(model.sizes().embeds), roofline_(model.architecture(), model.sizes()) {
  const auto rows = static_cast<size_t>(model.sizes().batch_tokens_max);
  const auto logit_rows = static_cast<size_t>(model.sizes().logit_rows_max);
  tokens_.reserve(rows);
  sequences_.reserve(rows);
  adapters_.reserve(rows);
  logit_rows_.reserve(logit_rows);
  draws_.reserve(logit_rows);
  logit_items_.reserve(logit_rows);
}

Status BatchRunner::run(const plan::Batch& batch, const Readers& readers) {
  work_ = {};
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
       .samples = !embeds_},
      order_,
      [&](const plan::ForwardPart& part) -> Status {
        add_wanted(readers, batch, part);
        add(readers, batch, part);
        return {};
      },
      [&] { return forward(readers); });
}

void BatchRunner::add(const Readers& readers, const plan::Batch& batch,
                      const plan::ForwardPart& part) {
  const plan::WorkItem& work = batch.items[part.item];
  sequences_.push_back({.row_begin = static_cast<int32_t>(tokens_.size()),
                        .row_count = part.count,
                        .context_count = work.context_count + part.begin,
                        .blocks = work.blocks.data(),
                        .state = work.state});
  adapters_.push_back(work.adapter);
  const auto first = work.tokens.begin() + part.begin;
  tokens_.insert(tokens_.end(), first, first + part.count);
  for (int32_t row = 0; row < part.sample_rows; ++row) {
    logit_rows_.push_back(static_cast<int32_t>(std::ssize(tokens_)) - part.sample_rows + row);
    draws_.push_back(readers.row_draw ? readers.row_draw(work, row) : ops::RowDraw{});
  }
  const bool last = part.begin + part.count == static_cast<int32_t>(work.tokens.size());
  if (work.samples && last) logit_items_.push_back(part.item);
}

// REQUIRES: add() of the same tokens is to follow.
void BatchRunner::add_wanted(const Readers& readers, const plan::Batch& batch,
                             const plan::ForwardPart& part) {
  if (!readers.wanted_range) return;
  const RowRange range = readers.wanted_range(batch.items[part.item]);
  const auto first_row = static_cast<int32_t>(tokens_.size());
  const int32_t end = std::min(part.begin + part.count, range.end);
  for (int32_t i = std::max(part.begin, range.begin); i < end; ++i) {
    wanted_rows_.push_back(first_row + i - part.begin);
    wanted_.push_back({part.item, i});
  }
}

Status BatchRunner::forward(const Readers& readers) {
  Status status = read_logits(readers);
  tokens_.clear();
  sequences_.clear();
  adapters_.clear();
  logit_rows_.clear();
  logit_items_.clear();
  draws_.clear();
  wanted_rows_.clear();
  wanted_.clear();
  return status;
}

Result<std::span<const float>> BatchRunner::values_of(std::span<const int32_t> rows) {
  return embeds_ ? model_.hidden_of(rows) : model_.logits_of(rows);
}

// Wanted rows come first, so that what a prompt is worth is known before what follows it.
Status BatchRunner::read_logits(const Readers& readers) {
  std::span<const int32_t> first_rows = logit_rows_;
  std::span<const ops::RowDraw> draws = draws_;
  if (!wanted_.empty()) {
    first_rows = {};
    draws = {};
  }
  const model::InferenceBatch batch{
      .tokens = tokens_, .sequences = sequences_, .logit_rows = first_rows, .adapters = adapters_};
  JIGE_TRY(model::LogitRows rows, model_.forward_drawn(batch, draws));
  const int64_t logit_rows = std::ssize(logit_rows_) + std::ssize(wanted_rows_);
  roofline_.add_forward(work_, sequences_, embeds_ ? 0 : logit_rows);
  const auto rows_max = static_cast<size_t>(model_.sizes().logit_rows_max);
  for (size_t begin = 0; begin < wanted_.size(); begin += rows_max) {
    const size_t count = std::min(rows_max, wanted_.size() - begin);
    JIGE_TRY(const std::span<const float> values,
             values_of(std::span(wanted_rows_).subspan(begin, count)));
    readers.wanted(std::span(wanted_).subspan(begin, count), values);
  }
  if (logit_items_.empty()) return {};
  if (!wanted_.empty() && !embeds_) {
    JIGE_TRY(rows.logits, model_.logits_of(logit_rows_));
  }
  readers.sampled(logit_items_, rows);
  return {};
}

}  // namespace jige::serve
