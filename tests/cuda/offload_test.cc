// Training by a schedule on logical devices that are parts of a GPU, beside the same run with all
// of it in the GPU's memory.
#include "cuda/offload_runs.h"
#include "train/pipeline_record.h"

namespace jige {
namespace {

class CudaOffload : public OffloadRuns {};

TEST_F(CudaOffload, GivesTheModelOfAGpuThatHoldsEverything) {
  TrainOptions resident = options("resident");
  resident.data.eval_fraction = 0.05;
  resident.eval_tokens_max = 64;
  expect_same(resident,
              {from_the_host(1, ScheduleKind::kMobius, OptimizerMode::kAsync),
               from_the_host(2, ScheduleKind::kSPipe, OptimizerMode::kSync), lasting(), kept()});
}

TEST_F(CudaOffload, GivesTheModelOfAGpuInBf16) {
  TrainOptions resident = options("resident", DType::kBF16);
  resident.config->qkv_bias = true;
  resident.config->family = formats::Family::kQwen2;
  expect_same(resident, {from_the_host(1, ScheduleKind::kMobius, OptimizerMode::kAsync),
                         from_the_host(2, ScheduleKind::kMobius, OptimizerMode::kAsync)});
}

TEST_F(CudaOffload, TrainsExperts) {
  TrainOptions resident = options("resident", DType::kBF16);
  resident.config = train::tiny_biased_config();
  resident.expert_balance = 0.1;
  resident.expert_bias_rate = 0.01;
  expect_same(resident,
              {from_the_host(2, ScheduleKind::kMobius, OptimizerMode::kAsync), lasting(), kept()});
}

TEST_F(CudaOffload, TrainsLatentAttention) {
  TrainOptions resident = options("resident", DType::kBF16);
  const int32_t vocabulary = resident.config->vocab_size;
  const auto config = formats::load_model_config(std::string(JIGE_SOURCE_DIR) +
                                                 "/tests/fixtures/model/deepseek_v3_dense");
  ASSERT_TRUE(config) << config.error().message;
  resident.config = *config;
  resident.config->vocab_size = vocabulary;
  expect_same(resident, {from_the_host(2, ScheduleKind::kMobius, OptimizerMode::kAsync)});
}

TEST_F(CudaOffload, TrainsRecurrentLayers) {
  TrainOptions resident = options("resident");
  resident.config->delta = {
      .key_heads = 1, .value_heads = 2, .key_dim = 7, .value_dim = 9, .kernel = 3};
  resident.config->family = formats::Family::kQwen35;
  resident.config->layer_is_recurrent = {1, 0};
  resident.config->qk_norm = resident.config->attention_gate = true;
  resident.config->norm_adds_one = true;
  expect_same(resident, {from_the_host(2, ScheduleKind::kMobius, OptimizerMode::kAsync)});
}

TEST_F(CudaOffload, TrainsATableThatIsTheHead) {
  TrainOptions resident = options("resident");
  resident.config->tied_embeddings = true;
  PipelineOptions kept{.devices = 2, .optimizers = {OptimizerMode::kDevice}};
  expect_same(resident, {from_the_host(1, ScheduleKind::kMobius, OptimizerMode::kAsync), kept});
}

TEST_F(CudaOffload, TrainsAdapters) {
  TrainOptions base = options("base");
  base.steps = 1;
  ASSERT_TRUE(train::train(base));
  TrainOptions resident =
      train::tuning_options(options("lora"), base.out_folder + "/model", folder_.file("resident"));
  resident.lora = formats::LoraConfig{.rank = 4, .alpha = 8};
  expect_same(resident, {from_the_host(2, ScheduleKind::kMobius, OptimizerMode::kAsync)});
}

TEST_F(CudaOffload, TimesBlocksOnTheGpu) {
  TrainOptions timed = options("timed");
  timed.steps = 1;
  timed.pipeline = from_the_host(1, ScheduleKind::kMobius, OptimizerMode::kAsync);
  timed.pipeline->times = train::TimesSource::kMeasured;
  std::optional<train::TrainPlan> plan;
  const auto trainer = train::Trainer::create(
      timed, {.on_plan = [&](const train::TrainPlan& made) { plan = made; }});
  ASSERT_TRUE(trainer) << trainer.error().message;
  ASSERT_TRUE((*trainer)->run());
  ASSERT_TRUE(plan && plan->pipeline);
  EXPECT_EQ(plan->pipeline->times, train::TimesSource::kMeasured);
  for (const plan::BlockCost& block : plan->pipeline->costs.blocks) EXPECT_GT(block.forward_s, 0);
}

TEST_F(CudaOffload, RefusesBudgetsThatAreTooSmall) {
  TrainOptions small = options("small");
  small.pipeline = PipelineOptions{.devices = 1, .device_bytes = 64 << 10};
  const auto refused = train::Trainer::create(small);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kExhausted);
  EXPECT_NE(refused.error().message.find("raise the device budget"), std::string::npos)
      << refused.error().message;

  TrainOptions large = options("large");
  large.pipeline = PipelineOptions{.devices = 3, .device_bytes = int64_t{100} << 40};
  const auto more = train::Trainer::create(large);
  ASSERT_FALSE(more);
  EXPECT_EQ(more.error().code, Code::kExhausted);
  EXPECT_NE(more.error().message.find("100 TiB"), std::string::npos) << more.error().message;
}

// Whose GPUs a plan is for is checked where its file is read (train/machine_identity.h).
TEST_F(CudaOffload, RunsAPlanMadeBefore) {
  TrainOptions first = options("first");
  first.pipeline = from_the_host(2, ScheduleKind::kMobius, OptimizerMode::kAsync);
  ASSERT_TRUE(train::train(first));
  const auto record = train::read_pipeline_record(first.out_folder + "/pipeline.json");
  ASSERT_TRUE(record) << record.error().message;
  expect_same(options("resident"), {PipelineOptions{.devices = record->schedule.device_count,
                                                    .schedule = record->schedule,
                                                    .source = "plan.json",
                                                    .times = train::TimesSource::kGiven,
                                                    .costs = record->costs}});
  TrainOptions other = options("other");
  other.config->layer_count += 1;
  other.pipeline = PipelineOptions{.devices = record->schedule.device_count,
                                   .schedule = record->schedule,
                                   .source = "plan.json"};
  const auto refused = train::Trainer::create(other);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("plan.json: is a plan for"), std::string::npos);
}

}  // namespace
}  // namespace jige
