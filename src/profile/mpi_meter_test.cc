// Places of the meter over MPI, and what stands in for a launcher. With a real one:
// tests/mpi/mpi_meter_test.cc.
#include "profile/mpi_meter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/clock.h"

namespace jige::profile {
namespace {

using ::testing::HasSubstr;

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
  EXPECT_THAT(refusal("host:a"), HasSubstr("must be 2 to 64, not 1"));
  EXPECT_THAT(refusal("host:a,host:b -x"), HasSubstr("is no [NAME=]host:HOST"));
  EXPECT_THAT(refusal("1"), HasSubstr("places must be 2 to 64"));
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

TEST(MpiMeter, IsCancelledWhileTheLauncherStarts) {
  std::atomic<bool> cancelled = false;
  MpiMeterOptions options;
  options.launch = {.launcher = {"sh", "-c", "sleep 60", "sh"}, .program = "/bin/true"};
  options.cancelled = &cancelled;
  const std::jthread canceller([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    cancelled = true;
  });
  const StopWatch clock;
  const auto meter = MpiMeter::start(places("2"), options);
  EXPECT_EQ(meter.error().code, Code::kCancelled);
  EXPECT_LT(clock.seconds(), 10);
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

}  // namespace
}  // namespace jige::profile
