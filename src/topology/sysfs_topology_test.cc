#include "topology/sysfs_topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/test_fuzz_rounds.h"
#include "base/test_mutator.h"
#include "topology/test_support.h"

namespace jige::topology {
namespace {

TEST(SysfsTopology, ReadsPortsSwitchesAndRates) {
  FakeSysfs sys;
  sys.node(0);
  sys.node(1);
  const std::string port = "pci0000:16/0000:16:01.0";
  sys.pci(port, "0x060400", "0x8086", 0, "16.0 GT/s PCIe", "16");
  const std::string up = port + "/0000:17:00.0";
  sys.pci(up, "0x060400", "0x1000", 0, "16.0 GT/s PCIe", "16");
  sys.pci(up + "/0000:18:00.0", "0x060400", "0x1000", 0, "16.0 GT/s PCIe", "16");
  sys.pci(up + "/0000:18:00.0/0000:19:00.0", "0x030200", "0x10de", 0, "8.0 GT/s PCIe", "8");
  sys.pci(up + "/0000:18:01.0", "0x060400", "0x1000", 0, "16.0 GT/s PCIe", "16");
  sys.pci(up + "/0000:18:01.0/0000:1a:00.0", "0x030200", "0x10de", 0, "16.0 GT/s PCIe", "16");
  sys.pci("pci0000:80/0000:80:01.0", "0x060400", "0x8086", 1, "16.0 GT/s PCIe", "16");
  sys.pci("pci0000:80/0000:80:01.0/0000:81:00.0", "0x020000", "0x15b3", 1, "Unknown", "0");
  sys.pci("pci0000:00/0000:00:02.0", "0x030000", "0x8086", 0, "Unknown", "0");  // a display, no GPU

  const auto machine = sysfs_topology(sys.root());
  ASSERT_TRUE(machine) << machine.error().message;
  ASSERT_EQ(machine->of_kind(ComponentKind::kDevice).size(), 2u);
  const int32_t gpu0 = machine->find("gpu0"), gpu1 = machine->find("gpu1");
  EXPECT_EQ(machine->component(gpu0).address, "0000:19:00.0");
  EXPECT_FALSE(machine->passes(gpu0, gpu1, ComponentKind::kHostBridge));
  EXPECT_TRUE(machine->passes(gpu0, gpu1, ComponentKind::kSwitch));
  EXPECT_EQ(machine->route(gpu0, gpu1).size(), 2u);
  const Link& link = machine->links()[static_cast<size_t>(machine->route(gpu0, gpu1)[0].link)];
  EXPECT_EQ(link.width, 8);
  EXPECT_NEAR(link.gb_per_s, 7.88, 0.01);
  const int32_t nic = machine->find("nic0");
  ASSERT_GE(nic, 0);
  EXPECT_EQ(machine->component(nic).numa, 1);
  EXPECT_EQ(machine->count_links(gpu0, nic, LinkKind::kSocket), 1);
}

TEST(SysfsTopology, DamagedAttributesAreRefusedOrRead) {
  FakeSysfs sys;
  sys.node(0);
  sys.node(1);
  const std::string port = "pci0000:16/0000:16:01.0", gpu = port + "/0000:19:00.0";
  sys.pci(port, "0x060400", "0x8086", 0, "16.0 GT/s PCIe", "16");
  sys.pci(gpu, "0x030200", "0x10de", 1, "8.0 GT/s PCIe", "8");
  int read = 0;
  for (uint64_t seed = 0; seed < fuzz_rounds(160); ++seed) {
    for (const char* name :
         {"class", "vendor", "numa_node", "current_link_speed", "current_link_width"}) {
      const std::string path = sys.root() + "/devices/" + gpu + "/" + name;
      const std::string good = *read_file(path);
      ASSERT_TRUE(write_file_atomic(path, Mutator(seed).mutate(good)));
      const auto machine = sysfs_topology(sys.root());
      read += machine.has_value();
      ASSERT_TRUE(machine || !machine.error().message.empty()) << seed;
      ASSERT_TRUE(write_file_atomic(path, good));
    }
  }
  EXPECT_GT(read, 400);
}

TEST(SysfsTopology, NumbersBeyondAllNodesAreNone) {
  FakeSysfs sys;
  sys.node(0);
  std::filesystem::create_directories(sys.root() + "/devices/system/node/node99999999999");
  const std::string gpu = "pci0000:16/0000:16:01.0";
  sys.pci(gpu, "0x030200", "0x10de", 0, "8.0 GT/s PCIe", "8");
  ASSERT_TRUE(write_file_atomic(sys.root() + "/devices/" + gpu + "/numa_node", "99999999999\n"));
  const auto machine = sysfs_topology(sys.root());
  ASSERT_TRUE(machine) << machine.error().message;
  EXPECT_EQ(machine->of_kind(ComponentKind::kMemory).size(), 1u);
  EXPECT_EQ(machine->component(machine->find("gpu0")).numa, 0);
}

TEST(SysfsTopology, AMachineWithoutPciStillHasItsMemory) {
  FakeSysfs sys;
  sys.node(0);
  const auto machine = sysfs_topology(sys.root());
  ASSERT_TRUE(machine) << machine.error().message;
  EXPECT_EQ(machine->components().size(), 2u);
  const auto nothing = sysfs_topology("/nowhere");
  EXPECT_EQ(nothing.error().code, Code::kUnsupported);
  EXPECT_THAT(nothing.error().message, ::testing::HasSubstr("/nowhere/devices/system/node"));
}

TEST(SysfsTopology, ReadsThisMachine) {
  const auto machine = sysfs_topology();
  if (!machine) GTEST_SKIP() << machine.error().message;
  EXPECT_FALSE(machine->of_kind(ComponentKind::kMemory).empty());
}

}  // namespace
}  // namespace jige::topology
