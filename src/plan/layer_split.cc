#include "plan/layer_split.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/bytes.h"
#include "base/check.h"

namespace jige::plan {
namespace {

constexpr double kDoesNotFit = std::numeric_limits<double>::infinity();

Error too_large(std::span<const int64_t> layer_bytes, std::span<const LayerMachine> machines) {
  const int64_t needed = std::accumulate(layer_bytes.begin(), layer_bytes.end(), int64_t{0});
  std::string rooms;
  for (const LayerMachine& machine : machines) {
    rooms += fmt::format("{}{} {}", rooms.empty() ? "" : ", ", machine.name,
                         format_bytes(std::max<int64_t>(0, machine.room_bytes)));
  }
  return {Code::kExhausted,
          fmt::format("{} layers take {} with their caches, the largest {}; there is room for "
                      "them: {}. Add a machine, or choose a smaller cache or context, or weights "
                      "of fewer bits (--quantize)",
                      layer_bytes.size(), format_bytes_up(needed),
                      format_bytes_up(*std::ranges::max_element(layer_bytes)), rooms)};
}

// Bytes of the first layers, of none to all.
std::vector<int64_t> sums_of(std::span<const int64_t> layer_bytes) {
  std::vector<int64_t> sums(layer_bytes.size() + 1, 0);
  std::inclusive_scan(layer_bytes.begin(), layer_bytes.end(), sums.begin() + 1);
  return sums;
}

}  // namespace

Result<std::vector<int64_t>> split_layers(std::span<const int64_t> layer_bytes,
                                          std::span<const LayerMachine> machines) {
  JIGE_CHECK(!machines.empty(), "layers need a machine");
  const size_t layers = layer_bytes.size();
  // best[m][n]: of the first n layers on the first m machines; last[m][n]: how many the last has.
  std::vector<std::vector<double>> best(machines.size() + 1,
                                        std::vector<double>(layers + 1, kDoesNotFit));
  std::vector<std::vector<size_t>> last(machines.size() + 1, std::vector<size_t>(layers + 1, 0));
  best[0][0] = 0;
  for (size_t m = 1; m <= machines.size(); ++m) {
    const LayerMachine& machine = machines[m - 1];
    const std::vector<int64_t> before =
        sums_of(machine.layer_bytes.empty() ? layer_bytes : machine.layer_bytes);
    JIGE_CHECK(before.size() == layers + 1, "{} layers of {}", before.size() - 1, layers);
    for (size_t n = 0; n <= layers; ++n) {
      for (size_t own = 0; own <= n; ++own) {  // fewest first: ties keep layers in front
        const int64_t bytes = before[n] - before[n - own];
        if (own > 0 && bytes > machine.room_bytes) break;
        const double stage = static_cast<double>(bytes + machine.beside_bytes) / machine.speed;
        const double cost = std::max(best[m - 1][n - own], stage);
        if (cost < best[m][n]) {
          best[m][n] = cost;
          last[m][n] = own;
        }
      }
    }
  }
  if (best[machines.size()][layers] == kDoesNotFit) {
    return tl::unexpected(too_large(layer_bytes, machines));
  }
  std::vector<int64_t> counts(machines.size());
  size_t left = layers;
  for (size_t m = machines.size(); m > 0; --m) {
    counts[m - 1] = static_cast<int64_t>(last[m][left]);
    left -= last[m][left];
  }
  return counts;
}

}  // namespace jige::plan
