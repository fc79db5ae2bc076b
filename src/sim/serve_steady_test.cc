// The closed form of steady states beside the simulation of the scheduler that it is of.
#include "plan/serve_steady.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "sim/serve_simulation.h"

namespace jige::sim {
namespace {

using plan::ServePolicy;

constexpr StepTime kSteadyStep{.base_s = 0.02, .token_s = 3e-4, .kv_token_s = 4e-6};
constexpr int64_t kRequests = 1500;

double steady_seconds(const plan::StepLoad& load) {
  return kSteadyStep.base_s + kSteadyStep.token_s * load.rows() +
         kSteadyStep.kv_token_s * load.kv_tokens;
}

// The rows of next tokens in each iteration.
class RowCounter final : public SimulationObserver {
 public:
  void on_batch(const plan::Batch& batch) override {
    int64_t next = 0;
    for (const plan::WorkItem& item : batch.items) {
      next += item.context_count > 0 && item.samples && item.tokens.size() == 1;
    }
    rows_.push_back(static_cast<double>(next));
  }
  // Of those that have some, in the middle of the run.
  double mean() const {
    double sum = 0, count = 0;
    for (size_t i = rows_.size() / 6; i < rows_.size() * 5 / 6; ++i) {
      sum += rows_[i];
      count += rows_[i] > 0;
    }
    return sum / count;
  }

 private:
  std::vector<double> rows_;
};

struct SteadyCase {
  plan::SteadyOptions options;
  double tolerance = 0.05;
};

struct Measured {
  double rows = 0, requests_per_s = 0, answer_s = 0;
  int32_t blocks = 0;
};

Measured measure(std::span<const RequestShape> requests, const plan::SteadyOptions& steady) {
  ServeSimulationOptions options;
  options.scheduler.policy = steady.policy;
  options.scheduler.batch_requests_max = steady.batch_requests_max;
  options.scheduler.batch_tokens_max = steady.batch_tokens_max;
  options.scheduler.round_prompts = steady.round_prompts;
  options.scheduler.round_steps = steady.round_steps;
  options.scheduler.pool = {.block_count = steady.block_count, .prefix_cache = false};
  options.step = kSteadyStep;
  options.users = static_cast<int64_t>(steady.users);
  RowCounter rows;
  const auto result = simulate_serve(requests, options, &rows);
  std::vector<double> ends, answers;
  for (const RequestOutcome& outcome : result->outcomes) {
    ends.push_back(outcome.end_s);
    answers.push_back(outcome.end_s - outcome.start_s);
  }
  std::ranges::sort(ends);
  // What ends between two moments, whole batches where many end at once.
  const double begin_s = ends[ends.size() / 6], end_s = ends[ends.size() * 5 / 6];
  const auto count =
      std::ranges::count_if(ends, [&](double at) { return at > begin_s && at <= end_s; });
  return {.rows = rows.mean(),
          .requests_per_s = static_cast<double>(count) / (end_s - begin_s),
          .answer_s = summarise(answers).mean,
          .blocks = result->kv_blocks_live_max};
}

void compare(const std::string& name, const LengthPair& lengths,
             const std::vector<SteadyCase>& cases) {
  const Workload load = make_workload({.request_count = kRequests, .lengths = lengths, .seed = 11});
  std::vector<plan::RequestLengths> pairs;
  for (const RequestShape& shape : load.requests) {
    pairs.push_back({shape.prompt_tokens, shape.output_tokens});
  }
  const plan::LengthModel model(pairs, plan::KvBlockPoolOptions().block_tokens);
  for (const SteadyCase& one : cases) {
    SCOPED_TRACE(testing::Message()
                 << name << ", " << policy_name(one.options.policy) << ", "
                 << one.options.batch_requests_max << " rows, " << one.options.round_prompts << "/"
                 << one.options.round_steps << ", users " << one.options.users);
    const plan::SteadyState state = plan::steady_state(model, one.options, steady_seconds);
    const Measured measured = measure(load.requests, one.options);
    EXPECT_NEAR(state.next_rows / measured.rows, 1, one.tolerance);
    EXPECT_NEAR(state.requests_per_s / measured.requests_per_s, 1, one.tolerance);
    EXPECT_LT(measured.blocks, state.blocks_peak * 1.1);
    EXPECT_GT(measured.blocks, state.blocks_mean * 0.9);
    if (one.options.users > 0) {
      EXPECT_NEAR((state.wait_s + state.answer_s) / measured.answer_s, 1, 2 * one.tolerance);
    }
  }
}

const std::vector<SteadyCase> kSteadyCases = {
    {{.policy = ServePolicy::kRounds,
      .batch_requests_max = 64,
      .round_prompts = 3,
      .round_steps = 8,
      .block_count = 4096}},
    {{.policy = ServePolicy::kRounds,
      .batch_requests_max = 12,
      .round_prompts = 8,
      .round_steps = 4,
      .block_count = 4096}},
    {{.policy = ServePolicy::kRounds, .round_prompts = 8, .round_steps = 4, .block_count = 60},
     0.08},
    {{.policy = ServePolicy::kRounds,
      .round_prompts = 8,
      .round_steps = 8,
      .block_count = 4096,
      .users = 10}},
    {{.policy = ServePolicy::kOrca, .batch_requests_max = 12, .block_count = 4096}},
    {{.policy = ServePolicy::kOrca, .block_count = 60}, 0.08},
    {{.policy = ServePolicy::kChunked, .batch_requests_max = 12, .block_count = 4096}},
    {{.policy = ServePolicy::kChunked,
      .batch_requests_max = 12,
      .batch_tokens_max = 40,
      .block_count = 4096},
     0.08},
    {{.policy = ServePolicy::kStatic, .batch_requests_max = 12, .block_count = 4096}},
};

TEST(ServeSteadySimulated, UniformLengths) {
  compare("uniform", {.prompt = {.low = 4, .high = 60}, .output = {.low = 1, .high = 40}},
          kSteadyCases);
}

TEST(ServeSteadySimulated, LengthsWithALongTail) {
  compare("log-normal",
          {.prompt = {.low = 1, .high = 200, .median = 20, .sigma = 0.8},
           .output = {.low = 1, .high = 200, .median = 12, .sigma = 0.8}},
          kSteadyCases);
}

}  // namespace
}  // namespace jige::sim
