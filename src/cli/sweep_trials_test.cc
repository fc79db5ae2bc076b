#include "cli/sweep_trials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "base/test_fuzz_rounds.h"

namespace jige::cli {
namespace {

using ::testing::HasSubstr;

std::string refusal_of_grid(const std::vector<std::string>& words) {
  const auto grid = read_grid(words);
  return grid ? "" : grid.error().message;
}

Result<std::vector<TrialRequest>> trials_of(const std::vector<std::string>& grid,
                                            std::vector<std::string> words) {
  JIGE_TRY(const auto read, read_grid(grid));
  words.insert(words.end(), {"--data", "a.jsonl"});
  return make_trials(read, words, "out");
}

std::string refusal(const std::vector<std::string>& grid, const std::vector<std::string>& words) {
  const auto trials = trials_of(grid, words);
  return trials ? "" : trials.error().message;
}

TEST(SweepTrials, AreAllCombinationsOfTheGrid) {
  const auto trials = trials_of({"lr=1e-3,2e-3", "--decay-share=0.1,0.3"}, {"--schedule", "wsd"});
  ASSERT_TRUE(trials) << trials.error().message;
  std::vector<std::string> names;
  for (const TrialRequest& request : *trials) names.push_back(request.trial.name);
  EXPECT_THAT(names, testing::ElementsAre("lr=1e-3,decay-share=0.1", "lr=1e-3,decay-share=0.3",
                                          "lr=2e-3,decay-share=0.1", "lr=2e-3,decay-share=0.3"));
  EXPECT_EQ((*trials)[2].trial.options.schedule.peak, 2e-3);
  EXPECT_EQ((*trials)[2].trial.options.schedule.decay_share, 0.1);
  EXPECT_EQ((*trials)[1].trial.options.schedule.kind, train::ScheduleKind::kWsd);
  EXPECT_EQ(settings_text((*trials)[1].trial.settings), "lr=1e-3 decay-share=0.3");
}

TEST(SweepTrials, HaveNamesThatAreFolders) {
  const auto trials = trials_of({"eval-data=../a/b.jsonl,..:a:b.jsonl"}, {});
  ASSERT_TRUE(trials) << trials.error().message;
  EXPECT_EQ((*trials)[0].trial.name, "eval-data=.._a_b.jsonl");
  EXPECT_EQ((*trials)[1].trial.name, "trial-2");
}

TEST(SweepTrials, RefuseAGridThatIsNone) {
  EXPECT_THAT(refusal_of_grid({}), HasSubstr("--grid is missing"));
  for (const char* word : {"lr", "=1", "--=1", "---lr=1", "l r=1", "lr/=1"}) {
    EXPECT_THAT(refusal_of_grid({word}), HasSubstr("is not FLAG=VALUE")) << word;
  }
  for (const char* word : {"lr=", "lr=1,", "lr=,1", "lr=1,,2"}) {
    EXPECT_THAT(refusal_of_grid({word}), HasSubstr("has an empty value")) << word;
  }
  EXPECT_THAT(refusal_of_grid({"lr=1,2,1"}), HasSubstr("has 1 twice"));
  EXPECT_THAT(refusal_of_grid({"lr=1", "--lr=2"}), HasSubstr("lr is given twice"));
}

TEST(SweepTrials, RefuseWhatASweepHasItself) {
  EXPECT_EQ(refusal({"lr=1e-3"}, {"--out", "x"}), "--out is the sweep's own: give it before --");
  EXPECT_THAT(refusal({"out=x,y"}, {}), HasSubstr("--out is the sweep's own"));
  EXPECT_THAT(refusal({"lr=1e-3"}, {"--resume"}), HasSubstr("goes on by itself"));
  EXPECT_THAT(refusal({"lr=1e-3"}, {"--ranks", "2"}), HasSubstr("in several processes"));
  EXPECT_THAT(refusal({"lr=1e-3"}, {"--devices", "2"}), HasSubstr("several devices"));
  EXPECT_THAT(refusal({"lr=1e-3"}, {"--device", "cuda"}), HasSubstr("trains on the processor"));
  EXPECT_THAT(refusal({"lr=1e-3"}, {"--grpo"}), HasSubstr("--grpo is not supported"));
  EXPECT_THAT(refusal({"lr=1e-3"}, {"--help"}), HasSubstr("jige train --help"));
  EXPECT_THAT(refusal({"lr=1e-3"}, {"--lr", "1"}), HasSubstr("in the grid and behind --"));
}

TEST(SweepTrials, NameTheFlagAndTheTrialThatIsWrong) {
  EXPECT_THAT(refusal({"lrr=1"}, {}), HasSubstr("trial lrr=1: jige train has no flag --lrr"));
  EXPECT_EQ(refusal({"lr=1e-3,none"}, {}), "trial lr=none: --lr: \"none\" is not a number");
  EXPECT_THAT(refusal({"schedule=wsd,cosine", "decay-share=0.1,0.2"}, {}),
              HasSubstr("trial schedule=cosine decay-share=0.1: --decay-share is of --schedule "
                        "wsd"));
  std::string many = "seed=1";
  for (int i = 2; i <= 100; ++i) many += fmt::format(",{}", i);
  EXPECT_THAT(refusal({many, "lr=1,2,3,4,5,6,7,8", "warmup=1,2,3,4,5,6"}, {}),
              HasSubstr("more than 4096 trials"));
}

TEST(SweepTrials, EndNoProgramWhateverTheGridSays) {
  Rng rng(derive_key(3, "grids"));
  const std::vector<std::string> pieces = {"lr",   "=",    ",",    "--",     "1e-3", "-",
                                           "seed", "0",    "\xff", "no-eos", "true", "[1,2]",
                                           " ",    "help", "h",    "o"};
  const uint64_t rounds = fuzz_rounds(300);
  uint64_t read = 0;
  for (uint64_t round = 0; round < rounds; ++round) {
    std::string word;
    for (uint64_t i = 0; i < 1 + rng.below(6); ++i) word += pieces[rng.below(pieces.size())];
    const auto trials = trials_of({word}, {});
    read += trials ? 1 : 0;
    EXPECT_TRUE(trials || !trials.error().message.empty()) << word;
  }
  const auto plain = trials_of({"seed=1,2"}, {});
  EXPECT_TRUE(plain);
  EXPECT_LT(read, rounds);
}

}  // namespace
}  // namespace jige::cli
