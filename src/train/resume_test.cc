// A run that is killed at any moment, also while it writes a checkpoint, and continued, ends with
// the bits of a run that was left alone.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <map>

#include "base/clock.h"
#include "base/rng.h"
#include "ops/linear.h"
#include "train/test_support.h"
#include "train/trainer.h"

namespace jige::train {
namespace {

constexpr uint64_t kSeed = 20240611;

TrainOptions options_for(const TestFolder& folder, const std::string& out) {
  TrainOptions options = tiny_options(folder, {folder.file("a.jsonl")});
  options.out_folder = folder.file(out);
  options.steps = 8;
  options.checkpoint_every_steps = 1;
  options.data.eval_fraction = 0.1;
  options.eval_every_steps = 4;
  return options;
}

// Loss of every step, and of evaluations at step + 0.5, as the log has them.
std::map<double, double> logged_losses(const TrainOptions& options) {
  std::map<double, double> losses;
  const auto text = read_file(options.out_folder + "/log.jsonl");
  EXPECT_TRUE(text);
  for (size_t begin = 0; begin < text->size();) {
    const size_t end = std::min(text->find('\n', begin), text->size());
    const auto record = parse_json(text->substr(begin, end - begin), "log");
    EXPECT_TRUE(record) << text->substr(begin, end - begin);
    begin = end + 1;
    if (!record || (*record)["kind"] == "start") continue;
    const double offset = (*record)["kind"] == "eval" ? 0.5 : 0;
    if ((*record)["kind"] != "step" && offset == 0) continue;
    const double key = (*record)["step"].get<double>() + offset;
    EXPECT_FALSE(losses.contains(key)) << "two records of step " << key;
    losses[key] = (*record)["loss"];
  }
  return losses;
}

// Trains in a process of its own; returns how it ended, as waitpid says.
int run_in_child(const TrainOptions& options, double kill_after_s) {
  // What kernels prove of themselves at first use, they prove here once for all children.
  (void)ops::packed_weight_bytes(DType::kF32, ops::PackUse::kForward, 1, 1);
  const pid_t child = fork();
  if (child == 0) {
    auto trainer = Trainer::create(options);
    if (!trainer) {
      fprintf(stderr, "%s\n", trainer.error().message.c_str());
      _exit(exit_code(trainer.error().code));
    }
    const auto run = (*trainer)->run();
    if (!run) fprintf(stderr, "%s\n", run.error().message.c_str());
    _exit(run ? 0 : exit_code(run.error().code));
  }
  int status = 0;
  const StopWatch watch;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (watch.seconds() >= kill_after_s) kill(child, SIGKILL);
    usleep(200);
  }
  return status;
}

// Kills a run again and again until it ends, `rounds` times; `prepare` says what all runs do, and
// `change` may alter what an attempt is given.
template <typename Prepare, typename Change>
void kill_and_continue(int rounds, Prepare prepare, Change change) {
  const TestFolder folder;
  folder.write("a.jsonl", small_corpus(60));
  TrainOptions whole = options_for(folder, "whole");
  prepare(folder, whole);
  const StopWatch watch;
  ASSERT_EQ(run_in_child(whole, 1e9), 0);
  double whole_s = watch.seconds();
  const auto expected = logged_losses(whole);
  ASSERT_EQ(expected.size(), 8u + 2);

  Rng rng(kSeed);
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  int kills = 0;
  for (int round = 0; round < rounds || (kills <= rounds && round < 40); ++round) {
    TrainOptions options = options_for(folder, "killed" + std::to_string(round));
    prepare(folder, options);
    int status = -1;
    for (int attempt = 0; attempt < 40 && status != 0; ++attempt) {
      change(options, round + attempt);
      // From the start of the process on, so that the first kills fall before any checkpoint; later
      // attempts get more time, or a slow machine would never finish.
      const double limit_s = whole_s * rng.uniform() * (1 + 0.1 * attempt);
      const StopWatch attempt_watch;
      status = run_in_child(options, limit_s);
      // A machine that was busy at first must not make every limit too long.
      if (attempt == 0 && status == 0) whole_s = std::min(whole_s, attempt_watch.seconds());
      if (WIFSIGNALED(status)) {
        ++kills;
      } else {
        ASSERT_EQ(status, 0);
      }
    }
    ASSERT_EQ(status, 0);
    EXPECT_EQ(logged_losses(options), expected);
    EXPECT_EQ(*read_file(options.out_folder + "/model/model.safetensors"),
              *read_file(whole.out_folder + "/model/model.safetensors"));
  }
  EXPECT_GT(kills, rounds);
}

TEST(Resume, EndsWithTheSameBitsHoweverOftenTheRunIsKilled) {
  const auto nothing = [](auto&&...) {};
  kill_and_continue(3, nothing, nothing);
}

TEST(Resume, EndsWithTheSameBitsOfAModelWithExperts) {
  const auto prepare = [](const TestFolder&, TrainOptions& options) {
    options.config = tiny_biased_config();
    options.expert_balance = 0.2;
    options.expert_bias_rate = 0.01;
  };
  kill_and_continue(2, prepare, [](TrainOptions& options, int attempt) {
    options.thread_count = 1 + attempt % 2;
    options.micro_batch_tokens = attempt % 3 == 0 ? 32 : 64;
  });
}

TEST(Resume, EndsWithTheSameBitsOfAnAdapterOnAQuantisedBase) {
  const auto prepare = [](const TestFolder& folder, TrainOptions& options) {
    const std::string base = folder.file("base");
    TrainOptions first = options_for(folder, "base");
    const bool begun = std::filesystem::exists(base);
    ASSERT_TRUE(begun || run_in_child(first, 1e9) == 0);
    options = tuning_options(options, base + "/model", options.out_folder);
    options.lora = formats::LoraConfig{.rank = 2, .alpha = 4};
    options.base_format = ops::WeightFormat::kQ4;
  };
  kill_and_continue(2, prepare, [](TrainOptions& options, int attempt) {
    options.thread_count = 1 + attempt % 2;
    options.micro_batch_tokens = attempt % 3 == 0 ? 32 : 64;
  });
}

TEST(Resume, EndsWithTheSameBitsWithMomentsOfEightBits) {
  const auto prepare = [](const TestFolder&, TrainOptions& options) {
    options.optimizer.moments = ops::MomentFormat::kQ8;
  };
  kill_and_continue(2, prepare, [](TrainOptions& options, int attempt) {
    options.thread_count = 1 + attempt % 2;
    options.micro_batch_tokens = attempt % 3 == 0 ? 32 : 64;
  });
}

TEST(Resume, EndsWithTheSameBitsOfPreferenceTuning) {
  const auto prepare = [](const TestFolder& folder, TrainOptions& options) {
    const std::string base = folder.file("base");
    TrainOptions first = options_for(folder, "base");
    const bool begun = std::filesystem::exists(base);
    ASSERT_TRUE(begun || run_in_child(first, 1e9) == 0);
    options = tuning_options(options, base + "/model", options.out_folder);
    options.data.files = {folder.write("pairs.jsonl", small_pairs(60))};
    options.dpo = {.beta = 0.3, .label_smoothing = 0.1, .sft_weight = 0.2};
  };
  kill_and_continue(2, prepare, [](TrainOptions& options, int attempt) {
    options.thread_count = 1 + attempt % 2;
    options.micro_batch_tokens = attempt % 3 == 0 ? 64 : 100;
  });
}

TEST(Resume, EndsWithTheSameBitsOnOtherDevicesAndSchedulesEachTime) {
  using enum plan::OptimizerMode;
  const auto prepare = [](const TestFolder&, TrainOptions& options) { options.dropout = 0.1; };
  kill_and_continue(3, prepare, [](TrainOptions& options, int attempt) {
    options.micro_batch_tokens = 32;  // four micro-batches a step and more
    options.pipeline.reset();
    if (attempt % 5 == 0) return;  // one device, no schedule
    options.pipeline = PipelineOptions{.devices = 1 + attempt % 3};
    if (attempt % 5 == 1) options.pipeline->kinds = {plan::ScheduleKind::k1F1B};
    if (attempt % 5 == 2) {
      options.pipeline->kinds = {plan::ScheduleKind::kSPipe};
      options.pipeline->forward_stages = options.pipeline->backward_stages = {1};
    }
    if (attempt % 5 == 3) options.pipeline->optimizers = {kSync};
    if (attempt % 5 == 4) options.pipeline->clip = plan::ClipMode::kExact;
  });
}

TEST(Resume, TakesTheCheckpointBeforeADamagedOne) {
  const TestFolder folder;
  folder.write("a.jsonl", small_corpus(60));
  TrainOptions options = options_for(folder, "out");
  {
    int steps = 0;
    TrainCallbacks callbacks;
    callbacks.should_stop = [&] { return ++steps == 5; };
    auto trainer = Trainer::create(options, callbacks);
    ASSERT_TRUE(trainer);
    ASSERT_TRUE((*trainer)->run());
  }
  const auto names = formats::list_checkpoints(options.out_folder + "/checkpoints");
  ASSERT_EQ(names.size(), 2u);
  const std::string newest = options.out_folder + "/checkpoints/" + names[0].folder;
  std::filesystem::resize_file(newest + "/adam_v.safetensors", 1000);
  {
    auto trainer = Trainer::create(options);
    ASSERT_TRUE(trainer) << trainer.error().message;
    EXPECT_EQ((*trainer)->state().step, 4);
    ASSERT_TRUE((*trainer)->run());
  }
  EXPECT_EQ(logged_losses(options).size(), 8u + 2);
}

TEST(Resume, RefusesWhenNoCheckpointIsIntact) {
  const TestFolder folder;
  folder.write("a.jsonl", small_corpus(60));
  TrainOptions options = options_for(folder, "out");
  options.steps = 2;
  ASSERT_EQ(run_in_child(options, 1e9), 0);
  for (const auto& name : formats::list_checkpoints(options.out_folder + "/checkpoints")) {
    std::filesystem::resize_file(
        options.out_folder + "/checkpoints/" + name.folder + "/params.safetensors", 100);
  }
  const auto trainer = Trainer::create(options);
  ASSERT_FALSE(trainer);
  EXPECT_NE(trainer.error().message.find("params.safetensors"), std::string::npos)
      << trainer.error().message;
}

}  // namespace
}  // namespace jige::train
