// For tests: a run by one trainer, and what it logged.
//
// Threads: the test's.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "train/test_support.h"
#include "train/trainer.h"

namespace jige::train {

// What a run gave and said on its way.
struct Run {
  TrainResult result;
  std::vector<double> losses;  // by step
  std::vector<EvalInfo> evals;
};

// Runs to the end, or to where a callback ends it.
inline Result<Run> train(const TrainOptions& options, TrainCallbacks callbacks = {}) {
  Run run;
  callbacks.on_step = [&run, before = callbacks.on_step](const StepInfo& info) {
    run.losses.push_back(info.loss);
    if (before) before(info);
  };
  callbacks.on_eval = [&](const EvalInfo& info) { run.evals.push_back(info); };
  JIGE_TRY(const auto trainer, Trainer::create(options, std::move(callbacks)));
  JIGE_TRY(run.result, trainer->run());
  return run;
}

inline std::string bytes_of(const std::string& path) {
  const auto content = read_file(path);
  EXPECT_TRUE(content) << path;
  return content ? *content : "";
}

// The records of a kind, in the order of the log.
inline std::vector<Json> log_records(const TrainOptions& options, const std::string& kind) {
  std::vector<Json> records;
  const std::string text = bytes_of(options.out_folder + "/log.jsonl");
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    auto record = parse_json(text.substr(begin, end - begin), "log");
    EXPECT_TRUE(record);
    if (record && (*record)["kind"] == kind) records.push_back(*record);
    begin = end + 1;
  }
  return records;
}

}  // namespace jige::train
