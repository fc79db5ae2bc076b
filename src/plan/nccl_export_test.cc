#include "plan/nccl_export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "base/test_fuzz_rounds.h"
#include "plan/ring_baselines.h"
#include "profile/simulated_meter.h"
#include "topology/nvlinks.h"
#include "topology/reference_topologies.h"

namespace jige::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using topology::Topology;

std::vector<NcclGraph> two_graphs() {
  NcclGraph ring{.speed_intra = 9.5,
                 .speed_inter = 4,
                 .latency_inter = 0.5,
                 .type_intra = "PHB",
                 .channels = {{{0, 10}, {2, 0, 1, 17}}, {{1, 1}, {17, 1, 0, 2}}}};
  NcclGraph tree = ring;
  tree.id = 1;
  tree.pattern = kNcclTree;
  tree.same_channels = false;
  return {ring, tree};
}

TEST(NcclGraph, SurvivesItsFileInEveryVersion) {
  for (const NcclVersion version : {NcclVersion{2, 18}, NcclVersion{2, 21}, NcclVersion{2, 30}}) {
    const auto text = write_nccl_graphs(two_graphs(), version);
    ASSERT_TRUE(text);
    const auto read = parse_nccl_graphs(*text, "graph.xml", version);
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(*read, two_graphs());
  }
}

// Written after the layout of a dump of each release, by us.
constexpr const char* kDump = R"(<?xml version="1.0"?>
<!-- a dump -->
<graphs version="1">
  <graph id="0" pattern="4" crossnic="0" nchannels="1" speedintra="12" speedinter="12"
   latencyinter="0" typeintra="PHB" typeinter="PIX" samechannels="1">
    <channel><net dev="1"/><gpu dev="10"/><gpu dev="3"/><net dev="1"/></channel>
  </graph>
</graphs>)";

TEST(NcclGraph, NumbersAreHexadecimalFrom221On) {
  EXPECT_THAT(parse_nccl_graphs(kDump, "d", {2, 18})->front().channels[0].gpus, ElementsAre(10, 3));
  EXPECT_THAT(parse_nccl_graphs(kDump, "d", {2, 21})->front().channels[0].gpus, ElementsAre(16, 3));
  const auto graphs = parse_nccl_graphs(kDump, "d", {2, 18});
  // What was read of an old dump keeps its meaning when it is written for a newer one.
  const auto again = parse_nccl_graphs(*write_nccl_graphs(*graphs, {2, 27}), "d", {2, 27});
  EXPECT_EQ(*again, *graphs);
}

TEST(NcclGraph, RefusesWhatNcclWouldRefuse) {
  const auto broken = [](std::string from, std::string to) {
    std::string text = kDump;
    text.replace(text.find(from), from.size(), to);
    const auto read = parse_nccl_graphs(text, "graph.xml", {2, 18});
    return read ? "accepted" : read.error().message;
  };
  EXPECT_THAT(broken("nchannels=\"1\"", "nchannels=\"2\""),
              HasSubstr("nchannels is 2, there are 1"));
  EXPECT_THAT(broken("id=\"0\" ", ""), HasSubstr("graph.xml:4: <graph>: attribute id is missing"));
  EXPECT_THAT(broken("PHB", "C2C"), HasSubstr("typeintra is \"C2C\""));
  EXPECT_THAT(broken("gpu dev=\"10\"", "gpu dev=\"ten\""), HasSubstr("\"ten\""));
  EXPECT_THAT(broken("version=\"1\">", "version=\"2\">"), HasSubstr("version must be 1"));
  EXPECT_THAT(broken("</channel>", "</chanel>"), HasSubstr("closes <channel>"));
  EXPECT_THAT(broken("<gpu dev=\"3\"/>", "<net dev=\"3\"/>"), HasSubstr("nets at its ends"));
  std::vector<NcclGraph> graphs = two_graphs();
  graphs[0].channels.resize(33, graphs[0].channels[0]);
  EXPECT_THAT(write_nccl_graphs(graphs, {2, 18}).error().message, HasSubstr("1 to 32 channels"));
  EXPECT_TRUE(write_nccl_graphs(graphs, {2, 24}));
  graphs[0].channels = {{{}, std::vector<int32_t>(33, 0)}};
  EXPECT_THAT(write_nccl_graphs(graphs, {2, 18}).error().message, HasSubstr("this has 33"));
}

TEST(NcclGraph, MutatedFilesNeverAbort) {
  Rng rng(derive_key(4, "graph fuzz"));
  for (uint64_t round = 0; round < fuzz_rounds(3000); ++round) {
    std::string text = kDump;
    for (uint64_t i = 1 + rng.below(3); i > 0; --i) {
      text[rng.below(text.size())] = static_cast<char>("<>/\"=&!-x019 "[rng.below(13)]);
    }
    const auto read = parse_nccl_graphs(text, "fuzz", {2, 21});
    EXPECT_TRUE(read || !read.error().message.empty());
  }
}

TEST(NcclVersion, IsReadAndBounded) {
  EXPECT_EQ(*parse_nccl_version("2.21"), (NcclVersion{2, 21}));
  EXPECT_EQ(*parse_nccl_version("2.27.3"), (NcclVersion{2, 27}));
  EXPECT_EQ(parse_nccl_version("2.17").error().code, Code::kUnsupported);
  for (const char* text : {"", "2", "2.", "two", "2.x"})
    EXPECT_FALSE(parse_nccl_version(text)) << text;
}

struct Exported {
  NcclExport out;
  RingProblem problem;
};

Exported exported(const Topology& box, const std::function<Ring(const RingProblem&)>& choose) {
  RingProblem problem = *ring_problem(box, ring_devices(box), {});
  profile::SimulatedMeter meter(box);
  profile::Profiler profiler(box, meter);
  const MeasuredRing planned{.ring = choose(problem), .rate = 99};
  auto out = export_to_nccl(problem, planned, profiler, {2, 21});
  EXPECT_TRUE(out) << out.error().message;
  return {*out, problem};
}

TEST(NcclExport, KeepsOrderAndSaysWhatIsLost) {
  const Topology box = *topology::reference_topology("pcie-4gpu-2numa");
  // One pull and one buffer on a far node among pushes: NCCL has one setting for all.
  const Exported e = exported(box, [](const RingProblem& p) {
    return Ring{p.edge(0, 2)[0], p.edge(2, 1)[1], p.edge(1, 3)[0], p.edge(3, 0)[3]};
  });
  EXPECT_THAT(e.out.lost, ElementsAre("gpu2>gpu1:pull becomes gpu2>gpu1:push",
                                      "gpu3>gpu0:via-numa1 becomes gpu3>gpu0:push"));
  const auto graphs = parse_nccl_graphs(e.out.graph_xml, "graph.xml", {2, 21});
  ASSERT_TRUE(graphs);
  ASSERT_EQ(graphs->size(), 2u);
  EXPECT_THAT((*graphs)[0].channels[0].gpus, ElementsAre(0, 2, 1, 3));
  EXPECT_EQ((*graphs)[0].id, 0);
  EXPECT_EQ((*graphs)[1].id, 1);
  EXPECT_EQ((*graphs)[1].pattern, kNcclTree);
  EXPECT_EQ((*graphs)[0].type_intra, "SYS");
  EXPECT_THAT(e.out.environment, HasSubstr("NCCL_P2P_LEVEL=SYS\nNCCL_P2P_READ_ENABLE=0\n"));
  EXPECT_THAT(e.out.graph_xml, Not(HasSubstr("rank")));
  profile::SimulatedMeter meter(box);
  EXPECT_NEAR(e.out.rate, meter.measure(ring_transfers(e.problem, e.out.mix.rings[0].ring))->rate,
              1e-9);
}

// Two rings at 63 and 37 %: 5 and 3 channels of eight, and what they carry together measured so.
TEST(NcclExport, SeveralRingsBecomeChannelsInTurns) {
  const Topology box = *topology::reference_topology("pcie-4gpu-2numa");
  const RingProblem p = *ring_problem(box, ring_devices(box), {});
  profile::SimulatedMeter meter(box);
  profile::Profiler profiler(box, meter);
  const auto ring = [&](std::vector<int32_t> order, size_t way) {
    Ring made;
    for (size_t i = 0; i < order.size(); ++i) {
      made.push_back(p.edge(order[i], order[(i + 1) % order.size()])[way]);
    }
    return made;
  };
  MeasuredMix mix{.name = "mixture 1",
                  .mix = {.rings = {{ring({0, 1, 2, 3}, 0), 0.63}, {ring({0, 3, 2, 1}, 1), 0.37}}},
                  .rate = 99};
  for (const NcclVersion version : {NcclVersion{2, 18}, NcclVersion{2, 21}, NcclVersion{2, 30}}) {
    const auto out = export_to_nccl(p, mix, profiler, version);
    ASSERT_TRUE(out) << out.error().message;
    EXPECT_THAT(out->channels, ElementsAre(5, 3));
    const auto graphs = parse_nccl_graphs(out->graph_xml, "graph.xml", version);
    ASSERT_TRUE(graphs) << graphs.error().message;
    for (const NcclGraph& graph : *graphs) {
      ASSERT_EQ(graph.channels.size(), 8u);
      EXPECT_FALSE(graph.same_channels);
      EXPECT_NEAR(graph.speed_intra, out->rate / 8, 1e-3 * out->rate);
      for (size_t c = 0; c < 8; ++c) {
        const bool second = c == 1 || c == 3 || c == 5;
        EXPECT_EQ(graph.channels[c].gpus,
                  second ? (std::vector<int32_t>{0, 3, 2, 1}) : (std::vector<int32_t>{0, 1, 2, 3}));
      }
    }
    // One of the two ways of going must give in, and the weights do.
    EXPECT_THAT(out->lost, testing::Contains(HasSubstr("becomes")));
    EXPECT_THAT(out->lost, testing::Contains("ring 0 gets 5 of 8 channels, 62.5 % of the data "
                                             "instead of 63.0 %"));
    EXPECT_THAT(out->lost, testing::Contains(HasSubstr("too small for 8 channels")));
    std::vector<topology::Transfer> set;
    std::vector<double> shares;
    for (const TransferShare& s : mix_shares(out->mix)) {
      set.push_back(p.at(s.candidate).transfer);
      shares.push_back(s.share);
    }
    EXPECT_NEAR(meter.measure_shares(set, shares)->rate, out->rate, 1e-9 * out->rate);
  }
  // Halves of the same ways lose nothing but that.
  mix.mix.rings = {{ring({0, 1, 2, 3}, 0), 0.5}, {ring({0, 3, 2, 1}, 0), 0.5}};
  const auto halves = export_to_nccl(p, mix, profiler, {2, 21});
  ASSERT_TRUE(halves);
  EXPECT_THAT(halves->channels, ElementsAre(1, 1));
  EXPECT_THAT(halves->lost, ElementsAre(HasSubstr("too small for 2 channels")));
}

TEST(NcclExport, GoesThroughHostMemoryWithoutPeerAccess) {
  const Topology box = *topology::reference_topology("pcie-4gpu-2numa-nopeer");
  const Exported e = exported(box, rank_order_ring);
  EXPECT_TRUE(e.out.lost.empty());
  EXPECT_THAT(e.out.environment,
              HasSubstr("NCCL_P2P_DISABLE=1\nNCCL_SHM_DISABLE=0\nNCCL_SHM_LOCALITY=2\n"));
}

// A box of four GPUs below one PCIe switch each two, with NVLinks as `nvlinks` joins them.
Topology nvlink_box(const topology::NvlinkRates& nvlinks, bool all_by_switch = false) {
  topology::Description d = topology::make_pcie_box({});
  topology::NvlinkRates rates = nvlinks;
  for (int32_t gpu = 0; all_by_switch && gpu < 4; ++gpu) {
    rates[{d.find(fmt::format("gpu{}", gpu)), topology::nvswitch(d)}] = 200;
  }
  topology::join_nvlinks(d, rates);
  return *Topology::create(std::move(d), "nvlink box");
}

NcclGraph graph_of(const NcclExport& out) {
  const auto graphs = parse_nccl_graphs(out.graph_xml, "graph.xml", {2, 21});
  EXPECT_TRUE(graphs) << graphs.error().message;
  return graphs ? graphs->front() : NcclGraph{};
}

TEST(NcclExport, NamesNvlinkPaths) {
  const Exported all = exported(nvlink_box({}, true), rank_order_ring);
  EXPECT_EQ(graph_of(all.out).type_intra, "NVL");
  EXPECT_EQ(graph_of(all.out).type_inter, "PIX") << "of no NIC";
  EXPECT_THAT(all.out.environment, HasSubstr("NCCL_P2P_LEVEL=NVL\n"));
  EXPECT_TRUE(all.out.lost.empty());
  // Pairs by NVLink, and between them whatever way the planned ring can keep.
  const Topology pairs = nvlink_box({{{0, 1}, 100.0}, {{2, 3}, 100.0}});
  ASSERT_EQ(pairs.component(3).name, "gpu3");
  const Exported some = exported(pairs, rank_order_ring);
  EXPECT_EQ(graph_of(some.out).type_intra, std::string(nccl_path_type(pairs, 1, 2)));
  EXPECT_NE(graph_of(some.out).type_intra, "NVL");
  EXPECT_EQ(nccl_path_type(pairs, 0, 1), "NVL");
  EXPECT_EQ(nccl_path_type(pairs, 3, 2), "NVL");
}

TEST(NcclExport, UsesOnlyIndicesOfRealDevices) {
  topology::Description d = topology::make_pcie_box({});
  for (size_t i = 0; i < 4; ++i) d.components[i].index = static_cast<int32_t>(12 - i);
  const Topology box = *Topology::create(d, "renumbered");
  const RingProblem problem = *ring_problem(box, std::vector<int32_t>{3, 1}, {});
  profile::SimulatedMeter meter(box);
  profile::Profiler profiler(box, meter);
  const auto out = export_to_nccl(problem, {.ring = rank_order_ring(problem)}, profiler, {2, 21});
  ASSERT_TRUE(out);
  EXPECT_THAT(out->graph_xml, HasSubstr("<gpu dev=\"0x9\"/>\n      <gpu dev=\"0xb\"/>"));
}

TEST(NcclExport, ChainsNameTheirNics) {
  const Topology box = *topology::reference_topology("pcie-8gpu-2numa");
  const RingProblem problem =
      *chain_problem(box, std::vector<int32_t>{0, 1}, box.find("nic0"), box.find("nic1"), {});
  profile::SimulatedMeter meter(box);
  profile::Profiler profiler(box, meter);
  const auto out = export_to_nccl(problem, {.ring = rank_order_ring(problem)}, profiler, {2, 21});
  ASSERT_TRUE(out) << out.error().message;
  const auto graphs = parse_nccl_graphs(out->graph_xml, "graph.xml", {2, 21});
  ASSERT_TRUE(graphs);
  EXPECT_THAT((*graphs)[0].channels[0].nets, ElementsAre(0, 1));
  EXPECT_THAT((*graphs)[0].channels[0].gpus, ElementsAre(0, 1));
  EXPECT_TRUE((*graphs)[0].cross_nic);
  // The way in is near, the way out is not.
  EXPECT_EQ(nccl_path_type(box, box.find("nic0"), 0), "PHB");
  EXPECT_EQ(nccl_path_type(box, 1, box.find("nic1")), "SYS");
  EXPECT_EQ((*graphs)[0].type_inter, "SYS");
  EXPECT_EQ((*graphs)[0].type_intra, std::string(nccl_path_type(box, 0, 1)));
}

}  // namespace
}  // namespace jige::plan
