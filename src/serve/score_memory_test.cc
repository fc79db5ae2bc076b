#include "serve/score_memory.h"

#include "model/memory_plan.h"
#include "serve/serve_test_support.h"

namespace jige::serve {
namespace {

using testing::fixture;
using testing::value_of;

int64_t planned_bytes(const std::string& name, const model::InferenceOptions& options) {
  const auto config = value_of(formats::load_model_config(fixture(name)));
  const auto architecture = value_of(model::Architecture::create(config));
  const auto files = value_of(formats::TensorFolder::open(fixture(name)));
  const auto sizes = value_of(model::inference_sizes(options, *architecture, files));
  return model::inference_memory(*architecture, sizes).total_bytes();
}

TEST(ScoreMemory, TakesRoomForManyTextsWhereItIsAndNoMoreThanTheLimit) {
  for (const char* name : {"llama3", "qwen3_5"}) {
    model::InferenceOptions least{.context_max = 40, .scores = true};
    const auto many = value_of(options_for_scores(fixture(name), least, DeviceKind::kCpu));
    EXPECT_EQ(many.kv_block_count, 128);
    EXPECT_EQ(many.logit_rows_max, 32);
    EXPECT_EQ(many.state_count, name == std::string("llama3") ? 0 : 16);
    const int64_t most_bytes = planned_bytes(name, many);
    const int64_t least_bytes = planned_bytes(name, least);
    ASSERT_LT(least_bytes, most_bytes);
    for (int64_t step = 0; step <= 20; ++step) {
      least.memory_bytes_max = least_bytes + (most_bytes - least_bytes) * step / 20;
      const auto fitted = value_of(options_for_scores(fixture(name), least, DeviceKind::kCpu));
      EXPECT_LE(planned_bytes(name, fitted), least.memory_bytes_max);
      EXPECT_GE(fitted.kv_block_count, 3);
    }
    EXPECT_EQ(
        planned_bytes(name, value_of(options_for_scores(fixture(name), least, DeviceKind::kCpu))),
        most_bytes);
    least.memory_bytes_max = least_bytes - 1;  // loading says why
    const auto unfit = value_of(options_for_scores(fixture(name), least, DeviceKind::kCpu));
    EXPECT_EQ(planned_bytes(name, unfit), least_bytes);
  }
}

}  // namespace
}  // namespace jige::serve
