// Training by a schedule whose devices are parts of several GPUs: the bits of one GPU, whatever the
// schedule, however late copies are. Where there are no two GPUs, or three, tests are skipped.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cuda/offload_runs.h"
#include "tensor/pinned_memory.h"
#include "train/boundary_carrier.h"
#include "train/pipeline_record.h"

namespace jige {
namespace {

using ::testing::HasSubstr;
using train::BoundaryCarrier;

class CudaTrainerGpus : public OffloadRuns {
 protected:
  void SetUp() override {
    OffloadRuns::SetUp();
    if (IsSkipped()) return;
    if (!offer_gpus(3) && !offer_gpus(2)) GTEST_SKIP() << "this machine has no two GPUs";
    were_late_ = set_streams_late(true);
  }
  void TearDown() override {
    offer_gpus(1);
    set_streams_late(were_late_);
  }
  // Steps of so many micro-batches.
  TrainOptions wide(const std::string& name, int64_t micro_batches, DType compute = DType::kF32) {
    TrainOptions made = options(name, compute);
    made.step_tokens = micro_batches * made.micro_batch_tokens;
    return made;
  }

  bool were_late_ = false;
};

PipelineOptions synchronous(int32_t devices, ScheduleKind kind) {
  return {.devices = devices,
          .kinds = {kind},
          .optimizers = {OptimizerMode::kSync},
          .host_parameters = {false}};
}

TEST_F(CudaTrainerGpus, GiveTheModelOfOneGpu) {
  TrainOptions resident = wide("resident", 4);
  resident.data.eval_fraction = 0.05;
  resident.eval_tokens_max = 64;
  expect_same(resident,
              {from_the_host(2, ScheduleKind::kMobius, OptimizerMode::kAsync),
               from_the_host(2, ScheduleKind::kSPipe, OptimizerMode::kSync),
               synchronous(2, ScheduleKind::kGPipe), synchronous(2, ScheduleKind::k1F1B), kept(),
               from_the_host(4, ScheduleKind::kMobius, OptimizerMode::kAsync)},
              {0, 1});
}

TEST_F(CudaTrainerGpus, GiveTheModelOfOneGpuInBf16AndOnThree) {
  if (!offer_gpus(3)) GTEST_SKIP() << "this machine has no three GPUs";
  TrainOptions resident = wide("resident", 3, DType::kBF16);
  resident.config->layer_count = 3;
  resident.dropout = 0.2;
  resident.dropout_pool = 6;
  resident.dropout_at_once = 3;
  expect_same(resident,
              {from_the_host(3, ScheduleKind::kSPipe, OptimizerMode::kAsync),
               synchronous(3, ScheduleKind::kInterleaved)},
              {0, 2, 1});
}

// Masters and moments on the GPUs; a norm that clips every step, so that updates are made again.
TEST_F(CudaTrainerGpus, KeepTheOptimizerOnEachGpu) {
  TrainOptions resident = wide("resident", 4);
  resident.optimizer.clip_norm = 0.05;
  PipelineOptions waits{.devices = 4,
                        .kinds = {ScheduleKind::k1F1B},
                        .optimizers = {OptimizerMode::kDevice},
                        .clip = plan::ClipMode::kExact};
  PipelineOptions goes_ahead = kept();
  goes_ahead.clip = plan::ClipMode::kSpeculate;
  expect_same(resident, {waits, goes_ahead}, {0, 1});
}

TEST_F(CudaTrainerGpus, TrainExpertsATableThatIsTheHeadAndAdapters) {
  TrainOptions experts = wide("experts", 2, DType::kBF16);
  experts.config = train::tiny_biased_config();
  experts.expert_balance = 0.1;
  experts.expert_bias_rate = 0.01;
  expect_same(experts,
              {from_the_host(2, ScheduleKind::kMobius, OptimizerMode::kAsync),
               synchronous(2, ScheduleKind::k1F1B), kept()},
              {0, 1});
  TrainOptions tied = wide("tied", 2);
  tied.config->tied_embeddings = true;
  expect_same(tied, {from_the_host(2, ScheduleKind::kMobius, OptimizerMode::kAsync)}, {0, 1});
  TrainOptions lora =
      train::tuning_options(wide("lora", 2), tied.out_folder + "/model", folder_.file("lora"));
  lora.lora = formats::LoraConfig{.rank = 4, .alpha = 8};
  expect_same(lora, {from_the_host(2, ScheduleKind::kMobius, OptimizerMode::kAsync), kept()},
              {0, 1});
}

// Not all on the first, which would have the same bits.
TEST_F(CudaTrainerGpus, EachHaveTheirPart) {
  if (!offer_gpus(3)) GTEST_SKIP() << "this machine has no three GPUs";
  TrainOptions run = wide("parts", 2);
  run.gpus = {2, 1};
  run.pipeline = kept();
  const auto free_bytes = [] {
    std::vector<int64_t> bytes;
    for (int gpu = 0; gpu < 3; ++gpu) bytes.push_back(*cuda_free_bytes(gpu));
    return bytes;
  };
  const std::vector<int64_t> before = free_bytes();
  std::vector<int64_t> within;
  ASSERT_TRUE(
      train::train(run, {.on_step = [&](const train::StepInfo&) { within = free_bytes(); }}));
  ASSERT_EQ(within.size(), before.size());
  EXPECT_LT(within[1], before[1]);
  EXPECT_LT(within[2], before[2]);
  if (test_device_is_emulated()) {
    EXPECT_EQ(within[0], before[0]);  // nobody else uses it
  }
}

// Of the host, for messages, beside what one GPU takes.
TEST_F(CudaTrainerGpus, TakeExactlyThePlannedMemoryOfTheHost) {
  TrainOptions run = wide("several", 2);
  run.pipeline = from_the_host(2, ScheduleKind::kMobius, OptimizerMode::kSync);
  const auto record_of = [&](const std::string& name, std::vector<int> gpus) {
    run.out_folder = folder_.file(name);
    run.gpus = std::move(gpus);
    EXPECT_TRUE(train::train(run)) << name;
    const auto record = train::read_pipeline_record(run.out_folder + "/pipeline.json");
    EXPECT_TRUE(record) << name;
    return record ? *record : train::PipelineRecord{};
  };
  const train::PipelineRecord several = record_of("several", {0, 1}), one = record_of("one", {0});
  const int64_t messages = 2 * BoundaryCarrier::staging_bytes(plan::message_bytes_max(one.costs));
  EXPECT_GT(messages, 0);
  EXPECT_EQ(several.memory.host_planned_bytes - one.memory.host_planned_bytes, messages);
  EXPECT_EQ(several.memory.host_peak_bytes - one.memory.host_peak_bytes, messages);
}

TEST_F(CudaTrainerGpus, GoOnFromOneAnother) {
  if (!offer_gpus(3)) GTEST_SKIP() << "this machine has no three GPUs";
  TrainOptions whole = wide("whole", 2);
  whole.steps = 3;
  ASSERT_TRUE(train::train(whole));
  TrainOptions parts = whole;
  parts.out_folder = folder_.file("parts");
  const auto part = [&](std::vector<int> gpus, std::optional<PipelineOptions> schedule,
                        int64_t steps) {
    parts.gpus = std::move(gpus);
    parts.pipeline = std::move(schedule);
    int64_t done = 0;
    const auto run =
        train::train(parts, {.on_step = [&](const train::StepInfo& info) { done = info.step; },
                             .should_stop = [&] { return done >= steps; }});
    ASSERT_TRUE(run) << run.error().message;
    EXPECT_EQ(run->result.steps_done, steps);
  };
  part({0, 1}, from_the_host(2, ScheduleKind::kMobius, OptimizerMode::kAsync), 1);
  part({0}, std::nullopt, 2);
  part({0, 2}, kept(), 3);
  EXPECT_EQ(train::model_bytes(parts), train::model_bytes(whole));
}

// Where one step of a run computes.
struct RunPart {
  std::vector<int> gpus;  // none: the processor
  std::optional<PipelineOptions> schedule;
};

// A checkpoint has the same bits wherever it was made, and any device goes on from it: whoever
// computes a step, what he finds is what the one before left.
TEST_F(CudaTrainerGpus, GoOnOnTheProcessorAndComeBack) {
  if (!offer_gpus(3)) GTEST_SKIP() << "this machine has no three GPUs";
  const auto model_of = [&](const std::string& name, const std::vector<RunPart>& parts,
                            DType compute) {
    TrainOptions run = wide(name, 4, compute);
    run.steps = std::ssize(parts);
    for (size_t i = 0; i < parts.size(); ++i) {
      run.gpus = parts[i].gpus;
      run.pipeline = parts[i].schedule;
      int64_t done = 0;
      const auto ran =
          train::train(run, {.on_step = [&](const train::StepInfo& info) { done = info.step; },
                             .should_stop = [&] { return done > static_cast<int64_t>(i); }});
      EXPECT_TRUE(ran) << name << ": " << ran.error().message;
      if (!ran) return std::string();
      EXPECT_EQ(ran->result.steps_done, static_cast<int64_t>(i) + 1);
    }
    return train::model_bytes(run);
  };
  const PipelineOptions mobius = from_the_host(2, ScheduleKind::kMobius, OptimizerMode::kAsync);
  const PipelineOptions on_three = synchronous(3, ScheduleKind::kGPipe);
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    const std::string name = compute == DType::kF32 ? "f32" : "bf16";
    const std::string alone =
        model_of("alone_" + name, {{{0}, {}}, {{}, {}}, {{1}, {}}, {{}, {}}}, compute);
    EXPECT_FALSE(alone.empty());
    EXPECT_TRUE(alone == model_of("shared_" + name,
                                  {{{0, 1}, mobius}, {{}, mobius}, {{2, 0}, kept()}, {{}, {}}},
                                  compute));
    EXPECT_TRUE(alone == model_of("all_" + name,
                                  {{{2, 1, 0}, on_three}, {{}, kept()}, {{1}, mobius}, {{}, {}}},
                                  compute));
    // Not the bits of the processor alone, which would pass with anything in between.
    EXPECT_FALSE(alone ==
                 model_of("never_" + name, {{{}, {}}, {{}, {}}, {{}, {}}, {{}, {}}}, compute));
  }
}

TEST_F(CudaTrainerGpus, AreRefusedByName) {
  const auto refusal = [&](const TrainOptions& asked) {
    const auto trainer = train::Trainer::create(asked);
    return trainer ? std::string("none") : trainer.error().message;
  };
  TrainOptions alone = wide("alone", 2);
  alone.gpus = {0, 1};
  EXPECT_THAT(refusal(alone), HasSubstr("2 GPUs train one model by a schedule alone"));
  TrainOptions uneven = wide("uneven", 4);
  uneven.gpus = {0, 1};
  uneven.pipeline = from_the_host(3, ScheduleKind::kMobius, OptimizerMode::kAsync);
  EXPECT_THAT(refusal(uneven), HasSubstr("3 logical devices cannot be shared out evenly among 2"));
  TrainOptions large = wide("large", 4);
  large.gpus = {0, 1};
  large.pipeline = from_the_host(4, ScheduleKind::kMobius, OptimizerMode::kAsync);
  large.pipeline->device_bytes = int64_t{100} << 40;
  EXPECT_THAT(refusal(large), HasSubstr("of memory, but 2 of the"));
  TrainOptions missing = wide("missing", 2);
  missing.gpus = {0, 99};
  missing.pipeline = from_the_host(2, ScheduleKind::kMobius, OptimizerMode::kAsync);
  EXPECT_THAT(refusal(missing), HasSubstr("there is no GPU 99"));
}

// From GPU 0 to itself, where there is no other.
class CudaBoundaryCarrier : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) return;
    const int target = offer_gpus(2) ? 1 : 0;
    were_late_ = set_streams_late(true);
    other_ = std::move(*make_cuda_device(target));
    from_ = *gpu_->make_stream();
    there_ = *other_->make_stream();
  }
  void TearDown() override {
    offer_gpus(1);
    set_streams_late(were_late_);
  }

  bool were_late_ = false;
  std::unique_ptr<Device> other_;
  std::unique_ptr<Stream> from_, there_;
};

TEST_F(CudaBoundaryCarrier, BringsMessagesOfAllSizesBehindWhatMakesThem) {
  PinnedMemory pinned(cpu_, *gpu_);
  Arena host(pinned, "host");
  Arena there(*other_, "there");
  Device* const gpus[] = {gpu_.get(), other_.get()};
  struct Case {
    int64_t most;      // bytes of a message
    int64_t made_for;  // less: more pieces than there are places for
  };
  constexpr int64_t kMiB = int64_t{1} << 20;
  for (const auto& [most, made_for] :
       {Case{1, 1}, Case{4096, 4096}, Case{4096, 128}, Case{9 * kMiB, 9 * kMiB}}) {
    auto carrier = *BoundaryCarrier::create(host, gpus, made_for);
    EXPECT_EQ(host.used_bytes(), BoundaryCarrier::staging_bytes(made_for));
    const Tensor src = *gpu_arena_->make(DType::kU8, {most});
    const Tensor dst = *there.make(DType::kU8, {most});
    for (const int64_t bytes : {int64_t{1}, most / 2, most - most / 3, most}) {
      if (bytes == 0 || (most > kMiB && bytes != most && bytes != 1)) continue;
      std::vector<uint64_t> sent(static_cast<size_t>(bytes + 7) / 8);
      for (uint64_t& word : sent) word = random_.next_u64();
      there_->fill_zero(dst.view().data, most);
      there_->synchronize();
      // Not waited for: the carrier is behind it on the stream.
      from_->copy(src.view().data, sent.data(), bytes, CopyKind::kHostToDevice);
      carrier.carry(*from_,
                    {.dst = dst.view().data, .src = src.view().data, .bytes = bytes, .to = 1});
      std::vector<uint8_t> arrived(static_cast<size_t>(most));
      there_->copy(arrived.data(), dst.view().data, most, CopyKind::kDeviceToHost);
      there_->synchronize();
      EXPECT_EQ(std::memcmp(arrived.data(), sent.data(), static_cast<size_t>(bytes)), 0) << bytes;
      EXPECT_EQ(std::count(arrived.begin() + bytes, arrived.end(), 0), most - bytes) << bytes;
    }
  }
}

}  // namespace
}  // namespace jige
