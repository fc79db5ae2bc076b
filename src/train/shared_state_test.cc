// A run's state on its way from a checkpoint to all ranks and back, of parameters larger than the
// pieces in which it goes.
#include "train/shared_state.h"

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "ops/moments.h"
#include "tensor/arena.h"
#include "train/rank_test_support.h"

namespace jige::train {
namespace {

std::string_view bytes_of_view(const TensorView& view) {
  return {static_cast<const char*>(view.data),
          static_cast<size_t>(dtype_bytes(view.dtype, view.count()))};
}

// Two parameters with memory of their own, and an optimizer of all or a rank's share of them.
struct HeldState {
  HeldState(ops::MomentFormat moments, int ranks, int rank) {
    for (const model::ParamSpec* const spec : {&table, &vector}) {
      std::vector<float>& numbers = values.emplace_back(static_cast<size_t>(spec->shape.count()));
      params.push_back(
          {.spec = spec, .value = TensorView::of(numbers.data(), DType::kF32, spec->shape)});
    }
    const OptimizerOptions options{.moments = moments};
    auto made = ranks == 1 ? Optimizer::create(arena, params, options)
                           : Optimizer::create_share(arena, params, options,
                                                     OptimizerShares(params, ranks, moments), rank);
    EXPECT_TRUE(made) << made.error().message;
    optimizer.emplace(std::move(*made));
  }
  // With numbers that are others a piece further on.
  void fill() {
    for (size_t i = 0; i < params.size(); ++i) {
      for (size_t k = 0; k < values[i].size(); ++k) values[i][k] = static_cast<float>(k % 10007);
      for (const TensorView& moment : {optimizer->moment1(i), optimizer->moment2(i)}) {
        auto* const bytes = static_cast<unsigned char*>(moment.data);
        for (size_t k = 0; k < bytes_of_view(moment).size(); ++k) {
          bytes[k] = static_cast<unsigned char>((k * 31 + i) % 251);
        }
      }
    }
  }

  const model::ParamSpec table{.name = "table", .shape = {700, 201}};
  const model::ParamSpec vector{.name = "vector", .shape = {19}};
  CpuDevice device{CpuDeviceOptions{.thread_count = 1}};
  std::unique_ptr<Stream> stream = *device.make_stream();
  Arena arena{device, "test"};
  std::deque<std::vector<float>> values;
  std::vector<model::NamedParam> params;
  std::optional<Optimizer> optimizer;
};

// The part of a whole moment that a rank holds.
std::string_view part_of_whole(const HeldState& whole, const Optimizer& own, size_t i,
                               const TensorView& moment) {
  const DType dtype = whole.optimizer->moment_layout(i).dtype;
  const ElementRange& held = own.held(i);
  const auto begin = static_cast<size_t>(ops::moment_bytes(dtype, held.begin));
  const auto end = static_cast<size_t>(ops::moment_bytes(dtype, held.end()));
  return bytes_of_view(moment).substr(begin, end - begin);
}

void expect_share_of(const HeldState& whole, const HeldState& own) {
  for (size_t i = 0; i < whole.params.size(); ++i) {
    EXPECT_TRUE(own.values[i] == whole.values[i]);
    if (own.optimizer->held(i).count == 0) continue;
    EXPECT_TRUE(bytes_of_view(own.optimizer->moment1(i)) ==
                part_of_whole(whole, *own.optimizer, i, whole.optimizer->moment1(i)));
    EXPECT_TRUE(bytes_of_view(own.optimizer->moment2(i)) ==
                part_of_whole(whole, *own.optimizer, i, whole.optimizer->moment2(i)));
  }
}

void succeeds(const Status& status) { EXPECT_TRUE(status) << status.error().message; }

TEST(SharedState, GoesFromACheckpointToAllRanksAndBackInPieces) {
  constexpr int kRanks = 3;
  for (const ops::MomentFormat moments : {ops::MomentFormat::kF32, ops::MomentFormat::kQ8}) {
    const TestFolder folder;
    HeldState whole(moments, 1, 0);
    whole.fill();
    ASSERT_GT(std::ssize(whole.values[0]) * 4, kSavedPieceBytes);
    const RunState saved{.step = 1, .update_count = 1};
    const SaveRequest first{.run_folder = folder.file("first")},
        again{.run_folder = folder.file("again")};
    succeeds(save_checkpoint(first, Json::object(), saved, {*whole.optimizer}, *whole.stream));
    const comm::RingPlan plan = comm::RingPlan::in_rank_order(kRanks);
    auto transports = comm::make_transports("threads", kRanks, plan);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        const auto group = comm::AsyncGroup::over(*comm::Communicator::over(
            std::move(transports[static_cast<size_t>(rank)]), plan, {.timeout_s = 20}));
        HeldState own(moments, kRanks, rank);
        RunState state;
        std::optional<formats::CheckpointReader> checkpoint;
        if (rank == 0) {
          state = saved;
          checkpoint = *formats::CheckpointReader::open_latest(first.run_folder);
          succeeds(restore_parameters(*checkpoint, *own.optimizer, *own.stream));
        }
        succeeds(share_state(*group, state, *own.optimizer, checkpoint ? &*checkpoint : nullptr,
                             *own.stream));
        EXPECT_EQ(own.optimizer->update_count(), 1);
        expect_share_of(whole, own);
        if (rank > 0) return succeeds(send_moments(*group, *own.optimizer, *own.stream));
        const SavedParts parts{.optimizer = *own.optimizer,
                               .moments = gathered_moments(*group, *own.optimizer, *own.stream)};
        succeeds(save_checkpoint(again, Json::object(), saved, parts, *own.stream));
      });
    }
    for (std::thread& thread : threads) thread.join();
    const auto before = *formats::CheckpointReader::open_latest(first.run_folder);
    const auto behind = *formats::CheckpointReader::open_latest(again.run_folder);
    for (const char* const file : {kCheckpointValues, kCheckpointMoments1, kCheckpointMoments2}) {
      for (const model::NamedParam& param : whole.params) {
        EXPECT_TRUE(bytes_of_view(*before.tensor(file, param.spec->name)) ==
                    bytes_of_view(*behind.tensor(file, param.spec->name)))
            << file << " " << param.spec->name;
      }
    }
  }
}

}  // namespace
}  // namespace jige::train
