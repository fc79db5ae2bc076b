#include "topology/nccl_topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/rng.h"
#include "base/test_fuzz_rounds.h"
#include "topology/fingerprint.h"
#include "topology/nvml_topology.h"
#include "topology/topology.h"
#include "topology/topology_json.h"
#include "topology/xml_topology.h"

namespace jige::topology {
namespace {

using ::testing::HasSubstr;

// After the layout of NCCL's dumps, written by us.
constexpr const char* kSystem = R"(<system version="1">
  <cpu numaid="0" affinity="ff" arch="x86_64" vendor="AuthenticAMD" familyid="25" modelid="1">
    <pci busid="0000:16:00.0" class="0x060400" link_speed="16.0 GT/s PCIe" link_width="16">
      <pci busid="0000:17:00.0" class="0x030200" link_speed="8.0 GT/s PCIe" link_width="16">
        <gpu dev="1" sm="86" rank="1" gdr="0"/>
      </pci>
      <pci busid="0000:18:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">
        <gpu dev="0" sm="86" rank="0" gdr="0"/>
      </pci>
    </pci>
  </cpu>
  <cpu numaid="1" affinity="ff00" arch="x86_64" vendor="AuthenticAMD">
    <pci busid="0000:81:00.0" class="0x020000" link_speed="" link_width="0">
      <nic><net name="mlx5_0" dev="0" speed="100000" port="1" guid="0x1"/></nic>
    </pci>
  </cpu>
</system>)";

Result<Topology> read_nccl(const std::string& text) {
  JIGE_TRY(Description d, description_from_xml(text, "topo.xml"));
  return Topology::create(std::move(d), "topo.xml");
}

TEST(NcclTopology, ReadsDevicesSwitchesAndNics) {
  const auto box = read_nccl(kSystem);
  ASSERT_TRUE(box) << box.error().message;
  const int32_t gpu0 = box->find("gpu0"), gpu1 = box->find("gpu1"), nic = box->find("nic0");
  ASSERT_TRUE(gpu0 >= 0 && gpu1 >= 0 && nic >= 0);
  EXPECT_EQ(box->component(gpu1).address, "0000:17:00.0");
  EXPECT_EQ(box->component(gpu1).index, 1);
  EXPECT_FALSE(box->passes(gpu0, gpu1, ComponentKind::kHostBridge));
  EXPECT_EQ(box->count_links(gpu0, nic, LinkKind::kSocket), 1);
  const auto hop = box->route(gpu1, gpu0)[0];
  EXPECT_NEAR(box->links()[static_cast<size_t>(hop.link)].gb_per_s, 15.75, 0.01);
}

// A virtual machine whose kernel knows no nodes.
TEST(NcclTopology, ReadsAProcessorWithoutANode) {
  std::string text = kSystem;
  text.replace(text.find("numaid=\"0\""), 10, "numaid=\"-1\"");
  const auto box = read_nccl(text);
  ASSERT_TRUE(box) << box.error().message;
  EXPECT_EQ(box->component(box->find("gpu0")).numa, 0);
}

TEST(NcclTopology, NamesWhatIsWrong) {
  const auto broken = [](const std::string& from, const std::string& to) {
    std::string text = kSystem;
    text.replace(text.find(from), from.size(), to);
    const auto result = read_nccl(text);
    return result ? "accepted" : result.error().message;
  };
  EXPECT_THAT(broken("numaid=\"1\"", "numaid=\"x\""),
              HasSubstr("topo.xml:12: <cpu>: attribute numaid"));
  EXPECT_THAT(broken("dev=\"1\" sm", "sm"),
              HasSubstr("topo.xml:5: <gpu>: attribute dev is missing"));
  EXPECT_THAT(broken("8.0 GT/s PCIe", "fast"), HasSubstr("link_speed is \"fast\""));
  const auto nvlink = [&](const std::string& attributes) {
    return broken("<gpu dev=\"1\" sm=\"86\" rank=\"1\" gdr=\"0\"/>",
                  "<gpu dev=\"1\" sm=\"80\"><nvlink " + attributes + "/></gpu>");
  };
  EXPECT_THAT(nvlink("target=\"0000:18:00.0\" count=\"4\""), HasSubstr("tclass is missing"));
  EXPECT_THAT(nvlink("count=\"4\" tclass=\"0x030200\""), HasSubstr("target is missing"));
  EXPECT_THAT(nvlink("target=\"0\" count=\"0\" tclass=\"0x030200\""),
              HasSubstr("<nvlink>: attribute count is \"0\""));
  EXPECT_THAT(nvlink("target=\"0\" count=\"4\" tclass=\"0x0200\""),
              HasSubstr("tclass is \"0x0200\", must be"));
  EXPECT_THAT(broken("dev=\"1\" sm", "dev=\"0\" sm"), HasSubstr("named \"gpu0\""));
  EXPECT_THAT(broken("<system version=\"1\">", "<system version=\"2\">"),
              HasSubstr("version=\"1\""));
}

// Four GPUs on two nodes, with links between them as `links` of each says.
std::string with_nvlinks(const std::vector<std::string>& links, int sm) {
  std::string text = "<system version=\"1\">";
  for (size_t g = 0; g < links.size(); ++g) {
    if (g % 2 == 0) text += fmt::format("<cpu numaid=\"{}\">", g / 2);
    text += fmt::format(
        "<pci busid=\"0000:{}1:00.0\" class=\"0x030200\" link_speed=\"16.0 GT/s PCIe\" "
        "link_width=\"16\"><gpu dev=\"{}\" sm=\"{}\">{}</gpu></pci>",
        g + 1, g, sm, links[g]);
    if (g % 2 == 1) text += "</cpu>";
  }
  return text + "</system>";
}

std::string nvlink(const std::string& target, int count, const std::string& type = "0x030200") {
  return fmt::format("<nvlink target=\"{}\" count=\"{}\" tclass=\"{}\"/>", target, count, type);
}

const Link& only_link(const Topology& t, int32_t from, int32_t to) {
  return t.links()[static_cast<size_t>(t.route(from, to)[0].link)];
}

TEST(NcclTopology, ReadsNvlinksBetweenGpus) {
  const auto box = read_nccl(with_nvlinks(
      {nvlink("0000:21:00.0", 4) + nvlink("0000:31:00.0", 2), nvlink("0000:11:00.0", 4),
       nvlink("0000:11:00.0", 2), nvlink("0000:99:00.0", 4)},
      80));
  ASSERT_TRUE(box) << box.error().message;
  const int32_t gpus[] = {box->find("gpu0"), box->find("gpu1"), box->find("gpu2"),
                          box->find("gpu3")};
  ASSERT_EQ(box->route(gpus[0], gpus[1]).size(), 1u);
  EXPECT_EQ(only_link(*box, gpus[0], gpus[1]).kind, LinkKind::kNvlink);
  EXPECT_EQ(only_link(*box, gpus[0], gpus[1]).gb_per_s, 100);
  EXPECT_EQ(only_link(*box, gpus[2], gpus[0]).back_gb_per_s, 50);
  EXPECT_EQ(box->count_links(gpus[1], gpus[2], LinkKind::kNvlink), 0) << "GPUs do not forward";
  EXPECT_EQ(box->count_links(gpus[3], gpus[0], LinkKind::kNvlink), 0) << "its peer is not here";
  const auto slower = read_nccl(with_nvlinks({nvlink("0000:21:00.0", 4), "", "", ""}, 86));
  ASSERT_TRUE(slower) << slower.error().message;
  EXPECT_EQ(only_link(*slower, slower->find("gpu1"), slower->find("gpu0")).gb_per_s, 56.25)
      << "told by one end alone";
}

TEST(NcclTopology, ReadsNvlinksToSwitchesAndProcessors) {
  const std::string to_switch =
      nvlink("0000:c0:00.0", 9, "0x068000") + nvlink("0000:c1:00.0", 9, "0x068000");
  const auto box = read_nccl(with_nvlinks(std::vector<std::string>(4, to_switch), 90));
  ASSERT_TRUE(box) << box.error().message;
  for (int32_t a = 0; a < 4; ++a) {
    for (int32_t b = 0; b < 4; ++b) {
      const int32_t from = box->find(fmt::format("gpu{}", a)),
                    to = box->find(fmt::format("gpu{}", b));
      if (a == b) continue;
      EXPECT_EQ(box->count_links(from, to, LinkKind::kNvlink), 2);
    }
  }
  EXPECT_EQ(only_link(*box, box->find("gpu0"), box->find("gpu3")).gb_per_s, 450);
  EXPECT_EQ(box->count_links(box->find("gpu0"), box->find("numa0"), LinkKind::kNvlink), 0);
  const auto power = read_nccl(with_nvlinks({nvlink("", 3, "0x068001"), "", "", ""}, 70));
  ASSERT_TRUE(power) << power.error().message;
  EXPECT_EQ(only_link(*power, power->find("gpu0"), power->find("numa0")).kind, LinkKind::kNvlink);
  EXPECT_EQ(only_link(*power, power->find("gpu0"), power->find("numa0")).gb_per_s, 75);
}

// A file and the driver that tell of the same links give the same.
TEST(NcclTopology, NvlinksAreAsNvmlTellsThem) {
  const auto box =
      read_nccl(with_nvlinks({nvlink("0000:21:00.0", 4), nvlink("0000:11:00.0", 4), "", ""}, 80));
  ASSERT_TRUE(box) << box.error().message;
  Description plain = *description_from_xml(with_nvlinks({"", "", "", ""}, 80), "topo.xml");
  NvmlReport report;
  for (int32_t g = 0; g < 4; ++g) {
    report.gpus.push_back({.index = g, .address = fmt::format("0000:{}1:00.0", g + 1)});
  }
  const auto to = [](const std::string& address) {
    return std::vector<NvmlLink>(4, {NvmlLink::End::kGpu, address, 3});
  };
  report.gpus[0].links = to("0000:21:00.0");
  report.gpus[1].links = to("0000:11:00.0");
  add_nvml(plain, report);
  EXPECT_EQ(fingerprint(plain).facts, fingerprint(box->description()).facts);
  // And a description keeps them.
  const auto back = description_from_json(description_to_json(box->description()), "file");
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(fingerprint(*back).hash, fingerprint(plain).hash);
}

TEST(NcclTopology, MutatedFilesNeverAbort) {
  Rng rng(derive_key(9, "nccl topology fuzz"));
  for (uint64_t round = 0; round < fuzz_rounds(2000); ++round) {
    std::string text =
        round % 2 == 0
            ? kSystem
            : with_nvlinks({nvlink("0000:21:00.0", 4), "", "", nvlink("x", 9, "0x068000")}, 80);
    for (uint64_t i = 1 + rng.below(3); i > 0; --i) {
      text[rng.below(text.size())] = static_cast<char>("<>/\"=&!-x019 "[rng.below(13)]);
    }
    const auto result = read_nccl(text);
    EXPECT_TRUE(result || !result.error().message.empty());
  }
}

}  // namespace
}  // namespace jige::topology
