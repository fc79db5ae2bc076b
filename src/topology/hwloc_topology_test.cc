#include "topology/hwloc_topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <regex>

#include "base/file.h"
#include "base/rng.h"
#include "base/test_fuzz_rounds.h"
#include "base/test_path.h"
#include "topology/sysfs_topology.h"
#include "topology/test_support.h"
#include "topology/topology.h"
#include "topology/xml_topology.h"

namespace jige::topology {
namespace {

using ::testing::HasSubstr;

// After the layout of hwloc 2, written by us: two packages with a NUMA node each; on the first a
// switch with two GPUs, on the second a root port with a network adapter and a GPU of its own.
constexpr const char* kBox = R"xml(<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
  <object type="Machine" os_index="0" cpuset="0x00000003" nodeset="0x00000003" gp_index="1">
    <info name="OSName" value="Linux"/>
    <info name="OSRelease" value="6.1.0-18-amd64"/>
    <info name="OSVersion" value="#1 SMP&#10;(2024)"/>
    <object type="Package" os_index="0" cpuset="0x00000001" nodeset="0x00000001" gp_index="2">
      <object type="NUMANode" os_index="0" cpuset="0x00000001" nodeset="0x00000001" gp_index="3"
              local_memory="270000000000"><page_type size="4096" count="1"/></object>
      <object type="Core" os_index="0" cpuset="0x00000001" nodeset="0x00000001" gp_index="4">
        <object type="PU" os_index="0" cpuset="0x00000001" nodeset="0x00000001" gp_index="5"/>
      </object>
      <object type="Bridge" gp_index="10" bridge_type="0-1" depth="0" bridge_pci="0000:[16-1a]">
        <object type="Bridge" gp_index="11" bridge_type="1-1" depth="1" bridge_pci="0000:[17-1a]"
                pci_busid="0000:16:01.0" pci_type="0604 [8086:347a] [0000:0000] 06"
                pci_link_speed="31.507692">
          <object type="Bridge" gp_index="12" bridge_type="1-1" depth="2" bridge_pci="0000:[18-1a]"
                  pci_busid="0000:17:00.0" pci_type="0604 [1000:c010] [1000:a096] b0"
                  pci_link_speed="31.507692">
            <object type="Bridge" gp_index="13" bridge_type="1-1" depth="3"
                    bridge_pci="0000:[19-19]" pci_busid="0000:18:00.0"
                    pci_type="0604 [1000:c010] [1000:a096] b0" pci_link_speed="7.876923">
              <object type="PCIDev" gp_index="14" pci_busid="0000:19:00.0"
                      pci_type="0302 [10de:2235] [10de:145a] a1" pci_link_speed="7.876923">
                <object type="OSDev" gp_index="15" name="cuda0" subtype="CUDA" osdev_type="5"/>
              </object>
            </object>
            <object type="Bridge" gp_index="16" bridge_type="1-1" depth="3"
                    bridge_pci="0000:[1a-1a]" pci_busid="0000:18:01.0"
                    pci_type="0604 [1000:c010] [1000:a096] b0" pci_link_speed="31.507692">
              <object type="PCIDev" gp_index="17" pci_busid="0000:1a:00.0"
                      pci_type="0302 [10de:2235] [10de:145a] a1" pci_link_speed="31.507692"/>
            </object>
          </object>
        </object>
      </object>
    </object>
    <object type="Package" os_index="1" cpuset="0x00000002" nodeset="0x00000002" gp_index="6">
      <object type="NUMANode" os_index="1" cpuset="0x00000002" nodeset="0x00000002" gp_index="7"/>
      <object type="Core" os_index="1" cpuset="0x00000002" nodeset="0x00000002" gp_index="8">
        <object type="PU" os_index="1" cpuset="0x00000002" nodeset="0x00000002" gp_index="9"/>
      </object>
      <object type="Bridge" gp_index="20" bridge_type="0-1" depth="0" bridge_pci="0000:[80-82]">
        <object type="Bridge" gp_index="21" bridge_type="1-1" depth="1" bridge_pci="0000:[81-81]"
                pci_busid="0000:80:01.0" pci_type="0604 [8086:347a] [0000:0000] 06">
          <object type="PCIDev" gp_index="22" pci_busid="0000:81:00.0"
                  pci_type="0200 [15b3:101b] [15b3:0007] 00" pci_link_speed="0.000000">
            <object type="OSDev" gp_index="23" name="eth0" osdev_type="2">
              <info name="Address" value="00:00:00:00:00:00"/>
            </object>
          </object>
        </object>
        <object type="PCIDev" gp_index="24" pci_busid="0000:80:03.0"
                pci_type="0106 [8086:a182] [0000:0000] 00" pci_link_speed="0.984615"/>
        <object type="PCIDev" gp_index="25" pci_busid="0000:82:00.0"
                pci_type="0300 [1002:73bf] [1002:0e3a] c1" pci_link_speed="15.753846"/>
      </object>
    </object>
  </object>
  <memattr name="Latency" flags="6">
    <memattr_value target_obj_type="NUMANode" target_obj_gp_index="3" value="90"
                   initiator_cpuset="0x00000001"/>
  </memattr>
  <memattr name="Bandwidth" flags="5">
    <memattr_value target_obj_type="NUMANode" target_obj_gp_index="3" value="131072"
                   initiator_cpuset="0x00000001"/>
    <memattr_value target_obj_type="NUMANode" target_obj_gp_index="3" value="65536"
                   initiator_cpuset="0x00000002"/>
  </memattr>
</topology>
)xml";

Result<Topology> read_hwloc(const std::string& text) {
  JIGE_TRY(Description d, description_from_xml(text, "box.xml"));
  return Topology::create(std::move(d), "box.xml");
}

std::string with(const std::string& from, const std::string& to) {
  std::string text = kBox;
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  if (at != std::string::npos) text.replace(at, from.size(), to);
  return text;
}

std::string hwloc_error(const std::string& text) {
  const auto result = read_hwloc(text);
  return result ? "accepted" : result.error().message;
}

const Link& link_above(const Topology& t, const char* name) {
  const int32_t component = t.find(name);
  return *std::ranges::find_if(t.links(), [&](const Link& l) { return l.from == component; });
}

TEST(HwlocTopology, ReadsNodesPortsSwitchesAndRates) {
  const auto box = read_hwloc(kBox);
  ASSERT_TRUE(box) << box.error().message;
  ASSERT_EQ(box->of_kind(ComponentKind::kDevice).size(), 3u);
  ASSERT_EQ(box->of_kind(ComponentKind::kMemory).size(), 2u);
  EXPECT_EQ(box->of_kind(ComponentKind::kNic).size(), 1u) << "a disk controller is none";
  const int32_t gpu0 = box->find("gpu0"), gpu1 = box->find("gpu1"), gpu2 = box->find("gpu2");
  EXPECT_EQ(box->component(gpu0).address, "0000:19:00.0");
  EXPECT_FALSE(box->passes(gpu0, gpu1, ComponentKind::kHostBridge));
  EXPECT_TRUE(box->passes(gpu0, gpu1, ComponentKind::kSwitch));
  EXPECT_EQ(box->component(gpu2).numa, 1);
  EXPECT_EQ(box->count_links(gpu0, gpu2, LinkKind::kSocket), 1);
  EXPECT_NEAR(link_above(*box, "gpu0").gb_per_s, 7.876923, 1e-9);
  EXPECT_NEAR(link_above(*box, "switch-0000.17.00.0").gb_per_s, 31.507692, 1e-9);
  EXPECT_EQ(link_above(*box, "nic0").gb_per_s, kUnlimited) << "hwloc writes 0 for unknown";
  EXPECT_NEAR(box->component(box->find("numa0")).gb_per_s, 137.44, 0.01) << "the near bandwidth";
  EXPECT_EQ(box->component(box->find("numa1")).gb_per_s, kUnlimited);
  EXPECT_EQ(box->description().environment.at("kernel"), "6.1.0-18-amd64");
}

// What two sources show of one machine differs in what they know, not in what they call it.
TEST(HwlocTopology, AgreesWithSysfs) {
  FakeSysfs sys;
  sys.node(0);
  sys.node(1);
  const std::string port = "pci0000:16/0000:16:01.0", up = port + "/0000:17:00.0";
  sys.pci(port, "0x060400", "0x8086", 0, "16.0 GT/s PCIe", "16");
  sys.pci(up, "0x060400", "0x1000", 0, "16.0 GT/s PCIe", "16");
  sys.pci(up + "/0000:18:00.0", "0x060400", "0x1000", 0, "8.0 GT/s PCIe", "8");
  sys.pci(up + "/0000:18:00.0/0000:19:00.0", "0x030200", "0x10de", 0, "8.0 GT/s PCIe", "8");
  sys.pci(up + "/0000:18:01.0", "0x060400", "0x1000", 0, "16.0 GT/s PCIe", "16");
  sys.pci(up + "/0000:18:01.0/0000:1a:00.0", "0x030200", "0x10de", 0, "16.0 GT/s PCIe", "16");
  sys.pci("pci0000:80/0000:80:01.0", "0x060400", "0x8086", 1, "Unknown", "0");
  sys.pci("pci0000:80/0000:80:01.0/0000:81:00.0", "0x020000", "0x15b3", 1, "Unknown", "0");
  sys.pci("pci0000:80/0000:82:00.0", "0x030000", "0x1002", 1, "8.0 GT/s PCIe", "16");
  const auto kernel = sysfs_topology(sys.root());
  const auto hwloc = read_hwloc(with(R"(name="Bandwidth")", R"(name="Elsewise")"));
  ASSERT_TRUE(kernel && hwloc);
  ASSERT_EQ(kernel->components().size(), hwloc->components().size());
  for (size_t i = 0; i < kernel->components().size(); ++i) {
    const Component &a = kernel->components()[i], &b = hwloc->components()[i];
    EXPECT_EQ(a.name, b.name);
    EXPECT_EQ(a.kind, b.kind) << a.name;
    EXPECT_EQ(a.numa, b.numa) << a.name;
    EXPECT_EQ(a.index, b.index) << a.name;
    EXPECT_EQ(a.address, b.address) << a.name;
    EXPECT_EQ(a.gb_per_s, b.gb_per_s) << a.name;
  }
  ASSERT_EQ(kernel->links().size(), hwloc->links().size());
  for (size_t i = 0; i < kernel->links().size(); ++i) {
    const Link &a = kernel->links()[i], &b = hwloc->links()[i];
    EXPECT_EQ(a.name, b.name);
    EXPECT_EQ(a.kind, b.kind);
    if (a.gb_per_s == kUnlimited || b.gb_per_s == kUnlimited) {
      EXPECT_EQ(a.gb_per_s, b.gb_per_s) << a.name;
    } else {
      EXPECT_NEAR(a.gb_per_s, b.gb_per_s, 1e-6) << a.name;
    }
  }
}

TEST(HwlocTopology, AFunctionBelongsToTheFirstNodeOfWhatIsAboveIt) {
  // Four nodes, one of them without a bridge; the set of the machine is wider than a word.
  const auto box = [](const std::string& set) {
    std::string nodes;
    for (const int n : {1, 3, 33, 40}) {
      nodes += fmt::format(R"(<object type="NUMANode" os_index="{}"/>)", n);
    }
    return read_hwloc(fmt::format(R"(<topology><object type="Machine" nodeset="0xf...f">{}
      <object type="Group" nodeset="{}"><object type="Bridge" bridge_type="0-1">
      <object type="PCIDev" pci_busid="0000:05:00.0" pci_type="0302 [10de:2235]"/></object></object>
      </object></topology>)",
                                  nodes, set));
  };
  const auto node_of = [&](const std::string& set) {
    const auto result = box(set);
    EXPECT_TRUE(result) << result.error().message;
    return result ? result->component(result->find("gpu0")).numa : -1;
  };
  EXPECT_EQ(node_of("0x00000008"), 3);
  EXPECT_EQ(node_of("0x0000000a"), 1);
  EXPECT_EQ(node_of("0x00000002,0x00000000"), 33);
  EXPECT_EQ(node_of("0x00000103,0x00000008"), 3);
  EXPECT_EQ(node_of("0xf...f,0x00000000"), 33);
  EXPECT_EQ(node_of("0xf...f,0x00000001,0x00000000"), 1) << "none is known: as the machine";
  EXPECT_EQ(node_of("0x00000010"), 1) << "a node that is not there";
  EXPECT_THAT(box("0x1ffffffff").error().message, HasSubstr("attribute nodeset is"));
  EXPECT_THAT(box("0x0000000g").error().message, HasSubstr("attribute nodeset is"));
  std::string wide;
  for (int i = 0; i < 5000; ++i) wide += "0x00000000,";
  EXPECT_THAT(box(wide + "0x00000001").error().message, HasSubstr("attribute nodeset is"));
}

TEST(HwlocTopology, NamesWhatIsWrong) {
  EXPECT_THAT(
      hwloc_error(with(R"(os_index="1" cpuset="0x00000002" nodeset="0x00000002" gp_index="7")",
                       R"(os_index="-1")")),
      HasSubstr("<object>: attribute os_index is \"-1\", must be 0 to 4095"));
  EXPECT_THAT(
      hwloc_error(with(R"(type="NUMANode" os_index="1")", R"(type="NUMANode" os_index="0")")),
      HasSubstr("there is a second NUMA node 0"));
  EXPECT_THAT(hwloc_error(with(R"(pci_busid="0000:19:00.0")", "")),
              HasSubstr("attribute pci_busid is missing"));
  EXPECT_THAT(hwloc_error(with(R"(pci_busid="0000:1a:00.0")", R"(pci_busid="0000:19:00.0")")),
              HasSubstr("address 0000:19:00.0 belongs to another one too"));
  EXPECT_THAT(hwloc_error(with(R"(pci_busid="0000:18:00.0")", R"(pci_busid="0000:19:00.0")")),
              HasSubstr("accepted"))
      << "ports out of a switch are passed over";
  EXPECT_THAT(hwloc_error(with("0302 [10de:2235] [10de:145a] a1", "GPU")),
              HasSubstr("attribute pci_type is \"GPU\""));
  for (const char* rate : {"fast", "-1", "nan", "inf", "1e300", ""}) {
    EXPECT_THAT(hwloc_error(with(R"(pci_link_speed="7.876923">
                <object)",
                                 fmt::format("pci_link_speed=\"{}\"><object", rate))),
                HasSubstr("attribute pci_link_speed is"))
        << rate;
  }
  for (const char* value : {"many", "-1", "99999999999999999999", "18446744073709551615"}) {
    EXPECT_THAT(hwloc_error(with(R"(value="131072")", fmt::format("value=\"{}\"", value))),
                HasSubstr("attribute value is"))
        << value;
  }
  EXPECT_THAT(hwloc_error("<topology version=\"2.0\"><object type=\"Machine\"/></topology>"),
              HasSubstr("box.xml: lists no NUMA nodes"));
  EXPECT_THAT(hwloc_error("<lstopo/>"), HasSubstr("begins with <lstopo>"));
}

TEST(HwlocTopology, TruncatedDeepAndGrowingFilesAreRefused) {
  const std::string whole = kBox;
  const size_t end = whole.find("</topology>");
  for (size_t size = 0; size < end; size += 37) {
    EXPECT_NE(hwloc_error(whole.substr(0, size)), "accepted") << size;
  }
  std::string deep = "<topology><object type=\"Machine\">";
  for (int i = 0; i < 10'000; ++i) deep += "<object type=\"Bridge\" bridge_type=\"1-1\" a='1'>";
  EXPECT_THAT(hwloc_error(deep), HasSubstr("nested deeper than 64"));
  EXPECT_THAT(hwloc_error(with("SYSTEM \"hwloc2.dtd\"", "[<!ENTITY a \"b\">]")),
              HasSubstr("declarations of types are not supported"));
  EXPECT_THAT(hwloc_error(with("&#10;", "&a;")), HasSubstr("an entity is not one of XML's five"));
  for (const char* character : {"&#;", "&#0;", "&#x;", "&#999999999999;", "&#x1F600;", "&#10"}) {
    EXPECT_NE(hwloc_error(with("&#10;", character)), "accepted") << character;
  }
  EXPECT_EQ(hwloc_error(with("&#10;", "&#x41;")), "accepted");
  // A port below itself is one port, not a cycle.
  EXPECT_NE(hwloc_error(with(R"(pci_busid="0000:17:00.0")", R"(pci_busid="0000:16:01.0")")), "");
}

TEST(HwlocTopology, MutatedFilesNeverAbort) {
  Rng rng(derive_key(9, "hwloc topology fuzz"));
  const std::string whole = kBox;
  int accepted = 0;
  for (uint64_t round = 0; round < fuzz_rounds(2000); ++round) {
    std::string text = whole;
    for (uint64_t i = 1 + rng.below(3); i > 0; --i) {
      const size_t at = rng.below(text.size());
      switch (rng.below(3)) {
        case 0:
          text[at] = static_cast<char>("<>/\"=&!-x019f,. "[rng.below(16)]);
          break;
        case 1:
          text.erase(at, 1 + rng.below(40));
          break;
        default:
          text.insert(at, whole.substr(rng.below(whole.size()), rng.below(40)));
      }
    }
    const auto result = read_hwloc(text);
    EXPECT_TRUE(result || !result.error().message.empty());
    accepted += result ? 1 : 0;
  }
  EXPECT_GT(accepted, 50) << "mutations that always break the file test nothing behind the parser";
}

// hwloc itself wants more of a file than is read here: every set in two or three versions.
std::string with_all_sets(const std::string& text) {
  static const std::regex kSet(R"x( (cpuset|nodeset)="([^"]*)")x");
  return std::regex_replace(text, kSet, R"x( $1="$2" complete_$1="$2" allowed_$1="$2")x");
}

// The library itself, reading a file in place of this machine.
TEST(HwlocTopology, TheLibraryShowsWhatTheFileShows) {
  const std::string path = test_path("hwloc.xml");
  ASSERT_TRUE(write_file_atomic(path, with_all_sets(kBox)));
  ASSERT_EQ(setenv("HWLOC_XMLFILE", path.c_str(), 1), 0);
  const auto through = hwloc_description();
  unsetenv("HWLOC_XMLFILE");
  if (!through && through.error().code == Code::kUnsupported) {
    GTEST_SKIP() << through.error().message;
  }
  ASSERT_TRUE(through) << through.error().message;
  const auto library = Topology::create(*through, "hwloc"), direct = read_hwloc(kBox);
  ASSERT_TRUE(library && direct);
  ASSERT_EQ(library->components().size(), direct->components().size());
  for (size_t i = 0; i < direct->components().size(); ++i) {
    EXPECT_EQ(library->components()[i].name, direct->components()[i].name);
    EXPECT_EQ(library->components()[i].address, direct->components()[i].address);
    EXPECT_EQ(library->components()[i].numa, direct->components()[i].numa);
  }
  EXPECT_EQ(library->links().size(), direct->links().size());
}

TEST(HwlocTopology, ReadsThisMachine) {
  const auto machine = hwloc_description();
  if (!machine) GTEST_SKIP() << machine.error().message;
  const auto topology = Topology::create(*machine, "this machine");
  ASSERT_TRUE(topology) << topology.error().message;
  EXPECT_FALSE(topology->of_kind(ComponentKind::kMemory).empty());
}

}  // namespace
}  // namespace jige::topology
