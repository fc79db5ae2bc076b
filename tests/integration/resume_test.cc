// Runs that are killed, stopped or find their checkpoints damaged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "formats/checkpoint.h"
#include "integration/tiny_run.h"

namespace jige::integration {
namespace {

using ::testing::HasSubstr;

std::vector<std::string> run_arguments(const std::string& out, int steps) {
  std::vector<std::string> arguments = tiny_train_arguments(TinyRun::get().corpus(), steps);
  arguments.insert(arguments.end(), {"--save-every", "5", "--out", out});
  return arguments;
}

// step -> what the log holds of it by this name, as its bits; every step once.
std::map<int64_t, std::string> logged(const std::string& run, const std::string& name) {
  std::map<int64_t, std::string> found;
  std::string text = read_text(run + "/log.jsonl");
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    const Json record = *parse_json(text.substr(begin, end - begin), "log");
    if (record["kind"] == "step") {
      const auto [place, fresh] = found.emplace(record["step"], dump_json(record[name]));
      EXPECT_TRUE(fresh) << "step " << place->first << " is logged twice";
    }
    begin = end + 1;
  }
  return found;
}

void damage(const std::string& path) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  ASSERT_TRUE(file) << path;
  file.seekp(-9, std::ios::end);
  file.write("damaged!", 8);
}

// Damages the parameters of a run's newest checkpoint, or all.
void damage_checkpoints(const std::string& run, bool all) {
  const auto checkpoints = formats::list_checkpoints(run + "/checkpoints");
  ASSERT_GE(checkpoints.size(), 2u);
  for (const auto& checkpoint : checkpoints) {
    for (const auto& entry :
         std::filesystem::directory_iterator(run + "/checkpoints/" + checkpoint.folder)) {
      if (entry.path().extension() == ".safetensors") damage(entry.path().string());
    }
    if (!all) return;
  }
}

// Before its first checkpoint, too, a run's folder is its own.
TEST(Resume, ASecondRunLeavesTheFirstOnesTokenizer) {
  const TestFolder folder, streams;
  const std::string run = folder / "run";
  std::vector<std::string> arguments = tiny_train_arguments(TinyRun::get().corpus(), 100000);
  arguments.insert(arguments.end(), {"--out", run});
  Process process(arguments, streams.path());
  for (int i = 0; i < 6000 && process.running() && !exists(run + "/log.jsonl"); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  const std::string tokenizer = read_text(run + "/tokenizer/tokenizer.json");
  write_text(folder / "other.txt", "quite another text, quite another tokenizer");
  arguments[2] = folder / "other.txt";
  for (const char* more : {"--quiet", "--plan-only"}) {
    arguments.push_back(more);
    const Outcome other = run_jige(arguments);
    EXPECT_EQ(other.exit_code, 8) << other.err;
    EXPECT_THAT(other.err, HasSubstr("another run is writing"));
  }
  EXPECT_TRUE(process.running());
  EXPECT_EQ(read_text(run + "/tokenizer/tokenizer.json"), tokenizer);
}

TEST(Resume, AKilledRunEndsLikeOneThatWasNot) {
  const TestFolder whole, killed;
  constexpr int kSteps = 150;
  ASSERT_EQ(run_jige(run_arguments(whole / "run", kSteps)).exit_code, 0);
  for (int round = 0; round < 3; ++round) {
    const TestFolder streams;
    Process process(run_arguments(killed / "run", kSteps), streams.path());
    wait_for_checkpoint(killed / "run", process);
    const uintmax_t more = 4000 * static_cast<uintmax_t>(round + 1);
    wait_for_log(killed / "run", logged_bytes(killed / "run") + more, process);
    process.send(SIGKILL);
    EXPECT_EQ(process.wait().exit_code, 128 + SIGKILL) << "the run ended before it was killed";
  }
  const Outcome last = run_jige(run_arguments(killed / "run", kSteps));
  EXPECT_EQ(last.exit_code, 0) << last.err;
  EXPECT_EQ(logged(killed / "run", "loss"), logged(whole / "run", "loss"));
  EXPECT_TRUE(model_of(killed / "run") == model_of(whole / "run"));
}

// What such steps leave out depends on what the checkpoint keeps of all before.
TEST(Resume, AKilledRunThatSkipsGradientsEndsLikeOneThatWasNot) {
  const TestFolder whole, killed;
  const auto arguments = [](const std::string& out) {
    std::vector<std::string> words = run_arguments(out, 60);
    words.insert(words.end(), {"--skip-converged", "0.6", "--skip-rows", "32", "--skip-warmup", "4",
                               "--skip-below", "3", "--skip-rise", "1"});
    return words;
  };
  const Outcome never_stopped = run_jige(arguments(whole / "run"));
  ASSERT_EQ(never_stopped.exit_code, 0) << never_stopped.err;
  kill_behind_checkpoint(arguments(killed / "run"), killed / "run");
  const Outcome last = run_jige(arguments(killed / "run"));
  EXPECT_EQ(last.exit_code, 0) << last.err;
  EXPECT_EQ(logged(killed / "run", "loss"), logged(whole / "run", "loss"));
  const auto shares = logged(whole / "run", "weight_gradient_share");
  EXPECT_EQ(logged(killed / "run", "weight_gradient_share"), shares);
  const auto some = [](const auto& step) { return std::stod(step.second) < 0.9; };
  EXPECT_GT(std::ranges::count_if(shares, some), 20);
  EXPECT_TRUE(model_of(killed / "run") == model_of(whole / "run"));
}

TEST(Resume, ASignalStopsBehindACheckpoint) {
  const TestFolder folder, streams;
  Process process(run_arguments(folder / "run", 100000), streams.path());
  wait_for_checkpoint(folder / "run", process);
  process.send(SIGINT);
  const Outcome outcome = process.wait();
  EXPECT_EQ(outcome.exit_code, 130) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("with a checkpoint"));
  EXPECT_FALSE(formats::list_checkpoints(folder / "run/checkpoints").empty());
  EXPECT_FALSE(exists(folder / "run/model"));
}

TEST(Resume, ADamagedCheckpointGivesWayToTheOneBefore) {
  const TestFolder folder;
  ASSERT_EQ(run_jige(run_arguments(folder / "run", 20)).exit_code, 0);
  const auto before = logged(folder / "run", "loss");
  damage_checkpoints(folder / "run", false);
  const Outcome again = run_jige(run_arguments(folder / "run", 20));
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("step-00000020"));
  EXPECT_EQ(logged(folder / "run", "loss"), before);
}

TEST(Resume, NoIntactCheckpointIsAnErrorAndNothingIsTouched) {
  const TestFolder folder;
  ASSERT_EQ(run_jige(run_arguments(folder / "run", 20)).exit_code, 0);
  damage_checkpoints(folder / "run", true);
  const std::vector<std::string> before = list_tree(folder.path());
  const Outcome again = run_jige(run_arguments(folder / "run", 20));
  EXPECT_EQ(again.exit_code, 4) << again.err;
  EXPECT_THAT(again.err, HasSubstr("checkpoints/step-000000"));
  EXPECT_EQ(list_tree(folder.path()), before);
}

TEST(Resume, HalfWrittenCheckpointsArePassedOver) {
  const TestFolder folder;
  ASSERT_EQ(run_jige(run_arguments(folder / "run", 20)).exit_code, 0);
  const std::string newest = folder / "run/checkpoints/step-00000020";
  std::filesystem::remove(newest + "/state.json");
  const Outcome again = run_jige(run_arguments(folder / "run", 20));
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("state.json"));
}

TEST(Resume, FreshRefusesWhereThereIsACheckpoint) {
  std::vector<std::string> arguments = tiny_train_arguments(TinyRun::get().corpus(), 30);
  arguments.insert(arguments.end(), {"--fresh", "--out", TinyRun::get().run()});
  const Outcome fresh = run_jige(arguments);
  EXPECT_NE(fresh.exit_code, 0);
  EXPECT_THAT(fresh.err, HasSubstr("checkpoint"));
  const TestFolder folder;
  arguments = tiny_train_arguments(TinyRun::get().corpus(), 30);
  arguments.insert(arguments.end(), {"--resume", "--out", folder / "run"});
  const Outcome resume = run_jige(arguments);
  EXPECT_EQ(resume.exit_code, 3);
  EXPECT_THAT(resume.err, HasSubstr("has no checkpoint to continue from"));
  // It is said before a tokenizer is trained and the data is read.
  EXPECT_FALSE(exists(folder / "run"));
}

}  // namespace
}  // namespace jige::integration
