#include "base/cpu.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>

namespace jige {
namespace {

TEST(Cpu, KnowsThisMachine) {
  const CpuFeatures& features = cpu_features();
  EXPECT_TRUE(features.avx2);  // or this program would not run
  EXPECT_GE(features.logical_count, 1);
  EXPECT_FALSE(features.model_name.empty());
  EXPECT_TRUE(features.avx512 || !features.amx_bf16);
}

// The kernel of the system tells the same in decimal.
TEST(Cpu, KnowsTheFamiliesOfAmd) {
  std::ifstream info("/proc/cpuinfo");
  std::string line, vendor, family;
  while (std::getline(info, line) && (vendor.empty() || family.empty())) {
    const size_t colon = line.find(": ");
    if (line.starts_with("vendor_id")) vendor = line.substr(colon + 2);
    if (line.starts_with("cpu family")) family = line.substr(colon + 2);
  }
  if (vendor.empty() || family.empty()) GTEST_SKIP() << "/proc/cpuinfo does not tell";
  EXPECT_EQ(std::to_string(cpu_features().amd_family), vendor == "AuthenticAMD" ? family : "0");
}

TEST(Cpu, ListsInstructionSetsWeakestFirst) {
  const auto isas = supported_isas();
  ASSERT_FALSE(isas.empty());
  EXPECT_EQ(isas.front(), Isa::kAvx2);
  EXPECT_TRUE(std::is_sorted(isas.begin(), isas.end()));
  const auto has = [&](Isa isa) { return std::find(isas.begin(), isas.end(), isa) != isas.end(); };
  EXPECT_EQ(has(Isa::kAvx512), cpu_features().avx512);
  EXPECT_EQ(has(Isa::kAvx512Bf16), cpu_features().avx512_bf16);
  EXPECT_LE(isas.size(), kIsaCount);
}

TEST(Cpu, SwitchesAmongSupportedInstructionSets) {
  const Isa before = active_isa();
  for (const Isa isa : supported_isas()) {
    set_active_isa(isa);
    EXPECT_EQ(active_isa(), isa);
  }
  set_active_isa(before);
}

TEST(CpuDeathTest, RefusesAnUnsupportedInstructionSet) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  if (supported_isas().back() == Isa::kAmx) GTEST_SKIP() << "this machine has them all";
  EXPECT_DEATH(set_active_isa(Isa::kAmx), "amx is not supported here");
}

// The choice is made once in a process, so each case runs in a process of its own.
TEST(CpuDeathTest, TheEnvironmentLowersTheChoiceAndNeverRaisesIt) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto choice_with = [](const char* wanted) {
    setenv("JIGE_ISA", wanted, 1);
    std::fprintf(stderr, "chose %s;", isa_name(active_isa()));
    std::exit(0);
  };
  const std::string best = isa_name(supported_isas().back());
  const auto exited = testing::ExitedWithCode(0);
  EXPECT_EXIT(choice_with("avx2"), exited, "chose avx2;");
  EXPECT_EXIT(choice_with("amx"), exited, "chose " + best + ";");
  EXPECT_EXIT(choice_with("unknown"), exited, "chose " + best + ";");
}

}  // namespace
}  // namespace jige
