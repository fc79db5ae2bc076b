#include "serve/batch_runner.h"

#include <algorithm>
#include <numeric>

namespace jige::serve {

BatchRunner::BatchRunner(model::InferenceModel& model)
    : model_(model), roofline_(model.architecture(), model.sizes()) {
  const auto rows = static_cast<size_t>(model.sizes().batch_tokens_max);
  const auto logit_rows = static_cast<size_t>(model.sizes().logit_rows_max);
  tokens_.reserve(rows);
  sequences_.reserve(rows);
  adapters_.reserve(rows);
  logit_rows_.reserve(logit_rows);
  logit_items_.reserve(logit_rows);
}

Status BatchRunner::run(const plan::Batch& batch, const LogitsCallback& on_logits) {
  work_ = {};
  for (const plan::BlockCopy& copy : batch.copies) {
    JIGE_DO(model_.copy_block(copy.src, copy.dst));
  }
  const int64_t rows_max = model_.sizes().batch_tokens_max;
  for (const size_t i : order(batch)) {
    const plan::WorkItem& item = batch.items[i];
    const auto count = static_cast<int32_t>(item.tokens.size());
    for (int32_t begin = 0; begin < count;) {
      if (!fits(1 + item.draft_count, std::max<int64_t>(1, item.sample_rows()))) {
        JIGE_DO(forward(on_logits));
      }
      const int64_t room = rows_max - static_cast<int64_t>(tokens_.size());
      const auto part = static_cast<int32_t>(std::min<int64_t>(room, count - begin));
      add(batch, i, begin, part);
      begin += part;
    }
  }
  return forward(on_logits);
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

void BatchRunner::add(const plan::Batch& batch, size_t item, int32_t begin, int32_t count) {
  const plan::WorkItem& work = batch.items[item];
  sequences_.push_back({.row_begin = static_cast<int32_t>(tokens_.size()),
                        .row_count = count,
                        .context_count = work.context_count + begin,
                        .blocks = work.blocks.data()});
  adapters_.push_back(work.adapter);
  tokens_.insert(tokens_.end(), work.tokens.begin() + begin, work.tokens.begin() + begin + count);
  if (work.samples && begin + count == static_cast<int32_t>(work.tokens.size())) {
    for (int64_t i = work.sample_rows(); i > 0; --i) {
      logit_rows_.push_back(static_cast<int32_t>(std::ssize(tokens_) - i));
    }
    logit_items_.push_back(item);
  }
}

Status BatchRunner::forward(const LogitsCallback& on_logits) {
  auto logits = model_.forward({.tokens = tokens_,
                                .sequences = sequences_,
                                .logit_rows = logit_rows_,
                                .adapters = adapters_});
  if (logits) {
    roofline_.add_forward(work_, sequences_, static_cast<int64_t>(logit_rows_.size()));
    if (!logit_items_.empty()) on_logits(logit_items_, *logits);
  }
  tokens_.clear();
  sequences_.clear();
  adapters_.clear();
  logit_rows_.clear();
  logit_items_.clear();
  if (!logits) return tl::unexpected<Error>(std::move(logits.error()));
  return {};
}

}  // namespace jige::serve
