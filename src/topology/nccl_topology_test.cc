#include "topology/nccl_topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "topology/topology.h"
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

Result<Topology> read(const std::string& text) {
  JIGE_TRY(Description d, description_from_xml(text, "topo.xml"));
  return Topology::create(std::move(d), "topo.xml");
}

TEST(NcclTopology, ReadsDevicesSwitchesAndNics) {
  const auto box = read(kSystem);
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

TEST(NcclTopology, NamesWhatIsWrong) {
  const auto broken = [](const std::string& from, const std::string& to) {
    std::string text = kSystem;
    text.replace(text.find(from), from.size(), to);
    const auto result = read(text);
    return result ? "accepted" : result.error().message;
  };
  EXPECT_THAT(broken("numaid=\"1\"", "numaid=\"x\""),
              HasSubstr("topo.xml:12: <cpu>: attribute numaid"));
  EXPECT_THAT(broken("dev=\"1\" sm", "sm"),
              HasSubstr("topo.xml:5: <gpu>: attribute dev is missing"));
  EXPECT_THAT(broken("8.0 GT/s PCIe", "fast"), HasSubstr("link_speed is \"fast\""));
  EXPECT_THAT(broken("<gpu dev=\"1\" sm=\"86\" rank=\"1\" gdr=\"0\"/>",
                     "<gpu dev=\"1\"><nvlink target=\"0\" count=\"4\"/></gpu>"),
              HasSubstr("NVLink"));
  EXPECT_THAT(broken("dev=\"1\" sm", "dev=\"0\" sm"), HasSubstr("named \"gpu0\""));
  EXPECT_THAT(broken("<system version=\"1\">", "<system version=\"2\">"),
              HasSubstr("version=\"1\""));
}

TEST(NcclTopology, MutatedFilesNeverAbort) {
  Rng rng(derive_key(9, "nccl topology fuzz"));
  for (int round = 0; round < 2000; ++round) {
    std::string text = kSystem;
    for (uint64_t i = 1 + rng.below(3); i > 0; --i) {
      text[rng.below(text.size())] = static_cast<char>("<>/\"=&!-x019 "[rng.below(13)]);
    }
    const auto result = read(text);
    EXPECT_TRUE(result || !result.error().message.empty());
  }
}

}  // namespace
}  // namespace jige::topology
