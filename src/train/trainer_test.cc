#include "train/trainer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/file.h"
#include "formats/tensor_folder.h"
#include "train/test_support.h"
#include "train/trainer_test_support.h"

namespace jige::train {
namespace {

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

TEST(Trainer, StopsWhereItIsToldToWhileStepsAreCounted) {
  const TestFolder folder;
  TrainOptions options = tiny_options(folder, {folder.write("a.jsonl", small_corpus(20))});
  options.steps = 0;
  options.epochs = 1e6;
  const auto run = train(options, {.on_walk = [](int64_t, int64_t) { return false; }});
  ASSERT_FALSE(run);
  EXPECT_EQ(run.error().code, Code::kCancelled) << run.error().message;
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
  options.step_tokens = 64;
  options.steps = 120;
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

// What does not depend on the number of documents is the same, and the rest is what stays of them.
TEST(Trainer, PredictsTheMemoryOfManyDocuments) {
  const TestFolder folder;
  const auto report_of = [&](int64_t documents) {
    std::string lines;
    for (int64_t i = 0; i < documents; ++i) lines += "{\"text\": \"ab\"}\n";
    TrainOptions options = tiny_options(folder, {folder.write("a.jsonl", lines)});
    options.out_folder = folder.file(fmt::format("of_{}", documents));
    options.data.eval_fraction = 0.1;
    const auto run = train(options);
    EXPECT_TRUE(run) << run.error().message;
    const MemoryReport memory = run ? run->result.memory : MemoryReport();
    EXPECT_EQ(memory.index_bytes, documents * (8 + 16));
    const auto plan = log_records(options, "start").at(0)["plan"];
    EXPECT_EQ(plan["memory"]["index_bytes"], memory.index_bytes);
    EXPECT_EQ(plan["memory_predicted_bytes"], memory.process_predicted_bytes);
    return memory;
  };
  const MemoryReport few = report_of(100), many = report_of(20'000);
  EXPECT_EQ(many.process_predicted_bytes - many.index_bytes,
            few.process_predicted_bytes - few.index_bytes);
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

TEST(Trainer, TakesSequencesAsLongAsAMicroBatchHoldsWhereTheModelsContextIsLonger) {
  for (const auto& [micro_batch_tokens, context] : {std::pair{48, 48}, {64, 64}, {200, 64}}) {
    const TestFolder folder;
    TrainOptions options = tiny_options(folder, {folder.write("a.jsonl", small_corpus(20))});
    options.context = 0;
    options.micro_batch_tokens = micro_batch_tokens;
    options.steps = 1;
    TrainPlan plan;
    const auto run = train(options, {.on_plan = [&](const TrainPlan& told) { plan = told; }});
    ASSERT_TRUE(run) << run.error().message;
    EXPECT_EQ(plan.context, context);
    EXPECT_EQ(plan.context_max, 64);
  }
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

TEST(Trainer, RefusesAFolderWhoseConfigLiesBeforeItCountsTheMemoryOfThat) {
  const TestFolder folder;
  TrainOptions options = tiny_options(folder, {folder.write("a.jsonl", small_corpus(60))});
  options.steps = 1;
  const auto base = train(options);
  ASSERT_TRUE(base);
  const std::string& model = base->result.model_folder;
  auto config = parse_json(*read_file(model + "/config.json"), "config.json");
  ASSERT_TRUE(config);
  (*config)["intermediate_size"] = 1 << 20;
  ASSERT_TRUE(write_file_atomic(model + "/config.json", dump_json(*config)));
  TrainOptions tuning = tuning_options(options, model, folder.file("tuned"));
  tuning.memory_limit_bytes = int64_t{100} << 20;  // less than the lie would take
  const auto tuned = train(tuning);
  ASSERT_FALSE(tuned);
  EXPECT_EQ(tuned.error().code, Code::kCorrupt) << tuned.error().message;
  EXPECT_NE(tuned.error().message.find("config.json makes it [1048576, "), std::string::npos)
      << tuned.error().message;
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
