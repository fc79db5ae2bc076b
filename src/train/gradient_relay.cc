#include "train/gradient_relay.h"

namespace jige::train {

GradientRelay::GradientRelay(const RankOptions& options, GradientCarrier& carrier,
                             const model::ModelWeights& weights, const OptimizerShares* shares)
    : GradientSync(options, carrier, weights),
      received_(node_count()),
      sent_(node_count()),
      shares_(shares),
      shares_sent_(node_count()) {}

int GradientRelay::holder() const { return shares_ != nullptr ? last_rank() : -1; }

uint64_t GradientRelay::tag(size_t node, int64_t micro_batch) const {
  return static_cast<uint64_t>(micro_batch) * node_count() + node;
}

void GradientRelay::receive_sum(size_t node, int64_t micro_batch) {
  received_[node] = group_.receive(owner(micro_batch), bytes(node), tag(node, micro_batch));
}

Status GradientRelay::send_sum(size_t node, int64_t micro_batch) {
  sent_[node] = group_.send(owner(micro_batch + 1), bytes(node), tag(node, micro_batch));
  sent_bytes_ += static_cast<int64_t>(bytes(node).size());
  return overlap_ ? Status() : sent_[node].wait();
}

void GradientRelay::begin_step() {
  if (place_ >= micro_batch_count_) return release(0);
  if (place_ == 0) return;
  for (size_t node = node_count(); node-- > 0;) {
    if (!bytes(node).empty()) receive_sum(node, place_ - 1);
  }
}

// Who broadcasts a sum, or gives shares of it, has it.
ElementRange GradientRelay::arriving(size_t node) const {
  if (group_.rank() == last_rank()) return {};
  return shares_ != nullptr ? shares_->of_node(node, group_.rank()) : all_of(node);
}

Status GradientRelay::start_on_way(size_t node, int64_t micro_batch) {
  const bool last_own = micro_batch + size() >= micro_batch_count_;
  if (micro_batch + 1 < micro_batch_count_) JIGE_DO(send_sum(node, micro_batch));
  if (!last_own) {
    receive_sum(node, micro_batch + size() - 1);
  } else if (overlap_) {
    release(node);
  }
  return {};
}

// Messages to one rank are in order: the last one that was sent for a node is the last to be taken.
Status GradientRelay::wait_total(size_t node) {
  JIGE_DO(sent_[node].wait());
  for (const comm::Pending& share : shares_sent_[node]) JIGE_DO(share.wait());
  return totals_[node].wait();
}

void GradientRelay::start_shares(size_t node) {
  shares_sent_[node].clear();
  const auto part = [&](int rank) {
    const ElementRange range = shares_->of_node(node, rank);
    return bytes(node).subspan(static_cast<size_t>(range.begin) * 4,
                               static_cast<size_t>(range.count) * 4);
  };
  const uint64_t share_tag = tag(node, micro_batch_count_);
  if (group_.rank() != last_rank()) {
    const std::span<std::byte> own = part(group_.rank());
    totals_[node] = own.empty() ? comm::Pending() : group_.receive(last_rank(), own, share_tag);
    return;
  }
  totals_[node] = {};
  for (int64_t place = place_ + 1; place < place_ + size(); ++place) {
    const std::span<std::byte> share = part(rank_at(place));
    if (share.empty()) continue;
    shares_sent_[node].push_back(group_.send(rank_at(place), share, share_tag));
    sent_bytes_ += static_cast<int64_t>(share.size());
  }
}

// What comes is complete only after all that this rank has sent was taken: it is made from it.
void GradientRelay::start_total(size_t node) {
  const std::span<std::byte> sum = bytes(node);
  if (sum.empty()) return;
  if (shares_ != nullptr) return start_shares(node);
  totals_[node] = group_.start({.collective = comm::Collective::kBroadcast,
                                .count = static_cast<int64_t>(sum.size() / 4),
                                .root = last_rank(),
                                .src = sum.data(),
                                .dst = sum.data()});
  if (rank_at(place_ + 1) != last_rank()) sent_bytes_ += static_cast<int64_t>(sum.size());
}

}  // namespace jige::train
