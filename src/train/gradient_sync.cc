#include "train/gradient_sync.h"

#include "train/context_relay.h"
#include "train/gradient_relay.h"
#include "train/gradient_rings.h"

namespace jige::train {

std::unique_ptr<GradientSync> GradientSync::make(const RankOptions& options,
                                                 GradientCarrier& carrier,
                                                 const model::ModelWeights& weights,
                                                 const OptimizerShares* shares) {
  if (options.sum == GradientSum::kRings) {
    return std::make_unique<GradientRings>(options, carrier, weights);
  }
  if (options.split_context) {
    return std::make_unique<ContextRelay>(options, carrier, weights, shares);
  }
  return std::make_unique<GradientRelay>(options, carrier, weights, shares);
}

GradientSync::GradientSync(const RankOptions& options, GradientCarrier& carrier,
                           const model::ModelWeights& weights)
    : group_(*options.group),
      carrier_(carrier),
      ring_(group_.plan().rings.front()),
      place_(ring_.position_of(group_.rank())),
      overlap_(options.overlap),
      totals_(weights.architecture().node_count()) {}

Status GradientSync::begin(int64_t micro_batch_count) {
  JIGE_DO(carrier_.await_fetched());  // what ended the step before has returned, too
  micro_batch_count_ = micro_batch_count;
  unreleased_ = node_count();
  carrier_.restart();
  begin_step();
  return {};
}

Status GradientSync::before(Stream& stream, size_t node, int64_t micro_batch) {
  // What the micro-batch before has left behind is known once all of it went on.
  if (node + 1 == node_count()) JIGE_DO(carrier_.await_fetched());
  if (!takes_over(micro_batch) || bytes(node).empty()) return {};
  JIGE_DO(await_sum(node));
  carrier_.store(stream, {node, all_of(node)});
  return {};
}

Status GradientSync::after(Stream& stream, size_t node, int64_t micro_batch) {
  if (!leaves(micro_batch) || bytes(node).empty()) return {};
  JIGE_DO(carrier_.fetch(stream, {node, all_of(node)},
                         [this, node, micro_batch] { return start_on_way(node, micro_batch); }));
  return overlap_ ? Status() : carrier_.await_fetched();
}

// All ranks start totals in the order of nodes, from the head down.
void GradientSync::release(size_t node) {
  while (unreleased_ > node) {
    const size_t next = --unreleased_;
    start_total(next);
    const auto all = [this, next] { return wait_total(next); };
    const auto part = [this, next](const ElementRange& elements) {
      return totals_[next].wait_for(elements.begin, elements.count);
    };
    // What a holder gives is there as a whole.
    if (holder() < 0) {
      carrier_.expect({next, arriving(next)}, {part, all});
    } else {
      carrier_.expect({next, arriving(next)}, {[all](const ElementRange&) { return all(); }, all});
    }
  }
}

Status GradientSync::finish(Stream& stream) {
  return carrier_.fetch(stream, {}, [this]() -> Status {
    release(0);
    return {};
  });
}

}  // namespace jige::train
