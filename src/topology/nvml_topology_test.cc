// NVML by a library that answers in its place (tests/fakes/fake_nvml.cc); no GPU was asked.
#include "topology/nvml_topology.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "topology/fingerprint.h"
#include "topology/machine_topology.h"
#include "topology/machine_tree.h"
#include "topology/test_support.h"
#include "topology/topology.h"
#include "topology/topology_json.h"
#include "topology/topology_text.h"

namespace jige::topology {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A script for the fake library while this lives.
class Script {
 public:
  explicit Script(const std::string& text) { setenv("JIGE_FAKE_NVML", text.c_str(), 1); }
  ~Script() { unsetenv("JIGE_FAKE_NVML"); }
};

constexpr const char* kTwo =
    "driver=555.42 gpu=0:19:0,1,4,16,16 gpu=0:1a:0,4,4,8,16 "
    "nvlink=0,4,3,0,0:1a:0 nvlink=1,4,3,0,0:19:0";

TEST(Nvml, ReadsGpusRatesAndLinks) {
  const Script script(kTwo);
  const auto report = read_nvml(JIGE_FAKE_NVML);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->driver, "555.42");
  ASSERT_EQ(report->gpus.size(), 2u);
  const NvmlGpu& gpu = report->gpus[0];
  EXPECT_EQ(gpu.address, "0000:19:00.0");
  EXPECT_EQ(gpu.generation, 1);
  EXPECT_EQ(gpu.generation_max, 4);
  EXPECT_EQ(gpu.width, 16);
  EXPECT_EQ(report->gpus[1].width, 8);
  ASSERT_EQ(gpu.links.size(), 4u) << "links that are down do not count";
  EXPECT_EQ(gpu.links[0].end, NvmlLink::End::kGpu);
  EXPECT_EQ(gpu.links[0].address, "0000:1a:00.0");
  EXPECT_EQ(gpu.links[0].version, 3);
}

TEST(Nvml, EveryStartHasItsEnd) {
  void* library = dlopen(JIGE_FAKE_NVML, RTLD_NOW);
  ASSERT_NE(library, nullptr);
  auto* balance = reinterpret_cast<int (*)()>(dlsym(library, "fake_nvml_balance"));
  ASSERT_NE(balance, nullptr);
  for (const char* failing : {"", "fail=nvmlInit_v2,9", "fail=nvmlDeviceGetCount_v2,999"}) {
    const Script script(std::string(kTwo) + " " + failing);
    (void)read_nvml(JIGE_FAKE_NVML);
    EXPECT_EQ(balance(), 0) << failing;
  }
  dlclose(library);
}

TEST(Nvml, SaysWhatIsMissingOrFails) {
  const auto absent = read_nvml("libjige-no-such-library.so.1");
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().code, Code::kNotFound);
  EXPECT_THAT(absent.error().message, HasSubstr("libjige-no-such-library.so.1"));
  const auto other = read_nvml("libm.so.6");
  EXPECT_EQ(other.error().code, Code::kUnsupported);
  EXPECT_THAT(other.error().message, HasSubstr("libm.so.6 has no nvmlInit_v2"));
  const auto with = [](const std::string& failing) {
    const Script script(std::string(kTwo) + " fail=" + failing);
    const auto report = read_nvml(JIGE_FAKE_NVML);
    return report ? "read" : report.error().message;
  };
  EXPECT_THAT(with("nvmlInit_v2,18"),
              HasSubstr("nvmlInit_v2 failed: Driver/library version mismatch (18)"));
  EXPECT_THAT(with("nvmlDeviceGetHandleByIndex_v2,15"), HasSubstr("of GPU 1 failed: GPU is lost"));
  EXPECT_THAT(with("nvmlDeviceGetPciInfo_v3,999"), HasSubstr("of GPU 0 failed"));
  EXPECT_THAT(with("nvmlDeviceGetNvLinkState,999"), HasSubstr("of link 0 of GPU 0 failed"));
}

TEST(Nvml, WhatIsNotToldStaysUnknown) {
  {
    const Script script(kTwo);
    const auto old = read_nvml(JIGE_FAKE_NVML_OLD);
    ASSERT_TRUE(old) << old.error().message;
    ASSERT_EQ(old->gpus.size(), 2u);
    EXPECT_EQ(old->gpus[0].width, 0);
    EXPECT_TRUE(old->gpus[0].links.empty());
  }
  for (const char* call : {"nvmlDeviceGetMaxPcieLinkWidth", "nvmlDeviceGetCurrPcieLinkWidth",
                           "nvmlDeviceGetNvLinkVersion", "nvmlDeviceGetNvLinkRemotePciInfo_v2",
                           "nvmlDeviceGetNvLinkRemoteDeviceType"}) {
    const Script script(std::string(kTwo) + " fail=" + call + ",3");
    const auto report = read_nvml(JIGE_FAKE_NVML);
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_EQ(report->gpus[0].links.size(), 4u);
  }
  const Script script("gpu=0:19:0,77,88,99,1000");
  const auto odd = read_nvml(JIGE_FAKE_NVML);
  ASSERT_TRUE(odd);
  EXPECT_EQ(odd->gpus[0].width, 0);
  EXPECT_EQ(odd->gpus[0].generation_max, 0);
}

// Three GPUs behind a switch with idle links, the third of another maker.
Description machine() {
  const auto gpu = [](const std::string& address, const std::string& down) {
    PciPort function{.address = address};
    function.negotiated(16, 2.5);
    return PciFunction{
        ComponentKind::kDevice,
        0,
        {{.address = "0000:16:01.0"}, {.address = "0000:17:00.0"}, {.address = down}, function}};
  };
  Description d = machine_description(
      {{.number = 0}}, {gpu("0000:19:00.0", "0000:18:00.0"), gpu("0000:1a:00.0", "0000:18:01.0"),
                        gpu("0000:05:00.0", "0000:18:02.0")});
  d.name = "this machine";
  return d;
}

Topology added(const NvmlReport& report) {
  Description d = machine();
  add_nvml(d, report);
  auto topology = Topology::create(std::move(d), "test");
  EXPECT_TRUE(topology) << topology.error().message;
  return std::move(*topology);
}

const Link* link_named(const Topology& t, const std::string& name) {
  const auto found = std::ranges::find(t.links(), name, &Link::name);
  return found == t.links().end() ? nullptr : &*found;
}

TEST(NvmlTopology, GivesLinksTheRateTheyHaveUnderLoad) {
  const Script script(kTwo);
  const Topology t = added(*read_nvml(JIGE_FAKE_NVML));
  // gpu1 and gpu2 by address; 0000:05:00.0 is gpu0, which NVML does not know.
  const Link* first = link_named(t, "gpu1-switch-0000.17.00.0");
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->width, 16);
  EXPECT_EQ(first->gt_per_s, 16);
  EXPECT_NEAR(first->gb_per_s, 31.5, 0.1);
  const Link* narrow = link_named(t, "gpu2-switch-0000.17.00.0");
  EXPECT_EQ(narrow->width, 8);
  EXPECT_NEAR(narrow->back_gb_per_s, 15.75, 0.1);
  const Link* foreign = link_named(t, "gpu0-switch-0000.17.00.0");
  EXPECT_EQ(foreign->gt_per_s, 2.5);
  EXPECT_EQ(t.component(t.find("gpu1")).index, 0);
  EXPECT_EQ(t.component(t.find("gpu2")).index, 1);
  EXPECT_EQ(t.component(t.find("gpu0")).index, 2);
  EXPECT_EQ(t.description().environment.at("driver"), "555.42");
}

TEST(NvmlTopology, NvlinksAreTakenBeforePcie) {
  const Script script(kTwo);
  const Topology t = added(*read_nvml(JIGE_FAKE_NVML));
  const int32_t a = t.find("gpu1"), b = t.find("gpu2");
  ASSERT_EQ(t.route(a, b).size(), 1u);
  EXPECT_EQ(t.count_links(a, b, LinkKind::kNvlink), 1);
  EXPECT_EQ(t.links()[static_cast<size_t>(t.route(a, b)[0].link)].gb_per_s, 100);
  EXPECT_EQ(t.route(b, a).size(), 1u);
  EXPECT_EQ(t.count_links(a, t.find("gpu0"), LinkKind::kNvlink), 0);
  // The tree still shows where each GPU hangs.
  EXPECT_THAT(topology_text(t), HasSubstr("├─ gpu1  device"));
  EXPECT_THAT(topology_text(t), HasSubstr("gpu1-gpu2-nvlink  nvlink, 100 GB/s"));
  // A file keeps it.
  const Json json = description_to_json(t.description());
  const auto back = description_from_json(json, "file");
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(fingerprint(*back).hash, fingerprint(t.description()).hash);
}

TEST(NvmlTopology, ASwitchJoinsAllThatReachIt) {
  const Script script(
      "gpu=0:19:0,4,4,16,16 gpu=0:1a:0,4,4,16,16 gpu=0:5:0,4,4,16,16 "
      "nvlink=0,9,4,2,0:c0:0 nvlink=0,9,4,2,0:c1:0 nvlink=1,18,4,2,0:c0:0 nvlink=2,18,4,2,0:c1:0");
  const Topology t = added(*read_nvml(JIGE_FAKE_NVML));
  const int32_t a = t.find("gpu1"), b = t.find("gpu2");
  ASSERT_EQ(t.route(a, b).size(), 2u) << "PCIe has two links as well";
  EXPECT_EQ(t.count_links(a, b, LinkKind::kNvlink), 2);
  EXPECT_EQ(t.links()[static_cast<size_t>(t.route(a, b)[0].link)].gb_per_s, 450);
  const int32_t memory = t.find("numa0");
  EXPECT_EQ(t.count_links(a, memory, LinkKind::kNvlink), 0);
  EXPECT_THAT(topology_text(t), HasSubstr("nvswitch  switch"));
}

TEST(NvmlTopology, OddReportsAreMadeTheBestOf) {
  NvmlReport report{
      .gpus = {{.index = 0, .address = "0000:19:00.0", .width = 16, .generation_max = 5},
               {.index = 1, .address = "0000:77:00.0", .width = 16}}};
  report.gpus[0].links = {{NvmlLink::End::kGpu, "0000:1a:00.0", 9},  // a version to come
                          {NvmlLink::End::kGpu, "0000:19:00.0", 3},  // itself
                          {NvmlLink::End::kGpu, "0000:99:00.0", 3},  // nobody here
                          {NvmlLink::End::kOther, "", 3}};
  const Topology t = added(report);
  const Link* link = link_named(t, "gpu1-gpu2-nvlink");
  ASSERT_NE(link, nullptr) << "told by one end alone";
  EXPECT_EQ(link->gb_per_s, kUnlimited);
  EXPECT_EQ(t.count_links(t.find("gpu2"), t.find("gpu1"), LinkKind::kNvlink), 1);
  EXPECT_EQ(std::ranges::count(t.links(), LinkKind::kNvlink, &Link::kind), 1);
  EXPECT_EQ(t.find("gpu3"), -1) << "one whose place nobody knows is left out";
  EXPECT_EQ(link_named(t, "gpu1-switch-0000.17.00.0")->gt_per_s, 32);
}

TEST(MachineTopology, NamedSourcesMustWorkAndAutoGoesOn) {
  FakeSysfs sys;
  sys.node(0);
  sys.pci("pci0000:16/0000:16:01.0", "0x060400", "0x8086", 0, "2.5 GT/s PCIe", "16");
  sys.pci("pci0000:16/0000:16:01.0/0000:19:00.0", "0x030200", "0x10de", 0, "2.5 GT/s PCIe", "16");
  MachineOptions options{.source = "auto", .sysfs = sys.root(), .nvml = "libjige-none.so.1"};
  const auto rate = [&]() -> std::string {
    const auto t = machine_topology(options);
    if (!t) return t.error().message;
    return fmt::format("{:.1f}", link_named(*t, "gpu0-port-0000.16.01.0")->gb_per_s);
  };
  EXPECT_EQ(rate(), "4.0");
  options.source = "sysfs+nvml";
  EXPECT_THAT(rate(), HasSubstr("libjige-none.so.1"));
  options.nvml = JIGE_FAKE_NVML;
  {
    const Script script("gpu=0:19:0,1,5,16,16");
    EXPECT_EQ(rate(), "63.0");
    options.source = "auto";
    EXPECT_EQ(rate(), "63.0");
    options.source = "sysfs";
    EXPECT_EQ(rate(), "4.0");
  }
  const Script script("fail=nvmlInit_v2,18");
  options.source = "auto";
  EXPECT_EQ(rate(), "4.0");
  options.source = "sysfs+nvml";
  EXPECT_THAT(rate(), HasSubstr("version mismatch"));
  options.source = "guess";
  EXPECT_THAT(rate(), HasSubstr("there is no source \"guess\"; there are auto, sysfs"));
}

}  // namespace
}  // namespace jige::topology
