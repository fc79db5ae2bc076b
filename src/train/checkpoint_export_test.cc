#include "train/checkpoint_export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <functional>
#include <map>
#include <thread>

#include "formats/checkpoint.h"
#include "formats/tensor_folder.h"
#include "train/test_support.h"
#include "train/trainer.h"

namespace jige::train {
namespace {

using ::testing::HasSubstr;

constexpr const char* kLast = "/exported-step-00000006";

TrainOptions export_options(const TestFolder& folder) {
  folder.write("a.jsonl", small_corpus(60));
  TrainOptions options = tiny_options(folder, {folder.file("a.jsonl")});
  options.checkpoint_every_steps = 2;
  return options;
}

void train_to_end(const TrainOptions& options, TrainCallbacks callbacks = {}) {
  const auto trainer = Trainer::create(options, std::move(callbacks));
  ASSERT_TRUE(trainer) << trainer.error().message;
  const auto result = (*trainer)->run();
  ASSERT_TRUE(result) << result.error().message;
}

// The files of a folder and what is in them.
std::map<std::string, std::string> files_of(const std::string& folder) {
  std::map<std::string, std::string> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    files[entry.path().filename().string()] = *read_file(entry.path().string());
  }
  EXPECT_FALSE(error) << folder;
  return files;
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

CheckpointExport exported(const CheckpointExportOptions& options) {
  const auto made = export_checkpoint(options);
  EXPECT_TRUE(made) << made.error().message;
  return made ? *made : CheckpointExport{};
}

Error refused_export(const CheckpointExportOptions& options) {
  const auto made = export_checkpoint(options);
  EXPECT_FALSE(made) << made->folder;
  return made ? Error{} : made.error();
}

// The exported folder holds exactly the parameters of the checkpoint.
void expect_parameters_of(const std::string& model_folder, const std::string& checkpoint_folder) {
  const auto model = formats::TensorFolder::open(model_folder);
  const auto checkpoint = formats::CheckpointReader::open(checkpoint_folder);
  ASSERT_TRUE(model) << model.error().message;
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  const auto stored = checkpoint->tensors("params");
  EXPECT_EQ(model->tensors().size(), stored.size());
  for (const formats::StoredTensor* tensor : stored) {
    const TensorView wanted = *checkpoint->tensor("params", tensor->name);
    const auto found = model->view(tensor->name);
    ASSERT_TRUE(found) << found.error().message;
    ASSERT_EQ(found->shape, wanted.shape);
    EXPECT_EQ(std::memcmp(found->data, wanted.data, static_cast<size_t>(wanted.count() * 4)), 0)
        << tensor->name;
  }
}

TEST(CheckpointExport, IsTheModelOfTheRunAtItsLastStep) {
  struct Case {
    const char* name;
    std::function<void(TrainOptions&)> change;
  };
  const Case cases[] = {
      {"one device", [](TrainOptions&) {}},
      {"three devices", [](TrainOptions& o) { o.pipeline = PipelineOptions{.devices = 3}; }},
      {"bf16 files", [](TrainOptions& o) { o.export_dtype = DType::kBF16; }},
      {"tied head", [](TrainOptions& o) { o.config->tied_embeddings = true; }},
      {"matrices turned round",
       [](TrainOptions& o) {
         o.config->family = formats::Family::kGpt2;
         o.config->norm = formats::NormKind::kLayer;
         o.config->activation = formats::ActivationKind::kGeluTanh;
         o.config->position = formats::PositionKind::kLearned;
         o.config->kv_head_count = o.config->head_count;
         o.config->tied_embeddings = true;
         o.config->qkv_bias = o.config->output_bias = o.config->mlp_bias = true;
       }},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.name);
    const TestFolder folder;
    TrainOptions options = export_options(folder);
    one.change(options);
    train_to_end(options);
    const CheckpointExport made = exported({.run_folder = options.out_folder});
    EXPECT_EQ(made.folder, options.out_folder + kLast);
    EXPECT_EQ(made.step, 6);
    EXPECT_EQ(made.dtype, options.export_dtype);
    EXPECT_EQ(files_of(made.folder), files_of(options.out_folder + "/model"));
  }
}

TEST(CheckpointExport, GivesTheParametersOfAnyCheckpointThatIsKept) {
  const TestFolder folder;
  const TrainOptions options = export_options(folder);
  train_to_end(options);
  const CheckpointExport made = exported(
      {.run_folder = options.out_folder + "/", .out_folder = folder.file("new/four/"), .step = 4});
  EXPECT_EQ(made.folder, folder.file("new/four"));
  expect_parameters_of(made.folder, options.out_folder + "/checkpoints/step-00000004");
  // It is a model to start from.
  TrainOptions onward = tuning_options(options, made.folder, folder.file("onward"));
  onward.steps = 1;
  train_to_end(onward);
}

TEST(CheckpointExport, ConvertsToTheTypeAskedFor) {
  const TestFolder folder;
  const TrainOptions options = export_options(folder);
  train_to_end(options);
  TrainOptions other = options;
  other.out_folder = folder.file("other");
  other.export_dtype = DType::kF16;
  train_to_end(other);
  const CheckpointExport made = exported(
      {.run_folder = options.out_folder, .out_folder = folder.file("x"), .dtype = DType::kF16});
  EXPECT_EQ(files_of(made.folder), files_of(other.out_folder + "/model"));
}

TEST(CheckpointExport, GoesBesideARunThatKeepsOneCheckpoint) {
  const TestFolder folder;
  TrainOptions options = export_options(folder);
  options.pipeline = PipelineOptions{.devices = 2};
  options.steps = 24;
  options.checkpoint_every_steps = 1;
  options.checkpoints_kept = 1;
  TrainOptions alone = options;
  alone.out_folder = folder.file("alone");
  alone.checkpoint_every_steps = options.steps;
  train_to_end(alone);

  std::atomic<bool> begun = false, ended = false;
  int64_t count = 0;
  std::thread beside([&] {
    while (!begun) std::this_thread::yield();
    while (!ended) {
      const auto made = export_checkpoint(
          {.run_folder = options.out_folder, .out_folder = folder.file("x"), .replace = true});
      ASSERT_TRUE(made) << made.error().message;
      const auto weights = formats::TensorFolder::open(made->folder);
      ASSERT_TRUE(weights) << weights.error().message;
      ++count;
    }
  });
  TrainCallbacks callbacks;
  callbacks.on_checkpoint = [&](const CheckpointInfo&) { begun = true; };
  train_to_end(options, callbacks);
  ended = true;
  beside.join();
  EXPECT_GT(count, 0);
  // The run has not noticed.
  EXPECT_EQ(files_of(options.out_folder + "/model"), files_of(alone.out_folder + "/model"));
  exported({.run_folder = options.out_folder, .out_folder = folder.file("x"), .replace = true});
  EXPECT_EQ(files_of(folder.file("x")), files_of(alone.out_folder + "/model"));
}

TEST(CheckpointExport, TakesTheLastCheckpointOfAKilledRun) {
  const TestFolder folder;
  const TrainOptions options = export_options(folder);
  const pid_t child = fork();
  if (child == 0) {
    TrainCallbacks callbacks;
    callbacks.on_step = [](const StepInfo& info) {
      if (info.step == 5) raise(SIGKILL);
    };
    const auto trainer = Trainer::create(options, callbacks);
    if (trainer) (void)(*trainer)->run();
    _exit(1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  const CheckpointExport made = exported({.run_folder = options.out_folder});
  EXPECT_EQ(made.step, 4);
  expect_parameters_of(made.folder, options.out_folder + "/checkpoints/step-00000004");
}

TEST(CheckpointExport, WritesAdaptersAndMergesThem) {
  const TestFolder folder;
  TrainOptions base = export_options(folder);
  base.out_folder = folder.file("base");
  train_to_end(base);
  TrainOptions tune = tuning_options(base, base.out_folder + "/model", folder.file("tuned"));
  tune.lora = formats::LoraConfig{.rank = 2, .alpha = 4, .use_rslora = true};
  train_to_end(tune);
  const CheckpointExport merged = exported({.run_folder = tune.out_folder});
  EXPECT_EQ(files_of(merged.folder), files_of(tune.out_folder + "/model"));
  const CheckpointExport adapter =
      exported({.run_folder = tune.out_folder, .out_folder = folder.file("a"), .adapter = true});
  EXPECT_EQ(files_of(adapter.folder), files_of(tune.out_folder + "/adapter"));
  for (const std::string& name : names_in(tune.out_folder)) EXPECT_NE(name.substr(0, 6), ".write");

  EXPECT_THAT(refused_export({.run_folder = base.out_folder, .adapter = true}).message,
              HasSubstr("has no adapter"));
  // A base of the same shape but with other weights.
  const Error other = refused_export({.run_folder = tune.out_folder,
                                      .out_folder = folder.file("b"),
                                      .base_folder = tune.out_folder + "/model"});
  EXPECT_EQ(other.code, Code::kInvalidArgument);
  const std::string model = base.out_folder + "/model";
  EXPECT_THAT(other.message,
              testing::AllOf(HasSubstr(tune.out_folder +
                                       ": its adapter was trained on the model "
                                       "in " +
                                       model + ", "),
                             HasSubstr("the model in " + tune.out_folder + "/model has other"),
                             HasSubstr("with --base, or export the adapter alone")));
  // Trained anew in place.
  std::filesystem::rename(model, folder.file("kept"));
  std::filesystem::copy(tune.out_folder + "/model", model);
  EXPECT_THAT(
      refused_export({.run_folder = tune.out_folder, .out_folder = folder.file("b")}).message,
      HasSubstr("the model in " + model + ", whose weights are no longer the same"));
  std::filesystem::remove_all(model);
  std::filesystem::rename(folder.file("kept"), model);
  std::filesystem::rename(base.out_folder, folder.file("moved"));
  const Error gone = refused_export({.run_folder = tune.out_folder,
                                     .out_folder = folder.file("b"),
                                     .tokenizer_folder = folder.file("tokenizer")});
  EXPECT_EQ(gone.code, Code::kNotFound);
  EXPECT_THAT(gone.message, HasSubstr("--base"));
  const CheckpointExport found = exported({.run_folder = tune.out_folder,
                                           .out_folder = folder.file("b"),
                                           .tokenizer_folder = folder.file("moved/model"),
                                           .base_folder = folder.file("moved/model")});
  EXPECT_EQ(files_of(found.folder), files_of(tune.out_folder + "/model"));
}

TEST(CheckpointExport, ReplacesOnlyWhatItIsAskedTo) {
  const TestFolder folder;
  const TrainOptions options = export_options(folder);
  train_to_end(options);
  const CheckpointExportOptions ask{.run_folder = options.out_folder,
                                    .out_folder = folder.file("x")};
  const auto first = files_of(
      exported({.run_folder = options.out_folder, .out_folder = folder.file("x"), .step = 4})
          .folder);
  const Error there = refused_export(ask);
  EXPECT_EQ(there.code, Code::kInvalidArgument);
  EXPECT_THAT(there.message, HasSubstr("--replace"));
  EXPECT_EQ(files_of(folder.file("x")), first);
  CheckpointExportOptions replace = ask;
  replace.replace = true;
  exported(replace);
  EXPECT_EQ(files_of(folder.file("x")), files_of(options.out_folder + "/model"));
  folder.write("x/notes.txt", "mine");
  EXPECT_THAT(refused_export(replace).message, HasSubstr("notes.txt"));
  // Nor is anything left of a write that fails.
  const auto before = names_in(folder.path());
  std::filesystem::remove(folder.file("x/notes.txt"));
  std::filesystem::remove_all(folder.file("tokenizer"));
  EXPECT_EQ(refused_export(replace).code, Code::kNotFound);
  auto after = names_in(folder.path());
  after.push_back("tokenizer");
  std::sort(after.begin(), after.end());
  EXPECT_EQ(after, before);
}

// Ctrl-C leaves no half of a model, however large it is.
TEST(CheckpointExport, LeavesNothingWhenItIsCancelled) {
  const TestFolder folder;
  const TrainOptions base = export_options(folder);
  train_to_end(base);
  TrainOptions adapted = tuning_options(base, base.out_folder + "/model", folder.file("adapted"));
  adapted.lora = formats::LoraConfig{.rank = 2, .alpha = 4};
  train_to_end(adapted);
  const std::atomic<bool> cancelled = true;
  for (const std::string& run : {base.out_folder, adapted.out_folder}) {
    const auto before = names_in(run);
    const auto made = export_checkpoint({.run_folder = run, .cancelled = &cancelled});
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().code, Code::kCancelled) << made.error().message;
    EXPECT_EQ(names_in(run), before);
  }
}

TEST(CheckpointExport, SaysWhatIsMissingOrBroken) {
  const TestFolder folder;
  TrainOptions options = export_options(folder);
  EXPECT_EQ(refused_export({.run_folder = folder.file("nowhere")}).code, Code::kNotFound);
  std::filesystem::create_directories(options.out_folder);
  const Error none = refused_export({.run_folder = options.out_folder});
  EXPECT_EQ(none.code, Code::kNotFound);
  EXPECT_THAT(none.message, HasSubstr("no checkpoint yet"));

  train_to_end(options);
  EXPECT_THAT(refused_export({.run_folder = options.out_folder, .step = 3}).message,
              HasSubstr("no checkpoint of step 3; the steps it keeps: 6, 4"));
  const std::string checkpoints = options.out_folder + "/checkpoints/";
  std::filesystem::resize_file(checkpoints + "step-00000006/params.safetensors", 500);
  const Error broken = refused_export({.run_folder = options.out_folder, .step = 6});
  EXPECT_EQ(broken.code, Code::kCorrupt);
  EXPECT_THAT(broken.message, HasSubstr("step-00000006/params.safetensors"));
  EXPECT_EQ(exported({.run_folder = options.out_folder}).step, 4);  // the one before, as training
  std::filesystem::resize_file(checkpoints + "step-00000004/params.safetensors", 500);
  EXPECT_THAT(refused_export({.run_folder = options.out_folder}).message,
              HasSubstr("no checkpoint is intact"));
}

TEST(CheckpointExport, FindsATokenizerOrSaysSo) {
  const TestFolder folder;
  const TrainOptions options = export_options(folder);
  train_to_end(options);
  std::filesystem::rename(folder.file("tokenizer"), folder.file("elsewhere"));
  const Error gone = refused_export({.run_folder = options.out_folder});
  EXPECT_EQ(gone.code, Code::kNotFound);
  EXPECT_THAT(gone.message, HasSubstr("--tokenizer"));
  EXPECT_EQ(
      exported({.run_folder = options.out_folder, .tokenizer_folder = folder.file("elsewhere")})
          .step,
      6);
  // A run that was moved with its tokenizer.
  std::filesystem::rename(folder.file("elsewhere"), options.out_folder + "/tokenizer");
  EXPECT_EQ(exported({.run_folder = options.out_folder, .replace = true}).step, 6);
}

}  // namespace
}  // namespace jige::train
