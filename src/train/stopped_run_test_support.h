// For tests: a run that is begun in one way and ended in another, held against one without a stop.
//
// Threads: the test's.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "train/trainer_test_support.h"

namespace jige::train {

struct LoggedLosses {
  std::vector<double> losses, evals;
};

// Runs to the end, or until so many steps are done.
inline Result<LoggedLosses> train_until(const TrainOptions& options, int64_t stop_behind = 0) {
  int64_t steps = 0;
  TrainCallbacks callbacks;
  callbacks.on_step = [&](const StepInfo&) { ++steps; };
  callbacks.should_stop = [&] { return steps == stop_behind; };
  JIGE_TRY(const Run run, train(options, callbacks));
  LoggedLosses logged{.losses = run.losses, .evals = {}};
  for (const EvalInfo& info : run.evals) logged.evals.push_back(info.loss);
  return logged;
}

// Every way begins a run for two steps and the next one ends it, with another micro-batch and two
// threads: losses and the file `result` have the bits of a run without a stop, which is in the
// folder of "whole". `options_of` gives the options of a run by the name of its folder.
inline void expect_bits_however_run(
    const std::function<TrainOptions(const std::string& out)>& options_of,
    const std::vector<std::optional<PipelineOptions>>& ways, const std::string& result) {
  const TrainOptions whole = options_of("whole");
  const auto expected = train_until(whole);
  ASSERT_TRUE(expected) << expected.error().message;
  for (size_t i = 0; i < ways.size(); ++i) {
    SCOPED_TRACE(i);
    TrainOptions options = options_of("way" + std::to_string(i));
    options.micro_batch_tokens = 32;
    options.thread_count = 2;
    options.pipeline = ways[i];
    const auto first = train_until(options, 2);
    ASSERT_TRUE(first) << first.error().message;
    options.pipeline = ways[(i + 1) % ways.size()];
    const auto second = train_until(options);
    ASSERT_TRUE(second) << second.error().message;
    std::vector<double> losses = first->losses;
    losses.insert(losses.end(), second->losses.begin(), second->losses.end());
    EXPECT_EQ(losses, expected->losses);
    EXPECT_EQ(second->evals, expected->evals);
    EXPECT_EQ(bytes_of(options.out_folder + result), bytes_of(whole.out_folder + result));
  }
}

}  // namespace jige::train
