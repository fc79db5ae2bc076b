#include "train/sweep_record.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/test_fuzz_rounds.h"
#include "base/test_mutator.h"
#include "train/test_support.h"

namespace jige::train {
namespace {

// Four trials, two rungs.
SweepRecord halved_record() {
  SweepRecord record{.flags = {"--data", "a.jsonl"},
                     .steps_all = 48,
                     .steps_run = 30,
                     .halving_factor = 2,
                     .rungs = {3, 6}};
  record.trials = {
      {.name = "a", .steps = 12, .state = TrialState::kDropped, .rung_losses = {4.5, 3}},
      {.name = "b", .steps = 12, .state = TrialState::kDropped, .rung_losses = {NAN}},
      {.name = "c", .steps = 12, .state = TrialState::kDropped, .rung_losses = {5}},
      {.name = "d", .steps = 12, .rung_losses = {4, 2.5}}};
  for (TrialRecord& trial : record.trials) trial.settings = {{"name", trial.name}};
  return record;
}

SweepRecord example_record() {
  SweepRecord record{
      .flags = {"--data", "a.jsonl"}, .steps_all = 36, .steps_run = 27, .branches_at_once = 1};
  record.trials = {{.name = "lr=1", .settings = {{"lr", "1"}}, .steps = 12, .loss = 1.5},
                   {.name = "lr=2",
                    .settings = {{"lr", "2"}},
                    .steps = 12,
                    .inputs = "0123456789abcdef",
                    .shared_steps = 9,
                    .shared_with = "lr=1",
                    .state = TrialState::kDone,
                    .loss = 1.25,
                    .held_out = 1.0 / 3.0,
                    .held_out_best = 0.25,
                    .held_out_best_step = 9,
                    .seconds = 4.5},
                   {.name = "lr=3",
                    .settings = {{"lr", "3"}},
                    .steps = 12,
                    .state = TrialState::kDiverged,
                    .error = "training diverged"},
                   {.name = "lr=4",
                    .settings = {{"lr", "4"}},
                    .steps = 12,
                    .state = TrialState::kDone,
                    .loss = 0.5,
                    .held_out = 0.3}};
  return record;
}

TEST(SweepRecord, ComesBackAsItWasWritten) {
  const TestFolder folder;
  EXPECT_FALSE(read_sweep_record(folder.path()).value());
  ASSERT_TRUE(write_sweep_record(folder.path(), example_record()));
  const auto read = read_sweep_record(folder.path());
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ((*read)->to_json(), example_record().to_json());
  EXPECT_EQ(example_record().to_json().at("best"), "lr=4");
}

TEST(SweepRecord, KeepsWhatTrialsWereComparedBy) {
  const Json json = halved_record().to_json();
  EXPECT_EQ(dump_json(json["halving"]), "{\"factor\":2,\"rungs\":[3,6]}");
  EXPECT_EQ(dump_json(json["trials"][1]["rung_losses"]), "[null]");
  const auto read = SweepRecord::from_json(json, "sweep.json");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->to_json(), json);
  EXPECT_TRUE(std::isnan(read->trials[1].rung_losses.at(0)));
  EXPECT_EQ(trials_by_loss(*read), (std::vector<size_t>{0, 1, 2, 3}));
  EXPECT_EQ(example_record().to_json()["halving"], nullptr);
}

TEST(SweepRecord, PutsTheLeastHeldOutLossFirst) {
  const SweepRecord record = example_record();
  EXPECT_EQ(trials_by_loss(record), (std::vector<size_t>{3, 1, 2, 0}));
  SweepRecord none = record;
  // What was not held out is no better for its training loss.
  none.trials[3].held_out.reset();
  none.trials[3].loss = 0.1;
  EXPECT_EQ(trials_by_loss(none), (std::vector<size_t>{1, 3, 2, 0}));
  EXPECT_EQ(best_trial(none), 1u);
  none.trials[1].held_out.reset();
  EXPECT_EQ(best_trial(none), 3u);
  none.trials.resize(1);
  EXPECT_FALSE(best_trial(none));
  none.trials.clear();
  EXPECT_FALSE(best_trial(none));
}

TEST(SweepRecord, EndsNoProgramByWhatIsInIt) {
  const std::string texts[] = {dump_json(example_record().to_json(), 1),
                               dump_json(halved_record().to_json(), 1)};
  int read = 0;
  for (uint64_t seed = 0; seed < fuzz_rounds(2000); ++seed) {
    const auto json = parse_json(Mutator(seed).mutate(texts[seed % 2]), "sweep.json");
    if (!json) continue;
    const auto record = SweepRecord::from_json(*json, "sweep.json");
    if (!record) {
      ASSERT_NE(record.error().message.find("sweep.json"), std::string::npos) << seed;
      continue;
    }
    ++read;
    const Json again = record->to_json();
    const auto back = SweepRecord::from_json(again, "again");
    ASSERT_TRUE(back) << seed << ": " << back.error().message;
    ASSERT_EQ(back->to_json(), again) << seed;
  }
  EXPECT_GT(read, 100);
}

TEST(SweepRecord, SaysWhatIsWrong) {
  const auto refusal = [](auto change) {
    Json json = example_record().to_json();
    change(json);
    const auto record = SweepRecord::from_json(json, "sweep.json");
    return record ? std::string() : record.error().message;
  };
  EXPECT_EQ(refusal([](Json&) {}), "");
  EXPECT_EQ(refusal([](Json& json) { json["version"] = 2; }),
            "sweep.json: is of version 2 of the format; this Jige reads version 1");
  EXPECT_EQ(refusal([](Json& json) { json["trials"][1]["state"] = "lost"; }),
            "sweep.json: trials[1]: field \"state\" is \"lost\", not waiting, done, dropped or "
            "diverged");
  EXPECT_EQ(refusal([](Json& json) { json["trials"][1]["state"] = "dropped"; }),
            "sweep.json: trials[1]: is dropped and has 0 rung_losses; there are 0 rungs");
  EXPECT_EQ(refusal([](Json& json) { json["trials"][1]["rung_losses"] = {1}; }),
            "sweep.json: trials[1]: is done and has 1 rung_losses; there are 0 rungs");
  EXPECT_EQ(refusal([](Json& json) { json["trials"][1]["rung_losses"] = {"a"}; }),
            "sweep.json: trials[1]: field \"rung_losses\" holds what is no number");
  EXPECT_EQ(refusal([](Json& json) {
              json["halving"] = {{"factor", 2}, {"rungs", {1.5}}};
            }),
            "sweep.json: field \"rungs\" holds what is no step");
  EXPECT_EQ(refusal([](Json& json) {
              json["halving"] = {{"factor", 1}, {"rungs", {3}}};
            }),
            "sweep.json: halving: field \"factor\" is 1, below 2");
  EXPECT_EQ(refusal([](Json& json) { json["trials"][1]["name"] = "lr=1"; }),
            "sweep.json: trials[1]: \"lr=1\" is there twice");
  EXPECT_EQ(refusal([](Json& json) { json["trials"][0]["steps"] = -1; }),
            "sweep.json: trials[0]: field \"steps\" is -1, below 0");
  EXPECT_EQ(refusal([](Json& json) { json["trials"] = 3; }),
            "sweep.json: field \"trials\" is no list");
}

}  // namespace
}  // namespace jige::train
