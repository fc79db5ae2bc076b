#include "train/story_corpus.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace jige::train {
namespace {

const StoryCorpusOptions kStories = {.seed = 7, .conversation_count = 4000, .held_out_count = 1000};

TEST(StoryCorpus, IsTheSameForTheSameSeedAndAnotherForAnother) {
  const StoryCorpus one = make_story_corpus(kStories);
  const StoryCorpus two = make_story_corpus(kStories);
  StoryCorpusOptions options = kStories;
  options.seed = 8;
  const StoryCorpus other = make_story_corpus(options);
  ASSERT_EQ(one.training.size(), two.training.size());
  size_t differing = 0;
  for (size_t i = 0; i < one.training.size(); ++i) {
    EXPECT_EQ(one.training[i].user, two.training[i].user);
    EXPECT_EQ(one.training[i].assistant, two.training[i].assistant);
    differing += one.training[i].user != other.training[i].user;
  }
  EXPECT_GT(differing, one.training.size() / 2);
}

TEST(StoryCorpus, NeverTrainsOnAHeldOutQuestion) {
  const StoryCorpus corpus = make_story_corpus(kStories);
  std::set<std::string> trained;
  for (const Conversation& item : corpus.training) trained.insert(item.user);
  std::map<std::string, int> kinds;
  for (const Conversation& question : corpus.held_out) {
    EXPECT_FALSE(trained.contains(question.user)) << question.user;
    ++kinds[question.kind];
  }
  EXPECT_GE(kinds["sum"], 5);
  EXPECT_GE(kinds["fact"], 50);
  EXPECT_EQ(kinds["reading"], 80);
  EXPECT_EQ(kinds["story"], 0);
}

TEST(StoryCorpus, HoldsOutSumsInAllTheirWordings) {
  const StoryCorpus corpus = make_story_corpus(kStories);
  std::set<std::string> trained_replies;
  for (const Conversation& item : corpus.training) trained_replies.insert(item.assistant);
  for (const Conversation& question : corpus.held_out) {
    if (question.kind != "sum") continue;
    EXPECT_FALSE(trained_replies.contains(question.assistant)) << question.assistant;
  }
}

TEST(StoryCorpus, TrainsOnEveryFactItAsksFor) {
  const StoryCorpus corpus = make_story_corpus({.seed = 7, .conversation_count = 20000});
  std::set<std::string> trained_replies;
  for (const Conversation& item : corpus.training) trained_replies.insert(item.assistant);
  for (const Conversation& question : corpus.held_out) {
    if (question.kind != "fact") continue;
    EXPECT_TRUE(trained_replies.contains(question.assistant)) << question.assistant;
  }
}

TEST(StoryCorpus, RepliesAreRightByTheirOwnAnswerAndLeaveNoMarks) {
  const StoryCorpus corpus = make_story_corpus(kStories);
  for (const auto* part : {&corpus.training, &corpus.held_out}) {
    for (const Conversation& item : *part) {
      EXPECT_EQ((item.user + item.assistant).find_first_of("{}"), std::string::npos) << item.user;
      if (item.kind != "story") {
        EXPECT_TRUE(reply_is_right(item.assistant, item.answer)) << item.assistant;
      }
    }
  }
}

TEST(StoryCorpus, JudgesWholeWords) {
  EXPECT_TRUE(reply_is_right("3 plus 4 is 7.", "7"));
  EXPECT_TRUE(reply_is_right("The capital is PARIS", "Paris"));
  EXPECT_FALSE(reply_is_right("It is 17.", "7"));
  EXPECT_FALSE(reply_is_right("It is 70.", "7"));
  EXPECT_FALSE(reply_is_right("", "7"));
  EXPECT_FALSE(reply_is_right("anything", ""));
}

}  // namespace
}  // namespace jige::train
