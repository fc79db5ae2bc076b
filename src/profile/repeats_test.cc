#include "profile/repeats.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/file.h"
#include "base/rng.h"
#include "base/test_fuzz_rounds.h"
#include "base/test_mutator.h"
#include "base/test_path.h"
#include "profile/host_list.h"
#include "topology/topology.h"

namespace jige::profile {
namespace {

TEST(Repeats, SummaryIsStudentsInterval) {
  const double values[] = {9, 10, 11, 10};
  const SeriesSummary s = summarise(values);
  EXPECT_DOUBLE_EQ(s.mean, 10);
  EXPECT_NEAR(s.deviation, std::sqrt(2.0 / 3) / 10, 1e-12);
  EXPECT_NEAR(s.half_width, 3.182 * std::sqrt(2.0 / 3) / 10 / 2, 1e-12);
  EXPECT_TRUE(std::isinf(summarise(std::span(values).first(1)).half_width));
}

TEST(Repeats, IntervalsCoverTheTruthNineteenTimesInTwenty) {
  Rng rng(7);
  int covered = 0;
  constexpr int kTrials = 4000;
  for (int trial = 0; trial < kTrials; ++trial) {
    double values[5];
    for (double& v : values) v = 100 + 5 * rng.normal();
    const SeriesSummary s = summarise(values);
    covered += std::fabs(s.mean - 100) <= s.half_width * s.mean;
  }
  EXPECT_NEAR(covered / static_cast<double>(kTrials), 0.95, 0.012);
}

TEST(Repeats, EndsWhenTheIntervalIsNarrowOrTheTimeIsUp) {
  Repeats quiet({.count_min = 4, .half_width_max = 0.03});
  for (int i = 0; i < 3; ++i) {
    quiet.add(1);
    EXPECT_FALSE(quiet.done(100)) << "too few values";
  }
  quiet.add(1.001);
  EXPECT_TRUE(quiet.done(0));
  Repeats loud({.count_min = 4, .count_max = 30, .half_width_max = 0.03, .seconds_max = 5});
  for (int i = 0; i < 10; ++i) loud.add(i % 2 ? 1.0 : 1.18);
  EXPECT_FALSE(loud.done(4));
  EXPECT_TRUE(loud.done(5));
  for (int i = 0; i < 20; ++i) loud.add(i % 2 ? 1.0 : 1.18);
  EXPECT_TRUE(loud.done(0)) << "count_max";
  EXPECT_EQ(loud.changes(), 0);
}

TEST(Repeats, AChangedRateBeginsTheSeriesAnew) {
  Repeats repeats({.count_min = 4});
  for (int i = 0; i < 5; ++i) repeats.add(1 + 0.01 * i);
  for (int i = 0; i < 3; ++i) repeats.add(2 + 0.01 * i);
  EXPECT_EQ(repeats.changes(), 1);
  EXPECT_EQ(repeats.dropped(), 5u);
  repeats.add(2);
  EXPECT_NEAR(repeats.summary().mean, 2, 0.02);
}

TEST(Repeats, NoiseAloneIsHardlyEverAChange) {
  Rng rng(3);
  int changes = 0;
  for (int trial = 0; trial < 300; ++trial) {
    Repeats repeats({});
    for (int i = 0; i < 20; ++i) repeats.add(1 + 0.05 * rng.normal());
    changes += repeats.changes();
  }
  EXPECT_EQ(changes, 0);
}

TEST(HostList, ReadsAListAndAFile) {
  const auto list = parse_hosts("a=10.0.0.1, b=10.0.0.2:9000,c=[::1]:7", "--hosts");
  ASSERT_TRUE(list) << list.error().message;
  ASSERT_EQ(list->size(), 3u);
  EXPECT_EQ((*list)[0].address.text(), "10.0.0.1:7431");
  EXPECT_EQ((*list)[1].name, "b");
  EXPECT_EQ((*list)[1].address.port, 9000);
  EXPECT_EQ((*list)[2].address.host, "::1");
  const auto description = hosts_description(*list, {{"tcp congestion", "bbr"}});
  const auto network = topology::Topology::create(description, "hosts");
  ASSERT_TRUE(network) << network.error().message;
  EXPECT_EQ(network->of_kind(topology::ComponentKind::kHost).size(), 3u);
}

TEST(HostList, NamesWhatIsWrong) {
  const auto message = [](std::string_view text) {
    const auto hosts = parse_hosts(text, "--hosts");
    return hosts ? std::string("accepted") : hosts.error().message;
  };
  EXPECT_EQ(message("a"), "--hosts: \"a\" is no NAME=ADDRESS[:PORT]");
  EXPECT_EQ(message("=1"), "--hosts: \"=1\" is no NAME=ADDRESS[:PORT]");
  EXPECT_NE(message("a=x:99999").find("not HOST:PORT"), std::string::npos);
  EXPECT_NE(message("a=x,a=y").find("has the name or address of a"), std::string::npos);
  EXPECT_NE(message("a=x,b=x").find("has the name or address of a"), std::string::npos);
  EXPECT_EQ(message(""), "--hosts: \"\" is no NAME=ADDRESS[:PORT]");
  EXPECT_EQ(message("a=x, "), "--hosts: \"\" is no NAME=ADDRESS[:PORT]");
  EXPECT_FALSE(load_hosts("/nowhere/hosts.txt"));
}

TEST(HostList, DamagedFilesAreRefusedOrNameHosts) {
  const std::string path = test_path("hosts.txt");
  int read = 0;
  for (uint64_t seed = 0; seed < fuzz_rounds(1000); ++seed) {
    const std::string damaged = Mutator(seed).mutate(
        "# two machines\nnode1 = 10.0.0.1\nnode2=[fe80::1]:7000  # a port\nc=host.name:65535\n");
    ASSERT_TRUE(write_file_atomic(path, damaged));
    const auto hosts = load_hosts(path);
    if (!hosts) {
      ASSERT_EQ(hosts.error().message.find(path), 0u) << seed;
      continue;
    }
    ++read;
    for (const Host& host : *hosts) {
      ASSERT_TRUE(host.address.port >= 0 && host.address.port <= 65535) << seed;
      ASSERT_FALSE(host.address.host.empty()) << seed;
    }
    // Names are looked at there.
    const auto network = topology::Topology::create(hosts_description(*hosts, {}), "hosts");
    ASSERT_TRUE(network || network.error().message.starts_with("hosts: ")) << seed;
  }
  EXPECT_GT(read, 100);
}

}  // namespace
}  // namespace jige::profile
