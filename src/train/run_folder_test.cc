// What a run finds in its folder, and what it leaves there: runs to go on with, models and locks of
// others, remains.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>
#include <vector>

#include "base/file.h"
#include "formats/checkpoint.h"
#include "formats/model_config.h"
#include "train/run_lock.h"
#include "train/trainer_test_support.h"

namespace jige::train {
namespace {

TEST(RunFolder, StopsBehindACheckpointAndGoesOn) {
  const TestFolder folder;
  TrainOptions options = tiny_options(folder, {folder.write("a.jsonl", small_corpus(60))});
  const auto whole = train(options);
  ASSERT_TRUE(whole);
  const std::string expected = model_bytes(options);

  options.out_folder = folder.file("parts");
  int64_t done = 0;
  TrainCallbacks callbacks;
  callbacks.on_step = [&](const StepInfo& info) { done = info.step; };
  callbacks.should_stop = [&] { return done == 2; };
  const auto first = train(options, callbacks);
  ASSERT_TRUE(first);
  EXPECT_TRUE(first->result.stopped);
  EXPECT_EQ(first->result.steps_done, 2);
  EXPECT_FALSE(std::filesystem::exists(options.out_folder + "/model"));

  options.thread_count = 2;
  options.micro_batch_tokens = 32;
  const auto second = train(options);
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_EQ(second->losses.size(), 4u);
  std::vector<double> losses = first->losses;
  losses.insert(losses.end(), second->losses.begin(), second->losses.end());
  EXPECT_EQ(losses, whole->losses);
  EXPECT_EQ(model_bytes(options), expected);
  EXPECT_EQ(log_records(options, "step").size(), 6u);
}

// In the middle of a measurement, on the way or behind the last step: it is made again, and nothing
// is logged twice.
TEST(RunFolder, LeavesAMeasurementAndGoesOnWithIt) {
  const TestFolder folder;
  TrainOptions options = tiny_options(folder, {folder.write("a.jsonl", small_corpus(60))});
  options.data.eval_fraction = 0.3;
  options.micro_batch_tokens = options.context = 32;
  options.eval_every_steps = 2;
  int64_t asked = 0, whole_asked = 0;
  TrainCallbacks counting;
  counting.on_held_out = [&](int64_t done, int64_t total) {
    EXPECT_LT(done, total);
    return ++whole_asked > 0;
  };
  const auto whole = train(options, counting);
  ASSERT_TRUE(whole) << whole.error().message;
  ASSERT_GE(whole->evals.size(), 3u);
  const int64_t each = whole_asked / std::ssize(whole->evals);
  ASSERT_GE(each, 2) << "several micro-batches";
  const std::string expected = model_bytes(options);
  for (const int64_t stop : {each + 2, whole_asked}) {
    options.out_folder = folder.file("left-" + std::to_string(stop));
    asked = 0;
    TrainCallbacks leaving;
    leaving.on_held_out = [&](int64_t, int64_t) { return ++asked < stop; };
    const auto left = train(options, leaving);
    ASSERT_TRUE(left) << left.error().message;
    EXPECT_TRUE(left->result.stopped);
    EXPECT_FALSE(std::filesystem::exists(options.out_folder + "/model"));
    const auto rest = train(options);
    ASSERT_TRUE(rest) << rest.error().message;
    EXPECT_FALSE(rest->result.stopped);
    EXPECT_EQ(model_bytes(options), expected);
    const auto evals = log_records(options, "eval");
    ASSERT_EQ(evals.size(), whole->evals.size());
    for (size_t i = 0; i < evals.size(); ++i) {
      EXPECT_EQ(evals[i]["step"], whole->evals[i].step);
      EXPECT_EQ(evals[i]["loss"], whole->evals[i].loss);
    }
  }
}

TEST(RunFolder, RefusesAForeignModelFolderBeforeTheFirstStep) {
  const TestFolder folder;
  const TrainOptions options = tiny_options(folder, {folder.write("a.jsonl", small_corpus(60))});
  std::filesystem::create_directories(options.out_folder + "/model");
  std::ofstream(options.out_folder + "/model/diary.txt") << "mine";
  const auto refused = train(options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
  EXPECT_THAT(refused.error().message, testing::HasSubstr("diary.txt"));
  EXPECT_FALSE(std::filesystem::exists(options.out_folder + "/log.jsonl"));
  EXPECT_EQ(bytes_of(options.out_folder + "/model/diary.txt"), "mine");
}

TEST(RunFolder, HasNothingToDoWhenARunIsComplete) {
  const TestFolder folder;
  const TrainOptions options = tiny_options(folder, {folder.write("a.jsonl", small_corpus(60))});
  ASSERT_TRUE(train(options));
  const std::string model = model_bytes(options);
  const std::string log = bytes_of(options.out_folder + "/log.jsonl");
  const auto again = train(options);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_TRUE(again->result.was_complete);
  EXPECT_TRUE(again->losses.empty());
  EXPECT_EQ(model_bytes(options), model);
  EXPECT_EQ(bytes_of(options.out_folder + "/log.jsonl"), log);
  std::filesystem::remove_all(options.out_folder + "/model");
  ASSERT_TRUE(train(options));
  EXPECT_EQ(model_bytes(options), model);
}

// A run that ended between its last checkpoint and its model, in a folder that holds another's.
TEST(RunFolder, TakesNoOlderModelForItsOwn) {
  const TestFolder folder;
  TrainOptions options = tiny_options(folder, {folder.write("a.jsonl", small_corpus(60))});
  ASSERT_TRUE(train(options));
  const std::string older = model_bytes(options);
  std::filesystem::remove_all(options.out_folder + "/checkpoints");
  options.seed = 2;
  TrainCallbacks callbacks;
  const std::string kept = options.tokenizer_folder + ".kept";
  callbacks.on_checkpoint = [&](const CheckpointInfo&) {
    std::filesystem::rename(options.tokenizer_folder, kept);  // needed for the model
  };
  ASSERT_FALSE(train(options, std::move(callbacks)));
  std::filesystem::rename(kept, options.tokenizer_folder);
  EXPECT_TRUE(model_bytes(options) == older);
  const auto rest = train(options);
  ASSERT_TRUE(rest) << rest.error().message;
  EXPECT_TRUE(rest->result.was_complete);
  EXPECT_FALSE(model_bytes(options) == older);
  EXPECT_EQ(log_records(options, "end").size(), 1u);
  TrainOptions whole = options;
  whole.out_folder = folder.file("whole");
  ASSERT_TRUE(train(whole));
  EXPECT_TRUE(model_bytes(options) == model_bytes(whole));
}

TEST(RunFolder, WritesTheModelOfACompleteRunInTheTypeAskedFor) {
  const TestFolder folder;
  TrainOptions options = tiny_options(folder, {folder.write("a.jsonl", small_corpus(60))});
  ASSERT_TRUE(train(options));
  const size_t f32_bytes = model_bytes(options).size();
  options.export_dtype = DType::kBF16;
  ASSERT_TRUE(train(options));
  EXPECT_LT(model_bytes(options).size(), f32_bytes * 3 / 4);
  ASSERT_TRUE(write_file_atomic(options.out_folder + "/model/config.json", "{"));
  ASSERT_TRUE(train(options));
  EXPECT_TRUE(formats::load_model_config(options.out_folder + "/model"));
}

TEST(RunFolder, RefusesToGoOnUnderOtherOptions) {
  const TestFolder folder;
  const auto path = folder.write("a.jsonl", small_corpus(60));
  const TrainOptions options = tiny_options(folder, {path});
  ASSERT_TRUE(train(options));
  const auto refused = [&](auto change, const std::string& field) {
    TrainOptions changed = options;
    change(changed);
    const auto run = train(changed);
    if (run) return std::string("not refused");
    EXPECT_EQ(run.error().code, Code::kInvalidArgument);
    return run.error().message.find(field) != std::string::npos ? "" : run.error().message;
  };
  EXPECT_EQ(refused([](TrainOptions& o) { o.seed = 2; }, "seed = 1, this run has 2"), "");
  EXPECT_EQ(refused([](TrainOptions& o) { o.steps = 7; }, "steps = 6"), "");
  EXPECT_EQ(refused([](TrainOptions& o) { o.compute = DType::kBF16; }, "compute = \"f32\""), "");
  EXPECT_EQ(refused([](TrainOptions& o) { o.schedule.peak = 1; }, "schedule.learning_rate"), "");
  EXPECT_EQ(refused([](TrainOptions& o) { o.config->ffn_size = 64; }, "intermediate_size"), "");
  EXPECT_EQ(refused([](TrainOptions& o) { o.resume = ResumeMode::kNever; }, "checkpoints"), "");
  folder.write("a.jsonl", small_corpus(61));
  EXPECT_EQ(refused([](TrainOptions&) {}, "data.content"), "");
}

// What is held out of the training data is not trained on, so evaluation files of its own decide
// about the order of all that is.
TEST(RunFolder, RefusesToGoOnWhereAnotherPartIsHeldOut) {
  const TestFolder folder;
  TrainOptions options = tiny_options(folder, {folder.write("a.jsonl", small_corpus(60))});
  options.data.eval_fraction = 0.2;
  TrainOptions apart = options;
  apart.out_folder = folder.file("apart");
  apart.data.eval_files = {folder.write("eval.txt", "abc")};
  for (TrainOptions* run : {&options, &apart}) {
    TrainCallbacks callbacks;
    callbacks.should_stop = [] { return true; };
    ASSERT_TRUE(train(*run, callbacks));
  }
  std::swap(options.data.eval_files, apart.data.eval_files);
  for (const TrainOptions* run : {&options, &apart}) {
    const auto refused = train(*run);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
    EXPECT_THAT(refused.error().message, testing::HasSubstr("--eval-data"));
  }
  std::swap(options.data.eval_files, apart.data.eval_files);
  apart.data.eval_files = {folder.write("other.txt", "another text to measure on")};
  for (const TrainOptions* run : {&options, &apart}) EXPECT_TRUE(train(*run));
}

TEST(RunFolder, RefusesToGoOnWhereThereIsNothing) {
  const TestFolder folder;
  TrainOptions options = tiny_options(folder, {folder.write("a.jsonl", small_corpus(20))});
  options.resume = ResumeMode::kRequired;
  const auto run = train(options);
  ASSERT_FALSE(run);
  EXPECT_EQ(run.error().code, Code::kNotFound);
}

TEST(RunFolder, LetsOneRunWriteIntoAFolder) {
  const TestFolder folder;
  const TrainOptions options = tiny_options(folder, {folder.write("a.jsonl", small_corpus(20))});
  const auto first = Trainer::create(options);
  ASSERT_TRUE(first);
  const auto second = Trainer::create(options);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kUnavailable);
}

TEST(RunFolder, RemovesWhatAKilledRunLeftHalfWritten) {
  const TestFolder folder;
  const TrainOptions options = tiny_options(folder, {folder.write("a.jsonl", small_corpus(20))});
  const std::string out = options.out_folder + "/";
  const std::vector<std::string> remains = {"cache/a-0f.bin.Ab3xYz", "cache/a-0f.bin.mask.Ab3xYz",
                                            "cache/a-0f.bin.documents.000000",
                                            ".write-model.Ab3xYz", ".write-adapter.Ab3xYz"};
  const std::vector<std::string> others = {"cache/a-0f.bin.backups", "cache/notes.backup",
                                           "cache/a-0f.bin", ".write-exported-step-1.Ab3xYz"};
  ASSERT_TRUE(make_folders(out + "cache"));
  for (const auto& names : {remains, others}) {
    for (const std::string& name : names) {
      const bool is_folder = name.starts_with('.');
      ASSERT_TRUE(make_folders(is_folder ? out + name : out));
      std::ofstream(out + name + (is_folder ? "/config.json" : "")) << "half";
    }
  }
  ASSERT_TRUE(train(options));
  for (const std::string& name : remains) EXPECT_FALSE(std::filesystem::exists(out + name)) << name;
  for (const std::string& name : others) EXPECT_TRUE(std::filesystem::exists(out + name)) << name;
}

TEST(RunFolder, TakesTheLockThatItsCallerHolds) {
  const TestFolder folder;
  TrainOptions options = tiny_options(folder, {folder.write("a.jsonl", small_corpus(20))});
  ASSERT_TRUE(make_folders(options.out_folder));
  auto lock = RunLock::take(options.out_folder);
  ASSERT_TRUE(lock);
  EXPECT_FALSE(Trainer::create(options));
  options.lock = std::make_shared<RunLock>(std::move(*lock));
  EXPECT_TRUE(Trainer::create(options));
}

TEST(RunFolder, IsNotLeftBehindByARunThatIsRefused) {
  const TestFolder folder;
  TrainOptions options = tiny_options(folder, {folder.write("a.jsonl", small_corpus(20))});
  const std::string above = folder.file("runs");
  for (const char* out : {"runs/deep/er", "runs/deep/er/"}) {
    options.out_folder = folder.file(out);
    options.context = 1 << 20;  // more than the model has
    ASSERT_FALSE(train(options));
    EXPECT_FALSE(std::filesystem::exists(above)) << out;
    options.context = 0;
    options.data.files = {folder.write("bad.jsonl", "{\"txt\": \"of no known field\"}\n")};
    ASSERT_FALSE(train(options));
    EXPECT_FALSE(std::filesystem::exists(above)) << out;
  }
  // What was there before is the user's, and so is what holds something.
  ASSERT_TRUE(make_folders(above));
  ASSERT_FALSE(train(options));
  EXPECT_TRUE(std::filesystem::exists(above));
  EXPECT_FALSE(std::filesystem::exists(folder.file("runs/deep")));
  std::ofstream(folder.file("runs/notes.txt")) << "mine";
  options.out_folder = above;
  ASSERT_FALSE(train(options));
  EXPECT_EQ(bytes_of(folder.file("runs/notes.txt")), "mine");
  {
    auto lock = RunLock::take(folder.file("kept"));
    ASSERT_TRUE(lock);
    ASSERT_TRUE(make_folders(folder.file("kept/sub")));
    std::ofstream(folder.file("kept/sub/file")) << "x";
    EXPECT_EQ(RunLock::take(folder.file("kept")).error().code, Code::kUnavailable);
  }
  EXPECT_TRUE(std::filesystem::exists(folder.file("kept/sub/file")));
}

// Folders come and go while others wait for them: one at a time has the lock, of the file in place.
TEST(RunFolder, HasOneOwnerWhileItComesAndGoes) {
  const TestFolder folder;
  const std::string out = folder.file("above/out");
  std::atomic<int> inside = 0, taken = 0, refused = 0;
  const auto take = [&] {
    for (int i = 0; i < 300; ++i) {
      const auto lock = RunLock::take(out);
      if (!lock) {
        EXPECT_EQ(lock.error().code, Code::kUnavailable) << lock.error().message;
        ++refused;
        continue;
      }
      EXPECT_EQ(inside.fetch_add(1), 0);
      EXPECT_TRUE(std::filesystem::exists(out + "/.lock"));
      ++taken;
      --inside;
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) threads.emplace_back(take);
  }
  EXPECT_GT(taken, 0);
  EXPECT_EQ(taken + refused, 1200);
  // The folder goes, with the file that was opened, before that is locked.
  const std::string fresh = folder.file("fresh/out");
  auto first = std::make_unique<RunLock>(*RunLock::take(fresh));
  const auto second = RunLock::take(fresh, [&] { first.reset(); });
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_TRUE(std::filesystem::exists(fresh + "/.lock"));
  EXPECT_FALSE(RunLock::take(fresh));
}

TEST(RunFolder, KeepsTheOldCheckpointWhenTheDiskIsFull) {
  const TestFolder folder;
  TrainOptions options = tiny_options(folder, {folder.write("a.jsonl", small_corpus(60))});
  options.checkpoint_every_steps = 2;
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  TrainCallbacks callbacks;
  callbacks.on_step = [&](const StepInfo& info) {
    // Behind the first checkpoint the disk has room for the log, but not for the weights.
    const rlimit small{.rlim_cur = 40000, .rlim_max = before.rlim_max};
    if (info.step == 3) setrlimit(RLIMIT_FSIZE, &small);
  };
  const auto run = train(options, callbacks);
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, old_handler);
  ASSERT_FALSE(run);
  EXPECT_EQ(run.error().code, Code::kExhausted);
  EXPECT_NE(run.error().message.find("checkpoint of step 4"), std::string::npos)
      << run.error().message;
  const auto checkpoint =
      formats::CheckpointReader::open_latest(options.out_folder + "/checkpoints");
  ASSERT_TRUE(checkpoint);
  EXPECT_EQ(checkpoint->step(), 2);
  const auto rest = train(options);
  ASSERT_TRUE(rest) << rest.error().message;
  EXPECT_EQ(rest->losses.size(), 4u);
}

TEST(RunFolder, DoesNotReplaceTheModelItStartsFrom) {
  const TestFolder folder;
  TrainOptions options = tiny_options(folder, {folder.write("a.jsonl", small_corpus(60))});
  ASSERT_TRUE(train(options));
  const std::string model = model_bytes(options);
  std::filesystem::remove_all(options.out_folder + "/checkpoints");
  options.config.reset();
  options.tokenizer_folder.clear();
  options.init_folder = options.out_folder + "/model/";
  const auto tuned = train(options);
  ASSERT_FALSE(tuned);
  EXPECT_EQ(tuned.error().code, Code::kInvalidArgument);
  EXPECT_NE(tuned.error().message.find("another output folder"), std::string::npos);
  EXPECT_EQ(model_bytes(options), model);
}

}  // namespace
}  // namespace jige::train
