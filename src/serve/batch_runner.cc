#include "serve/batch_runner.h"

#include <algorithm>
#include <numeric>

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
  const int64_t rows_max = model_.sizes().batch_tokens_max;
  for (const size_t i : order(batch)) {
    const plan::WorkItem& item = batch.items[i];
    const auto count = static_cast<int32_t>(item.tokens.size());
    for (int32_t begin = 0; begin < count;) {
      if (!fits(1 + item.draft_count, std::max<int64_t>(1, item.sample_rows()))) {
        JIGE_DO(forward(readers));
      }
      const int64_t room = rows_max - static_cast<int64_t>(tokens_.size());
      const auto part = static_cast<int32_t>(std::min<int64_t>(room, count - begin));
      add_wanted(readers, batch, i, begin, part);
      add(readers, batch, i, begin, part);
      begin += part;
    }
  }
  return forward(readers);
}

std::span<const size_t> BatchRunner::order(const plan::Batch& batch) {
  order_.resize(batch.items.size());
  std::iota(order_.begin(), order_.end(), size_t{0});
  std::ranges::stable_sort(order_, {}, [&](size_t item) { return batch.items[item].adapter; });
  return order_;
}

bool BatchRunner::fits(int64_t count, int64_t sample_rows) const {
  return static_cast<int64_t>(tokens_.size()) + count <= model_.sizes().batch_tokens_max &&
         static_cast<int64_t>(logit_rows_.size()) + sample_rows <= model_.sizes().logit_rows_max;
}

void BatchRunner::add(const Readers& readers, const plan::Batch& batch, size_t item, int32_t begin,
                      int32_t count) {
  const plan::WorkItem& work = batch.items[item];
  sequences_.push_back({.row_begin = static_cast<int32_t>(tokens_.size()),
                        .row_count = count,
                        .context_count = work.context_count + begin,
                        .blocks = work.blocks.data(),
                        .state = work.state});
  adapters_.push_back(work.adapter);
  tokens_.insert(tokens_.end(), work.tokens.begin() + begin, work.tokens.begin() + begin + count);
  if (work.samples && begin + count == static_cast<int32_t>(work.tokens.size())) {
    const int32_t rows = embeds_ ? 0 : static_cast<int32_t>(work.sample_rows());
    for (int32_t row = 0; row < rows; ++row) {
      logit_rows_.push_back(static_cast<int32_t>(std::ssize(tokens_)) - rows + row);
      draws_.push_back(readers.row_draw ? readers.row_draw(work, row) : ops::RowDraw{});
    }
    logit_items_.push_back(item);
  }
}

// REQUIRES: add() of the same tokens is to follow.
void BatchRunner::add_wanted(const Readers& readers, const plan::Batch& batch, size_t item,
                             int32_t begin, int32_t count) {
  if (!readers.wanted_range) return;
  const RowRange range = readers.wanted_range(batch.items[item]);
  const auto first_row = static_cast<int32_t>(tokens_.size());
  for (int32_t i = std::max(begin, range.begin); i < std::min(begin + count, range.end); ++i) {
    wanted_rows_.push_back(first_row + i - begin);
    wanted_.push_back({item, i});
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
