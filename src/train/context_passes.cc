#include "train/context_passes.h"

#include <algorithm>

#include "base/check.h"
#include "base/clock.h"

namespace jige::train {
namespace {

// A rank's rows of a micro-batch.
void take_rows(const HostBatch& whole, const model::ContextSplit& split, int rank, HostBatch& own) {
  own.counts.clear();
  const std::pair<const std::vector<int32_t>*, std::vector<int32_t>*> columns[] = {
      {&whole.tokens, &own.tokens},
      {&whole.positions, &own.positions},
      {&whole.targets, &own.targets}};
  for (const auto& [from, to] : columns) {
    to->clear();
    for (const model::RowRange& range : split.rows(rank)) {
      to->insert(to->end(), from->begin() + range.begin, from->begin() + range.end);
    }
  }
  for (const ops::SequencePiece& piece : split.pieces(rank)) own.counts.push_back(piece.row_count);
}

}  // namespace

ContextPasses::ContextPasses(comm::AsyncGroup& group, Executor& executor,
                             model::ModelWeights& weights, ContextRelay& relay)
    : group_(&group), executor_(&executor), weights_(&weights), relay_(&relay), exchange_(group) {
  const int64_t most = std::min<int64_t>(lag(2 * int64_t{group.size()} - 1) + 1,
                                         static_cast<int64_t>(weights.architecture().head_node()));
  JIGE_CHECK(executor.pending_count() >= most, "gradients of {} nodes wait, there is room for {}",
             most, executor.pending_count());
}

Status ContextPasses::forward(Stream& stream, const HostBatch& whole, const BatchTerms& terms,
                              bool with_head) {
  exchange_.begin(model::ContextSplit(whole.counts, group_->size(),
                                      model::ContextSplit::step_of(weights_->options().compute)));
  take_rows(whole, exchange_.split(), group_->rank(), own_);
  any_rows_ = !own_.tokens.empty();
  if (!any_rows_) return {};
  executor_->load(stream, own_, terms);
  executor_->divide(&exchange_);
  const auto head = static_cast<int32_t>(weights_->architecture().head_node());
  for (int32_t node = 0; node < head + (with_head ? 1 : 0); ++node) {
    const Task task{StepTaskKind::kForward, node, 0};
    executor_->run(stream, std::span(&task, 1));
    JIGE_DO(exchange_.status());
  }
  return {};
}

Status ContextPasses::run_chunk(Stream& stream, int32_t node, int64_t micro_batch, int64_t chunk) {
  const int64_t number = chunk_count(micro_batch) + chunk;
  const auto place = static_cast<size_t>(node);
  const bool is_head = place == weights_->architecture().head_node();
  if (relay_->is_own(number)) {
    const StopWatch watch;
    JIGE_DO(relay_->before(stream, place, number));
    wait_s_ += watch.seconds();
    const model::RowRange rows = exchange_.split().local_chunk(chunk);
    if (rows.count() > 0) {
      const Task task{is_head ? StepTaskKind::kHeadPass : StepTaskKind::kBackwardWeight, node, 0};
      executor_->run_rows(
          stream, task, rows,
          number == 0 && stores_ ? model::GradientUse::kStore : model::GradientUse::kAdd);
    }
    // The holder gives the table's sum away as soon as it is there.
    const bool gives = relay_->holder() == group_->rank() && relay_->is_last(number);
    if (node == 0 && gives) weights_->finish_gradients(stream);
    stream.synchronize();
    JIGE_DO(relay_->after(stream, place, number));
  }
  relay_->done(place, number);
  return {};
}

Status ContextPasses::backward(Stream& stream, int64_t micro_batch) {
  const int64_t chunks = chunk_count(1);
  const auto nodes = static_cast<int64_t>(weights_->architecture().head_node());
  if (micro_batch == 0 && relay_->is_own(0)) {
    stores_ = exchange_.split().chunk(0).count() > 0;
    if (!stores_) weights_->zero_gradients(stream);
  }
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    JIGE_DO(run_chunk(stream, static_cast<int32_t>(nodes), micro_batch, chunk));
  }
  for (int64_t slot = 0; slot < nodes + lag(chunks - 1); ++slot) {
    if (slot < nodes && any_rows_) {
      const Task input{StepTaskKind::kBackwardInput, static_cast<int32_t>(nodes - 1 - slot), 0};
      executor_->run(stream, std::span(&input, 1));
      JIGE_DO(exchange_.status());
    }
    for (int64_t i = 0; i < chunks; ++i) {
      const int64_t chunk = i < chunks / 2 ? 2 * i : 2 * i - chunks + 1;  // even ones, odd ones
      const int64_t behind = slot - lag(chunk);
      if (behind < 0 || behind >= nodes) continue;
      JIGE_DO(run_chunk(stream, static_cast<int32_t>(nodes - 1 - behind), micro_batch, chunk));
    }
  }
  return {};
}

void ContextPasses::add_losses(Stream& stream, ExactSum& sum) {
  if (any_rows_) executor_->add_losses(stream, sum);
}

}  // namespace jige::train
