// Adapters in rooms: the same bits as beside the model from the start, in memory that was planned.
#include "model/adapter_rooms.h"

#include <gmock/gmock.h>

#include <numeric>

#include "model/adapter_test_support.h"
#include "model/inference.h"
#include "model/model_test_support.h"

namespace jige::model {
namespace {

using testing::fixture;
using testing::fixture_names;
using testing::other_type;
using testing::TempFolder;
using testing::three_adapters;
using testing::value_of;
using testing::write_three_adapters;

InferenceOptions room_options(DType compute, ops::WeightFormat format) {
  return {.compute = compute,
          .format = format,
          .context_max = 32,
          .kv_block_count = 2,
          .batch_tokens_max = 32,
          .logit_rows_max = 24};
}

// All logits of one sequence with an adapter.
std::vector<float> logits_with(InferenceModel& model, int32_t adapter) {
  std::vector<int32_t> tokens(24);
  std::iota(tokens.begin(), tokens.end(), 7);
  std::vector<int32_t> rows(tokens.size());
  std::iota(rows.begin(), rows.end(), 0);
  const std::vector<int32_t> blocks = {0, 1};
  const ops::SequenceSpan span{.row_count = 24, .blocks = blocks.data()};
  const auto logits = value_of(model.forward({.tokens = tokens,
                                              .sequences = std::span(&span, 1),
                                              .logit_rows = rows,
                                              .adapters = std::span(&adapter, 1)}));
  return {logits.begin(), logits.end()};
}

// Fixtures have f32 and bf16 in turn: those that are alike follow each other.
TEST(AdapterRooms, GiveTheBitsOfAdaptersThatWereThereFromTheStart) {
  CpuDevice device({.thread_count = 2});
  CpuDevice other({.thread_count = 1});
  const auto stream = value_of(other.make_stream());
  DType compute = DType::kF32;
  int32_t turn = 0;
  for (const std::string& name : fixture_names()) {
    const auto& sources = three_adapters(name);
    InferenceOptions options = room_options(compute, ops::WeightFormat::kCompute);
    options.adapters = sources;
    const auto whole = value_of(InferenceModel::load(fixture(name), device, options));
    options.adapters = {sources[0]};
    options.adapter_rooms = 1;
    options.adapter_rank_max = 8;
    const auto model = value_of(InferenceModel::load(fixture(name), device, options));
    // One room after another adapter has been in it: two of them in turn.
    ++turn;
    for (const int32_t i : {turn % 3, (turn + 1) % 3}) {
      const auto lease = value_of(model->adapter_rooms().load(sources[static_cast<size_t>(i)],
                                                              model->architecture(), *stream));
      EXPECT_EQ(logits_with(*model, lease->number), logits_with(*whole, i)) << name;
    }
    EXPECT_EQ(logits_with(*model, 0), logits_with(*whole, 0)) << name;
    EXPECT_EQ(logits_with(*model, kNoAdapter), logits_with(*whole, kNoAdapter)) << name;
    compute = other_type(compute);
  }
}

TEST(AdapterRooms, MemoryIsPlannedToTheByte) {
  CpuDevice device({.thread_count = 1});
  const auto& sources = three_adapters("qwen2");
  for (const auto format : {ops::WeightFormat::kCompute, ops::WeightFormat::kQ8}) {
    InferenceOptions options = room_options(DType::kBF16, format);
    options.adapters = {sources[2]};
    options.adapter_rooms = 3;
    options.adapter_rank_max = 8;
    const auto model = value_of(InferenceModel::load(fixture("qwen2"), device, options));
    const InferenceMemory plan = inference_memory(model->architecture(), model->sizes());
    EXPECT_EQ(plan.adapters_bytes.size(), 4u);
    EXPECT_EQ(model->peak_bytes(), plan.total_bytes());
    const auto stream = value_of(device.make_stream());
    std::vector<AdapterLease> leases;
    for (const AdapterSource& source : sources) {
      leases.push_back(
          value_of(model->adapter_rooms().load(source, model->architecture(), *stream)));
      EXPECT_LE(leases.back()->adapter.packed_bytes(DType::kBF16), plan.adapters_bytes[1]);
    }
    EXPECT_EQ(model->peak_bytes(), plan.total_bytes());
    options.memory_bytes_max = plan.total_bytes() - 1;
    const auto refused = InferenceModel::load(fixture("qwen2"), device, options);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kExhausted);
  }
}

TEST(AdapterRooms, NumbersAreNeverGivenTwiceAndRoomsAreFreeAgain) {
  CpuDevice device({.thread_count = 1});
  const auto& sources = three_adapters("llama3");
  InferenceOptions options = room_options(DType::kF32, ops::WeightFormat::kCompute);
  options.adapter_rooms = 1;
  options.adapter_rank_max = 3;
  const auto model = value_of(InferenceModel::load(fixture("llama3"), device, options));
  const auto stream = value_of(device.make_stream());
  AdapterRooms& rooms = model->adapter_rooms();
  const auto load = [&](size_t i) {
    return rooms.load(sources[i], model->architecture(), *stream);
  };
  AdapterLease first = value_of(load(0));
  EXPECT_EQ(first->number, 0);
  const auto full = load(2);
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code, Code::kExhausted);
  AdapterLease copy = first;
  first.reset();
  EXPECT_TRUE(model->has_adapter(0)) << "a lease is held";
  copy.reset();
  EXPECT_FALSE(model->has_adapter(0));
  const auto wide = load(1);
  ASSERT_FALSE(wide);
  EXPECT_EQ(wide.error().code, Code::kInvalidArgument);
  EXPECT_EQ(rooms.free_count(), 1);
  EXPECT_EQ(value_of(load(2))->number, 1);
}

// DoRA needs numbers of the base, which are read when its room is taken.
TEST(AdapterRooms, ALoadThatFailsInTheMidstLeavesItsRoomFree) {
  CpuDevice device({.thread_count = 1});
  const TempFolder folder;
  const std::string base = folder / "base", elsewhere = folder / "elsewhere";
  std::filesystem::copy(fixture("llama3"), base);
  const AdapterSource dora = write_three_adapters(folder / "adapters", base).back();
  InferenceOptions options = room_options(DType::kF32, ops::WeightFormat::kCompute);
  options.adapter_rooms = 1;
  options.adapter_rank_max = 3;
  const auto model = value_of(InferenceModel::load(base, device, options));
  const auto stream = value_of(device.make_stream());
  AdapterRooms& rooms = model->adapter_rooms();
  std::filesystem::rename(base, elsewhere);
  const auto lost = rooms.load(dora, model->architecture(), *stream);
  ASSERT_FALSE(lost);
  EXPECT_NE(lost.error().code, Code::kExhausted) << lost.error().message;
  EXPECT_EQ(rooms.free_count(), 1);
  std::filesystem::rename(elsewhere, base);
  EXPECT_EQ(value_of(rooms.load(dora, model->architecture(), *stream))->number, 0);
}

}  // namespace
}  // namespace jige::model
