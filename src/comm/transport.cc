#include "comm/transport.h"

#include <algorithm>
#include <cstring>

namespace jige::comm {

std::string Transport::name(int rank) const {
  return fmt::format("rank {} ({})", rank, host(rank));
}

std::span<const std::byte> Transport::glance(Link link) {
  const auto in = ready(link);
  return in ? *in : std::span<const std::byte>();
}

bool Transport::linger(int) { return false; }

Result<int64_t> Transport::write(Link link, std::span<const std::byte> bytes) {
  int64_t moved = 0;
  while (!bytes.empty()) {
    JIGE_TRY(const std::span<std::byte> out, room(link));
    const size_t n = std::min(out.size(), bytes.size());
    if (n == 0) break;
    std::memcpy(out.data(), bytes.data(), n);
    JIGE_DO(commit(link, static_cast<int64_t>(n)));
    bytes = bytes.subspan(n);
    moved += static_cast<int64_t>(n);
  }
  return moved;
}

Result<int64_t> Transport::read(Link link, std::span<std::byte> bytes) {
  int64_t moved = 0;
  while (!bytes.empty()) {
    JIGE_TRY(const std::span<const std::byte> in, ready(link));
    const size_t n = std::min(in.size(), bytes.size());
    if (n == 0) break;
    std::memcpy(bytes.data(), in.data(), n);
    consume(link, static_cast<int64_t>(n));
    bytes = bytes.subspan(n);
    moved += static_cast<int64_t>(n);
  }
  return moved;
}

Error Transport::silence_error(std::span<const Want> wants, double seconds,
                               std::span<const double> silent_seconds) const {
  std::vector<std::string> silent;
  for (int r = 0; r < size(); ++r) {
    const double quiet = silent_seconds[static_cast<size_t>(r)];
    if (r == rank_ || quiet < 0.75 * seconds) continue;
    silent.push_back(fmt::format("{} (for {:.1f} s)", name(r), quiet));
  }
  if (!silent.empty()) {
    return {Code::kUnavailable,
            fmt::format("nothing moved for {:.1f} s, and nothing was heard of {}: not running, cut "
                        "off, or not in this operation",
                        seconds, fmt::join(silent, ", "))};
  }
  std::vector<std::string> waits;
  for (const Want& want : wants) {
    waits.push_back(
        fmt::format("{} {}", want.receive ? "data of" : "room at", name(want.link.peer)));
  }
  return {Code::kUnavailable,
          fmt::format("nothing moved for {:.1f} s, though all ranks are there; {} waits for {}",
                      seconds, name(rank_), fmt::join(waits, " and "))};
}

Error reported_error(const std::string& peer, Code code, std::string_view text) {
  return {code == Code::kCancelled ? Code::kUnavailable : code,
          fmt::format("{} reports: {}", peer, text)};
}

int64_t stream_bytes_of(const RingPlan& plan) {
  return std::max<int64_t>(128 << 10, whole_units(3 * plan.piece_bytes + 4 * kUnitBytes));
}

int64_t stream_memory_bytes(std::string_view kind, int size, const RingPlan& plan) {
  // Over TCP each end of a stream has memory; in shared memory both have the same, which is its
  // sender's, and smaller where messages are.
  const bool tcp = kind == "tcp";
  std::vector<int64_t> bytes(static_cast<size_t>(size), 0);
  for (const PlanStream& stream : plan_streams(plan, size)) {
    const bool large = tcp || is_ring_lane(plan, stream.lane);
    const int64_t own = large ? stream_bytes_of(plan) : kDirectStreamBytes;
    bytes[static_cast<size_t>(stream.from)] += own;
    if (tcp) bytes[static_cast<size_t>(stream.to)] += own;
  }
  return std::ranges::max(bytes);
}

}  // namespace jige::comm
