// Planning and simulating training through the binary: budgets to the byte, files, tables.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "integration/process.h"
#include "integration/tiny_run.h"

namespace jige::integration {
namespace {

using ::testing::HasSubstr;

TEST(Plan, FitsTheBudgetAndRefusesAByteLess) {
  // Offload with recomputation, whose needs are the smallest.
  const std::vector<std::string> base{"plan",
                                      "train",
                                      "--size",
                                      "tiny",
                                      "--devices",
                                      "2",
                                      "--stages-max",
                                      "3",
                                      "--recompute",
                                      "on",
                                      "--parameters",
                                      "host",
                                      "--micro-batch-tokens",
                                      "256",
                                      "--json"};
  const auto plan = [&](const std::string& budget) {
    std::vector<std::string> arguments = base;
    arguments.insert(arguments.end(), {"--device-memory", budget});
    return run_jige(arguments);
  };
  const Outcome tiny = plan("1");
  EXPECT_EQ(tiny.exit_code, 6);
  const std::string message = tiny.json()["error"]["message"];
  const size_t at = message.find(" bytes, to ");
  ASSERT_NE(at, std::string::npos) << message;
  const int64_t needed = std::stoll(message.substr(at + 11));
  const Outcome enough = plan(std::to_string(needed));
  ASSERT_EQ(enough.exit_code, 0) << enough.err << enough.out;
  EXPECT_LE(enough.json()["prediction"]["device_bytes"].get<int64_t>(), needed);
  EXPECT_EQ(enough.json()["choice"]["parameters"], "host");
  const Outcome less = plan(std::to_string(needed - 1));
  EXPECT_EQ(less.exit_code, 6);
  EXPECT_THAT(less.out, HasSubstr("raise the device budget by 1 bytes"));
}

TEST(Plan, WritesPlanAndTimeline) {
  const TestFolder folder;
  const Outcome plan = run_jige({"plan", "train", "--size", "tiny", "--devices", "2", "-o",
                                 folder / "plan.json", "--svg", folder / "step.svg", "--tasks"});
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  EXPECT_THAT(plan.out, HasSubstr("device 1, compute\n"));
  EXPECT_THAT(plan.out, HasSubstr("Simulated, not measured"));
  const auto text = read_file(folder / "plan.json");
  ASSERT_TRUE(text);
  const auto json = parse_json(*text, "plan.json");
  ASSERT_TRUE(json);
  EXPECT_EQ((*json)["schedule"]["format"], "jige.pipeline-schedule");
  EXPECT_EQ((*json)["schedule"]["devices"], 2);
  EXPECT_GT((*json)["schedule"]["tasks"].size(), 20u);
  const auto svg = read_file(folder / "step.svg");
  ASSERT_TRUE(svg);
  EXPECT_THAT(*svg, HasSubstr("simulated, not measured"));
  // The costs in the plan are a file for --costs: the same plan comes out.
  ASSERT_TRUE(write_file_atomic(folder / "costs.json", dump_json((*json)["costs"])));
  const Outcome again =
      run_jige({"plan", "train", "--costs", folder / "costs.json", "--devices", "2", "--json"});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(again.json()["choice"], (*json)["choice"]);
  EXPECT_EQ(again.json()["prediction"], (*json)["prediction"]);
}

// A plan for a size is a plan for its vocabulary, unless it is given the tokenizer's.
TEST(Plan, IsRunByTrainWithAsManyTokens) {
  const TestFolder folder;
  const auto run = [&folder](std::vector<std::string> more) {
    std::vector<std::string> words = {"plan",
                                      "train",
                                      "--size",
                                      "tiny",
                                      "--devices",
                                      "2",
                                      "--micro-batch-tokens",
                                      "256",
                                      "-o",
                                      folder / "plan.json"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome plan = run_jige(words);
    EXPECT_EQ(plan.exit_code, 0) << plan.err;
    return run_jige({"train", "--data", TinyRun::get().corpus(), "--size", "tiny", "--vocab-size",
                     "270", "--plan", folder / "plan.json", "--steps", "1", "--batch-tokens",
                     "1024", "--micro-batch-tokens", "256", "--out", folder / "run"});
  };
  const Outcome other = run({});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("block 0, the embedding, has 262144 parameters there, 34560 "
                                   "here, as with another number of tokens in the tokenizer"));
  const Outcome same = run({"--vocab-size", "270"});
  EXPECT_EQ(same.exit_code, 0) << same.err;
  int taken = 0;
  for (const char* dtype : {"f32", "bf16"}) {  // of which train takes one here
    const Outcome planned = run({"--vocab-size", "270", "--dtype", dtype});
    if (planned.exit_code == 0) {
      ++taken;
    } else {
      EXPECT_THAT(planned.err, HasSubstr("here, as with another --dtype; plan anew"));
    }
  }
  EXPECT_EQ(taken, 1);
  EXPECT_THAT(run_jige({"plan", "train", "x", "--vocab-size", "270"}).err,
              HasSubstr("--vocab-size goes with --size"));
}

TEST(Plan, SimulatesEverySchedule) {
  const Outcome table = run_jige({"simulate", "train", "--size", "tiny", "--devices", "2"});
  ASSERT_EQ(table.exit_code, 0) << table.err;
  for (const char* name : {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v", "breadth-first",
                           "mobius", "spipe", "What does not run:\nzero-offload"}) {
    EXPECT_THAT(table.out, HasSubstr(name));
  }
  const Outcome json =
      run_jige({"simulate", "train", "--size", "tiny", "--devices", "1", "--json"});
  EXPECT_EQ(json.json()["schedules"].size(), 9u);
  EXPECT_EQ(json.json()["simulated"], true);
}

TEST(Plan, SaysWhatToGiveAndWhatToChange) {
  const Outcome nothing = run_jige({"plan", "train"});
  EXPECT_EQ(nothing.exit_code, 2);
  EXPECT_THAT(nothing.err, HasSubstr("give one of: a model folder, --size NAME"));
  const Outcome many =
      run_jige({"plan", "train", "--size", "tiny", "--devices", "7", "--schedule", "1f1b"});
  EXPECT_EQ(many.exit_code, 2);
  EXPECT_THAT(many.err, HasSubstr("take fewer devices or fewer stages"));
  const TestFolder folder;
  ASSERT_TRUE(write_file_atomic(folder / "costs.json", R"({"blocks": [{"forward_s": -1}]})"));
  const Outcome bad = run_jige({"simulate", "train", "--costs", folder / "costs.json"});
  EXPECT_EQ(bad.exit_code, 2);
  EXPECT_THAT(bad.err, HasSubstr("block 0: forward_s is -1"));
  // Assumptions beside a file that has the costs would do nothing.
  const Outcome both =
      run_jige({"plan", "train", "--costs", folder / "costs.json", "--fetch-gb-per-s", "1"});
  EXPECT_EQ(both.exit_code, 2);
  EXPECT_THAT(both.err, HasSubstr("--fetch-gb-per-s is an assumption about a model's costs"));
  const Outcome threads = run_jige({"plan", "train", "--size", "tiny", "--threads", "2"});
  EXPECT_EQ(threads.exit_code, 2);
  EXPECT_THAT(threads.err, HasSubstr("--threads is about devices that are timed here"));
}

// Of all schedules what is closest is said, not what the first of them lacks.
TEST(Plan, SimulateSaysWhatComesClosest) {
  const std::vector<std::string> machine = {"--size",          "110m",  "--devices", "4",
                                            "--device-memory", "100MiB"};
  std::vector<std::string> plan = {"plan", "train"}, simulate = {"simulate", "train"};
  plan.insert(plan.end(), machine.begin(), machine.end());
  simulate.insert(simulate.end(), machine.begin(), machine.end());
  const Outcome planned = run_jige(plan), simulated = run_jige(simulate);
  EXPECT_EQ(planned.exit_code, 6);
  EXPECT_EQ(simulated.exit_code, 6);
  const std::string reason = planned.err.substr(planned.err.find("nothing fits"));
  EXPECT_THAT(simulated.err, HasSubstr(reason));
}

}  // namespace
}  // namespace jige::integration
