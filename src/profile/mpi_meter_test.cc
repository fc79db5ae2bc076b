// The meter over ranks of an MPI program on this machine, and what stands in for a launcher.
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

std::vector<MpiPlace> places(const std::string& text) {
  auto parsed = parse_mpi_places(text, usable_processors(), "test");
  EXPECT_TRUE(parsed) << parsed.error().message;
  return std::move(*parsed);
}

std::string refusal(const std::string& text) {
  const auto parsed = parse_mpi_places(text, usable_processors(), "test");
  return parsed ? "accepted" : parsed.error().message;
}

TEST(MpiPlaces, AreOfThisMachineOrOtherHosts) {
  EXPECT_EQ(places("3").size(), 3u);
  const std::vector<MpiPlace> hosts = places("a=host:node1,host:10.0.0.2");
  ASSERT_EQ(hosts.size(), 2u);
  EXPECT_EQ(hosts[0].place.name, "a");
  EXPECT_EQ(hosts[0].host, "node1");
  EXPECT_EQ(hosts[1].place.name, "10.0.0.2");
  const topology::Description d = mpi_description(hosts, {});
  EXPECT_EQ(d.components[0].address, "node1");
  EXPECT_EQ(d.links[0].kind, topology::LinkKind::kNetwork);
}

TEST(MpiPlaces, MistakesAreNamed) {
  EXPECT_THAT(refusal("host:a,cpu0"), HasSubstr("\"cpu0\" is no [NAME=]host:HOST"));
  EXPECT_THAT(refusal("host:a,host:"), HasSubstr("\"host:\" is no"));
  EXPECT_THAT(refusal("host:a,b=host:a"), HasSubstr("\"b=host:a\" is there twice"));
  EXPECT_THAT(refusal("a=host:n1,a=host:n2"), HasSubstr("there twice"));
  EXPECT_THAT(refusal("host:a"), HasSubstr("names 1 places"));
  EXPECT_THAT(refusal("host:a,host:b -x"), HasSubstr("is no [NAME=]host:HOST"));
  EXPECT_THAT(refusal("1"), HasSubstr("must be 2 to 64"));
}

// What a launcher that is none does to a meter: `script` is a shell's.
std::string error_with(const std::string& script, double start_s = 5) {
  MpiMeterOptions options;
  options.launch = {.launcher = {"sh", "-c", script, "sh"}, .program = "/bin/true"};
  options.start_timeout_s = start_s;
  const auto meter = MpiMeter::start(places("2"), options);
  return meter ? "started" : meter.error().message;
}

TEST(MpiMeter, ALauncherThatFailsIsQuoted) {
  const std::string error = error_with("echo '---- no  slots ----' >&2; exit 3");
  EXPECT_THAT(error, HasSubstr("sh ended with code 3"));
  EXPECT_THAT(error, HasSubstr("(no slots)"));
  EXPECT_THAT(error_with("echo hello, this is no message; sleep 9"),
              HasSubstr("does not begin like a message"));
  const StopWatch clock;
  EXPECT_THAT(error_with("sleep 60", 0.2), HasSubstr("sh"));
  EXPECT_LT(clock.seconds(), 10) << "it is ended with what it started";
}

TEST(MpiMeter, WhatIsMissingIsNamedWithItsPackage) {
  MpiMeterOptions options;
  options.launch = {.launcher = {"jige-no-such-launcher"}, .program = "/bin/true"};
  const auto no_launcher = MpiMeter::start(places("2"), options);
  EXPECT_EQ(no_launcher.error().code, Code::kNotFound);
  EXPECT_THAT(no_launcher.error().message, HasSubstr("install openmpi-bin"));
  options.launch = {.launcher = {"sh"}, .program = "/nowhere/jige-mpi-links"};
  const auto no_program = MpiMeter::start(places("2"), options);
  EXPECT_EQ(no_program.error().code, Code::kUnsupported);
  EXPECT_THAT(no_program.error().message, HasSubstr("install libopenmpi-dev"));
}

#ifdef JIGE_MPI_LINKS

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
    auto started = MpiMeter::start(places(where), options);
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

#endif  // JIGE_MPI_LINKS

}  // namespace
}  // namespace jige::profile
