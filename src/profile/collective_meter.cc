#include "profile/collective_meter.h"

#include <algorithm>

namespace jige::profile {
namespace {

constexpr int kRepeats = 3;
constexpr int64_t kBytesLeast = int64_t{256} << 10;  // where the task leaves them open

Result<std::vector<size_t>> peers_of(const CollectiveTask& task, const CollectivePeers& peers) {
  std::vector<size_t> numbers;
  for (const int32_t component : task.rings.front().order) {
    const std::optional<size_t> number = peers.number(component);
    if (!number) {
      return fail(Code::kInvalidArgument,
                  "a collective runs between hosts with agents, or processes here, alone");
    }
    numbers.push_back(*number);
  }
  std::ranges::sort(numbers);
  return numbers;
}

// Adds the paths of the task, by rank.
Status add_paths(const CollectiveTask& task, const CollectivePeers& peers,
                 const std::vector<size_t>& by_rank, CollectMessage& message) {
  bool known = true;
  const auto rank_of = [&](int32_t component) -> int64_t {
    const std::optional<size_t> number = peers.number(component);
    const auto place = number ? std::ranges::lower_bound(by_rank, *number) : by_rank.end();
    known = known && place != by_rank.end() && *place == *number;
    return place - by_rank.begin();
  };
  for (const WeightedOrder& ring : task.rings) {
    RingOrder& order = message.rings.emplace_back(RingOrder{{}, ring.weight});
    for (const int32_t component : ring.order) order.order.push_back(rank_of(component));
  }
  for (const int32_t component : task.trees) message.trees.push_back(rank_of(component));
  for (const auto& round : task.rounds) {
    std::vector<int64_t>& targets = message.rounds.emplace_back(by_rank.size(), 0);
    for (const auto& [from, to] : round) {
      const int64_t sender = rank_of(from);
      if (known) targets[static_cast<size_t>(sender)] = rank_of(to);
    }
  }
  if (known) return {};
  return fail(Code::kInvalidArgument, "a collective's paths run between its own hosts alone");
}

}  // namespace

Result<CollectiveTimes> time_collective(const CollectiveTask& task, CollectMessage message,
                                        const CollectivePeers& peers, comm::Deadline deadline) {
  JIGE_TRY(const std::vector<size_t> by_rank, peers_of(task, peers));
  JIGE_DO(add_paths(task, peers, by_rank, message));
  const int64_t bytes = task.bytes == 0 ? std::max(message.bytes, kBytesLeast) : task.bytes;
  message.bytes = std::clamp<int64_t>(bytes, 1, kCollectiveBytesMax);
  message.repeats = kRepeats;
  message.address = peers.address(by_rank.front());
  JIGE_TRY(message.port, peers.listen(by_rank.front()));
  for (size_t rank = 0; rank < by_rank.size(); ++rank) {
    message.rank = static_cast<int64_t>(rank);
    JIGE_DO(peers.start(by_rank[rank], message));
  }
  CollectiveTimes result{.bytes = message.bytes, .seconds = std::vector<double>(kRepeats, 1e-9)};
  for (const size_t peer : by_rank) {
    JIGE_TRY(const std::vector<int64_t> times, peers.finish(peer, deadline));
    if (times.size() != result.seconds.size()) {
      return fail(Code::kCorrupt, "{} timed {} collectives, not {}", peers.name(peer), times.size(),
                  result.seconds.size());
    }
    for (size_t i = 0; i < times.size(); ++i) {
      result.seconds[i] = std::max(result.seconds[i], static_cast<double>(times[i]) * 1e-9);
    }
  }
  std::vector<double> sorted = result.seconds;
  std::ranges::sort(sorted);
  result.middle_s = sorted[sorted.size() / 2];
  if (task.trees.empty() && task.rounds.empty()) {
    const auto count = static_cast<double>(by_rank.size());
    const double edge_bytes = 2 * (count - 1) / count * static_cast<double>(message.bytes);
    result.edge_gb_per_s = edge_bytes / result.middle_s / 1e9;
  }
  return result;
}

}  // namespace jige::profile
