#include "profile/collective_meter.h"

#include <algorithm>

namespace jige::profile {
namespace {

constexpr int kRepeats = 3;

}  // namespace

Result<AllReduceTimes> time_all_reduce(const std::vector<RingOrder>& rings, CollectMessage message,
                                       const CollectivePeers& peers, comm::Deadline deadline) {
  std::vector<int64_t> ranks = rings.front().order;
  std::ranges::sort(ranks);
  message.repeats = kRepeats;
  for (const RingOrder& ring : rings) {
    RingOrder& by_rank = message.rings.emplace_back(RingOrder{{}, ring.weight});
    for (const int64_t peer : ring.order) {
      by_rank.order.push_back(std::ranges::lower_bound(ranks, peer) - ranks.begin());
    }
  }
  JIGE_TRY(message.port, peers.listen(static_cast<size_t>(ranks.front())));
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    message.rank = static_cast<int64_t>(rank);
    JIGE_DO(peers.start(static_cast<size_t>(ranks[rank]), message));
  }
  AllReduceTimes result{.bytes = message.bytes, .seconds = std::vector<double>(kRepeats, 1e-9)};
  for (const int64_t peer : ranks) {
    const auto number = static_cast<size_t>(peer);
    JIGE_TRY(const std::vector<int64_t> times, peers.finish(number, deadline));
    if (times.size() != result.seconds.size()) {
      return fail(Code::kCorrupt, "{} timed {} all-reduces, not {}", peers.name(number),
                  times.size(), result.seconds.size());
    }
    for (size_t i = 0; i < times.size(); ++i) {
      result.seconds[i] = std::max(result.seconds[i], static_cast<double>(times[i]) * 1e-9);
    }
  }
  std::vector<double> sorted = result.seconds;
  std::ranges::sort(sorted);
  const auto count = static_cast<double>(ranks.size());
  const double edge_bytes = 2 * (count - 1) / count * static_cast<double>(message.bytes);
  result.edge_gb_per_s = edge_bytes / sorted[sorted.size() / 2] / 1e9;
  return result;
}

}  // namespace jige::profile
