#include "train/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <fstream>

#include "base/exact_sum.h"
#include "base/file.h"
#include "formats/tensor_folder.h"
#include "train/test_support.h"

namespace jige::train {
namespace {

struct Run {
  TrainResult result;
  std::vector<double> losses;  // by step
  std::vector<EvalInfo> evals;
};

Result<Run> train(const TrainOptions& options, TrainCallbacks callbacks = {}) {
  Run run;
  callbacks.on_step = [&run, before = callbacks.on_step](const StepInfo& info) {
    run.losses.push_back(info.loss);
    if (before) before(info);
  };
  callbacks.on_eval = [&](const EvalInfo& info) { run.evals.push_back(info); };
  JIGE_TRY(const auto trainer, Trainer::create(options, std::move(callbacks)));
  JIGE_TRY(run.result, trainer->run());
  return run;
}

std::string bytes_of(const std::string& path) {
  const auto content = read_file(path);
  EXPECT_TRUE(content) << path;
  return content ? *content : "";
}

std::vector<Json> log_records(const TrainOptions& options, const std::string& kind) {
  std::vector<Json> records;
  const std::string text = bytes_of(options.out_folder + "/log.jsonl");
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    auto record = parse_json(text.substr(begin, end - begin), "log");
    EXPECT_TRUE(record);
    if (record && (*record)["kind"] == kind) records.push_back(*record);
    begin = end + 1;
  }
  return records;
}

TEST(Trainer, WritesALogCheckpointsAndAModelFolder) {
  const TestFolder folder;
  TrainOptions options = tiny_options(folder, {folder.write("a.jsonl", small_corpus(60))});
  options.data.eval_fraction = 0.2;
  options.eval_every_steps = 2;
  options.checkpoint_every_steps = 2;
  options.gemm_flops_per_s = 1e9;
  const auto run = train(options);
  ASSERT_TRUE(run) << run.error().message;
  EXPECT_EQ(run->result.steps_done, 6);
  EXPECT_FALSE(run->result.stopped);
  EXPECT_EQ(run->losses.size(), 6u);
  EXPECT_LT(run->losses.back(), run->losses.front());
  EXPECT_NEAR(run->losses.front(), std::log(260.0), 0.3);
  ASSERT_EQ(run->evals.size(), 3u);
  EXPECT_LT(run->evals[2].loss, run->evals[0].loss);
  EXPECT_DOUBLE_EQ(run->evals[2].perplexity, std::exp(run->evals[2].loss));

  const auto steps = log_records(options, "step");
  ASSERT_EQ(steps.size(), 6u);
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(steps[i]["step"], i + 1);
    EXPECT_EQ(steps[i]["loss"].get<double>(), run->losses[i]);  // the same bits
    EXPECT_GT(steps[i]["tokens"].get<int64_t>(), 90);
    EXPECT_GT(steps[i]["flops_share"].get<double>(), 0);
  }
  EXPECT_EQ(log_records(options, "start").size(), 1u);
  EXPECT_EQ(log_records(options, "eval").size(), 3u);
  EXPECT_EQ(log_records(options, "checkpoint").size(), 3u);
  EXPECT_EQ(log_records(options, "end").size(), 1u);

  EXPECT_EQ(formats::list_checkpoints(options.out_folder + "/checkpoints").size(), 2u);
  for (const char* name : {"config.json", "model.safetensors", "tokenizer.json",
                           "tokenizer_config.json", "generation_config.json"}) {
    EXPECT_TRUE(std::filesystem::exists(options.out_folder + "/model/" + name)) << name;
  }
  const auto config = formats::load_model_config(options.out_folder + "/model");
  ASSERT_TRUE(config);
  EXPECT_EQ(config->eos_ids, std::vector<int32_t>{kTestEos});
  EXPECT_EQ(run->result.memory.arena_peak_bytes, run->result.memory.arena_predicted_bytes);
}

TEST(Trainer, GivesTheSameBitsForAnyMicroBatchSizeAndThreadCount) {
  std::vector<double> losses;
  std::string model;
  for (const auto& [tokens, threads] : {std::pair{64, 1}, {64, 2}, {32, 1}, {128, 2}}) {
    const TestFolder folder;
    TrainOptions options = tiny_options(folder, {folder.write("a.jsonl", small_corpus(60))});
    options.micro_batch_tokens = tokens;
    options.thread_count = threads;
    const auto run = train(options);
    ASSERT_TRUE(run) << run.error().message;
    if (losses.empty()) {
      losses = run->losses;
      model = model_bytes(options);
    }
    EXPECT_EQ(run->losses, losses) << tokens << " tokens, " << threads << " threads";
    EXPECT_EQ(model_bytes(options), model) << tokens << " tokens, " << threads << " threads";
  }
}

TEST(Trainer, LearnsASmallSetByHeart) {
  const TestFolder folder;
  TrainOptions options = tiny_options(
      folder, {folder.write("a.jsonl", "{\"text\": \"one two three\"}\n{\"text\": \"apple\"}\n")});
  options.steps = 150;
  options.schedule.peak = 1e-2;
  options.schedule.warmup_steps = 5;
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    options.compute = compute;
    options.out_folder = folder.file(std::string(dtype_info(compute).name));
    const auto run = train(options);
    ASSERT_TRUE(run) << run.error().message;
    // What follows the begin token is a guess between two.
    EXPECT_LT(run->losses.back(), 0.12) << dtype_info(compute).name;
  }
}

TEST(Trainer, LearnsAnswersOnly) {
  const TestFolder folder;
  std::string lines;
  for (int i = 0; i < 12; ++i) {
    const std::string number = std::to_string(10 + i);
    lines += dump_json(Json{{"messages",
                             {{{"role", "user"}, {"content", "say " + number}},
                              {{"role", "assistant"}, {"content", number}}}}}) +
             "\n";
  }
  TrainOptions options = tiny_options(folder, {folder.write("a.jsonl", lines)});
  options.epochs = 1;
  options.steps = 0;
  const auto run = train(options);
  ASSERT_TRUE(run) << run.error().message;
  // A conversation: <|user|> and six bytes, <|assistant|>, two digits and the end token to learn.
  int64_t tokens = 0;
  int64_t learned = 0;
  for (const Json& record : log_records(options, "step")) {
    tokens += record["tokens"].get<int64_t>();
    learned += record["learned"].get<int64_t>();
  }
  EXPECT_EQ(tokens, 12 * 10);
  EXPECT_EQ(learned, 12 * 3);
}

TEST(Trainer, CountsTheStepsOfEpochs) {
  const TestFolder folder;
  TrainOptions options = tiny_options(folder, {folder.write("a.jsonl", small_corpus(40))});
  options.steps = 0;
  options.epochs = 1.5;
  const auto trainer = Trainer::create(options);
  ASSERT_TRUE(trainer) << trainer.error().message;
  const TrainPlan plan = (*trainer)->plan();
  ASSERT_EQ(plan.document_count, 40);
  const auto run = (*trainer)->run();
  ASSERT_TRUE(run);
  EXPECT_EQ(run->steps_done, plan.steps_total);
  const auto sequences = static_cast<double>(plan.sequence_count);
  EXPECT_EQ((*trainer)->state().cursor, static_cast<uint64_t>(std::llround(1.5 * sequences)));
}

TEST(Trainer, StopsBehindACheckpointAndGoesOn) {
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

TEST(Trainer, RefusesAForeignModelFolderBeforeTheFirstStep) {
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

TEST(Trainer, PlansNoMicroBatchLargerThanAStep) {
  const TestFolder folder;
  TrainOptions options = tiny_options(folder, {folder.write("a.jsonl", small_corpus(60))});
  options.micro_batch_tokens = options.step_tokens;
  const auto equal = train(options);
  options.micro_batch_tokens = 64 * options.step_tokens;
  options.out_folder = folder.file("larger");
  const auto larger = train(options);
  ASSERT_TRUE(equal && larger);
  EXPECT_EQ(larger->losses, equal->losses);
  EXPECT_EQ(larger->result.memory.arena_predicted_bytes,
            equal->result.memory.arena_predicted_bytes);
}

TEST(Trainer, HasNothingToDoWhenARunIsComplete) {
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
TEST(Trainer, TakesNoOlderModelForItsOwn) {
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

TEST(Trainer, WritesTheModelOfACompleteRunInTheTypeAskedFor) {
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

TEST(Trainer, AModelThatIsNotFiniteIsNoSuccess) {
  const TestFolder folder;
  TrainOptions options = tiny_options(folder, {folder.write("a.jsonl", small_corpus(60))});
  const auto base = train(options);
  ASSERT_TRUE(base);
  // Behind the header come values; all bits set are NaN in every type.
  std::string bytes = model_bytes(options);
  std::fill(bytes.end() - 4096, bytes.end(), '\xff');
  ASSERT_TRUE(write_file_atomic(options.out_folder + "/model/model.safetensors", bytes));
  TrainOptions tuning = tuning_options(options, base->result.model_folder, folder.file("tuned"));
  tuning.steps = 2;
  const auto tuned = train(tuning);
  ASSERT_FALSE(tuned);
  EXPECT_EQ(tuned.error().code, Code::kCorrupt);
  EXPECT_NE(tuned.error().message.find(tuning.init_folder), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(tuning.out_folder + "/model"));
}

TEST(Trainer, RefusesToGoOnUnderOtherOptions) {
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
TEST(Trainer, RefusesToGoOnWhereAnotherPartIsHeldOut) {
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

TEST(Trainer, RefusesToGoOnWhereThereIsNothing) {
  const TestFolder folder;
  TrainOptions options = tiny_options(folder, {folder.write("a.jsonl", small_corpus(20))});
  options.resume = ResumeMode::kRequired;
  const auto run = train(options);
  ASSERT_FALSE(run);
  EXPECT_EQ(run.error().code, Code::kNotFound);
}

TEST(Trainer, LetsOneRunWriteIntoAFolder) {
  const TestFolder folder;
  const TrainOptions options = tiny_options(folder, {folder.write("a.jsonl", small_corpus(20))});
  const auto first = Trainer::create(options);
  ASSERT_TRUE(first);
  const auto second = Trainer::create(options);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kUnavailable);
}

TEST(Trainer, RemovesWhatAKilledRunLeftHalfWritten) {
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

TEST(Trainer, TakesTheLockThatItsCallerHolds) {
  const TestFolder folder;
  TrainOptions options = tiny_options(folder, {folder.write("a.jsonl", small_corpus(20))});
  ASSERT_TRUE(make_folders(options.out_folder));
  auto lock = RunLock::take(options.out_folder);
  ASSERT_TRUE(lock);
  EXPECT_FALSE(Trainer::create(options));
  options.lock = std::make_shared<RunLock>(std::move(*lock));
  EXPECT_TRUE(Trainer::create(options));
}

TEST(Trainer, KeepsTheOldCheckpointWhenTheDiskIsFull) {
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

TEST(Trainer, GivesUpAfterManyStepsWithoutFiniteGradients) {
  const TestFolder folder;
  TrainOptions options = tiny_options(folder, {folder.write("a.jsonl", small_corpus(60))});
  options.schedule.peak = 1e30;
  options.schedule.kind = ScheduleKind::kConstant;
  options.steps = 40;
  options.optimizer.clip_norm = 0;
  options.optimizer.bad_steps_in_row_max = 3;
  const auto run = train(options);
  ASSERT_FALSE(run);
  EXPECT_EQ(run.error().code, Code::kInvalidArgument);
  EXPECT_NE(run.error().message.find("learning rate"), std::string::npos);
  const auto steps = log_records(options, "step");
  ASSERT_GE(steps.size(), 4u);
  EXPECT_FALSE(steps.front()["skipped"].get<bool>());
  for (size_t i = steps.size() - 3; i < steps.size(); ++i) {
    EXPECT_TRUE(steps[i]["skipped"].get<bool>());
  }
}

TEST(Trainer, SaysWhyARunCannotStart) {
  const TestFolder folder;
  const auto path = folder.write("a.jsonl", small_corpus(20));
  const auto refused = [&](auto change, Code code, const std::string& words) -> std::string {
    TrainOptions options = tiny_options(folder, {path});
    change(options);
    const auto run = train(options);
    if (run) return "not refused";
    if (run.error().code != code) return "wrong code: " + run.error().message;
    return run.error().message.find(words) != std::string::npos ? "" : run.error().message;
  };
  const auto invalid = [&](auto change, const std::string& words) {
    return refused(change, Code::kInvalidArgument, words);
  };
  EXPECT_EQ(invalid([](auto& o) { o.data.files.clear(); }, "no training data"), "");
  EXPECT_EQ(invalid([](auto& o) { o.config.reset(); }, "model"), "");
  EXPECT_EQ(invalid([](auto& o) { o.epochs = 1; }, "either --steps or --epochs"), "");
  EXPECT_EQ(invalid([](auto& o) { o.context = 65; }, "max_position_embeddings 64"), "");
  EXPECT_EQ(invalid([](auto& o) { o.micro_batch_tokens = 31; }, "--micro-batch-tokens"), "");
  EXPECT_EQ(invalid([](auto& o) { o.schedule.peak = -1; }, "--lr"), "");
  EXPECT_EQ(invalid([](auto& o) { o.config->vocab_size = 100; }, "do not belong together"), "");
  EXPECT_EQ(invalid([](auto& o) { o.optimizer.beta2 = 1; }, "beta2"), "");
  EXPECT_EQ(refused([](auto& o) { o.memory_limit_bytes = 1000; }, Code::kExhausted,
                    "--micro-batch-tokens"),
            "");
  EXPECT_EQ(refused([](auto& o) { o.data.files = {"/nowhere/x.txt"}; }, Code::kNotFound, "x.txt"),
            "");
  EXPECT_EQ(refused([](auto& o) { o.tokenizer_folder = "/nowhere"; }, Code::kNotFound, "/nowhere"),
            "");
  EXPECT_EQ(invalid([&](auto& o) { o.data.files = {folder.write("empty.txt", "")}; }, "0 tokens"),
            "");
}

TEST(Trainer, TrainsOnTokenFilesAndEvaluationFiles) {
  const TestFolder folder;
  const std::string path = folder.file("tokens.bin");
  auto writer = formats::TokenFileWriter::create(path, {.vocab_size = kTestVocab});
  std::vector<int32_t> ids;
  for (int i = 0; i < 400; ++i) ids.push_back(i % 9 == 8 ? kTestEos : 65 + i % 9);
  ASSERT_TRUE(writer->append(ids));
  ASSERT_TRUE(writer->commit());
  TrainOptions options = tiny_options(folder, {path});
  options.data.eval_files = {folder.write("eval.txt", "abc")};
  const auto run = train(options);
  ASSERT_TRUE(run) << run.error().message;
  ASSERT_EQ(run->evals.size(), 1u);
  EXPECT_EQ(run->evals[0].learned_count, 4);  // a, b, c and the end token
}

TEST(Trainer, EvaluatesTheLossThatTrainingSees) {
  const TestFolder folder;
  const auto path = folder.write("a.jsonl", small_corpus(40));
  TrainOptions options = tiny_options(folder, {path});
  options.data.eval_files = {path};
  options.step_tokens = 996;  // the whole corpus
  options.steps = 2;
  options.eval_every_steps = 1;
  options.schedule.peak = 1e-30;  // changes no bit of any weight
  const auto run = train(options);
  ASSERT_TRUE(run) << run.error().message;
  ASSERT_EQ(run->evals.size(), 2u);
  ASSERT_EQ(run->evals[0].learned_count, 996);
  EXPECT_EQ(run->evals[0].loss, run->losses[0]);
  EXPECT_EQ(run->evals[1].loss, run->losses[1]);

  options.out_folder = folder.file("less");
  options.eval_tokens_max = 100;
  const auto less = train(options);
  ASSERT_TRUE(less);
  EXPECT_GE(less->evals[0].learned_count, 100);
  EXPECT_LT(less->evals[0].learned_count, 100 + options.context);
  EXPECT_EQ(less->evals[0].loss, less->evals[1].loss);
}

TEST(Trainer, TrainsOnOneStreamOfText) {
  const TestFolder folder;
  std::string text;
  for (int i = 0; i < 40; ++i) text += "A line of text, number " + std::to_string(i) + ".\n";
  TrainOptions options = tiny_options(folder, {folder.write("a.txt", text)});
  options.data.packing = Packing::kStream;
  options.data.eval_fraction = 0.2;
  const auto run = train(options);
  ASSERT_TRUE(run) << run.error().message;
  // Four whole pieces a step, but for the piece at the end of the file.
  int64_t whole_steps = 0;
  for (const Json& record : log_records(options, "step")) {
    EXPECT_LE(record["tokens"].get<int64_t>(), 128);
    whole_steps += record["tokens"] == 128 ? 1 : 0;
  }
  EXPECT_GE(whole_steps, 3);
}

TEST(Trainer, AShortRunThatEndsWithoutANumberIsNoSuccess) {
  const TestFolder folder;
  TrainOptions options = tiny_options(folder, {folder.write("a.jsonl", small_corpus(60))});
  options.schedule.peak = 1e300;  // infinite in f32
  options.schedule.kind = ScheduleKind::kConstant;
  options.steps = 3;
  options.optimizer.clip_norm = 0;
  const auto run = train(options);
  ASSERT_FALSE(run);
  EXPECT_EQ(run.error().code, Code::kInvalidArgument);
  EXPECT_NE(run.error().message.find("diverged"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(options.out_folder + "/model"));
}

// The last update alone can make weights that nobody can use, and a checkpoint of such takes the
// place of a good one.
TEST(Trainer, WeightsThatAreNoNumbersAreNotKept) {
  const TestFolder folder;
  TrainOptions options = tiny_options(folder, {folder.write("a.jsonl", small_corpus(60))});
  options.schedule.peak = 1e300;  // infinite in f32
  options.schedule.kind = ScheduleKind::kConstant;
  options.optimizer.clip_norm = 0;
  for (const int64_t steps : {1, 5}) {
    options.steps = steps;
    options.checkpoint_every_steps = 1;
    options.out_folder = folder.file(std::to_string(steps));
    const auto run = train(options);
    ASSERT_FALSE(run) << steps;
    EXPECT_EQ(run.error().code, Code::kInvalidArgument);
    EXPECT_THAT(run.error().message, testing::HasSubstr("diverged"));
    EXPECT_THAT(run.error().message, testing::HasSubstr("behind step 1"));
    EXPECT_TRUE(formats::list_checkpoints(options.out_folder + "/checkpoints").empty());
    EXPECT_FALSE(std::filesystem::exists(options.out_folder + "/model"));
  }
}

TEST(Trainer, FineTunesAFolder) {
  const TestFolder folder;
  const auto path = folder.write("a.jsonl", small_corpus(60));
  TrainOptions options = tiny_options(folder, {path});
  options.steps = 30;
  const auto base = train(options);
  ASSERT_TRUE(base);
  TrainOptions tuning = tuning_options(options, base->result.model_folder, folder.file("tuned"));
  tuning.steps = 3;
  const auto tuned = train(tuning);
  ASSERT_TRUE(tuned) << tuned.error().message;
  EXPECT_LT(tuned->losses.front(), base->losses.front() - 1);
  EXPECT_TRUE(std::filesystem::exists(tuned->result.model_folder + "/tokenizer.json"));
}

TEST(Trainer, WritesNoModelWithoutItsTokenizer) {
  const TestFolder folder;
  TrainOptions options = tiny_options(folder, {folder.write("a.jsonl", small_corpus(60))});
  const std::string kept = options.tokenizer_folder + ".kept";
  TrainCallbacks callbacks;
  callbacks.on_step = [&](const StepInfo& info) {
    if (info.step == 1) std::filesystem::rename(options.tokenizer_folder, kept);
  };
  const auto run = train(options, std::move(callbacks));
  ASSERT_FALSE(run);
  EXPECT_EQ(run.error().code, Code::kNotFound);
  EXPECT_NE(run.error().message.find("tokenizer"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(options.out_folder + "/model"));
  std::filesystem::rename(kept, options.tokenizer_folder);
  ASSERT_TRUE(train(options));
  EXPECT_TRUE(std::filesystem::exists(options.out_folder + "/model/tokenizer.json"));
}

TEST(Trainer, DoesNotReplaceTheModelItStartsFrom) {
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

TEST(Trainer, TrainsAdaptersAndMergesThem) {
  const TestFolder folder;
  const auto path = folder.write("a.jsonl", small_corpus(60));
  TrainOptions options = tiny_options(folder, {path});
  options.steps = 20;
  const auto base = train(options);
  ASSERT_TRUE(base);
  TrainOptions tuning = tuning_options(options, base->result.model_folder, folder.file("tuned"));
  tuning.lora = formats::LoraConfig{.rank = 4, .alpha = 8, .target_modules = {"q_proj", "v_proj"}};
  tuning.steps = 12;
  tuning.schedule.peak = 1e-2;
  tuning.data.eval_files = {path};
  tuning.eval_every_steps = 1;
  const auto tuned = train(tuning);
  ASSERT_TRUE(tuned) << tuned.error().message;
  EXPECT_LT(tuned->evals.back().loss, tuned->evals.front().loss);

  const auto adapter = formats::TensorFolder::open(tuned->result.adapter_folder, "adapter_model");
  ASSERT_TRUE(adapter) << adapter.error().message;
  EXPECT_EQ(adapter->tensors().size(), 2u * 2 * 2);
  // The merged folder behaves as base and adapter together did.
  TrainOptions check = tuning;
  check.lora.reset();
  check.init_folder = tuned->result.model_folder;
  check.out_folder = folder.file("check");
  check.steps = 1;
  check.schedule.peak = 1e-12;
  const auto checked = train(check);
  ASSERT_TRUE(checked) << checked.error().message;
  EXPECT_NEAR(checked->evals.back().loss, tuned->evals.back().loss, 1e-4);

  // A run with adapters continues, too, and knows its base.
  TrainOptions parts = tuning;
  parts.out_folder = folder.file("parts");
  TrainCallbacks callbacks;
  callbacks.should_stop = [] { return true; };
  ASSERT_TRUE(train(parts, callbacks));
  const auto rest = train(parts);
  ASSERT_TRUE(rest) << rest.error().message;
  EXPECT_EQ(rest->losses.back(), tuned->losses.back());
}

}  // namespace
}  // namespace jige::train
