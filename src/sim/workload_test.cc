#include "sim/workload.h"
#include "base/test_fuzz_rounds.h"
#include "base/test_mutator.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace jige::sim {
namespace {

struct Moments {
  double mean = 0, variance = 0;
};

Moments moments_of_gaps(double shape, double rate) {
  const Workload load =
      make_workload({.request_count = 40'000, .rate_per_s = rate, .burst_shape = shape, .seed = 5});
  double last = 0, sum = 0, squares = 0;
  for (const RequestShape& request : load.requests) {
    const double gap = request.arrival_s - last;
    EXPECT_GE(gap, 0);
    last = request.arrival_s;
    sum += gap;
    squares += gap * gap;
  }
  const double mean = sum / 40'000;
  return {mean, squares / 40'000 - mean * mean};
}

// A gamma distribution of shape k and mean m has the variance m * m / k.
TEST(Workload, GapsHaveTheMeanOfTheRateAndTheVarianceOfTheShape) {
  for (const double shape : {0.25, 1.0, 4.0}) {
    const Moments gaps = moments_of_gaps(shape, 8);
    EXPECT_NEAR(gaps.mean * 8, 1, 0.03) << shape;
    EXPECT_NEAR(gaps.variance * 64 * shape, 1, 0.08) << shape;
  }
}

TEST(Workload, AnotherRateBringsTheSameRequestsFaster) {
  WorkloadOptions options{.request_count = 50, .rate_per_s = 1, .lengths = orca_lengths()};
  const Workload slow = make_workload(options);
  options.rate_per_s = 10;
  const Workload fast = make_workload(options);
  options.rate_per_s = 0;
  const Workload at_once = make_workload(options);
  for (size_t i = 0; i < 50; ++i) {
    EXPECT_NEAR(slow.requests[i].arrival_s, 10 * fast.requests[i].arrival_s, 1e-9);
    EXPECT_EQ(at_once.requests[i].arrival_s, 0);
    EXPECT_EQ(slow.requests[i].prompt_tokens, fast.requests[i].prompt_tokens);
    EXPECT_EQ(slow.requests[i].output_tokens, at_once.requests[i].output_tokens);
  }
  options.seed = 2;
  EXPECT_NE(make_workload(options).requests[0].prompt_tokens, slow.requests[0].prompt_tokens);
}

TEST(Workload, LengthsOfOrcaFillTheirRanges) {
  const Workload load = make_workload({.request_count = 20'000, .lengths = orca_lengths()});
  std::set<int64_t> prompts, outputs;
  double prompt_sum = 0, output_sum = 0;
  for (const RequestShape& request : load.requests) {
    prompts.insert(request.prompt_tokens);
    outputs.insert(request.output_tokens);
    prompt_sum += static_cast<double>(request.prompt_tokens);
    output_sum += static_cast<double>(request.output_tokens);
  }
  EXPECT_EQ(*prompts.begin(), 32);
  EXPECT_EQ(*prompts.rbegin(), 512);
  EXPECT_EQ(prompts.size(), 481u);
  EXPECT_EQ(outputs.size(), 128u);
  EXPECT_NEAR(prompt_sum / 20'000, 272, 3);
  EXPECT_NEAR(output_sum / 20'000, 64.5, 1);
}

TEST(Workload, ChatLengthsHaveThePublishedMeans) {
  const Workload load = make_workload({.request_count = 50'000, .lengths = chat_lengths()});
  double prompt_sum = 0, output_sum = 0;
  for (const RequestShape& request : load.requests) {
    prompt_sum += static_cast<double>(request.prompt_tokens);
    output_sum += static_cast<double>(request.output_tokens);
  }
  EXPECT_NEAR(prompt_sum / 50'000, 161, 5);
  EXPECT_NEAR(output_sum / 50'000, 338, 5);
}

TEST(Workload, ReadsLengths) {
  const auto constant = parse_length("128", "--x");
  ASSERT_TRUE(constant);
  EXPECT_EQ(constant->low, 128);
  EXPECT_EQ(constant->high, 128);
  const auto uniform = parse_length("32:512", "--x");
  ASSERT_TRUE(uniform);
  EXPECT_EQ(uniform->high, 512);
  const auto log_normal = parse_length("lognormal:100:0.5", "--x");
  ASSERT_TRUE(log_normal);
  EXPECT_EQ(log_normal->median, 100);
  for (const char* bad :
       {"", "0", "-1", "5:4", "1:2:3", "a", "1:", ":", "99999999", "lognormal", "lognormal:0:1",
        "lognormal:5", "lognormal:5:x", "lognormal:5:99", "lognormal:nan:1"}) {
    const auto length = parse_length(bad, "--prompt-tokens");
    ASSERT_FALSE(length) << bad;
    EXPECT_NE(length.error().message.find("--prompt-tokens"), std::string::npos);
  }
}

TEST(Workload, ExtremeLogNormalsStayInside) {
  const auto length = parse_length("lognormal:1000:10", "--x");
  ASSERT_TRUE(length);
  Rng rng(1);
  for (int i = 0; i < 10'000; ++i) {
    const int64_t drawn = length->draw(rng);
    ASSERT_GE(drawn, 1);
    ASSERT_LE(drawn, kLengthMax);
  }
}

TEST(Workload, ReadsTraceLines) {
  const auto shape =
      parse_trace_line(R"({"arrival_s":1.5,"prompt_tokens":7,"output_tokens":3,"x":1})", "t:1");
  ASSERT_TRUE(shape);
  EXPECT_EQ(shape->arrival_s, 1.5);
  EXPECT_EQ(shape->prompt_tokens, 7);
  for (const char* bad : {"", "[]", "{}", R"({"arrival_s":-1,"prompt_tokens":7,"output_tokens":3})",
                          R"({"arrival_s":0,"prompt_tokens":0,"output_tokens":3})",
                          R"({"arrival_s":0,"prompt_tokens":7,"output_tokens":1e30})",
                          R"({"arrival_s":"0","prompt_tokens":7,"output_tokens":3})"}) {
    const auto broken = parse_trace_line(bad, "load.jsonl:9");
    ASSERT_FALSE(broken) << bad;
    EXPECT_NE(broken.error().message.find("load.jsonl:9"), std::string::npos);
  }
}

TEST(Workload, DamagedTraceLinesAreRefusedOrWithinTheirRanges) {
  int read = 0;
  for (uint64_t seed = 0; seed < fuzz_rounds(3000); ++seed) {
    const std::string line =
        Mutator(seed).mutate(R"({"arrival_s":1.5,"prompt_tokens":7,"output_tokens":3})");
    const auto shape = parse_trace_line(line, "load.jsonl:9");
    if (!shape) {
      ASSERT_NE(shape.error().message.find("load.jsonl:9"), std::string::npos) << line;
      continue;
    }
    ++read;
    ASSERT_TRUE(shape->arrival_s >= 0 && shape->arrival_s <= 1e9) << line;
    ASSERT_TRUE(shape->prompt_tokens >= 1 && shape->prompt_tokens <= kLengthMax) << line;
    ASSERT_TRUE(shape->output_tokens >= 1 && shape->output_tokens <= kLengthMax) << line;
    Workload load{.requests = {*shape, {2e9, 1, 1}}};
    rescale_arrivals(load.requests, 3);
    cut_to_context(load, 20);
    ASSERT_TRUE(std::isfinite(load.requests.back().arrival_s)) << line;
  }
  EXPECT_GT(read, 30);
}

TEST(Workload, RescalesATraceToARate) {
  std::vector<RequestShape> requests = {{10, 1, 1}, {11, 1, 1}, {14, 1, 1}, {18, 1, 1}};
  rescale_arrivals(requests, 2);  // four requests in two seconds
  EXPECT_DOUBLE_EQ(requests[0].arrival_s, 0);
  EXPECT_DOUBLE_EQ(requests[1].arrival_s, 0.25);
  EXPECT_DOUBLE_EQ(requests[3].arrival_s, 2);
  rescale_arrivals(requests, 0);
  EXPECT_EQ(requests[3].arrival_s, 0);
  rescale_arrivals(requests, 5);
  EXPECT_EQ(requests[3].arrival_s, 0) << "what came at once stays so";
}

TEST(Workload, CutsToTheContextAndCounts) {
  Workload load{.requests = {{0, 10, 5}, {0, 10, 100}, {0, 100, 5}}};
  cut_to_context(load, 20);
  EXPECT_EQ(load.cut_count, 2);
  EXPECT_EQ(load.requests[0].output_tokens, 5);
  EXPECT_EQ(load.requests[1].output_tokens, 10);
  EXPECT_EQ(load.requests[2].prompt_tokens, 19);
  EXPECT_EQ(load.requests[2].output_tokens, 1);
}

TEST(Workload, PromptsDoNotRepeat) {
  std::set<std::vector<int32_t>> beginnings;
  for (uint64_t key = 0; key < 5; ++key) {
    for (uint64_t index = 0; index < 200; ++index) {
      std::vector<int32_t> prompt = random_prompt(key, index, 20, 96);
      for (const int32_t token : prompt) ASSERT_TRUE(0 <= token && token < 96);
      EXPECT_EQ(prompt, random_prompt(key, index, 20, 96));
      prompt.resize(16);
      beginnings.insert(prompt);
    }
  }
  EXPECT_EQ(beginnings.size(), 1000u);
}

}  // namespace
}  // namespace jige::sim
