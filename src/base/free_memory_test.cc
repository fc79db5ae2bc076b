#include "base/free_memory.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace jige {
namespace {

TEST(FreeMemory, IsWhatTheKernelAndTheGroupLeave) {
  const std::string meminfo =
      "MemTotal:       32000 kB\nMemFree:  100 kB\nMemAvailable:   16000 kB\n";
  EXPECT_EQ(free_bytes_of({}), INT64_MAX);
  EXPECT_EQ(free_bytes_of({.meminfo = meminfo}), 16000 * 1024);
  EXPECT_EQ(free_bytes_of({.meminfo = meminfo, .limit = "max\n", .used = "77\n"}), 16000 * 1024);
  const MemoryFiles tight{.meminfo = meminfo, .limit = "5000\n", .used = "3000\n"};
  EXPECT_EQ(free_bytes_of(tight), 2000);
  MemoryFiles cached = tight;
  cached.stat = "active_file 9\ninactive_file 1000\n";
  EXPECT_EQ(free_bytes_of(cached), 3000);
  cached.stat += "total_inactive_file 2000\n";
  EXPECT_EQ(free_bytes_of(cached), 4000);
  cached.stat = "inactive_file 90000\n";
  EXPECT_EQ(free_bytes_of(cached), 5000);
  MemoryFiles full = tight;
  full.used = "6000\n";
  EXPECT_EQ(free_bytes_of(full), 0);
}

TEST(FreeMemory, IsSomethingHere) { EXPECT_GT(host_free_bytes(), 0); }

}  // namespace
}  // namespace jige
