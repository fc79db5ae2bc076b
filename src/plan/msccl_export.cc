#include "plan/msccl_export.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "plan/ring_baselines.h"

namespace jige::plan {
namespace {

constexpr double kWeightTolerance = 0.02;

std::string head_of(std::string_view name, int32_t channels, size_t chunks, size_t ranks,
                    const MscclRange& range) {
  return fmt::format(
      "<algo name=\"{}\" coll=\"allreduce\" proto=\"Simple\" nchannels=\"{}\" "
      "nchunksperloop=\"{}\" ngpus=\"{}\" inplace=\"1\" outofplace=\"1\" minBytes=\"{}\" "
      "maxBytes=\"{}\">\n",
      name, channels, chunks, ranks, range.bytes_min, range.bytes_max);
}

std::string gpu_of(size_t rank, size_t chunks) {
  return fmt::format("  <gpu id=\"{}\" i_chunks=\"{}\" o_chunks=\"{}\" s_chunks=\"0\">\n", rank,
                     chunks, chunks);
}

struct Step {
  const char* type;
  int32_t segment;  // of the channel
};

// What the rank at `position` of a ring over n ranks does, in order.
std::vector<Step> steps_of(int32_t position, int32_t n) {
  const auto before = [&](int32_t k) { return ((position - k) % n + n) % n; };
  std::vector<Step> steps{{"s", position}};
  for (int32_t k = 1; k < n - 1; ++k) steps.push_back({"rrs", before(k)});
  steps.push_back({"rrcs", before(n - 1)});
  for (int32_t k = 0; k < n - 2; ++k) steps.push_back({"rcs", before(k)});
  steps.push_back({"r", before(n - 2)});
  return steps;
}

void write_block(std::string& xml, const std::vector<int32_t>& order, int32_t rank,
                 int32_t channel) {
  const auto n = static_cast<int32_t>(order.size());
  const auto position = static_cast<int32_t>(std::ranges::find(order, rank) - order.begin());
  const auto at = [&](int32_t place) { return order[static_cast<size_t>((place + n) % n)]; };
  xml += fmt::format("    <tb id=\"{}\" send=\"{}\" recv=\"{}\" chan=\"{}\">\n", channel,
                     at(position + 1), at(position - 1), channel);
  int32_t number = 0;
  for (const Step& step : steps_of(position, n)) {
    const int32_t chunk = channel * n + step.segment;
    xml += fmt::format(
        "      <step s=\"{}\" type=\"{}\" srcbuf=\"i\" srcoff=\"{}\" dstbuf=\"o\" dstoff=\"{}\" "
        "cnt=\"1\" depid=\"-1\" deps=\"-1\" hasdep=\"0\"/>\n",
        number++, step.type, chunk, chunk);
  }
  xml += "    </tb>\n";
}

// A step that another thread block may wait for, or that waits for one.
struct TreeStep {
  const char* type;
  char from = 'o';      // the buffer that is read
  int32_t block = -1;   // to wait for; -1: none
  int32_t step = -1;    // of it
  bool awaited = true;  // by another block
};

struct TreeBlock {
  int32_t peer;
  std::vector<TreeStep> steps;
};

// The thread blocks of a place in one tree, whose numbers begin at `first`: one for each child,
// then one for the parent.
std::vector<TreeBlock> tree_blocks(const TreeShape& shape, int32_t place, int32_t first) {
  const std::vector<int32_t> children = shape.children(place);
  const auto count = static_cast<int32_t>(children.size());
  const int32_t parent = shape.parent[static_cast<size_t>(place)];
  std::vector<TreeBlock> blocks;
  for (int32_t c = 0; c < count; ++c) {
    const bool begins = c == 0;
    blocks.push_back({children[static_cast<size_t>(c)],
                      {{"rrc", begins ? 'i' : 'o', begins ? -1 : first + c - 1, begins ? -1 : 0}}});
  }
  // What the last child's block has added up is complete.
  const int32_t summed = count > 0 ? first + count - 1 : -1;
  if (parent >= 0) {
    blocks.push_back({parent,
                      {{"s", count > 0 ? 'o' : 'i', summed, count > 0 ? 0 : -1, false},
                       {"r", 'i', -1, -1, count > 0}}});
  }
  for (int32_t c = 0; c < count; ++c) {
    TreeStep down{"s", 'o', parent >= 0 ? first + count : summed, parent >= 0 ? 1 : 0, false};
    // The block that added last need not wait for itself.
    if (down.block == first + c) down.block = down.step = -1;
    blocks[static_cast<size_t>(c)].steps.push_back(down);
  }
  return blocks;
}

// Counts about in proportion to the weights that add up to `channels`, each at least 1: one after
// the other goes to whoever lacks most. REQUIRES: as many channels as weights, or more.
std::vector<int32_t> apportion(const std::vector<double>& weights, int32_t channels) {
  std::vector<int32_t> counts(weights.size(), 1);
  for (auto given = static_cast<int32_t>(weights.size()); given < channels; ++given) {
    size_t most = 0;
    const auto lacks = [&](size_t i) { return weights[i] * channels - counts[i]; };
    for (size_t i = 1; i < weights.size(); ++i) {
      if (lacks(i) > lacks(most)) most = i;
    }
    ++counts[most];
  }
  return counts;
}

double worst_error(const std::vector<double>& weights, const std::vector<int32_t>& counts) {
  const double all = std::accumulate(counts.begin(), counts.end(), 0);
  double worst = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    worst = std::max(worst, std::fabs(counts[i] / all - weights[i]));
  }
  return worst;
}

std::string order_text(const std::vector<int32_t>& order) {
  return fmt::format("{}", fmt::join(order, ","));
}

}  // namespace

std::vector<int32_t> share_channels(const std::vector<double>& weights) {
  std::vector<int32_t> best;
  for (auto channels = static_cast<int32_t>(weights.size()); channels <= kMscclChannelsMax;
       ++channels) {
    std::vector<int32_t> counts = apportion(weights, channels);
    if (best.empty() || worst_error(weights, counts) < worst_error(weights, best) - 1e-12) {
      best = std::move(counts);
    }
    if (worst_error(weights, best) <= kWeightTolerance) break;
  }
  return best;
}

std::string write_msccl(const std::vector<std::vector<int32_t>>& orders,
                        const std::vector<int32_t>& channels, const MscclRange& range) {
  const size_t n = orders.front().size();
  const int32_t all = std::accumulate(channels.begin(), channels.end(), 0);
  const size_t chunks = n * static_cast<size_t>(all);
  std::string xml = head_of("jige_rings", all, chunks, n, range);
  for (size_t rank = 0; rank < n; ++rank) {
    xml += gpu_of(rank, chunks);
    int32_t channel = 0;
    for (size_t ring = 0; ring < orders.size(); ++ring) {
      for (int32_t i = 0; i < channels[ring]; ++i) {
        write_block(xml, orders[ring], static_cast<int32_t>(rank), channel++);
      }
    }
    xml += "  </gpu>\n";
  }
  return xml + "</algo>\n";
}

std::string write_msccl_trees(const std::vector<int32_t>& ranks, const MscclRange& range) {
  const size_t n = ranks.size();
  const std::array<TreeShape, 2> shapes = double_tree_shape(static_cast<int32_t>(n));
  std::string xml = head_of("jige_double_trees", 2, 2, n, range);
  for (size_t rank = 0; rank < n; ++rank) {
    const auto place =
        static_cast<int32_t>(std::ranges::find(ranks, static_cast<int32_t>(rank)) - ranks.begin());
    xml += gpu_of(rank, 2);
    int32_t number = 0;
    for (size_t tree = 0; tree < 2; ++tree) {
      for (const TreeBlock& block : tree_blocks(shapes[tree], place, number)) {
        const int32_t peer = ranks[static_cast<size_t>(block.peer)];
        xml += fmt::format("    <tb id=\"{}\" send=\"{}\" recv=\"{}\" chan=\"{}\">\n", number++,
                           peer, peer, tree);
        for (size_t s = 0; s < block.steps.size(); ++s) {
          const TreeStep& step = block.steps[s];
          xml += fmt::format(
              "      <step s=\"{}\" type=\"{}\" srcbuf=\"{}\" srcoff=\"{}\" dstbuf=\"o\" "
              "dstoff=\"{}\" cnt=\"1\" depid=\"{}\" deps=\"{}\" hasdep=\"{}\"/>\n",
              s, step.type, step.from, tree, tree, step.block, step.step, step.awaited ? 1 : 0);
        }
        xml += "    </tb>\n";
      }
    }
    xml += "  </gpu>\n";
  }
  return xml + "</algo>\n";
}

Result<MscclExport> export_to_msccl(const RingProblem& problem, const RingMix& mix,
                                    profile::Profiler& profiler, const MscclRange& range) {
  const topology::Topology& t = *problem.topology;
  if (problem.components.front() < 0 || problem.node_count > kMscclRanksMax ||
      static_cast<int32_t>(mix.rings.size()) > kMscclChannelsMax) {
    return fail(
        Code::kUnsupported,
        "{}: an MSCCL file holds rings of 2 to {} devices, at most {}; these are {} over {}",
        t.name(), kMscclRanksMax, kMscclChannelsMax, mix.rings.size(), problem.node_count);
  }
  std::vector<double> weights;
  for (const WeightedRing& ring : mix.rings) weights.push_back(ring.weight);
  MscclExport out{.xml = {}, .channels = share_channels(weights), .lost = {}};
  const double all = std::accumulate(out.channels.begin(), out.channels.end(), 0);
  std::vector<std::vector<int32_t>> orders;
  RingMix carried;  // as a runtime would
  for (size_t r = 0; r < mix.rings.size(); ++r) {
    std::vector<int32_t>& order = orders.emplace_back();
    WeightedRing& as_run = carried.rings.emplace_back(WeightedRing{{}, out.channels[r] / all});
    for (const int32_t candidate : mix.rings[r].ring) {
      const RingCandidate& edge = problem.at(candidate);
      order.push_back(edge.from);
      const int32_t usual = usual_transport(problem, edge.from, edge.to);
      as_run.ring.push_back(usual);
      if (usual == candidate) continue;
      const std::string line = fmt::format("{} becomes {}, unless the runtime is set otherwise",
                                           transfer_text(t, edge.transfer),
                                           transfer_text(t, problem.at(usual).transfer));
      if (std::ranges::find(out.lost, line) == out.lost.end()) out.lost.push_back(line);
    }
    if (std::fabs(as_run.weight - weights[r]) > 1e-3) {
      out.lost.push_back(fmt::format(
          "ring {} gets {} of {} channels, {:.1f} % of the data instead "
          "of {:.1f} %",
          order_text(order), out.channels[r], all, 100 * as_run.weight, 100 * weights[r]));
    }
  }
  std::vector<topology::Transfer> set;
  std::vector<double> shares;
  for (const TransferShare& s : mix_shares(carried)) {
    set.push_back(problem.at(s.candidate).transfer);
    shares.push_back(s.share);
  }
  JIGE_TRY(const profile::Measurement m, profiler.measure_shares(set, shares));
  out.rate = m.rate;
  out.xml = write_msccl(orders, out.channels, range);
  return out;
}

}  // namespace jige::plan
