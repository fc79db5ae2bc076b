#include "api/load_report.h"

#include <gtest/gtest.h>

#include <string>

#include "base/rng.h"
#include "base/test_fuzz_rounds.h"

namespace jige::api {
namespace {

std::string told(std::string_view metrics) {
  const auto report = read_load_report(metrics);
  return report ? std::to_string(report->running) + " " + std::to_string(report->waiting) : "-";
}

TEST(LoadReport, ReadsTheGaugesOfSeveralServers) {
  EXPECT_EQ(
      told("# HELP jige:num_requests_running Answers.\n# TYPE jige:num_requests_running gauge\n"
           "jige:num_requests_running 3\njige:num_requests_waiting 4\n"),
      "3.000000 4.000000");
  EXPECT_EQ(told("vllm:num_requests_running{engine=\"0\",model_name=\"a } 9\"} 2.0\n"
                 "vllm:num_requests_running{engine=\"1\",model_name=\"a\"} 1.0 1700000000\r\n"
                 "vllm:num_requests_waiting{engine=\"1\"} 5.0"),
            "3.000000 5.000000");
  EXPECT_EQ(told("sglang:num_running_reqs{model_name=\"a\"} 2\n"), "2.000000 0.000000");
  EXPECT_EQ(told("llamacpp:requests_processing 1\nllamacpp:requests_deferred 6\n"),
            "1.000000 6.000000");
  EXPECT_EQ(told("jige_route:num_requests_waiting 1\njige_route:num_requests_running 2\n"),
            "2.000000 1.000000");
}

TEST(LoadReport, PassesOverWhatItIsNot) {
  for (const char* text :
       {"", "\n\n", "jige:num_requests_running", "jige:num_requests_running\n",
        "jige:num_requests_running -1", "jige:num_requests_running nan",
        "jige:num_requests_running inf", "jige:num_requests_running 1e300",
        "jige:num_requests_running 3x", "jige:num_requests_running{a=\"b\" 3",
        "jige:num_requests_running_total 3", "x jige:num_requests_running 3",
        "# jige:num_requests_running 3", "jige:num_requests_running3",
        "jige:num_requests_waiting 3", "<html>jige:num_requests_running 3</html>"}) {
    EXPECT_EQ(told(text), "-") << text;
  }
}

TEST(LoadReport, TakesAnyBytes) {
  const std::string good =
      "# HELP x y\nvllm:num_requests_running{engine=\"0\"} 2.0\nvllm:num_requests_waiting 5\n"
      "jige:num_requests_running 3\nother 7\njige:num_requests_waiting 99999999\n";
  int64_t read = 0;
  for (uint64_t seed = 0; seed < fuzz_rounds(8'000); ++seed) {
    Rng rng(derive_key(seed, "load damage"));
    std::string bytes = good;
    for (uint64_t i = rng.below(6); i > 0 && !bytes.empty(); --i) {
      const size_t at = rng.below(bytes.size());
      const uint64_t what = rng.below(4);
      const auto any = static_cast<char>(rng.below(256));
      if (what == 0) bytes[at] = any;
      if (what == 1) bytes.insert(at, 1, "0123456789e+-. {}\n"[rng.below(18)]);
      if (what == 2) bytes.erase(at, 1 + rng.below(8));
      if (what == 3) bytes += bytes.substr(at);
    }
    const auto report = read_load_report(bytes);
    if (!report) continue;
    ++read;
    for (const double one : {report->running, report->waiting}) {
      ASSERT_GE(one, 0) << bytes;
      ASSERT_LE(one, 1e9) << bytes;
    }
  }
  EXPECT_GT(read, 4'000);
}

}  // namespace
}  // namespace jige::api
