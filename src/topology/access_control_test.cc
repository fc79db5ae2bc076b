// Access control of PCIe ports, in configuration spaces and copies of sysfs made here.
#include "topology/access_control.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "base/rng.h"
#include "base/test_fuzz_rounds.h"
#include "topology/fingerprint.h"
#include "topology/machine_topology.h"
#include "topology/sysfs_topology.h"
#include "topology/test_support.h"

namespace jige::topology {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A space whose first capability is another one and whose second is access control.
std::string configuration(uint16_t control, size_t bytes = 4096) {
  std::string space(4096, '\0');
  const auto put = [&](size_t at, uint32_t value, size_t size) {
    for (size_t i = 0; i < size; ++i) space[at + i] = static_cast<char>(value >> (8 * i) & 0xFF);
  };
  put(0x100, 0x0001u | 1u << 16 | 0x148u << 20, 4);  // error reporting, then what is at 0x148
  put(0x148, 0x000Du | 1u << 16, 4);
  put(0x14C, 0x005F, 2);  // what it could do
  put(0x14E, control, 2);
  return space.substr(0, bytes);
}

std::optional<bool> read_redirects(const std::string& space) {
  return redirects(std::as_bytes(std::span(space)));
}

TEST(AccessControl, IsReadFromTheConfigurationSpace) {
  EXPECT_EQ(read_redirects(configuration(0x1D)), true);
  EXPECT_EQ(read_redirects(configuration(0x04)), true) << "requests";
  EXPECT_EQ(read_redirects(configuration(0x08)), true) << "completions";
  EXPECT_EQ(read_redirects(configuration(0x11)), false) << "validation and forwarding alone";
  EXPECT_EQ(read_redirects(configuration(0)), false);
}

TEST(AccessControl, WhatCannotBeReadIsUnknown) {
  EXPECT_EQ(read_redirects(configuration(4, 64)), std::nullopt) << "what others than root see";
  EXPECT_EQ(read_redirects(configuration(4, 0x14C)), std::nullopt);
  EXPECT_EQ(read_redirects(std::string(4096, '\0')), std::nullopt) << "no capabilities";
  EXPECT_EQ(read_redirects(std::string(4096, '\xFF')), std::nullopt) << "a device that is gone";
  std::string circle = configuration(4);
  circle[0x103] = '\x10';  // the next of the first is the first
  circle[0x102] = '\x01';
  EXPECT_EQ(read_redirects(circle), std::nullopt);
}

TEST(AccessControl, AnyBytesAreReadOrUnknown) {
  Rng rng(derive_key(3, "configuration spaces"));
  int known = 0;
  for (uint64_t round = 0; round < fuzz_rounds(3000); ++round) {
    std::string space = configuration(static_cast<uint16_t>(rng.next_u64()));
    for (uint64_t i = rng.below(4); i > 0; --i) {
      space[0x100 + rng.below(0x60)] = static_cast<char>(rng.below(256));
    }
    space.resize(rng.below(8) == 0 ? rng.below(4097) : 4096);
    known += read_redirects(space).has_value();
  }
  EXPECT_GT(known, 500);
}

// Two GPUs behind a switch; `down` is the control of the port above the first.
Description switched_machine(FakeSysfs& sys, std::optional<uint16_t> down) {
  sys.node(0);
  const std::string port = "pci0000:16/0000:16:01.0", up = port + "/0000:17:00.0";
  sys.pci(port, "0x060400", "0x8086", 0, "16.0 GT/s PCIe", "16");
  sys.pci(up, "0x060400", "0x1000", 0, "16.0 GT/s PCIe", "16");
  sys.pci(up + "/0000:18:00.0", "0x060400", "0x1000", 0, "16.0 GT/s PCIe", "16");
  sys.pci(up + "/0000:18:00.0/0000:19:00.0", "0x030200", "0x10de", 0, "16.0 GT/s PCIe", "16");
  sys.pci(up + "/0000:18:01.0", "0x060400", "0x1000", 0, "16.0 GT/s PCIe", "16");
  sys.pci(up + "/0000:18:01.0/0000:1a:00.0", "0x030200", "0x10de", 0, "16.0 GT/s PCIe", "16");
  sys.configuration(port, configuration(0, 64));
  sys.configuration(up, std::string(4096, '\0'));
  sys.configuration(up + "/0000:18:00.0", down ? configuration(*down) : configuration(0, 64));
  sys.configuration(up + "/0000:18:01.0", configuration(0));
  sys.configuration(up + "/0000:18:00.0/0000:19:00.0", configuration(4));  // no port
  Description d = *sysfs_description(sys.root());
  add_access_control(d, sys.root());
  return d;
}

std::map<std::string, std::string> facts(const Description& d) {
  std::map<std::string, std::string> found;
  for (const auto& [name, value] : d.environment) {
    if (name.starts_with(kAccessControlFact)) found[name] = value;
  }
  return found;
}

TEST(AccessControl, OfEveryPortAboveADeviceIsAFact) {
  FakeSysfs sys;
  EXPECT_THAT(facts(switched_machine(sys, 0x1D)),
              ElementsAre(std::pair("acs of 0000:18:00.0", "redirects"),
                          std::pair("acs of 0000:18:01.0", "does-not-redirect")));
  const auto whole = machine_topology({.source = "sysfs", .sysfs = sys.root()});
  ASSERT_TRUE(whole) << whole.error().message;
  EXPECT_EQ(facts(whole->description()).size(), 2u);
}

TEST(AccessControl, SwitchingItIsADifferenceAndNotKnowingItIsNone) {
  const auto print = [](std::optional<uint16_t> control) {
    FakeSysfs sys;
    Description d = switched_machine(sys, control);
    d.environment.erase("rates");
    return fingerprint(d);
  };
  const Fingerprint on = print(0x1D), off = print(0), unknown = print(std::nullopt);
  EXPECT_NE(on.hash, off.hash);
  EXPECT_THAT(difference(on.facts, off.facts),
              ElementsAre("- environment acs of 0000:18:00.0 redirects",
                          "+ environment acs of 0000:18:00.0 does-not-redirect"));
  EXPECT_NE(on.hash, unknown.hash);
  EXPECT_THAT(difference(on.facts, unknown.facts), IsEmpty());
  EXPECT_THAT(difference(unknown.facts, off.facts), IsEmpty());
}

}  // namespace
}  // namespace jige::topology
