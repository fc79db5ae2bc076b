// Answers as words: that they come back with the same bits, and that nothing else becomes answers.

#include "train/answer_words.h"

#include <gtest/gtest.h>

#include <bit>

#include "base/rng.h"
#include "base/test_fuzz_rounds.h"

namespace jige::train {
namespace {

constexpr int64_t kWordsVocab = 300;

struct WorthAnswer {
  DrawnAnswer answer;
  double reward = 0;
};

std::vector<WorthAnswer> random_answers(Rng& rng) {
  std::vector<WorthAnswer> answers(1 + rng.below(5));
  for (WorthAnswer& one : answers) {
    one.reward = rng.normal();
    one.answer.cut = rng.below(2) == 0;
    for (uint64_t k = 0; k < 1 + rng.below(40); ++k) {
      one.answer.tokens.push_back(static_cast<int32_t>(rng.below(kWordsVocab)));
      one.answer.logprobs.push_back(-static_cast<float>(rng.uniform()));
    }
  }
  return answers;
}

std::vector<int64_t> as_words(const std::vector<WorthAnswer>& answers) {
  std::vector<int64_t> words;
  for (const WorthAnswer& one : answers) add_answer(one.answer, one.reward, words);
  return words;
}

TEST(AnswerWords, ComeBackWithTheSameBits) {
  Rng rng(1);
  for (int round = 0; round < 200; ++round) {
    const std::vector<WorthAnswer> answers = random_answers(rng);
    const std::vector<int64_t> words = as_words(answers);
    AnswerReader reader(words, kWordsVocab);
    for (const WorthAnswer& one : answers) {
      WorthAnswer read;
      ASSERT_TRUE(reader.take_answer(read.answer, read.reward));
      EXPECT_EQ(read.answer, one.answer);
      EXPECT_EQ(read.reward, one.reward);
    }
    EXPECT_FALSE(reader.take());
  }
}

TEST(AnswerWords, AreRefusedWhereTheyAreDamaged) {
  Rng rng(2);
  int refused = 0;
  for (uint64_t round = 0; round < fuzz_rounds(3000); ++round) {
    const std::vector<WorthAnswer> answers = random_answers(rng);
    std::vector<int64_t> words = as_words(answers);
    for (uint64_t k = 0; k < 1 + rng.below(3); ++k) {
      int64_t& word = words[rng.below(words.size())];
      switch (rng.below(3)) {
        case 0:
          word = static_cast<int64_t>(rng.next_u64());
          break;
        case 1:
          word ^= int64_t{1} << rng.below(63);
          break;
        default:
          words.resize(1 + rng.below(words.size()));
      }
    }
    AnswerReader reader(words, kWordsVocab);
    for (size_t i = 0; i < answers.size(); ++i) {
      WorthAnswer read;
      if (!reader.take_answer(read.answer, read.reward)) {
        ++refused;
        break;
      }
      ASSERT_FALSE(read.answer.tokens.empty());
      ASSERT_EQ(read.answer.tokens.size(), read.answer.logprobs.size());
      for (const int32_t token : read.answer.tokens)
        ASSERT_LT(std::bit_cast<uint32_t>(token), kWordsVocab);
    }
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace jige::train
