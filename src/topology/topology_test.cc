#include "topology/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "base/rng.h"
#include "base/test_fuzz_rounds.h"
#include "base/test_processor_watch.h"
#include "topology/fingerprint.h"
#include "topology/reference_topologies.h"
#include "topology/topology_json.h"
#include "topology/topology_svg.h"
#include "topology/topology_text.h"

namespace jige::topology {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Topology reference(std::string_view name) {
  auto made = reference_topology(name);
  EXPECT_TRUE(made) << made.error().message;
  return *made;
}

Result<Topology> from_text(const std::string& text) {
  JIGE_TRY(const Json json, parse_json(text, "box.json"));
  JIGE_TRY(Description d, description_from_json(json, "box.json"));
  return Topology::create(std::move(d), "box.json");
}

std::string error_of(const std::string& text) {
  const auto made = from_text(text);
  return made ? "accepted" : made.error().message;
}

// name -> cost of what a transfer uses.
std::map<std::string, double> costs(const Topology& t, std::string_view text) {
  const auto transfer = parse_transfer(t, text);
  EXPECT_TRUE(transfer) << transfer.error().message;
  const auto usage = t.usage(*transfer);
  EXPECT_TRUE(usage) << usage.error().message;
  std::map<std::string, double> named;
  for (const Usage& u : *usage) named[t.resources()[static_cast<size_t>(u.resource)].name] = u.cost;
  return named;
}

using Costs = std::map<std::string, double>;

TEST(Topology, APushUsesEachLinkInItsDirectionAndTheBridgeOnce) {
  const Topology box = reference("pcie-4gpu-2numa");
  EXPECT_EQ(costs(box, "gpu0>gpu1:push"),
            (Costs{{"gpu0-port0 >", 1}, {"gpu1-port1 <", 1}, {"bridge0", 1}}));
  EXPECT_EQ(costs(box, "gpu1>gpu0:pull"),
            (Costs{{"gpu1-port1 >", 1}, {"gpu0-port0 <", 1}, {"bridge0", 1.2}}));
  EXPECT_EQ(costs(box, "gpu3>gpu0:push"), (Costs{{"gpu3-port3 >", 1},
                                                 {"gpu0-port0 <", 1},
                                                 {"bridge0", 1},
                                                 {"bridge1", 1},
                                                 {"bridge0-bridge1 <", 1}}));
}

TEST(Topology, AStagedTransferWritesAndReadsMemory) {
  const Topology box = reference("pcie-4gpu-2numa");
  EXPECT_EQ(costs(box, "gpu0>gpu1:via-numa0"),
            (Costs{{"gpu0-port0 >", 1}, {"gpu1-port1 <", 1}, {"bridge0", 2}, {"numa0", 2}}));
  EXPECT_EQ(costs(box, "gpu0>gpu1:via-numa1"), (Costs{{"gpu0-port0 >", 1},
                                                      {"gpu1-port1 <", 1},
                                                      {"bridge0", 2},
                                                      {"bridge1", 2},
                                                      {"numa1", 2},
                                                      {"bridge0-bridge1 >", 1},
                                                      {"bridge0-bridge1 <", 1}}));
}

TEST(Topology, CopyEnginesBelongToWhoeverIssuesTheCopy) {
  Description d = make_pcie_box({});
  d.components[0].copy_engine_gb_per_s = 20;
  d.components[1].copy_engine_gb_per_s = 25;
  const Topology box = *Topology::create(d, "box");
  EXPECT_TRUE(costs(box, "gpu0>gpu1:push+copy").contains("gpu0 copy engine"));
  EXPECT_FALSE(costs(box, "gpu0>gpu1:push+copy").contains("gpu1 copy engine"));
  EXPECT_TRUE(costs(box, "gpu0>gpu1:pull+copy").contains("gpu1 copy engine"));
  EXPECT_EQ(costs(box, "gpu0>gpu1:via-numa0+copy").count("gpu0 copy engine"), 1u);
  EXPECT_FALSE(box.usage({TransferKind::kPush, 2, 3, -1, Engine::kCopy}));
}

TEST(Topology, PeerAccessDecidesWhatGoesDirectly) {
  const Topology none = reference("pcie-4gpu-2numa-nopeer");
  const auto refused = none.usage({TransferKind::kPush, 0, 1});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message,
              HasSubstr("gpu0>gpu1:push: the devices have no peer access"));
  EXPECT_TRUE(none.usage({TransferKind::kStaged, 0, 1, none.find("numa1")}));
  const Topology switched = reference("switch-8gpu-2numa");
  EXPECT_TRUE(switched.usage({TransferKind::kPush, 0, 1}));   // below one switch
  EXPECT_FALSE(switched.usage({TransferKind::kPush, 0, 2}));  // through the bridge
}

TEST(Topology, SinglePairsMayHaveNoPeerAccess) {
  const Description whole = reference("pcie-4gpu-2numa").description();
  Description d = whole;
  d.no_peer = {{0, 1}};
  const Topology box = *Topology::create(d, "box");
  EXPECT_FALSE(box.usage({TransferKind::kPush, 0, 1})) << "gpu0 would write to gpu1";
  EXPECT_TRUE(box.usage({TransferKind::kPull, 0, 1})) << "gpu1 reads from gpu0";
  EXPECT_TRUE(box.usage({TransferKind::kPush, 1, 0}));
  EXPECT_FALSE(box.usage({TransferKind::kPull, 1, 0}));
  EXPECT_TRUE(box.usage({TransferKind::kStaged, 0, 1, box.find("numa1")}));

  // Files keep it, and a profile of the box that has it is another one's.
  const auto again = description_from_json(description_to_json(d), "box.json");
  ASSERT_TRUE(again) << again.error().message;
  ASSERT_EQ(again->no_peer.size(), 1u);
  EXPECT_TRUE(again->refuses_peer(0, 1));
  EXPECT_FALSE(again->refuses_peer(1, 0));
  EXPECT_THAT(difference(fingerprint(whole).facts, fingerprint(*again).facts),
              ::testing::ElementsAre("+ no peer access gpu0 gpu1"));

  for (const PeerRefusal wrong : {PeerRefusal{0, 0}, PeerRefusal{0, -1}, PeerRefusal{0, 999},
                                  PeerRefusal{0, d.find("numa0")}}) {
    d.no_peer = {wrong};
    const auto refused = Topology::create(d, "box");
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().message, HasSubstr("no_peer"));
  }
}

TEST(Topology, RoutesOfADescriptionReplaceShortestOnes) {
  const Topology network = reference("dual-trunk-8host");
  EXPECT_TRUE(costs(network, "host0>host1:send").contains("trunk0 >"));
  EXPECT_TRUE(costs(network, "host2>host1:send").contains("trunk1 >"));
  EXPECT_TRUE(costs(network, "host3>host0:send").contains("trunk1 <"));
  EXPECT_EQ(costs(network, "host0>host2:send").size(), 2u);
}

TEST(Topology, TransfersSurviveTheirTextForm) {
  const Topology box = reference("pcie-8gpu-4numa");
  const int32_t memory = box.find("numa3");
  for (const Transfer& t : std::vector<Transfer>{{TransferKind::kPush, 0, 1},
                                                 {TransferKind::kPull, 7, 2},
                                                 {TransferKind::kStaged, 3, 4, memory},
                                                 {TransferKind::kPush, 0, 1, -1, Engine::kCopy}}) {
    EXPECT_EQ(*parse_transfer(box, transfer_text(box, t)), t);
  }
  EXPECT_EQ(parse_transfers(box, "gpu0>gpu1:push,gpu1>gpu2:via-numa0")->size(), 2u);
  EXPECT_THAT(parse_transfer(box, "gpu0>gpu9:push").error().message, HasSubstr("\"gpu9\""));
  EXPECT_THAT(parse_transfer(box, "gpu0>gpu1:shove").error().message, HasSubstr("\"shove\""));
  EXPECT_FALSE(parse_transfer(box, "gpu0-gpu1"));
}

constexpr const char* kHead = R"({"format":"jige.topology","version":1,"components":[)";
constexpr const char* kPair = R"({"name":"a","kind":"host"},{"name":"b","kind":"host"})";

TEST(TopologyFile, RefusesWhatContradictsItself) {
  const std::string head = kHead;
  const auto links = [&](const std::string& text) {
    return head + kPair + R"(],"links":[)" + text + "]}";
  };
  EXPECT_EQ(error_of(links(R"({"from":"a","to":"b"})")), "accepted");
  EXPECT_THAT(error_of(links(R"({"from":"a","to":"c"})")),
              HasSubstr("links[0]: field \"to\" names \"c\""));
  EXPECT_THAT(error_of(links(R"({"from":"a","to":"b","gb_per_s":-1})")),
              HasSubstr("box.json: link \"a-b\": field \"gb_per_s\" is -1"));
  EXPECT_THAT(error_of(links(R"({"from":"a","to":"b","gb_per_s":1e-300})")),
              HasSubstr("field \"gb_per_s\" is 1e-300, must be 1e-9 to 1e6"));
  EXPECT_THAT(error_of(head + R"({"name":"d","kind":"device","copy_engine_gb_per_s":1e-300}]})"),
              HasSubstr("\"copy_engine_gb_per_s\" is 1e-300"));
  EXPECT_THAT(error_of(head + R"({"name":"m","kind":"memory","numa":0,"gb_per_s":9,"penalty":)"
                              R"({"flows":1,"factor":1e-300,"assumption":"x"}}]})"),
              HasSubstr("factor 1e-300"));
  EXPECT_THAT(error_of(links(R"({"from":"a","to":"b","gb_per_sec":1})")),
              HasSubstr("\"gb_per_sec\""));
  EXPECT_THAT(error_of(links(R"({"from":"a","to":"a"})")), HasSubstr("joins \"a\" with itself"));
  EXPECT_THAT(error_of(links(R"({"from":"a","to":"b"},{"from":"a","to":"b"})")),
              HasSubstr("two links"));
  EXPECT_THAT(error_of(links(R"({"from":"a","to":"b","gb_per_s":14,"width":8,"gt_per_s":8})")),
              HasSubstr("14 GB/s contradicts 8 lanes of 8 GT/s, which carry 7.88"));
  EXPECT_THAT(error_of(links("")), HasSubstr("no path of links leads from \"a\" to \"b\""));
  EXPECT_THAT(error_of(head + kPair + R"(,{"name":"a","kind":"router"}]})"),
              HasSubstr("named \"a\""));
  EXPECT_THAT(error_of(head + R"({"name":"a","kind":"gpu"}]})"),
              HasSubstr("\"gpu\", must be one of device"));
  EXPECT_THAT(error_of(head + R"({"name":"a b","kind":"host"}]})"), HasSubstr("\"a b\""));
  EXPECT_THAT(error_of(head + "]}"), HasSubstr("describes no components"));
  EXPECT_THAT(error_of(R"({"format":"jige.topology","version":2})"), HasSubstr("version 2"));
  EXPECT_THAT(
      error_of(head +
               R"({"name":"m","kind":"memory","numa":0},{"name":"g","kind":"device","numa":3}]})"),
      HasSubstr("component \"g\": field \"numa\" is 3, but no memory"));
}

// Seconds of a processor to refuse a file of so many components and links, more than there may be.
double seconds_to_refuse(int count) {
  std::string components, links;
  for (int i = 0; i < count; ++i) {
    components += fmt::format("{}{{\"name\":\"host{}\",\"kind\":\"host\"}}", i ? "," : "", i);
    links += fmt::format("{}{{\"from\":\"host{}\",\"to\":\"host{}\"}}", i ? "," : "", count - 1,
                         count - 2);
  }
  const ProcessorWatch watch;
  EXPECT_THAT(error_of(kHead + components + "],\"links\":[" + links + "]}"),
              HasSubstr(fmt::format("has {} components, at most 4096", count)));
  return watch.seconds();
}

// Not after minutes of looking names up: 4 times the file takes about 4 times as long, not 16.
TEST(TopologyFile, ReadsManyNamesInTimeThatGrowsWithTheFile) {
  const double few = seconds_to_refuse(8'000);
  EXPECT_LT(seconds_to_refuse(32'000), 10 * few);
}

TEST(TopologyFile, RefusesADeviceFarFromTheMemoryItClaims) {
  Description d = make_pcie_box({});
  d.components[0].numa = 1;
  const auto made = Topology::create(d, "box.json");
  ASSERT_FALSE(made);
  EXPECT_THAT(made.error().message, HasSubstr("component \"gpu0\": field \"numa\" is 1"));
}

TEST(TopologyFile, RefusesRoutesThatDoNotConnect) {
  Description d = make_trunk_network({.hosts = 4, .trunks = 2});
  d.routes[0].links.pop_back();
  EXPECT_THAT(Topology::create(d, "net").error().message, HasSubstr("ends at \"router1\""));
  d.routes[0].links = {d.routes[0].links[0], d.routes[0].links[0]};
  EXPECT_FALSE(Topology::create(d, "net"));
}

TEST(TopologyFile, EveryReferenceSurvivesItsFile) {
  for (const std::string_view name : reference_topology_names()) {
    const Topology made = reference(name);
    const std::string text = dump_json(description_to_json(made.description()));
    const auto read = from_text(text);
    ASSERT_TRUE(read) << name << ": " << read.error().message;
    EXPECT_EQ(fingerprint(made.description()).hash, fingerprint(read->description()).hash) << name;
    EXPECT_EQ(dump_json(description_to_json(read->description())), text);
  }
}

TEST(TopologyFile, MutatedFilesNeverAbort) {
  const std::string text = dump_json(description_to_json(make_trunk_network({.trunks = 2})));
  Rng rng(derive_key(11, "topology fuzz"));
  const uint64_t rounds = fuzz_rounds(2000);
  uint64_t accepted = 0;
  for (uint64_t round = 0; round < rounds; ++round) {
    std::string broken = text;
    for (uint64_t i = rng.below(4) + 1; i > 0; --i) {
      broken[rng.below(broken.size())] = static_cast<char>(" {}[]\":,019-abn"[rng.below(15)]);
    }
    accepted += from_text(broken).has_value();
  }
  EXPECT_LT(accepted, rounds);
}

TEST(Fingerprint, ChangesWithEveryFactAndNamesIt) {
  const Description before = make_pcie_box({});
  Description after = before;
  after.environment["driver"] = "555";
  after.links[0].gb_per_s = 99;
  const Fingerprint a = fingerprint(before), b = fingerprint(after);
  EXPECT_NE(a.hash, b.hash);
  EXPECT_THAT(difference(a.facts, b.facts),
              ElementsAre(HasSubstr("- link bridge0-numa0"), "+ environment driver 555",
                          HasSubstr("+ link bridge0-numa0")));
  Description reordered = before;
  std::swap(reordered.links[1], reordered.links[2]);
  EXPECT_EQ(fingerprint(reordered).hash, a.hash);
}

TEST(TopologyText, DrawsATreeWithRates) {
  const std::string text = topology_text(reference("pcie-4gpu-2numa"));
  EXPECT_THAT(text, HasSubstr("bridge0  host bridge, numa 0, 40 GB/s, pull x1.2\n"
                              "├─ numa0  memory, numa 0, 45 GB/s\n"
                              "├─ port0  root port, numa 0\n"
                              "│  └─ gpu0  device, numa 0, link 12.5 GB/s\n"
                              "└─ port1  root port, numa 0\n"
                              "   └─ gpu1  device, numa 0, link 12.5 GB/s\n"
                              "bridge1"));
  EXPECT_THAT(text, HasSubstr("other links\n  bridge0-bridge1  socket, 18 GB/s\n"));
}

TEST(TopologyText, FreeTextOfAFileStaysInItsLine) {
  Description d = reference("pcie-4gpu-2numa").description();
  d.components[0].address = "0000:17\n00.0";
  d.components[0].gb_per_s = 10;
  d.components[0].penalty = {.flows = 2, .factor = 0.5, .assumption = "a\nguess"};
  for (Link& link : d.links) link.name += "\x1b[2J";
  const std::string text = topology_text(*Topology::create(std::move(d), "free text"));
  EXPECT_THAT(text, HasSubstr("0000:17\\n00.0"));
  EXPECT_THAT(text, HasSubstr("a\\nguess"));
  EXPECT_THAT(text, HasSubstr("  bridge0-bridge1\\x1b[2J  socket"));
}

TEST(TopologySvg, ShowsEveryComponentAndEscapesText) {
  const Topology box = reference("pcie-8gpu-4numa");
  const std::string svg = topology_svg(box, {.subtitle = "a < b & c", .rings = {{0, 1, 2}}});
  for (const Component& c : box.components()) EXPECT_THAT(svg, HasSubstr(">" + c.name + "<"));
  EXPECT_THAT(svg, HasSubstr("a &lt; b &amp; c"));
  EXPECT_THAT(svg, HasSubstr("marker-end"));
}

TEST(TopologySvg, WritesLongNamesSmallerThanShortOnes) {
  Description d = reference("pcie-4gpu-2numa").description();
  d.components[0].name = "switch-0000.17.00.0";
  const std::string svg = topology_svg(*Topology::create(std::move(d), "long"), {});
  EXPECT_THAT(svg, HasSubstr("font-size=\"8.07\">switch-0000.17.00.0<"));
  EXPECT_THAT(svg, HasSubstr("font-size=\"11\">gpu1<"));
}

}  // namespace
}  // namespace jige::topology
