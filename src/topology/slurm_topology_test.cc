#include "topology/slurm_topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "base/test_fuzz_rounds.h"

namespace jige::topology {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::string_view kTwoLeaves = R"(# a small cluster
SwitchName=leaf0 Nodes=node[00-01],login
switchname=leaf1 nodes=node[02,10-11] \
  LinkSpeed=100
SwitchName=core Switches=leaf[0-1]   # on top
)";

std::string slurm_error(std::string_view text) {
  const auto description = parse_slurm_topology(text, "t.conf");
  if (!description) return description.error().message;
  const auto made = Topology::create(*description, "t.conf");
  return made ? "accepted" : made.error().message;
}

TEST(SlurmTopology, ReadsSwitchesAndNodes) {
  const auto description = parse_slurm_topology(kTwoLeaves, "t.conf");
  ASSERT_TRUE(description) << description.error().message;
  const auto network = Topology::create(*description, "t.conf");
  ASSERT_TRUE(network) << network.error().message;
  std::vector<std::string> hosts;
  for (const int32_t h : network->of_kind(ComponentKind::kHost)) {
    hosts.push_back(network->component(h).name);
  }
  EXPECT_THAT(hosts, ElementsAre("node00", "node01", "login", "node02", "node10", "node11"));
  EXPECT_EQ(network->of_kind(ComponentKind::kRouter).size(), 3u);
  const int32_t a = network->find("node00"), b = network->find("login"),
                c = network->find("node10");
  EXPECT_EQ(network->route(a, b).size(), 2u);
  EXPECT_EQ(network->count_links(a, c, LinkKind::kTrunk), 2);
  EXPECT_TRUE(network->resources().empty()) << "no rate is claimed";
}

TEST(SlurmTopology, ExpandsHostLists) {
  EXPECT_THAT(*expand_host_list("a[0-2,07]x,b", "t"),
              ElementsAre("a0x", "a1x", "a2x", "a07x", "b"));
  EXPECT_THAT(*expand_host_list("n[098-101]", "t"), ElementsAre("n098", "n099", "n100", "n101"));
  for (const char* bad : {"a[", "a[]", "a[2-1]", "a[x]", "a[1-99999999]", "a[1]b[2]", "a[1-]"}) {
    EXPECT_FALSE(expand_host_list(bad, "t")) << bad;
  }
}

TEST(SlurmTopology, NamesContradictions) {
  EXPECT_THAT(slurm_error("SwitchName=a Nodes=x\nSwitchName=b Nodes=x\n"),
              HasSubstr("t.conf:2: \"x\" hangs on a and on b"));
  EXPECT_THAT(slurm_error("SwitchName=a Nodes=x\nSwitchName=a Nodes=y\n"),
              HasSubstr("\"a\" is there already"));
  EXPECT_THAT(slurm_error("SwitchName=a Nodes=x Switches=gone\n"), HasSubstr("no switch \"gone\""));
  EXPECT_THAT(slurm_error("SwitchName=a Switches=b\nSwitchName=b Switches=a Nodes=x\n"),
              HasSubstr("switch \"a\" hangs below itself"));
  EXPECT_THAT(slurm_error("SwitchName=a Nodes=x Nodes=y\n"), HasSubstr("\"nodes\" is given twice"));
  EXPECT_THAT(slurm_error("SwitchName=a Nodes=x Colour=red\n"), HasSubstr("keyword \"colour\""));
  EXPECT_THAT(slurm_error("Nodes=x\n"), HasSubstr("SwitchName is missing"));
  EXPECT_THAT(slurm_error("SwitchName=a Nodes\n"), HasSubstr("no KEYWORD=VALUE"));
  EXPECT_THAT(slurm_error("SwitchName=a Switches=a\n"), HasSubstr("names no nodes"));
  EXPECT_THAT(slurm_error("SwitchName=a Nodes=x\nSwitchName=b Nodes=y\n"), HasSubstr("x"))
      << "two networks that do not meet";
  EXPECT_THAT(slurm_error("SwitchName=a Nodes=x\nSwitchName=b Nodes=y Switches=b\n"),
              HasSubstr("switch \"b\" hangs below itself"));
}

TEST(SlurmTopology, MutatedFilesAreReadOrRefused) {
  Rng rng(derive_key(3, "slurm topology"));
  int read = 0;
  for (uint64_t round = 0; round < fuzz_rounds(2000); ++round) {
    std::string text(kTwoLeaves);
    for (uint64_t edits = rng.below(5) + 1; edits-- > 0;) {
      const size_t at = rng.below(text.size());
      if (rng.below(2)) {
        text[at] = "=,[]-\\ \nx0"[rng.below(10)];
      } else {
        text.insert(at, text.substr(rng.below(text.size()), 12));
      }
    }
    if (const auto description = parse_slurm_topology(text, "t.conf")) {
      read += Topology::create(*description, "t.conf").has_value();
    }
  }
  EXPECT_GT(read, 50);
}

}  // namespace
}  // namespace jige::topology
