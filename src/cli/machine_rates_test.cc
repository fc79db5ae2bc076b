// That measuring the machine keeps to the time it is given.

#include "cli/machine_rates.h"

#include <gtest/gtest.h>

#include "cli/bench.h"

namespace jige::cli {
namespace {

TEST(MachineRates, TheArrayIsWhatCouldBeTouchedInTimeButLargerThanTheCaches) {
  CpuDevice device({.thread_count = 1});
  const int64_t bytes = streaming_bytes_min() + (int64_t{64} << 20);
  EXPECT_EQ((*ReadProbe::create(device, bytes))->bytes(), static_cast<double>(bytes));
  const auto hasty = *ReadProbe::create(device, bytes, 0);
  EXPECT_GE(hasty->bytes(), static_cast<double>(streaming_bytes_min()));
  EXPECT_LT(hasty->bytes(), static_cast<double>(bytes));
  hasty->run();
}

TEST(MachineRates, AreMeasuredInNoTimeWhereNoneIsGiven) {
  CpuDevice device({.thread_count = 1});
  MachineRates rates;
  std::vector<std::string> details;
  ASSERT_TRUE(bench_machine(device, 0, rates,
                            [&](const Measurement& found) { details.push_back(found.detail); }));
  EXPECT_GT(rates.fma_flops_per_s, 0);
  EXPECT_GT(rates.read_bytes_per_s, 0);
  ASSERT_EQ(details.size(), 2u);
  const int64_t touched = (streaming_bytes_min() + (32 << 20) - 1) / (32 << 20) * 32;
  EXPECT_EQ(details[1], "reading " + std::to_string(touched) + " MiB");
}

}  // namespace
}  // namespace jige::cli
