#include "train/pipeline_executor.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "train/pipeline_rig.h"

namespace jige::train {
namespace {

std::vector<ScheduleRequest> requests_for(int32_t devices, int32_t micro_batches,
                                          int32_t block_count, bool tied = false) {
  std::vector<ScheduleRequest> requests;
  for (int k = 0; k < plan::kScheduleKindCount; ++k) {
    const auto kind = static_cast<plan::ScheduleKind>(k);
    ScheduleRequest base = plan::natural_request(kind);
    if (kind == plan::ScheduleKind::kZeroOffload && devices > 1) continue;
    base.devices = devices;
    base.micro_batches = micro_batches;
    base.block_count = block_count;
    base.tied = tied;
    if (kind == plan::ScheduleKind::kSPipe)
      base.backward_stages = std::max(1, block_count / devices);
    for (const OptimizerMode optimizer :
         {OptimizerMode::kDevice, OptimizerMode::kSync, OptimizerMode::kAsync}) {
      for (const ClipMode clip : {ClipMode::kExact, ClipMode::kSpeculate}) {
        for (const bool host : {false, true}) {
          for (const bool recompute : {false, true}) {
            ScheduleRequest request = base;
            request.optimizer = optimizer;
            request.clip = clip;
            request.host_parameters = host;
            request.recompute = recompute;
            if (plan::generate_pipeline(request)) requests.push_back(request);
          }
        }
      }
    }
  }
  return requests;
}

// JIGE_PIPELINE_STEPS=50 trains every schedule for as many steps; without it every `part`-th from
// `first` on for two.
const char* asked_steps() { return std::getenv("JIGE_PIPELINE_STEPS"); }

int64_t matrix_steps() { return asked_steps() == nullptr ? 2 : std::atoll(asked_steps()); }

std::vector<ScheduleRequest> every(size_t part, std::vector<ScheduleRequest> requests,
                                   size_t first = 0) {
  if (asked_steps() != nullptr) return requests;
  std::vector<ScheduleRequest> chosen;
  for (size_t i = first; i < requests.size(); i += part) chosen.push_back(requests[i]);
  return chosen;
}

int32_t micro_batches_for(int32_t devices) { return devices == 3 ? 3 : 4; }

std::unique_ptr<const model::Architecture> model_for(int32_t devices, bool tied = false) {
  return *model::Architecture::create(test_config(2 * devices, tied));
}

// Every kind as it is meant to be run.
std::vector<ScheduleRequest> natural_requests(int32_t devices, OptimizerMode optimizer,
                                              ClipMode clip) {
  std::vector<ScheduleRequest> requests;
  for (const ScheduleRequest& request :
       requests_for(devices, micro_batches_for(devices), 2 * devices + 2)) {
    const ScheduleRequest natural = plan::natural_request(request.kind);
    const bool host = natural.host_parameters && optimizer != OptimizerMode::kDevice;
    if (request.optimizer != optimizer || request.clip != clip) continue;
    if (request.host_parameters != host || request.recompute != natural.recompute) continue;
    requests.push_back(request);
  }
  return requests;
}

TEST(PipelineExecutor, EveryScheduleHasTheBitsOfOneDevice) {
  int tried = 0;
  for (const int32_t devices : {1, 2, 3, 4}) {
    const auto architecture = model_for(devices);
    const int32_t micro_batches = micro_batches_for(devices);
    const Trace expected = train_alone(*architecture, micro_batches, matrix_steps());
    for (const ScheduleRequest& request :
         every(17, requests_for(devices, micro_batches, 2 * devices + 2),
               static_cast<size_t>(2 * devices))) {
      const Trace trace = train_by_schedule(*architecture, request, matrix_steps());
      EXPECT_TRUE(trace == expected) << request_name(request);
      ++tried;
    }
  }
  EXPECT_GT(tried, asked_steps() == nullptr ? 12 : 200);
}

TEST(PipelineExecutor, ATiedHeadHasTheBitsOfOneDevice) {
  int tried = 0;
  for (const int32_t devices : {1, 2, 4}) {
    const auto architecture = model_for(devices, true);
    const Trace expected = train_alone(*architecture, 4, matrix_steps());
    for (const ScheduleRequest& request :
         every(19, requests_for(devices, 4, 2 * devices + 2, true), static_cast<size_t>(devices))) {
      const Trace trace = train_by_schedule(*architecture, request, matrix_steps());
      EXPECT_TRUE(trace == expected) << request_name(request);
      ++tried;
    }
  }
  EXPECT_GT(tried, asked_steps() == nullptr ? 5 : 100);
}

// By two schedules, with and without passes that are made again; other ones from another `first`.
void expect_bits_of_one_device(const std::string& fixture, size_t first) {
  SCOPED_TRACE(fixture);
  formats::ModelConfig config = *formats::load_model_config(std::string(JIGE_SOURCE_DIR) +
                                                            "/tests/fixtures/model/" + fixture);
  if (!config.layer_parts.empty()) {
    config = formats::first_layers(config, 4);
  } else {
    config.layer_count = 4;
    if (!config.layer_is_recurrent.empty()) {
      config.layer_is_recurrent = {1, uint8_t{config.attention_beside}, 1, 1};
    }
    if (!config.layer_is_unturned.empty()) config.layer_is_unturned = {1, 1, 1, 1};
    const bool mixed = !config.layer_is_recurrent.empty();
    if (!config.layer_is_sliding.empty()) {
      config.layer_is_sliding = {uint8_t{!mixed}, uint8_t{mixed}, uint8_t{!mixed}, 0};
    }
  }
  constexpr size_t kPart = 55;  // odd: every second request recomputes
  const auto architecture = *model::Architecture::create(config);
  const Trace expected = train_alone(*architecture, 4, matrix_steps());
  int tried = 0;
  for (const ScheduleRequest& request :
       every(kPart, requests_for(2, 4, 6, config.tied_embeddings), first % 17)) {
    EXPECT_TRUE(train_by_schedule(*architecture, request, matrix_steps()) == expected)
        << request_name(request);
    ++tried;
  }
  EXPECT_GE(tried, 2);
}

void expect_bits_of_one_device(const std::vector<const char*>& fixtures) {
  for (size_t i = 0; i < fixtures.size(); ++i) expect_bits_of_one_device(fixtures[i], 2 + 7 * i);
}

TEST(PipelineExecutor, ExpertsHaveTheBitsOfOneDevice) {
  expect_bits_of_one_device({"mixtral", "minimax_m2"});
}

TEST(PipelineExecutor, PartsSideBySideHaveTheBitsOfOneDevice) {
  expect_bits_of_one_device({"gpt_neox", "phi", "cohere"});
}

TEST(PipelineExecutor, RecurrentLayersHaveTheBitsOfOneDevice) {
  expect_bits_of_one_device({"qwen3_5", "lfm2", "granite_hybrid", "nemotron_h_moe", "falcon_h1",
                             "olmo_hybrid", "lfm3", "mistral4", "falcon_mamba", "jamba",
                             "kimi_linear"});
}

TEST(PipelineExecutor, LayersOfTwoWidthsOfHeadsHaveTheBitsOfOneDevice) {
  expect_bits_of_one_device({"gemma4", "gemma4_moe", "gemma4_layer_inputs", "gemma3n"});
}

TEST(PipelineExecutor, DropoutHasTheBitsOfOneDevice) {
  constexpr double kDropout = 0.2;
  int tried = 0;
  for (const int32_t devices : {1, 2, 3}) {
    const auto architecture = model_for(devices);
    const int32_t micro_batches = micro_batches_for(devices);
    const Trace expected = train_alone(*architecture, micro_batches, matrix_steps(), kDropout);
    EXPECT_NE(expected.bits, train_alone(*architecture, micro_batches, matrix_steps()).bits);
    auto requests = every(37, requests_for(devices, micro_batches, 2 * devices + 2));
    // With spipe, which makes forward passes again on another device.
    const auto natural =
        every(2, natural_requests(devices, OptimizerMode::kAsync, ClipMode::kSpeculate),
              static_cast<size_t>(devices % 2));
    requests.insert(requests.end(), natural.begin(), natural.end());
    for (const ScheduleRequest& request : requests) {
      const Trace trace = train_by_schedule(*architecture, request, matrix_steps(), {}, kDropout);
      EXPECT_TRUE(trace == expected) << request_name(request);
      ++tried;
    }
  }
  EXPECT_GT(tried, 15);
}

TEST(PipelineExecutor, BaselinesWithoutOverlapHaveTheBitsOfOneDevice) {
  const auto architecture = model_for(2);
  const Trace expected = train_alone(*architecture, micro_batches_for(2), 2);
  int tried = 0;
  for (ScheduleRequest request : natural_requests(2, OptimizerMode::kSync, ClipMode::kExact)) {
    const bool spipe = request.kind == plan::ScheduleKind::kSPipe;
    if (!spipe && request.kind != plan::ScheduleKind::kMobius) continue;
    request.resident_stages = 1;
    request.lockstep = spipe;
    EXPECT_TRUE(train_by_schedule(*architecture, request, 2) == expected) << request_name(request);
    ++tried;
  }
  EXPECT_EQ(tried, 2);
}

TEST(PipelineExecutor, ManyStepsHaveTheBitsOfOneDevice) {
  const int32_t devices = 4;
  const int64_t steps = asked_steps() == nullptr ? 9 : 50;
  const auto architecture = model_for(devices);
  const Trace expected = train_alone(*architecture, micro_batches_for(devices), steps);
  // Both outcomes of clipping occur, so speculation is right and wrong.
  EXPECT_GT(expected.clipped, steps / 10);
  EXPECT_LT(expected.clipped, steps - steps / 10);
  int tried = 0;
  for (const OptimizerMode optimizer : {OptimizerMode::kDevice, OptimizerMode::kAsync}) {
    for (const ScheduleRequest& request :
         every(2, natural_requests(devices, optimizer, ClipMode::kSpeculate))) {
      const Trace trace = train_by_schedule(*architecture, request, steps);
      EXPECT_TRUE(trace == expected) << request_name(request);
      EXPECT_EQ(trace.clipped, expected.clipped);
      ++tried;
    }
  }
  EXPECT_GE(tried, 6);
}

TEST(PipelineExecutor, ADroppedMicroBatchChangesTheBits) {
  const auto architecture = model_for(2);
  const Trace expected = train_alone(*architecture, 4, 2);
  const ScheduleRequest request = natural_requests(2, OptimizerMode::kAsync, ClipMode::kExact)[0];
  Trace trace;
  Rig rig;
  rig.build(*architecture, request);
  for (int64_t step = 0; step < 2; ++step) {
    auto batches = step_batches(step, 4, architecture->config().vocab_size);
    const float weight = loss_weight(batches);
    if (step == 1) batches[2] = {};
    trace.add(*rig.executor->run({batches, {.loss_weight = weight}, rate_of(step)}));
  }
  EXPECT_EQ(trace.bits[0], expected.bits[0]);
  EXPECT_EQ(trace.bits[1], expected.bits[1]);
  EXPECT_NE(trace.bits[2], expected.bits[2]);
  EXPECT_NE(trace.bits[3], expected.bits[3]);
}

TEST(PipelineExecutor, DelaysChangeNoBits) {
  const int32_t devices = 3;
  const auto architecture = model_for(devices);
  const Trace expected = train_alone(*architecture, micro_batches_for(devices), 2);
  for (const ScheduleRequest& request :
       natural_requests(devices, OptimizerMode::kAsync, ClipMode::kSpeculate)) {
    std::atomic<uint64_t> calls{0};
    const auto delay = [&calls](int32_t) -> Status {
      const uint64_t draw = derive_key(calls++, "delay") % 8;
      if (draw == 0) std::this_thread::sleep_for(std::chrono::microseconds(700));
      if (draw == 1) std::this_thread::yield();
      return {};
    };
    const Trace trace = train_by_schedule(*architecture, request, 2, {.before_task = delay});
    EXPECT_TRUE(trace == expected) << request_name(request);
  }
}

TEST(PipelineExecutor, AFailedTaskEndsTheStepAndChangesNothing) {
  const auto architecture = model_for(2);
  for (const ClipMode clip : {ClipMode::kExact, ClipMode::kSpeculate}) {
    // Every kind with one of the two.
    for (const ScheduleRequest& request :
         every(2, natural_requests(2, OptimizerMode::kAsync, clip), clip == ClipMode::kExact)) {
      const Trace expected = train_by_schedule(*architecture, request, 2);
      Rig rig;
      std::atomic<int32_t> failing{-1};
      rig.build(*architecture, request, {.before_task = [&failing](int32_t task) -> Status {
        if (task != failing) return {};
        return fail(Code::kUnavailable, "device lost at task {}", task);
      }});
      const auto tasks = static_cast<int32_t>(rig.machine->schedule().tasks.size());
      Trace trace;
      for (int64_t step = 0; step < 2; ++step) {
        const auto batches = step_batches(step, 4, architecture->config().vocab_size);
        for (int32_t task = static_cast<int32_t>(step); task < tasks; task += tasks / 5) {
          const auto kind = rig.machine->schedule().tasks[static_cast<size_t>(task)].kind;
          // With exact clipping an update is final; a failure among updates loses the step.
          if (clip == ClipMode::kExact && kind == plan::TaskKind::kOptimizerStep) continue;
          if (clip == ClipMode::kExact && task > tasks * 3 / 4) continue;
          failing = task;
          const auto failed = rig.executor->run({batches, terms_of(batches), rate_of(step)});
          ASSERT_FALSE(failed) << request_name(request) << " task " << task;
          EXPECT_NE(failed.error().message.find("device lost"), std::string::npos);
        }
        failing = -1;
        trace.add(*rig.executor->run({batches, terms_of(batches), rate_of(step)}));
      }
      trace.add(*rig.optimizer);
      trace.bits.push_back(expected.bits.back());  // no evaluation here
      EXPECT_TRUE(trace == expected) << request_name(request);
    }
  }
}

TEST(PipelineExecutor, AStepThatIsNotFiniteChangesNothing) {
  const auto architecture = model_for(2);
  std::optional<std::array<double, 2>> expected;  // the losses of a run without such a step
  size_t first = 0;
  for (const OptimizerMode optimizer :
       {OptimizerMode::kDevice, OptimizerMode::kSync, OptimizerMode::kAsync}) {
    for (const ClipMode clip : {ClipMode::kExact, ClipMode::kSpeculate}) {
      // Every kind with two of the six.
      for (const ScheduleRequest& request :
           every(3, natural_requests(2, optimizer, clip), first++ % 3)) {
        Rig rig;
        rig.build(*architecture, request);
        const auto batches = step_batches(0, 4, architecture->config().vocab_size);
        const double loss = trace_step(rig, batches, 0.01);
        Trace before;
        before.add(*rig.optimizer);
        const auto skipped =
            rig.executor->run({batches, std::numeric_limits<float>::infinity(), 0.01});
        ASSERT_TRUE(skipped);
        EXPECT_FALSE(skipped->optimizer.applied) << request_name(request);
        EXPECT_EQ(rig.optimizer->update_count(), 1);
        Trace after;
        after.add(*rig.optimizer);
        EXPECT_TRUE(after == before) << request_name(request);
        // And the devices still see the weights of before.
        if (!expected) {
          Rig fresh;
          fresh.build(*architecture, request);
          expected = {trace_step(fresh, batches, 0.01), trace_step(fresh, batches, 0.02)};
        }
        EXPECT_EQ(loss, (*expected)[0]);
        EXPECT_EQ(trace_step(rig, batches, 0.02), (*expected)[1]) << request_name(request);
      }
    }
  }
}

// Bytes of masters, moments and gradients in f32.
int64_t state_bytes(const model::Architecture& architecture) {
  const auto memory = model::weights_memory(architecture, {.position_count = kContext});
  return 16 * memory.trainable_count;
}

TEST(PipelineExecutor, AModelFourTimesTheDeviceTrainsWithinIt) {
  const auto architecture = *model::Architecture::create(test_config(24));
  ScheduleRequest request = plan::natural_request(plan::ScheduleKind::kSPipe);
  request.devices = 2;
  request.micro_batches = 2;
  request.block_count = 26;
  request.forward_stages = 6;
  request.backward_stages = 12;
  request.optimizer = OptimizerMode::kAsync;
  request.clip = ClipMode::kSpeculate;
  Rig rig;
  rig.build(*architecture, request);
  const int64_t cap = rig.machine->device(0).arena().capacity_bytes();
  EXPECT_GE(state_bytes(*architecture), 4 * cap);
  const Trace expected = train_alone(*architecture, 2, 2);
  EXPECT_TRUE(train_by_schedule(*architecture, request, 2) == expected);
}

TEST(PipelineExecutor, ACapOneByteTooSmallIsAnErrorAndNoHang) {
  const auto architecture = model_for(1);
  ScheduleRequest request = plan::natural_request(plan::ScheduleKind::kGPipe);
  request.micro_batches = 2;
  request.block_count = 4;
  request.clip = ClipMode::kExact;
  request.optimizer = OptimizerMode::kSync;
  Rig rig;
  rig.build(*architecture, request);
  const auto batches = step_batches(0, 2, architecture->config().vocab_size);
  ASSERT_TRUE(rig.executor->run({batches, terms_of(batches), 0.01}));
  // One device and nothing fetched during the passes: the planned peak is what is reached.
  EXPECT_EQ(rig.machine->device(0).arena().peak_bytes(), rig.planned.devices[0].bytes);
  Rig small;
  small.device_bytes = rig.planned.devices[0].bytes - 1;
  small.build(*architecture, request);
  ASSERT_NE(small.executor, nullptr);
  const auto refused = small.executor->run({batches, terms_of(batches), 0.01});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kExhausted);
  EXPECT_NE(refused.error().message.find("device0"), std::string::npos);
}

// What the host's arena takes: masters, moments, packed forms and gradients, images of updates that
// may have to be made again. Norms and tables are the masters themselves.
TEST(PipelineExecutor, TakesExactlyThePlannedMemoryOfTheHost) {
  for (const bool tied : {false, true}) {
    const auto architecture = *model::Architecture::create(test_config(2, tied));
    for (const OptimizerMode optimizer : {OptimizerMode::kSync, OptimizerMode::kAsync}) {
      ScheduleRequest request = plan::natural_request(plan::ScheduleKind::kMobius);
      request.devices = 2;
      request.micro_batches = 2;
      request.block_count = 4;
      request.optimizer = optimizer;
      request.clip = optimizer == OptimizerMode::kAsync ? ClipMode::kSpeculate : ClipMode::kExact;
      request.tied = tied;
      Rig rig;
      rig.build(*architecture, request);
      const auto batches = step_batches(0, 2, architecture->config().vocab_size);
      ASSERT_TRUE(rig.executor->run({batches, terms_of(batches), 0.01}));
      EXPECT_EQ(rig.machine->host_peak_bytes(), rig.planned.host.bytes)
          << request_name(request) << (tied ? ", tied" : "");
    }
  }
}

TEST(PipelineExecutor, TakesExactlyThePlannedMemoryWithTheOptimizerOnTheDevice) {
  const auto architecture = *model::Architecture::create(test_config(2));
  ScheduleRequest request = plan::natural_request(plan::ScheduleKind::kGPipe);
  request.micro_batches = 2;
  request.block_count = 4;
  request.clip = ClipMode::kExact;
  Rig rig;
  rig.build(*architecture, request);
  const auto batches = step_batches(0, 2, architecture->config().vocab_size);
  ASSERT_TRUE(rig.executor->run({batches, terms_of(batches), 0.01}));
  EXPECT_EQ(rig.machine->device(0).arena().peak_bytes(), rig.planned.devices[0].bytes);
  EXPECT_EQ(rig.machine->host_peak_bytes(), 0);
}

}  // namespace
}  // namespace jige::train
