// What tests of training by schedules on GPUs share: small runs, and that one by a schedule has the
// losses and the weights of the same run with all of it in one GPU's memory.
//
// Threads: one.
#pragma once

#include <fstream>
#include <string>
#include <vector>

#include "cuda/test_device.h"
#include "train/test_support.h"
#include "train/trainer.h"
#include "train/trainer_test_support.h"

namespace jige {

using plan::OptimizerMode;
using plan::ScheduleKind;
using train::PipelineOptions;
using train::TrainOptions;

class OffloadRuns : public CudaTest {
 protected:
  TrainOptions options(const std::string& name, DType compute = DType::kF32) {
    const std::string data = folder_.file("corpus.jsonl");
    std::ofstream(data) << train::small_corpus(40);
    TrainOptions made = train::tiny_options(folder_, {data});
    made.out_folder = folder_.file(name);
    made.compute = compute;
    made.context = 16;
    made.micro_batch_tokens = 32;
    made.step_tokens = 64;
    made.steps = 2;
    made.gpus = {0};
    return made;
  }
  // A run by each schedule on these GPUs has the losses and the weights of `resident`.
  void expect_same(const TrainOptions& resident, const std::vector<PipelineOptions>& schedules,
                   const std::vector<int>& gpus = {0}) {
    const auto expected = train::train(resident);
    ASSERT_TRUE(expected) << expected.error().message;
    ASSERT_EQ(std::ssize(expected->losses), resident.steps);
    for (const PipelineOptions& schedule : schedules) {
      TrainOptions by_schedule = resident;
      by_schedule.out_folder += "_" + std::to_string(++runs_);
      by_schedule.pipeline = schedule;
      by_schedule.gpus = gpus;
      const auto run = train::train(by_schedule);
      ASSERT_TRUE(run) << run.error().message;
      EXPECT_EQ(run->losses, expected->losses) << runs_;
      ASSERT_EQ(run->evals.size(), expected->evals.size());
      for (size_t i = 0; i < run->evals.size(); ++i) {
        EXPECT_EQ(run->evals[i].loss, expected->evals[i].loss) << runs_;
      }
      EXPECT_EQ(train::model_bytes(by_schedule), train::model_bytes(resident)) << runs_;
      const train::MemoryReport& memory = run->result.memory;
      for (size_t d = 0; d < memory.device_peak_bytes.size(); ++d) {
        EXPECT_GT(memory.device_peak_bytes[d], 0);
        EXPECT_LE(memory.device_peak_bytes[d], memory.device_planned_bytes[d]);
      }
    }
  }

  train::TestFolder folder_;
  int runs_ = 0;
};

inline PipelineOptions from_the_host(int32_t devices, ScheduleKind kind, OptimizerMode optimizer) {
  return {
      .devices = devices, .kinds = {kind}, .optimizers = {optimizer}, .host_parameters = {true}};
}

inline PipelineOptions kept() { return {.devices = 2, .optimizers = {OptimizerMode::kDevice}}; }

inline PipelineOptions lasting() {
  return {.devices = 1, .optimizers = {OptimizerMode::kSync}, .host_parameters = {false}};
}

}  // namespace jige
