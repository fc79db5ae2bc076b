#include "train/expert_use.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "base/check.h"

namespace jige::train {

void ExpertUse::merge(const ExpertUse& other) {
  JIGE_CHECK(counts.size() == other.counts.size(), "counts of {} experts and {}", counts.size(),
             other.counts.size());
  for (size_t i = 0; i < counts.size(); ++i) counts[i] += other.counts[i];
  balance.merge(other.balance);
}

BusiestExperts busiest_experts(const ExpertUse& use) {
  const auto experts = static_cast<size_t>(use.expert_count);
  JIGE_CHECK(experts > 0 && !use.counts.empty(), "no experts were counted");
  BusiestExperts busiest;
  const size_t layers = use.counts.size() / experts;
  for (size_t layer = 0; layer < layers; ++layer) {
    const auto counts = std::span(use.counts).subspan(layer * experts, experts);
    const auto all = static_cast<double>(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
    const auto most = static_cast<double>(*std::ranges::max_element(counts));
    const double share = most * static_cast<double>(experts) / all;
    busiest.most = std::max(busiest.most, share);
    busiest.mean += share / static_cast<double>(layers);
  }
  return busiest;
}

ExpertMeter::ExpertMeter(const model::Architecture& architecture)
    : architecture_(architecture), layer_of_node_(architecture.node_count()) {
  size_t layers = 0;
  for (size_t node = 0; node < layer_of_node_.size(); ++node) {
    const int64_t experts = architecture.block(node).expert_count();
    if (experts == 0) continue;
    use_.expert_count = experts;
    layer_of_node_[node] = layers++;
  }
  use_.counts.resize(layers * static_cast<size_t>(use_.expert_count));
}

void ExpertMeter::add(Stream& stream, const model::Batch& batch, const Record& record) {
  const model::Block& block = architecture_.block(record.node);
  const int64_t experts = block.expert_count();
  if (experts == 0) return;
  const int64_t tokens = batch.token_count();
  const model::ExpertRecord left = block.expert_record(record.saved, tokens, record.compute);
  std::vector<int32_t> row_ends(static_cast<size_t>(experts));
  std::vector<float> losses;
  stream.copy(row_ends.data(), left.row_ends.data, experts * 4, CopyKind::kDeviceToHost);
  if (batch.balance_weight > 0) {
    losses.resize(static_cast<size_t>(tokens));
    stream.copy(losses.data(), left.balance.data, tokens * 4, CopyKind::kDeviceToHost);
  }
  stream.synchronize();
  const std::lock_guard lock(mutex_);
  int64_t* counts = &use_.counts[layer_of_node_[record.node] * row_ends.size()];
  int32_t before = 0;
  for (const int32_t end : row_ends) {
    *counts++ += end - before;
    before = end;
  }
  use_.balance.add(losses);
}

ExpertUse ExpertMeter::take() {
  const std::lock_guard lock(mutex_);
  ExpertUse taken{.expert_count = use_.expert_count,
                  .counts = std::vector<int64_t>(use_.counts.size()),
                  .balance = {}};
  std::swap(taken, use_);
  return taken;
}

}  // namespace jige::train
