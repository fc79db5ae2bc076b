// Runs that learn from rewards on several ranks: the bits of one, who draws what, how they go on,
// stop and fail together.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <signal.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <thread>

#include "base/clock.h"
#include "train/rank_test_support.h"
#include "train/reward_test_support.h"

namespace jige::train {
namespace {

using ::testing::HasSubstr;

// Counts what it draws, and does something else before.
class WatchedSource final : public PlainSource {
 public:
  Result<std::vector<AnswerGroup>> draw(std::span<const DrawRequest> requests,
                                        const GoOn& go_on) override {
    prompts += std::ssize(requests);
    ++draws;
    std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms));
    if (before) JIGE_DO(before(draws, go_on));
    return PlainSource::draw(requests, go_on);
  }

  int64_t prompts = 0, draws = 0;
  int delay_ms = 0;
  std::function<Status(int64_t draw, const GoOn& go_on)> before;
};

// As long as nothing ends it, within bounds.
Status draw_forever(const GoOn& go_on) {
  for (const StopWatch watch; watch.seconds() < 30;) {
    JIGE_DO(may_go_on(go_on));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return fail(Code::kInternal, "nothing has ended it");
}

using Sources = std::vector<std::shared_ptr<WatchedSource>>;

Sources sources_for(int size) {
  Sources sources;
  for (int r = 0; r < size; ++r) sources.push_back(std::make_shared<WatchedSource>());
  return sources;
}

// Each rank with a source of its own.
std::vector<RankOutcome> draw_on_ranks(const TrainOptions& options, const Group& group,
                                       const RankCallbacks& callbacks = nullptr,
                                       const Adjust& adjust = nullptr) {
  const Sources sources = sources_for(group.size);
  return train_ranks(options, group, callbacks, [&](int rank, TrainOptions& own) {
    own.grpo->source = sources[static_cast<size_t>(rank)];
    if (group.delays) sources[static_cast<size_t>(rank)]->delay_ms = (rank * 5 + 2) % 7;
    if (adjust) adjust(rank, own);
  });
}

// Answers of one to four tokens to five prompts a step, which no number of ranks divides.
TrainOptions ranked_rewards(const TestFolder& folder, const std::string& out) {
  TrainOptions options = reward_options(folder, out);
  options.data.eval_files = {folder.write("eval.jsonl", reward_prompts(3))};
  options.eval_every_steps = 2;
  options.grpo->prompts_per_step = 5;
  options.grpo->updates = 2;
  options.grpo->loss.kl = 0.05;
  options.steps = 4;
  return options;
}

std::string whole_checkpoint(const TrainOptions& options) {
  const std::string bytes = saved_bytes(options);
  EXPECT_EQ(bytes.find("none"), std::string::npos);
  return bytes;
}

TEST(RewardRanks, GiveTheBitsOfOneRank) {
  const TestFolder folder;
  first_model(folder);
  const TrainOptions one = ranked_rewards(folder, "alone");
  const RankOutcome alone = train_one(one);
  ASSERT_EQ(alone.error, "");
  double learned = 0;
  for (const StepInfo& step : alone.steps) learned += static_cast<double>(step.learned_count);
  EXPECT_GT(learned, 50);
  const std::string expected = whole_checkpoint(one);
  int turn = 0;
  for (const Group& group : std::vector<Group>{{.size = 1},
                                               {.size = 2, .tcp = true, .delays = true},
                                               {.size = 3, .shard = true, .order = {1, 2, 0}},
                                               {.size = 4, .overlap = false},
                                               {.size = 7, .shard = true, .delays = true}}) {
    TrainOptions options = one;
    options.out_folder = folder.file("ranks" + std::to_string(turn++));
    options.micro_batch_tokens = turn % 2 == 0 ? 32 : 128;
    const std::string what = fmt::format("turn {}, {} ranks", turn, group.size);
    const auto ranks = draw_on_ranks(options, group);
    expect_alike(ranks, alone, what);
    EXPECT_TRUE(saved_bytes(options) == expected) << what;
    for (const RankOutcome& rank : ranks) {
      EXPECT_EQ(rank.result.memory.arena_peak_bytes, rank.result.memory.arena_predicted_bytes);
      // There are more answers than ranks: each has as many micro-batches in both updates.
      for (const StepInfo& step : rank.steps) {
        EXPECT_EQ(step.micro_batch_count % (2 * group.size), 0) << what;
      }
    }
  }
}

TEST(RewardRanks, HoldWithAdaptersAndInBf16WithTheSameMicroBatches) {
  const TestFolder folder;
  first_model(folder);
  for (const bool adapter : {false, true}) {
    TrainOptions one = ranked_rewards(folder, fmt::format("alone{}", adapter));
    one.steps = 2;
    if (adapter) {
      one.lora = formats::LoraConfig{.rank = 3, .alpha = 8};
      one.base_format = ops::WeightFormat::kQ8;
    } else {
      one.compute = DType::kBF16;
    }
    const RankOutcome alone = train_one(one);
    ASSERT_EQ(alone.error, "");
    for (const bool shard : {false, true}) {
      TrainOptions options = one;
      options.out_folder = folder.file(fmt::format("ranks{}{}", adapter, shard));
      const std::string what = fmt::format("adapter {}, divided {}", adapter, shard);
      expect_alike(draw_on_ranks(options, {.size = 3, .shard = shard}), alone, what);
      EXPECT_TRUE(saved_bytes(options) == saved_bytes(one)) << what;
    }
  }
}

TEST(RewardRanks, AddAlongTheRingsWithTheSameBitsEveryTime) {
  const TestFolder folder;
  first_model(folder);
  std::vector<std::string> states;
  for (const char* out : {"rings", "again"}) {
    const TrainOptions options = ranked_rewards(folder, out);
    const auto ranks = draw_on_ranks(options, {.size = 3, .sum = GradientSum::kRings});
    expect_alike(ranks, ranks[0], out);
    states.push_back(whole_checkpoint(options));
  }
  EXPECT_TRUE(states[0] == states[1]);
}

TEST(RewardRanks, DrawEachPromptOnceAndHoldWhatTheyDraw) {
  const TestFolder folder;
  first_model(folder);
  TrainOptions options = ranked_rewards(folder, "run");
  options.steps = 3;
  options.eval_every_steps = 0;
  const Sources sources = sources_for(4);
  std::vector<int64_t> bytes(4);
  const auto on_plan = [&](int rank) {
    return TrainCallbacks{.on_plan = [&bytes, rank](const TrainPlan& plan) {
      bytes[static_cast<size_t>(rank)] = plan.drawing_bytes;
    }};
  };
  const auto ranks = train_ranks(options, {.size = 4}, on_plan, [&](int rank, TrainOptions& own) {
    own.grpo->source = sources[static_cast<size_t>(rank)];
  });
  // Five prompts a step and three held-out ones, before the first step and behind the last.
  const std::vector<int64_t> expected = {3 * 2 + 2, 3 + 2, 3 + 2, 3};
  for (size_t r = 0; r < ranks.size(); ++r) {
    ASSERT_EQ(ranks[r].error, "");
    EXPECT_EQ(sources[r]->prompts, expected[r]) << r;
    EXPECT_GT(bytes[r], 0);
  }
  options.ranks = RankOptions{.size = 4};
  options.context = 64;
  EXPECT_EQ(draw_sizes(options).answers_max, 2 * 4);
  options.ranks.reset();
  EXPECT_EQ(draw_sizes(options).answers_max, 5 * 4);
  options.grpo->answers_max = 6;
  EXPECT_EQ(draw_sizes(options).answers_max, 6);
}

TEST(RewardRanks, GoOnWithOtherRanks) {
  const TestFolder folder;
  first_model(folder);
  const TrainOptions whole = ranked_rewards(folder, "whole");
  const RankOutcome alone = train_one(whole);
  ASSERT_EQ(alone.error, "");
  TrainOptions parts = ranked_rewards(folder, "parts");
  std::vector<double> numbers;
  for (const Group& group : std::vector<Group>{
           {.size = 3, .shard = true}, {.size = 1}, {.size = 2}, {.size = 4, .shard = true}}) {
    const auto ranks = draw_on_ranks(parts, group, [](int rank) {
      return TrainCallbacks{.should_stop = [=] { return rank == 0; }};
    });
    expect_alike(ranks, ranks[0], "parts");
    numbers.insert(numbers.end(), ranks[0].numbers.begin(), ranks[0].numbers.end());
  }
  EXPECT_EQ(numbers, alone.numbers);
  EXPECT_TRUE(saved_bytes(parts) == saved_bytes(whole));
  // Nothing is left to do.
  for (const RankOutcome& rank : draw_on_ranks(parts, {.size = 2})) {
    EXPECT_EQ(rank.error, "");
    EXPECT_TRUE(rank.result.was_complete);
  }
}

// Leaves what it is in once so many steps are done, on one rank.
RankCallbacks leaving(int64_t steps, int who) {
  return [=](int rank) {
    auto done = std::make_shared<std::atomic<int64_t>>(0);
    return TrainCallbacks{.on_plan = [=](const TrainPlan& plan) { *done = plan.step_first; },
                          .on_step = [=](const StepInfo& info) { *done = info.step; },
                          .should_leave = [=] { return rank == who && *done >= steps; }};
  };
}

std::vector<int64_t> evaluated_steps(const TrainOptions& options) {
  std::vector<int64_t> steps;
  for (const Json& record : log_records(options, "eval")) steps.push_back(record["step"]);
  return steps;
}

TEST(RewardRanks, LeaveTogetherWhatTheyAreInAndGoOnWithTheSameBits) {
  const TestFolder folder;
  first_model(folder);
  const TrainOptions whole = ranked_rewards(folder, "whole");
  const RankOutcome alone = train_one(whole);
  ASSERT_EQ(alone.error, "");
  for (const auto& [size, who] : {std::pair{1, 0}, {3, 2}}) {
    const std::string what = fmt::format("{} ranks, rank {} leaves", size, who);
    const TrainOptions parts = ranked_rewards(folder, fmt::format("parts{}{}", size, who));
    const Group group{.size = size, .shard = size > 1, .delays = size > 1};
    std::vector<double> numbers;
    // In the first measurement, in the second step, in the measurement behind it and there again,
    // in the last step, in the last measurement; then to the end.
    const std::vector<int64_t> moments =
        size > 1 ? std::vector<int64_t>{0, 1, 2, 2, 3, 4, 5} : std::vector<int64_t>{0, 2, 3, 5};
    for (const int64_t steps : moments) {
      const auto ranks = draw_on_ranks(parts, group, leaving(steps, who));
      expect_alike(ranks, ranks[0], what);
      for (const RankOutcome& rank : ranks) {
        EXPECT_EQ(rank.result.stopped, steps < 5) << what << steps;
        EXPECT_EQ(rank.result.steps_done, std::min<int64_t>(steps, 4)) << what;
        EXPECT_FALSE(rank.result.was_complete) << what;
      }
      numbers.insert(numbers.end(), ranks[0].numbers.begin(), ranks[0].numbers.end());
    }
    EXPECT_EQ(numbers, alone.numbers) << what;
    EXPECT_TRUE(saved_bytes(parts) == saved_bytes(whole)) << what;
    EXPECT_EQ(evaluated_steps(parts), evaluated_steps(whole)) << what;
    // What was due is done.
    for (const RankOutcome& rank : draw_on_ranks(parts, group)) {
      EXPECT_EQ(rank.error, "");
      EXPECT_TRUE(rank.result.was_complete) << what;
    }
  }
}

TEST(RewardRanks, EndWithTheOneThatFailsWhileTheyDraw) {
  const TestFolder folder;
  first_model(folder);
  TrainOptions options = ranked_rewards(folder, "run");
  options.checkpoint_every_steps = 1;
  options.eval_every_steps = 0;
  for (const int failing : {1, 0}) {
    options.out_folder = folder.file(fmt::format("run{}", failing));
    const std::string checkpoints = options.out_folder + "/checkpoints";
    const Sources sources = sources_for(3);
    const StopWatch watch;
    // The first draw is that of held-out prompts.
    const auto ranks = train_ranks(options, {.size = 3}, nullptr, [&](int rank, auto& own) {
      WatchedSource& source = *sources[static_cast<size_t>(rank)];
      own.grpo->source = sources[static_cast<size_t>(rank)];
      source.before = [=](int64_t draw, const GoOn& go_on) -> Status {
        if (draw < 3) return {};
        if (rank != failing) return draw_forever(go_on);
        // The first rank may still be writing the checkpoint of step 1.
        while (watch.seconds() < 5 && !formats::find_latest_checkpoint(checkpoints)) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        return fail(Code::kCorrupt, "the dice are lost");
      };
    });
    EXPECT_LT(watch.seconds(), 10);
    for (const RankOutcome& rank : ranks) {
      EXPECT_THAT(rank.error, HasSubstr("the dice are lost"));
    }
    EXPECT_THAT(
        ranks[0].error,
        HasSubstr("step 2 failed; the checkpoint of step 1 is whole, and the same command"));
    EXPECT_THAT(ranks[2].error, HasSubstr(fmt::format("rank {}", failing)));
    EXPECT_TRUE(formats::find_latest_checkpoint(checkpoints));
  }
}

TEST(RewardRanks, EndWithTheProgramOfOne) {
  void (*const before)(int) = signal(SIGPIPE, SIG_IGN);
  const TestFolder folder;
  first_model(folder);
  TrainOptions options = ranked_rewards(folder, "run");
  options.grpo->reward = {
      .command =
          "while read -r line; do case \"$line\" in *'\"n\":7'[,}]*) exit 5;; esac; "
          "echo ${#line}; done"};
  options.data.eval_files.clear();
  const auto ranks = draw_on_ranks(options, {.size = 3, .delays = true});
  signal(SIGPIPE, before);
  int own_words = 0;
  for (const RankOutcome& rank : ranks) {
    EXPECT_THAT(rank.error, HasSubstr("exit code 5"));
    own_words += rank.error.find("rank ") == std::string::npos ? 1 : 0;
  }
  EXPECT_EQ(own_words, 1);  // it is named by the others
  EXPECT_THAT(ranks[0].error, HasSubstr("step "));
}

TEST(RewardRanks, RefuseAnotherReference) {
  const TestFolder folder;
  first_model(folder);
  std::filesystem::copy(folder.file("first/model"), folder.file("other"));
  const std::string weights = folder.file("other/model.safetensors");
  std::string bytes = bytes_of(weights);
  bytes[bytes.size() - 2] = static_cast<char>(bytes[bytes.size() - 2] ^ 1);
  ASSERT_TRUE(write_file_atomic(weights, bytes));
  const auto with_others = [&](int rank, TrainOptions& own) {
    if (rank == 2) own.init_folder = folder.file("other");
  };
  TrainOptions options = ranked_rewards(folder, "run");
  for (const RankOutcome& rank : draw_on_ranks(options, {.size = 3}, nullptr, with_others)) {
    EXPECT_THAT(rank.error, HasSubstr("the reference, differ on rank 2"));
  }
  // Without one only rank 0 reads the folder.
  options = ranked_rewards(folder, "free");
  options.grpo->loss.kl = 0;
  for (const RankOutcome& rank : draw_on_ranks(options, {.size = 3}, nullptr, with_others)) {
    EXPECT_EQ(rank.error, "");
  }
}

}  // namespace
}  // namespace jige::train
