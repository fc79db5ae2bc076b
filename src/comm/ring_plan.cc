#include "comm/ring_plan.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "base/split.h"

namespace jige::comm {
namespace {

// Parts are reckoned by count times weight, which must stay a number.
constexpr double kWeightMax = 1e9;

Result<double> parse_weight(std::string_view text) {
  double weight = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), weight);
  if (error != std::errc() || end != text.data() + text.size()) {
    return fail(Code::kInvalidArgument, "\"{}\" is not the weight of a ring", text);
  }
  return weight;
}

Status check_rounds(const std::vector<std::vector<int>>& rounds, int size) {
  if (rounds.empty()) return {};
  const auto n = static_cast<size_t>(size);
  std::vector<bool> sent(n * n, false);
  for (const std::vector<int>& targets : rounds) {
    JIGE_DO(check_permutation(targets, size, "round"));
    for (size_t r = 0; r < n; ++r) {
      const auto to = static_cast<size_t>(targets[r]);
      if (to == r || sent[r * n + to]) {
        return fail(Code::kInvalidArgument, "rounds of an all-to-all let rank {} send to {} {}", r,
                    to, to == r ? "itself" : "twice");
      }
      sent[r * n + to] = true;
    }
  }
  if (rounds.size() + 1 == n) return {};
  return fail(Code::kInvalidArgument, "{} rounds of an all-to-all between {} ranks, {} are due",
              rounds.size(), size, size - 1);
}

}  // namespace

Status check_permutation(const std::vector<int>& ranks, int size, std::string_view what) {
  std::vector<int> sorted = ranks;
  std::sort(sorted.begin(), sorted.end());
  bool whole = static_cast<int>(ranks.size()) == size;
  for (int r = 0; whole && r < size; ++r) whole = sorted[static_cast<size_t>(r)] == r;
  if (whole) return {};
  return fail(Code::kInvalidArgument, "{} {} does not name each rank from 0 to {} once", what,
              fmt::join(ranks, ","), size - 1);
}

int Ring::position_of(int rank) const {
  return static_cast<int>(std::find(order.begin(), order.end(), rank) - order.begin());
}

int Ring::at(int64_t position) const {
  const auto n = static_cast<int64_t>(order.size());
  return order[static_cast<size_t>(((position % n) + n) % n)];
}

RingPlan RingPlan::in_rank_order(int size) {
  RingPlan plan;
  plan.rings.resize(1);
  for (int r = 0; r < size; ++r) plan.rings[0].order.push_back(r);
  return plan;
}

Status check_piece_bytes(int64_t bytes) {
  if (bytes >= kUnitBytes && bytes % kUnitBytes == 0 && bytes <= (64 << 20)) return {};
  return fail(Code::kInvalidArgument, "pieces of {} bytes; a multiple of {} up to 64 MiB is due",
              bytes, kUnitBytes);
}

Status RingPlan::check(int size) const {
  if (rings.empty() || rings.size() > kRingsMax) {
    return fail(Code::kInvalidArgument, "{} rings; 1 to {} are possible", rings.size(), kRingsMax);
  }
  for (const Ring& ring : rings) {
    JIGE_DO(check_permutation(ring.order, size, "ring"));
    if (!(ring.weight > 0 && ring.weight <= kWeightMax)) {
      return fail(Code::kInvalidArgument, "ring {} has weight {}; a weight is above 0, up to {:g}",
                  fmt::join(ring.order, ","), ring.weight, kWeightMax);
    }
  }
  JIGE_DO(check_piece_bytes(piece_bytes));
  if (trees) JIGE_DO(trees->check(size));
  return check_rounds(rounds, size);
}

bool RingPlan::takes_trees(Collective collective, int64_t bytes) const {
  const bool fits = collective == Collective::kAllReduce || collective == Collective::kBroadcast ||
                    collective == Collective::kReduce;
  return fits && trees && bytes <= trees->bytes_max;
}

uint32_t RingPlan::hash() const {
  uint32_t hash = 2166136261u;
  const auto mix = [&](const auto& value) {
    unsigned char bytes[sizeof value];
    std::memcpy(bytes, &value, sizeof value);
    for (const unsigned char b : bytes) hash = (hash ^ b) * 16777619u;
  };
  mix(piece_bytes);
  for (const Ring& ring : rings) {
    mix(ring.weight);
    for (const int rank : ring.order) mix(rank);
  }
  for (const std::vector<int>& targets : rounds) {
    for (const int rank : targets) mix(rank);
  }
  if (trees) {
    mix(trees->bytes_max);
    for (const std::vector<int>& tree : trees->parent) {
      for (const int rank : tree) mix(rank);
    }
  }
  return hash;
}

Result<Ring> parse_ring(std::string_view text) {
  Ring ring;
  const size_t at = text.find('@');
  if (at != std::string_view::npos) {
    JIGE_TRY(ring.weight, parse_weight(text.substr(at + 1)));
  }
  for (const std::string_view item : split_at(text.substr(0, at), ',')) {
    int rank = -1;
    const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), rank);
    if (item.empty() || error != std::errc() || end != item.data() + item.size() || rank < 0) {
      return fail(Code::kInvalidArgument, "\"{}\" is not a ring such as 0,2,1,3 or 0,2,1,3@0.5",
                  text);
    }
    ring.order.push_back(rank);
  }
  return ring;
}

std::vector<Range> split_by_weight(const RingPlan& plan, int64_t count, int64_t element_bytes) {
  const int64_t unit = std::max<int64_t>(1, kUnitBytes / element_bytes);
  double total = 0;
  for (const Ring& ring : plan.rings) total += ring.weight;
  std::vector<Range> parts;
  double weight = 0;
  int64_t begin = 0;
  for (size_t r = 0; r < plan.rings.size(); ++r) {
    weight += plan.rings[r].weight;
    const double share = static_cast<double>(count) * weight / total;
    int64_t end = static_cast<int64_t>(share / static_cast<double>(unit)) * unit;
    if (r + 1 == plan.rings.size()) end = count;
    end = std::clamp(end, begin, count);
    parts.push_back({begin, end - begin});
    begin = end;
  }
  return parts;
}

std::array<Range, 2> split_in_halves(int64_t count, int64_t element_bytes) {
  const int64_t unit = std::max<int64_t>(1, kUnitBytes / element_bytes);
  const int64_t half = std::min(count, ((count + 1) / 2 + unit - 1) / unit * unit);
  return {Range{0, half}, Range{half, count - half}};
}

Blocks::Blocks(Range part, int size, int64_t piece_elements, int64_t unit_elements)
    : part_(part), size_(size), piece_(piece_elements), unit_(unit_elements) {
  const int64_t block = piece_ * size_;
  block_count_ = (part_.count + block - 1) / block;
}

Range Blocks::segment(int64_t block, int index) const {
  const int64_t begin = block * piece_ * size_;
  const int64_t count = std::min(piece_ * size_, part_.count - begin);
  const int64_t even = (count + size_ - 1) / size_;
  const int64_t length = std::min(piece_, (even + unit_ - 1) / unit_ * unit_);
  const int64_t from = std::min(count, length * index);
  const int64_t to = std::min(count, length * (index + 1));
  return {part_.begin + begin + from, to - from};
}

}  // namespace jige::comm
