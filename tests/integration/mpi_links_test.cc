// Links between ranks of an MPI program, on this machine. Skips where there is no MPI.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <nlohmann/json.hpp>

#include "integration/ended_by_signal.h"
#include "integration/process.h"
#include "integration/solo_rates.h"

namespace jige::integration {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr int kNotFound = 3, kUnsupported = 5;

// Words of a profile between ranks, with a store of the test's own.
class MpiLinks : public ::testing::Test {
 protected:
  Outcome run(std::vector<std::string> words, const std::string& places = "3") const {
    words.insert(words.end(), {"--mpi", places, "--store", folder_ / "mpi.jsonl", "--set-seconds",
                               "0.2", "--transfer-bytes", "1M", "--json", "--quiet"});
    return run_jige(words);
  }
  // What is missing here, if anything is.
  std::string missing() const {
    const Outcome tried =
        run_jige({"profile", "links", "solo", "--mpi", "2", "--set-seconds", "0"});
    const bool absent = tried.exit_code == kNotFound || tried.exit_code == kUnsupported;
    return absent ? tried.err : "";
  }

  TestFolder folder_;
};

TEST_F(MpiLinks, WhatIsMissingIsNamedWithItsPackage) {
  const Outcome none = run_jige({"profile", "links", "solo", "--mpi", "2", "--mpirun", "nowhere"});
  EXPECT_THAT(none.exit_code, AnyOf(kNotFound, kUnsupported));
  EXPECT_THAT(none.err, AnyOf(HasSubstr("install openmpi-bin"), HasSubstr("libopenmpi-dev")));
  EXPECT_THAT(run({"profile", "links", "solo"}, "a=host:n1,cpu0").err,
              HasSubstr("\"cpu0\" is no [NAME=]host:HOST"));
  EXPECT_THAT(run_jige({"profile", "links", "solo", "--mpi", "2", "--shm", "2"}).err,
              HasSubstr("--shm and --mpi do not go together"));
}

TEST_F(MpiLinks, AreProfiledAndPlanned) {
  if (const std::string why = missing(); !why.empty()) GTEST_SKIP() << why;
  const auto three = [&](std::vector<std::string> words) { return run(std::move(words)); };
  ASSERT_EQ(expect_solo_rates(three, 6).size(), 6u);
  EXPECT_EQ(run({"profile", "links", "pairs"}).json_lines().size(), 9u);
  const Outcome subsets = run({"profile", "links", "all-subsets", "--set",
                               "rank0>rank1:send,rank1>rank2:send,rank2>rank0:send"});
  EXPECT_EQ(subsets.exit_code, 0) << subsets.err;
  EXPECT_EQ(subsets.json_lines().size(), 7u);
  const Outcome planned = run({"plan", "rings", "--budget-seconds", "2"});
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  EXPECT_EQ(planned.json()["rates"], "measured");
  EXPECT_EQ(planned.json()["ring"]["order"].size(), 3u);
  EXPECT_THAT(run({"profile", "links", "all-reduce"}).err, HasSubstr("--hosts or --shm"));

  // The same places by other means are another fingerprint.
  const Outcome other =
      run_jige({"profile", "links", "solo", "--shm", "3", "--store", folder_ / "mpi.jsonl"});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("- environment transport MPI"));
}

TEST_F(MpiLinks, SignalsEndAllRanks) {
  if (const std::string why = missing(); !why.empty()) GTEST_SKIP() << why;
  for (const int signal : {SIGINT, SIGHUP, SIGKILL}) {
    SCOPED_TRACE(signal);
    expect_signal_ends({"profile", "links", "solo", "--mpi", "2", "--set-seconds", "60",
                        "--transfer-bytes", "1G", "--timeout", "100"},
                       signal, 3);  // mpirun and two ranks
  }
}

}  // namespace
}  // namespace jige::integration
