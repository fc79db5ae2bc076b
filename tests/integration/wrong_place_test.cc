// Folders where files are needed and the reverse, and places that cannot be written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "integration/tiny_run.h"

namespace jige::integration {
namespace {

TEST(WrongPlace, FolderInPlaceOfAPlanOrOfCosts) {
  const TestFolder folder;
  const std::string some = folder.path(), none = folder / "none.json";
  const std::string plan = "give a plan made by `jige plan train -o FILE`";
  const std::string costs = "give costs as JSON, or a plan that has them";
  const auto train = [&](const std::string& path) {
    return run_jige(
        {"train", "--data", TinyRun::get().corpus(), "--out", folder / "run", "--plan", path});
  };
  expect_error(train(some), 2, {"--plan: " + some + " is a folder; " + plan});
  expect_error(train(none), 3, {"--plan: " + none + ": no such file; " + plan});
  expect_error(run_jige({"plan", "train", "--costs", some}), 2,
               {"--costs: " + some + " is a folder; " + costs});
  expect_error(run_jige({"simulate", "train", "--costs", none}), 3,
               {"--costs: " + none + ": no such file; " + costs});
}

TEST(WrongPlace, FolderInPlaceOfAFile) {
  const TestFolder folder;
  const std::string model = TinyRun::get().model(), some = folder.path();
  const std::string said = some + ": is a folder; name ";
  const std::vector<std::vector<std::string>> commands = {
      {"generate", model, "--file", some},
      {"tokenize", model, "--file", some},
      {"score", model, some},
      {"serve", model, "--api-key-file", some},
      {"simulate", "serve", "--trace", some},
      {"cluster", "simulate", "--trace", some},
      {"plan", "rings", "--topology", some},
      {"tokenizer", "train", some, "--out", folder / "t"},
  };
  for (const std::vector<std::string>& command : commands) {
    expect_error(run_jige(command), 2, {said});
  }
}

// What a message tells to run can be copied into a shell.
TEST(WrongPlace, CommandsToCopyHaveTheirPathsQuoted) {
  const TestFolder folder;
  const std::string run = folder / "my run";
  ASSERT_TRUE(std::filesystem::create_directories(run + "/checkpoints"));
  expect_error(run_jige({"generate", run, "--prompt", "x"}), 3, {"`jige export '" + run + "'`"});
  const Outcome trained =
      run_jige({"train", "--from", TinyRun::get().model(), "--data", TinyRun::get().corpus(),
                "--steps", "1", "--out", folder / "your run"});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_THAT(trained.err,
              ::testing::HasSubstr("`jige chat '" + (folder / "your run/model") + "'`"));
}

TEST(WrongPlace, PartOfARunInPlaceOfAModelOrOfTheRun) {
  const std::string run = TinyRun::get().run();
  const std::string step = "checkpoints/" + list_tree(run + "/checkpoints")[1];
  for (const std::string& part : {run + "/checkpoints", run + "/" + step, run + "/tokenizer"}) {
    expect_error(run_jige({"generate", part, "--prompt", "x"}), 3,
                 {part + ": is a part of a run and no model", "`jige export " + run + "`"});
    expect_error(run_jige({"export", part}), 3,
                 {part + ": holds no log.jsonl", "it lies in that of one, " + run});
  }
  for (const char* command : {"export", "report"}) {
    expect_error(run_jige({command, TinyRun::get().model()}), 3,
                 {"so it is not the folder of a run; it lies in that of one, " + run});
    const TestFolder folder;
    const Outcome outcome = run_jige({command, folder.path()});
    expect_error(outcome, 3, {folder.path() + ": holds no log.jsonl and no checkpoints"});
    EXPECT_THAT(outcome.err, testing::Not(testing::HasSubstr("lies in")));
  }
}

TEST(WrongPlace, FileInPlaceOfAFolder) {
  const TestFolder folder;
  const std::string file = folder / "file";
  write_text(file, "the cat sat on the mat and the cat sat on the hat\n");
  for (std::vector<std::string> command : std::vector<std::vector<std::string>>{
           {"train", "--data", TinyRun::get().corpus(), "--out", file},
           {"tokenizer", "train", file, "--out", file},
           {"corpus", "--out", file},
       }) {
    const Outcome outcome = run_jige(command);
    expect_error(outcome, 2, {file + ": is a file; name a folder"});
    EXPECT_THAT(outcome.err, testing::Not(testing::HasSubstr("merges")));
    command.back() += "/below";
    const Outcome below = run_jige(command);
    expect_error(below, 3, {file + "/below: cannot create folder: Not a directory"});
    EXPECT_THAT(below.err, testing::Not(testing::HasSubstr("merges")));
  }
}

// The work would take minutes and more.
TEST(WrongPlace, OutputsThatCannotBeWrittenAreRefusedBeforeTheWork) {
  const TestFolder folder;
  const std::string some = folder.path(), nowhere = "/nowhere/at/all";
  const std::vector<std::vector<std::string>> commands = {
      {"cluster", "compare", "--jobs", "100000", "--html"},
      {"cluster", "simulate", "--jobs", "1000000", "--schedule"},
      {"cluster", "train-policy", "--jobs", "100000", "--out"},
      {"cluster", "train-policy", "--jobs", "100000", "--out", folder / "policy.json", "--svg"},
      {"simulate", "serve", "--requests", "10000000", "--svg"},
      {"bench", "serve", "--random", "110m", "--svg"},
      {"plan", "train", "--size", "110m", "--devices", "8", "--measure", "--out"},
      {"plan", "train", "--size", "110m", "--devices", "8", "--measure", "--svg"},
      {"plan", "rings", "--reference", "pcie-8gpu-2numa", "--export-nccl"},
      {"plan", "rings", "--reference", "pcie-8gpu-2numa", "--export-msccl"},
      {"simulate", "train", "--size", "110m", "--devices", "8", "--measure", "--svg"},
  };
  for (std::vector<std::string> command : commands) {
    command.push_back(some);
    const Outcome outcome = run_jige(command);
    expect_error(outcome, 2, {some + ": is a folder; name a file"});
    EXPECT_EQ(outcome.out, "") << command[1];
    command.back() = nowhere;
    expect_error(run_jige(command), 3, {nowhere + ": there is no folder "});
  }
  EXPECT_EQ(list_tree(some), std::vector<std::string>{});
}

TEST(WrongPlace, ProfilesOfLinksNeedAFileInAFolderThatIsThere) {
  const TestFolder folder;
  const std::string nowhere = folder / "none/links.jsonl";
  std::vector<std::string> command = {"profile",     "links",       "solo",
                                      "--reference", "trunk-4host", "--store"};
  command.push_back(folder.path());
  expect_error(run_jige(command), 2, {folder.path() + ": is a folder; name a file"});
  command.back() = nowhere;
  expect_error(run_jige(command), 3, {nowhere + ": there is no folder "});
  expect_error(run_jige({"profile", "links", "solo", "--shm", "2", "--transfer-bytes", "1TiB"}), 2,
               {"--transfer-bytes: 1.00 TiB are out of range"});
}

TEST(WrongPlace, ATextThatIsNotThereIsMissedBeforeAModelIsLoaded) {
  const TestFolder folder;
  const std::string model = TinyRun::get().copy_model(folder);
  write_text(model + "/model.safetensors", "damaged");
  expect_error(run_jige({"generate", model, "--file", folder / "none.txt"}), 3, {"none.txt"});
  expect_error(run_jige({"generate", model, "--prompt", "x"}), 4, {"model.safetensors"});
}

TEST(WrongPlace, ARunIsNotBegunInTheFolderOfAModel) {
  const TestFolder folder;
  const std::string model = TinyRun::get().copy_model(folder);
  const std::vector<std::string> before = list_tree(model);
  std::vector<std::string> arguments = tiny_train_arguments(TinyRun::get().corpus(), 2);
  arguments.insert(arguments.end(), {"--out", model});
  expect_error(run_jige(arguments), 2, {model + ": is the folder of a model"});
  EXPECT_EQ(list_tree(model), before);
}

TEST(WrongPlace, TheTokenizerOfAModelOrARunIsNotReplaced) {
  const TestFolder folder;
  write_text(folder / "text.txt", "the cat sat on the mat and the cat sat on the hat\n");
  const auto train = [&](const std::string& out) {
    return run_jige(
        {"tokenizer", "train", folder / "text.txt", "--vocab-size", "280", "--out", out});
  };
  const std::string model = TinyRun::get().copy_model(folder);
  const std::string before = read_text(model + "/tokenizer.json");
  expect_error(train(model), 2, {model + ": holds the tokenizer of a model"});
  EXPECT_EQ(read_text(model + "/tokenizer.json"), before);
  const std::string own = TinyRun::get().run() + "/tokenizer";
  expect_error(train(own), 2, {own + ": holds the tokenizer of a run"});
  // One that nobody needs is.
  EXPECT_EQ(train(folder / "t").exit_code, 0);
  EXPECT_EQ(train(folder / "t/").exit_code, 0);
}

// Not behind packages and a build.
TEST(WrongPlace, TheQuickstartLooksForItsCorpusFirst) {
  const std::string script = std::string(JIGE_SOURCE_DIR) + "/quickstart.sh";
  const int status = std::system(("'" + script + "' --corpus /nowhere.txt 2>/dev/null").c_str());
  EXPECT_EQ(WEXITSTATUS(status), 3);
}

}  // namespace
}  // namespace jige::integration
