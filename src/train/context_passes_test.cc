// Passes of divided sequences: losses and gradients of every model that can be trained so, with the
// bits of one rank.
#include "train/context_passes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "comm/test_support.h"
#include "model/context_support.h"
#include "model/init.h"
#include "model/tiny_config_test_support.h"
#include "tensor/cpu_device.h"

namespace jige::train {
namespace {

HostBatch random_batch(const std::vector<int32_t>& counts, int64_t vocab_size, Rng& rng) {
  HostBatch batch;
  batch.counts = counts;
  for (const int32_t count : counts) {
    for (int32_t i = 0; i < count; ++i) {
      const auto token = [&] {
        return static_cast<int32_t>(rng.below(static_cast<uint64_t>(vocab_size)));
      };
      batch.tokens.push_back(token());
      batch.positions.push_back(i);
      batch.targets.push_back(rng.below(5) == 0 ? -1 : token());
    }
  }
  return batch;
}

struct Setting {
  formats::ModelConfig config;
  std::vector<HostBatch> micro_batches;
  int threads = 1;
  DType compute = DType::kF32;
  int64_t tokens_max() const {
    size_t most = 0;
    for (const HostBatch& batch : micro_batches) most = std::max(most, batch.tokens.size());
    return static_cast<int64_t>(most);
  }
};

// What a step leaves: the loss of all rows, and all gradients.
struct Left {
  double loss = 0;
  double evaluated = 0;
  std::vector<float> gradients;
  std::string error;

  bool operator==(const Left&) const = default;
};

// A model of a rank, or alone.
class Side {
 public:
  Side(const Setting& setting, int ranks)
      : setting_(setting), device_({.thread_count = setting.threads}), arena_(device_, "test") {
    stream_ = *device_.make_stream();
    architecture_ = *model::Architecture::create(setting.config);
    weights_.emplace(*model::ModelWeights::create(arena_, *architecture_,
                                                  {.compute = setting.compute,
                                                   .use = model::PackFor::kTraining,
                                                   .position_count = setting.config.context_max}));
    for (const model::NamedParam& param : weights_->trainable()) {
      model::ParamSpec spec = *param.spec;
      spec.init_std = 0.3;
      std::vector<float> values(static_cast<size_t>(param.value.count()));
      model::fill_initial(values, spec, 5);
      if (spec.init == model::InitKind::kZero) values.assign(values.size(), 0.1f);
      std::ranges::copy(values, param.value.as<float>());
    }
    weights_->pack(*stream_);
    for (size_t node = 0; node < architecture_->node_count(); ++node) {
      const TensorView& memory = weights_->gradient_memory(node);  // what steps begin with
      std::fill_n(memory.as<float>(), memory.count(), std::numeric_limits<float>::quiet_NaN());
    }
    executor_.emplace(*Executor::create(arena_, *weights_, setting.tokens_max(), ranks));
  }

  Left alone() {
    ExactSum loss, evaluated;
    const auto tasks = one_device_tasks(architecture_->node_count(), 1);
    weights_->start_gradients(*stream_);
    auto use = model::GradientUse::kStore;
    for (const HostBatch& batch : setting_.micro_batches) {
      executor_->load(*stream_, batch, kTerms);
      executor_->run(*stream_, tasks, use);
      use = model::GradientUse::kAdd;
      executor_->add_losses(*stream_, loss);
    }
    Left left = take(loss);
    executor_->load(*stream_, setting_.micro_batches.front(), {});
    executor_->evaluate(*stream_);
    executor_->add_losses(*stream_, evaluated);
    left.evaluated = evaluated.value();
    return left;
  }

  // The sums of losses are this rank's alone.
  Status together(comm::AsyncGroup& group, Left& left, ExactSum& loss, ExactSum& evaluated) {
    auto carrier = *GradientCarrier::make(device_, *weights_);
    RankOptions options{.rank = group.rank(), .size = group.size(), .split_context = true};
    options.group = std::shared_ptr<comm::AsyncGroup>(&group, [](comm::AsyncGroup*) {});
    ContextRelay relay(options, *carrier, *weights_, nullptr);
    ContextPasses passes(group, *executor_, *weights_, relay);
    if (relay.is_own(0)) weights_->start_gradients(*stream_);
    stream_->synchronize();
    const auto count = static_cast<int64_t>(setting_.micro_batches.size());
    JIGE_DO(relay.begin(passes.chunk_count(count)));
    for (int64_t i = 0; i < count; ++i) {
      const HostBatch& batch = setting_.micro_batches[static_cast<size_t>(i)];
      JIGE_DO(passes.forward(*stream_, batch, kTerms));
      JIGE_DO(passes.backward(*stream_, i));
      passes.add_losses(*stream_, loss);
    }
    JIGE_DO(relay.finish(*stream_));
    for (size_t node = 0; node < architecture_->node_count(); ++node) {
      JIGE_DO(relay.await_total(*stream_, node));
    }
    left = take(loss);
    JIGE_DO(passes.forward(*stream_, setting_.micro_batches.front(), {}, true));
    passes.add_losses(*stream_, evaluated);
    return {};
  }

 private:
  static constexpr BatchTerms kTerms{.loss_weight = 0.125f};

  Left take(const ExactSum& loss) {
    weights_->finish_gradients(*stream_);
    stream_->synchronize();
    Left left{.loss = loss.value(), .evaluated = 0, .gradients = {}, .error = {}};
    for (const model::NamedParam& param : weights_->trainable()) {
      const float* values = param.grad.as<float>();
      left.gradients.insert(left.gradients.end(), values, values + param.grad.count());
    }
    return left;
  }

  const Setting& setting_;
  CpuDevice device_;
  Arena arena_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<const model::Architecture> architecture_;
  std::optional<model::ModelWeights> weights_;
  std::optional<Executor> executor_;
};

// What every rank has in the end; losses are those of all.
std::vector<Left> divided(const Setting& setting, int ranks, bool delays) {
  const comm::RingPlan plan = comm::RingPlan::in_rank_order(ranks);
  auto transports = comm::make_transports("threads", ranks, plan);
  std::vector<Left> left(static_cast<size_t>(ranks));
  std::vector<ExactSum> losses(left.size()), evaluated(left.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < left.size(); ++r) {
    threads.emplace_back([&, r] {
      auto transport = std::move(transports[r]);
      if (delays) transport = std::make_unique<comm::DelayedTransport>(std::move(transport), r + 3);
      const auto group = comm::AsyncGroup::over(
          *comm::Communicator::over(std::move(transport), plan, {.timeout_s = 20}));
      Side side(setting, ranks);
      const Status done = side.together(*group, left[r], losses[r], evaluated[r]);
      if (!done) left[r].error = done.error().message;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t r = 1; r < left.size(); ++r) {
    losses[0].merge(losses[r]);
    evaluated[0].merge(evaluated[r]);
  }
  for (Left& one : left) {
    one.loss = losses[0].value();
    one.evaluated = evaluated[0].value();
  }
  return left;
}

void expect_passes_of_one(const Setting& setting, int ranks, bool delays = false) {
  const Left alone = Side(setting, 1).alone();
  ASSERT_GT(alone.loss, 0);
  for (const Left& rank : divided(setting, ranks, delays)) {
    ASSERT_EQ(rank.error, "");
    EXPECT_EQ(rank.loss, alone.loss);
    EXPECT_EQ(rank.evaluated, alone.evaluated);
    EXPECT_TRUE(rank.gradients == alone.gradients);
  }
}

TEST(ContextPasses, HaveTheBitsOfOneRankInEveryModelThatMayBeDivided) {
  Rng rng(3);
  int models = 0;
  for (const formats::Family family : model::testing::all_families()) {
    Setting setting{.config = model::testing::tiny_config(family), .micro_batches = {}};
    if (!model::check_context_support(setting.config, "")) continue;
    SCOPED_TRACE(formats::family_name(family));
    for (const std::vector<int32_t>& counts : {std::vector<int32_t>{23, 9}, {31}}) {
      setting.micro_batches.push_back(random_batch(counts, setting.config.vocab_size, rng));
    }
    expect_passes_of_one(setting, 2 + models % 2);
    ++models;
  }
  EXPECT_GE(models, 35);
}

TEST(ContextPasses, HaveTheBitsOfOneRankWhateverIsDivided) {
  Rng rng(4);
  for (int turn = 0; turn < 12; ++turn) {
    SCOPED_TRACE(turn);
    Setting setting{.config = model::testing::tiny_config(formats::Family::kMistral),
                    .micro_batches = {}};
    setting.config.layer_count = 1 + turn % 4;
    setting.config.context_max = 512;
    setting.threads = 1 + turn % 2;
    if (turn % 4 == 3) setting.compute = DType::kBF16;
    for (uint64_t i = 0; i <= rng.below(3); ++i) {
      std::vector<int32_t> counts(1 + rng.below(4));
      for (int32_t& count : counts) {
        count = static_cast<int32_t>(1 + rng.below(turn % 3 == 0 ? 3 : turn % 3 == 1 ? 40 : 180));
      }
      setting.micro_batches.push_back(random_batch(counts, setting.config.vocab_size, rng));
    }
    expect_passes_of_one(setting, 2 + turn % 4, turn % 6 == 5);
  }
}

TEST(ContextPasses, EndWithAnErrorWhereAnotherRankIsGone) {
  Rng rng(5);
  Setting setting{.config = model::testing::tiny_config(formats::Family::kLlama),
                  .micro_batches = {}};
  setting.micro_batches.push_back(random_batch({40}, setting.config.vocab_size, rng));
  const comm::RingPlan plan = comm::RingPlan::in_rank_order(2);
  auto transports = comm::make_transports("threads", 2, plan);
  std::vector<std::unique_ptr<comm::AsyncGroup>> groups;
  for (auto& transport : transports) {
    groups.push_back(comm::AsyncGroup::over(
        *comm::Communicator::over(std::move(transport), plan, {.timeout_s = 20})));
  }
  groups[1].reset();
  Side side(setting, 2);
  Left left;
  ExactSum loss, evaluated;
  const Status done = side.together(*groups[0], left, loss, evaluated);
  ASSERT_FALSE(done);
  EXPECT_NE(done.error().message.find("rank 1"), std::string::npos) << done.error().message;
}

}  // namespace
}  // namespace jige::train
