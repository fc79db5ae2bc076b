// That measuring the machine keeps to the time it is given.

#include "cli/machine_rates.h"

#include <gtest/gtest.h>

#include "cli/bench.h"

namespace jige::cli {
namespace {

TEST(MachineRates, TheArrayIsWhatCouldBeTouchedInTimeButNoLessThanItMustBe) {
  CpuDevice device({.thread_count = 1});
  constexpr int64_t kLeast = int64_t{40} << 20;
  constexpr int64_t kBytes = int64_t{80} << 20;
  const auto bytes_of = [&](const ReadProbe::Size& size) {
    const auto probe = *ReadProbe::create(device, size);
    probe->run();
    return probe->bytes();
  };
  EXPECT_EQ(bytes_of({.bytes = kBytes, .bytes_min = kLeast}), kBytes);
  EXPECT_EQ(bytes_of({.bytes = kBytes, .seconds = 0, .bytes_min = kLeast}), 64 << 20)
      << "touched by 32 MiB";
}

TEST(MachineRates, AreMeasuredInNoTimeWhereNoneIsGiven) {
  CpuDevice device({.thread_count = 1});
  MachineRates rates;
  std::vector<std::string> details;
  const auto note = [&](const Measurement& found) { details.push_back(found.detail); };
  ASSERT_TRUE(bench_machine(device, 0, rates, note, int64_t{40} << 20));
  EXPECT_GT(rates.fma_flops_per_s, 0);
  EXPECT_GT(rates.read_bytes_per_s, 0);
  ASSERT_EQ(details.size(), 2u);
  EXPECT_EQ(details[1], "reading 64 MiB") << "touched by 32 MiB";
}

}  // namespace
}  // namespace jige::cli
