// The files are read by a parser of our own and run by an interpreter of the format: what counts is
// that the buffers then hold the sums.
#include "plan/msccl_export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <numeric>
#include <set>

#include "base/rng.h"
#include "plan/ring_mix_planner.h"
#include "profile/simulated_meter.h"
#include "topology/reference_topologies.h"
#include "topology/xml.h"

namespace jige::plan {
namespace {

using ::testing::HasSubstr;
using topology::XmlElement;

struct Step {
  std::string type;
  std::map<std::string, int> number;  // srcoff, dstoff, cnt, depid, deps, hasdep
  std::string srcbuf, dstbuf;
};
struct ThreadBlock {
  int send = -1, recv = -1, chan = 0;
  std::vector<Step> steps;
};
struct Algorithm {
  int gpus = 0, chunks = 0, channels = 0;
  std::vector<std::vector<ThreadBlock>> blocks;  // of each GPU
};

int number_of(const XmlElement& element, std::string_view name) {
  const std::string* text = element.attribute(name);
  EXPECT_NE(text, nullptr) << element.name << " lacks " << name;
  return text ? std::stoi(*text) : -1;
}

// Reads a file and checks the rules that the runtime's parser has.
Algorithm parse(const std::string& xml) {
  const auto root = topology::parse_xml(xml, "algo.xml");
  EXPECT_TRUE(root) << root.error().message;
  EXPECT_EQ(root->name, "algo");
  EXPECT_EQ(*root->attribute("coll"), "allreduce");
  EXPECT_EQ(*root->attribute("proto"), "Simple");
  Algorithm algorithm{.gpus = number_of(*root, "ngpus"),
                      .chunks = number_of(*root, "nchunksperloop"),
                      .channels = number_of(*root, "nchannels")};
  EXPECT_EQ(root->children.size(), static_cast<size_t>(algorithm.gpus));
  for (const XmlElement& gpu : root->children) {
    EXPECT_EQ(number_of(gpu, "id"), static_cast<int>(algorithm.blocks.size()));
    EXPECT_EQ(number_of(gpu, "i_chunks"), algorithm.chunks);
    EXPECT_EQ(number_of(gpu, "o_chunks"), algorithm.chunks);
    EXPECT_EQ(number_of(gpu, "s_chunks"), 0);
    auto& blocks = algorithm.blocks.emplace_back();
    std::set<std::pair<int, int>> sends, receives;  // a peer of a channel belongs to one block
    for (const XmlElement& tb : gpu.children) {
      EXPECT_EQ(number_of(tb, "id"), static_cast<int>(blocks.size()));
      ThreadBlock& block = blocks.emplace_back(
          ThreadBlock{number_of(tb, "send"), number_of(tb, "recv"), number_of(tb, "chan"), {}});
      EXPECT_LT(block.chan, algorithm.channels);
      EXPECT_TRUE(sends.insert({block.chan, block.send}).second);
      EXPECT_TRUE(receives.insert({block.chan, block.recv}).second);
      EXPECT_LE(tb.children.size(), 256u);
      for (const XmlElement& child : tb.children) {
        EXPECT_EQ(number_of(child, "s"), static_cast<int>(block.steps.size()));
        Step& step = block.steps.emplace_back();
        step.type = *child.attribute("type");
        step.srcbuf = *child.attribute("srcbuf");
        step.dstbuf = *child.attribute("dstbuf");
        for (const char* name : {"srcoff", "dstoff", "cnt", "depid", "deps", "hasdep"}) {
          step.number[name] = number_of(child, name);
        }
      }
    }
  }
  return algorithm;
}

using Buffer = std::vector<int64_t>;  // a value for each chunk

// Runs all thread blocks, each as far as messages allow, until nothing moves.
class Interpreter {
 public:
  Interpreter(const Algorithm& algorithm, std::vector<Buffer> inputs, bool in_place)
      : algorithm_(algorithm), inputs_(std::move(inputs)), in_place_(in_place) {
    outputs_.assign(inputs_.size(), Buffer(inputs_[0].size(), -1));
    for (const auto& blocks : algorithm.blocks) next_.emplace_back(blocks.size(), size_t{0});
  }

  // Whether every block came to its end and no message was left over.
  bool run() {
    // Blocks run at once: which one comes first is drawn, so that a missing wait shows.
    Rng rng(derive_key(9, "interpreter"));
    std::vector<std::pair<size_t, size_t>> turns;
    for (size_t gpu = 0; gpu < next_.size(); ++gpu) {
      for (size_t block = 0; block < next_[gpu].size(); ++block) turns.emplace_back(gpu, block);
    }
    for (bool moved = true; moved;) {
      moved = false;
      rng.shuffle(std::span(turns));
      for (const auto& [gpu, block] : turns) moved |= advance(gpu, block);
    }
    for (size_t gpu = 0; gpu < next_.size(); ++gpu) {
      for (size_t block = 0; block < next_[gpu].size(); ++block) {
        if (next_[gpu][block] < algorithm_.blocks[gpu][block].steps.size()) return false;
      }
    }
    return std::ranges::all_of(wires_, [](const auto& wire) { return wire.second.empty(); });
  }
  const Buffer& result(size_t gpu) const { return in_place_ ? inputs_[gpu] : outputs_[gpu]; }

 private:
  int64_t& cell(size_t gpu, const std::string& buffer, int offset) {
    const bool input = buffer == "i" || in_place_;
    return (input ? inputs_ : outputs_)[gpu].at(static_cast<size_t>(offset));
  }

  bool advance(size_t gpu, size_t index) {
    const ThreadBlock& block = algorithm_.blocks[gpu][index];
    size_t& next = next_[gpu][index];
    if (next == block.steps.size()) return false;
    const Step& step = block.steps[next];
    const bool receives = step.type != "s";
    const bool sends = step.type.ends_with("s");
    const bool reduces = step.type.starts_with("rr");
    const bool stores = step.type != "s" && step.type != "rrs";
    const int waits_for = step.number.at("depid");
    if (waits_for >= 0) {
      const auto other = static_cast<size_t>(waits_for);
      const auto awaited = static_cast<size_t>(step.number.at("deps"));
      EXPECT_EQ(algorithm_.blocks[gpu].at(other).steps.at(awaited).number.at("hasdep"), 1);
      if (next_[gpu][other] <= awaited) return false;
    }
    auto& from = wires_[{block.recv, static_cast<int>(gpu), block.chan}];
    if (receives && from.empty()) return false;
    int64_t value = receives ? from.front() : 0;
    if (receives) from.pop_front();
    if (!receives || reduces) value += cell(gpu, step.srcbuf, step.number.at("srcoff"));
    if (stores) cell(gpu, step.dstbuf, step.number.at("dstoff")) = value;
    if (sends) wires_[{static_cast<int>(gpu), block.send, block.chan}].push_back(value);
    ++next;
    return true;
  }

  const Algorithm& algorithm_;
  std::vector<Buffer> inputs_, outputs_;
  bool in_place_;
  std::vector<std::vector<size_t>> next_;
  std::map<std::tuple<int, int, int>, std::deque<int64_t>> wires_;
};

// Whether running the file gives every GPU the sums of all chunks.
bool sums_up(const std::string& xml, bool in_place) {
  const Algorithm algorithm = parse(xml);
  std::vector<Buffer> inputs;
  Buffer sums(static_cast<size_t>(algorithm.chunks), 0);
  Rng rng(derive_key(3, "msccl buffers"));
  for (int gpu = 0; gpu < algorithm.gpus; ++gpu) {
    Buffer& input = inputs.emplace_back();
    for (int64_t& sum : sums) {
      input.push_back(static_cast<int64_t>(rng.below(1'000'000'007)));
      sum += input.back();
    }
  }
  Interpreter interpreter(algorithm, inputs, in_place);
  if (!interpreter.run()) return false;
  for (size_t gpu = 0; gpu < inputs.size(); ++gpu) {
    if (interpreter.result(gpu) != sums) return false;
  }
  return true;
}

TEST(MscclExport, WhatItWritesIsAnAllReduce) {
  Rng rng(derive_key(2, "msccl rings"));
  for (int32_t n = 2; n <= 9; ++n) {
    for (int32_t rings = 1; rings <= 3; ++rings) {
      std::vector<std::vector<int32_t>> orders;
      std::vector<int32_t> channels;
      for (int32_t r = 0; r < rings; ++r) {
        std::vector<int32_t>& order = orders.emplace_back(static_cast<size_t>(n));
        std::iota(order.begin(), order.end(), 0);
        rng.shuffle(std::span(order));
        channels.push_back(1 + static_cast<int32_t>(rng.below(3)));
      }
      const std::string xml = write_msccl(orders, channels);
      EXPECT_TRUE(sums_up(xml, true)) << n << " ranks, " << rings << " rings";
      EXPECT_TRUE(sums_up(xml, false)) << n << " ranks, " << rings << " rings";
    }
  }
}

TEST(MscclExport, DoubleTreesAreAnAllReduce) {
  Rng rng(derive_key(5, "msccl trees"));
  for (int32_t n = 2; n <= 17; ++n) {
    std::vector<int32_t> ranks(static_cast<size_t>(n));
    std::iota(ranks.begin(), ranks.end(), 0);
    rng.shuffle(std::span(ranks));
    const std::string xml = write_msccl_trees(ranks, {.bytes_min = 0, .bytes_max = 4096});
    EXPECT_THAT(xml, HasSubstr("maxBytes=\"4096\""));
    EXPECT_TRUE(sums_up(xml, true)) << n << " ranks";
    EXPECT_TRUE(sums_up(xml, false)) << n << " ranks";
    // Without waiting, results go down before they are complete.
    if (n < 4) continue;
    std::string hasty = xml;
    const std::string down = "type=\"s\" srcbuf=\"o\"";
    for (size_t at = 0; (at = hasty.find(down, at)) != std::string::npos; ++at) {
      const size_t depid = hasty.find("depid=\"", at);
      hasty.replace(depid, hasty.find(" hasdep", depid) - depid, "depid=\"-1\" deps=\"-1\"");
    }
    EXPECT_FALSE(sums_up(hasty, false)) << n << " ranks";
  }
}

TEST(MscclExport, TheInterpreterSeesMistakes) {
  const std::string xml = write_msccl({{0, 2, 1, 3}}, {1});
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string copy = xml;
    const size_t at = copy.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return copy.replace(at, from.size(), to);
  };
  ASSERT_TRUE(sums_up(xml, true));
  EXPECT_FALSE(sums_up(changed("type=\"rrs\"", "type=\"rcs\""), true)) << "an addition is missing";
  EXPECT_FALSE(sums_up(changed("type=\"rrcs\"", "type=\"rrs\""), true)) << "a sum is not stored";
  EXPECT_FALSE(sums_up(changed("type=\"rcs\"", "type=\"r\""), true)) << "somebody waits for ever";
  EXPECT_FALSE(sums_up(changed("srcoff=\"3\"", "srcoff=\"2\""), true)) << "another chunk";
}

TEST(MscclExport, WeightsBecomeChannels) {
  EXPECT_EQ(share_channels({1}), (std::vector<int32_t>{1}));
  EXPECT_EQ(share_channels({0.5, 0.5}), (std::vector<int32_t>{1, 1}));
  EXPECT_EQ(share_channels({0.75, 0.25}), (std::vector<int32_t>{3, 1}));
  EXPECT_EQ(share_channels({0.62, 0.38}), (std::vector<int32_t>{5, 3}));
  // Rings of little weight get a channel, too, and not one more than there are.
  EXPECT_EQ(share_channels({0.98, 0.01, 0.01}), (std::vector<int32_t>{14, 1, 1}));
  std::vector<double> uneven(16, 0.01);
  uneven[3] = 0.85;
  EXPECT_EQ(share_channels(uneven), std::vector<int32_t>(16, 1));
  Rng rng(derive_key(4, "msccl weights"));
  for (int round = 0; round < 300; ++round) {
    std::vector<double> weights(1 + rng.below(4));
    for (double& weight : weights) weight = 0.1 + rng.uniform();
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    for (double& weight : weights) weight /= sum;
    const std::vector<int32_t> counts = share_channels(weights);
    const int32_t all = std::accumulate(counts.begin(), counts.end(), 0);
    ASSERT_LE(all, kMscclChannelsMax);
    for (size_t i = 0; i < weights.size(); ++i) {
      ASSERT_GE(counts[i], 1);
      ASSERT_NEAR(static_cast<double>(counts[i]) / all, weights[i], 0.05);
    }
  }
}

TEST(MscclExport, APlanIsWrittenWithWhatItLoses) {
  const topology::Topology box = *topology::reference_topology("pcie-4gpu-2numa-nopeer");
  const RingProblem problem = *ring_problem(box, ring_devices(box), {});
  profile::SimulatedMeter meter(box);
  profile::Profiler profiler(box, meter);
  const RingPlan plan = *plan_ring(problem, profiler, {});
  // A ring whose first edge goes through the sender's memory.
  Ring ring = plan.rank_order.ring;
  for (const int32_t way : problem.edge(1, 2)) {
    if (problem.at(way).transfer.via == box.find("numa0")) ring[1] = way;
  }
  const RingMix mix{.rings = {{ring, 0.7}, {*mirrored_ring(problem, plan.rank_order.ring), 0.3}},
                    .predicted = 0};
  const auto out = export_to_msccl(problem, mix, profiler);
  ASSERT_TRUE(out) << out.error().message;
  EXPECT_EQ(out->channels, (std::vector<int32_t>{5, 2}));
  EXPECT_TRUE(sums_up(out->xml, true));
  EXPECT_GT(out->rate, 0);
  const std::string lost = fmt::format("{}", fmt::join(out->lost, "\n"));
  EXPECT_THAT(lost, HasSubstr("gpu1>gpu2:via-numa0 becomes gpu1>gpu2:via-numa1"));
  EXPECT_THAT(lost, HasSubstr("5 of 7 channels, 71.4 % of the data instead of 70.0 %"));
  const auto plain =
      export_to_msccl(problem, {.rings = {{plan.rank_order.ring, 1}}, .predicted = 0}, profiler);
  ASSERT_TRUE(plain);
  EXPECT_TRUE(plain->lost.empty());
  EXPECT_NEAR(plain->rate, plan.rank_order.rate, 1e-9);
}

}  // namespace
}  // namespace jige::plan
