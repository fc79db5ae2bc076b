// jige export: checkpoints of runs as model folders, as a user has them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "formats/checkpoint.h"
#include "integration/tiny_run.h"

namespace jige::integration {
namespace {

using ::testing::HasSubstr;

TEST(Export, WritesTheModelOfARunAndRefusesToReplaceIt) {
  const TestFolder folder;
  const std::string out = folder / "models/tiny";
  const Outcome first = run_jige({"export", TinyRun::get().run(), out, "--json"});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_EQ(first.json()["step"], 30);
  EXPECT_EQ(first.json()["folder"], out);
  EXPECT_EQ(first.json()["dtype"], "f32");
  EXPECT_EQ(list_tree(out), list_tree(TinyRun::get().model()));
  EXPECT_EQ(read_text(out + "/model.safetensors"),
            read_text(TinyRun::get().model() + "/model.safetensors"));
  const Outcome again = run_jige({"export", TinyRun::get().run(), out});
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_THAT(again.err, HasSubstr("--replace"));
  const Outcome replaced = run_jige(
      {"export", TinyRun::get().run(), out, "--replace", "--dtype", "bf16", "--step", "20"});
  EXPECT_EQ(replaced.exit_code, 0) << replaced.err;
  EXPECT_EQ(run_jige({"inspect", out, "--json"}).exit_code, 0);
  const Outcome text = run_jige({"generate", out, "--prompt", "The", "--max-new-tokens", "4"});
  EXPECT_EQ(text.exit_code, 0) << text.err;
}

TEST(Export, WritesAGgufFileThatComesBackToTheByte) {
  const TestFolder folder;
  const std::string file = folder / "deep/tiny.gguf", back = folder / "back";
  const Outcome made = run_jige({"export", TinyRun::get().run(), "--gguf", file, "--json"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_EQ(made.json()["file"], file);
  EXPECT_EQ(made.json()["types"].size(), 1u);
  ASSERT_EQ(run_jige({"import", file, "--out", back}).exit_code, 0);
  EXPECT_EQ(read_text(back + "/model.safetensors"),
            read_text(TinyRun::get().model() + "/model.safetensors"));
  const auto ids = [](const std::string& model) {
    return run_jige({"tokenize", model, "--text", "The 12 <|endoftext|> caf\u00e9s!", "--json"})
        .out;
  };
  EXPECT_EQ(ids(back), ids(TinyRun::get().model()));

  expect_error(run_jige({"export", TinyRun::get().run(), "--gguf", file}), 2, {"--replace"});
  const Outcome small =
      run_jige({"export", TinyRun::get().model(), "--gguf", file, "--type", "q4_0", "--replace"});
  ASSERT_EQ(small.exit_code, 0) << small.err;
  EXPECT_THAT(small.out, HasSubstr("Q4_0"));
  EXPECT_EQ(run_jige({"import", file, "--out", back, "--replace"}).exit_code, 0);
  expect_error(run_jige({"export", TinyRun::get().run(), "--gguf", file, "--step", "20"}), 2,
               {"--step: is of checkpoints"});
  expect_error(run_jige({"export", TinyRun::get().run(), "--type", "q8_0"}), 2,
               {"--type: is of GGUF files"});
  expect_error(run_jige({"export", folder / "none", "--gguf", file}), 3, {"no such folder"});
}

TEST(Export, TakesARunThatGoesOnAndOneThatWasKilled) {
  const TestFolder folder, streams;
  std::vector<std::string> arguments = tiny_train_arguments(TinyRun::get().corpus(), 100000);
  arguments.insert(arguments.end(),
                   {"--save-every", "2", "--keep", "1", "--devices", "2", "--out", folder / "run"});
  Process process(arguments, streams.path());
  for (int i = 0; i < 6000 && process.running(); ++i) {
    if (!formats::list_checkpoints(folder / "run/checkpoints").empty()) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ASSERT_TRUE(process.running());
  const Outcome beside = run_jige({"export", folder / "run", folder / "beside"});
  EXPECT_EQ(beside.exit_code, 0) << beside.err;
  EXPECT_TRUE(process.running());
  process.send(SIGKILL);
  EXPECT_EQ(process.wait().exit_code, 128 + SIGKILL);
  const Outcome behind = run_jige({"export", folder / "run", "--json"});
  ASSERT_EQ(behind.exit_code, 0) << behind.err;
  EXPECT_THAT(behind.json()["folder"].get<std::string>(), HasSubstr("run/exported-step-000"));
  EXPECT_EQ(run_jige({"inspect", behind.json()["folder"]}).exit_code, 0);
  EXPECT_EQ(run_jige({"inspect", folder / "beside"}).exit_code, 0);
}

TEST(Export, SaysWhatIsMissing) {
  const TestFolder folder;
  EXPECT_EQ(run_jige({"export", folder / "nothing"}).exit_code, 3);
  write_text(folder / "log.jsonl", "");
  const Outcome none = run_jige({"export", folder.path()});
  EXPECT_EQ(none.exit_code, 3);
  EXPECT_THAT(none.err, HasSubstr("no checkpoint yet"));
  const Outcome step = run_jige({"export", TinyRun::get().run(), folder / "x", "--step", "7"});
  EXPECT_EQ(step.exit_code, 3);
  EXPECT_THAT(step.err, HasSubstr("the steps it keeps: 30, 20"));
  const Outcome tokenizer =
      run_jige({"export", TinyRun::get().run(), folder / "x", "--tokenizer", folder.path()});
  EXPECT_NE(tokenizer.exit_code, 0);
  EXPECT_THAT(tokenizer.err, HasSubstr("tokenizer"));
  EXPECT_FALSE(exists(folder / "x"));
}

}  // namespace
}  // namespace jige::integration
