#include "train/gradient_relay.h"

namespace jige::train {

GradientRelay::GradientRelay(const RankOptions& options, const model::ModelWeights& weights)
    : GradientSync(options, weights), received_(node_count()), sent_(node_count()) {}

uint64_t GradientRelay::tag(size_t node, int64_t micro_batch) const {
  return static_cast<uint64_t>(micro_batch) * node_count() + node;
}

comm::Pending GradientRelay::receive(size_t node, int64_t micro_batch) {
  return group_.receive(rank_at(place_ - 1), bytes(node), tag(node, micro_batch - 1));
}

void GradientRelay::begin_step() {
  if (place_ >= micro_batch_count_) return finish();
  if (place_ == 0) return;
  for (size_t node = node_count(); node-- > 0;) {
    if (!bytes(node).empty()) received_[node] = receive(node, place_);
  }
}

Status GradientRelay::before(size_t node, int64_t) { return received_[node].wait(); }

Status GradientRelay::after(size_t node, int64_t micro_batch) {
  const bool last_own = micro_batch + size() >= micro_batch_count_;
  if (bytes(node).empty()) return {};
  if (micro_batch + 1 < micro_batch_count_) {
    sent_[node] = group_.send(rank_at(place_ + 1), bytes(node), tag(node, micro_batch));
    sent_bytes_ += static_cast<int64_t>(bytes(node).size());
    if (!overlap_) JIGE_DO(sent_[node].wait());
  }
  if (!last_own) {
    received_[node] = receive(node, micro_batch + size());
  } else if (overlap_) {
    release(node);
  }
  return {};
}

// What comes is complete only after all that this rank has sent was taken: it is made from it.
void GradientRelay::start_total(size_t node) {
  const std::span<std::byte> sum = bytes(node);
  if (sum.empty()) return;
  const int64_t last = (micro_batch_count_ - 1) % size();
  totals_[node] = group_.start({.collective = comm::Collective::kBroadcast,
                                .count = static_cast<int64_t>(sum.size() / 4),
                                .root = rank_at(last),
                                .src = sum.data(),
                                .dst = sum.data()});
  if (rank_at(place_ + 1) != rank_at(last)) sent_bytes_ += static_cast<int64_t>(sum.size());
}

}  // namespace jige::train
