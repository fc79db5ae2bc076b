// The meter over ranks of an MPI program that a real launcher starts on this machine: seconds each,
// most of it waiting. Skips where there is no launcher.
#include "profile/mpi_meter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "base/clock.h"

namespace jige::profile {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using topology::Transfer;
using topology::TransferKind;

Transfer send(int32_t from, int32_t to) { return {TransferKind::kSend, from, to}; }

struct Bench {
  std::unique_ptr<MpiMeter> meter;
  std::optional<topology::Topology> machine;
  std::string missing;

  explicit Bench(const std::string& where, const std::string& program = JIGE_MPI_LINKS,
                 double run_timeout_s = 5) {
    MpiMeterOptions options{.bytes = 1 << 20, .run_timeout_s = run_timeout_s};
    options.repeats = {.count_min = 2, .count_max = 3};
    options.launch.program = program;
    auto parsed = parse_mpi_places(where, usable_processors(), "test");
    EXPECT_TRUE(parsed) << parsed.error().message;
    auto started = MpiMeter::start(std::move(*parsed), options);
    if (!started) {
      EXPECT_EQ(started.error().code, Code::kNotFound) << started.error().message;
      missing = started.error().message;
      return;
    }
    meter = std::move(*started);
    machine = std::move(*topology::Topology::create(meter->description(), "test"));
    EXPECT_TRUE(meter->use(*machine));
  }
};

TEST(MpiMeter, MeasuresSetsAndSharesBetweenRanks) {
  Bench bench("3");
  if (!bench.meter) GTEST_SKIP() << bench.missing;
  EXPECT_EQ(bench.meter->ranks().hosts.size(), 3u);
  EXPECT_THAT(bench.meter->description().environment.at("mpi"), HasSubstr("MPI"));
  const Transfer ring[] = {send(0, 1), send(1, 2), send(2, 0)};
  const auto m = bench.meter->measure(ring);
  ASSERT_TRUE(m) << m.error().message;
  EXPECT_EQ(m->gb_per_s.size(), 3u);
  EXPECT_GT(m->rate, 1e-3);
  EXPECT_GE(m->repeats, 2);
  // Rank 0 only looks on; a quarter of the bytes for the second member.
  const Transfer both[] = {send(1, 2), send(2, 1)};
  const auto shared = bench.meter->measure_shares(both, std::vector<double>{1, 0.25});
  ASSERT_TRUE(shared) << shared.error().message;
  EXPECT_GE(shared->gb_per_s[1], shared->rate * 0.25 * 0.5);
  const Transfer out[] = {send(0, 1), send(0, 2)};
  EXPECT_TRUE(bench.meter->measure(out));
  const Transfer self[] = {{TransferKind::kPush, 0, 1}};
  EXPECT_EQ(bench.meter->measure(self).error().code, Code::kInvalidArgument);
}

TEST(MpiMeter, ARankThatDiesOrStallsIsTold) {
  Bench bench("2", JIGE_MPI_LINKS, 1);
  if (!bench.meter) GTEST_SKIP() << bench.missing;
  const Transfer one[] = {send(0, 1)};
  ASSERT_TRUE(bench.meter->measure(one));
  kill(static_cast<pid_t>(bench.meter->ranks().processes[1]), SIGKILL);
  const auto gone = bench.meter->measure(one);
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().code, Code::kUnavailable);
  // Who sees it first, the launcher or rank 0, says so.
  EXPECT_THAT(gone.error().message,
              AnyOf(HasSubstr("mpirun ended with code"), HasSubstr("no answer from rank 1")));
  ASSERT_TRUE(bench.meter->measure(one)) << "all were started again";
  const int64_t stopped = bench.meter->ranks().processes[1];
  kill(static_cast<pid_t>(stopped), SIGSTOP);
  const StopWatch clock;
  const auto stalled = bench.meter->measure(one);
  ASSERT_FALSE(stalled);
  EXPECT_THAT(stalled.error().message, HasSubstr("no answer from rank 1 (rank1)"));
  EXPECT_LT(clock.seconds(), 15);
  const std::string left = fmt::format("/proc/{}", stopped);
  while (std::filesystem::exists(left) && clock.seconds() < 20) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_FALSE(std::filesystem::exists(left)) << "nothing is left behind";
}

TEST(MpiMeter, WrongContentIsFoundBeforeAnythingIsTimed) {
  Bench bench("2", JIGE_FAULTY_MPI_LINKS);
  if (!bench.meter) GTEST_SKIP() << bench.missing;
  const Transfer good[] = {send(0, 1)}, bad[] = {send(1, 0)};
  EXPECT_TRUE(bench.meter->measure(good));
  const auto wrong = bench.meter->measure(bad);
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().code, Code::kCorrupt);
  EXPECT_THAT(wrong.error().message,
              HasSubstr("rank 0 (rank0): byte 131072 of the data from rank 1 came wrong"));
}

}  // namespace
}  // namespace jige::profile
