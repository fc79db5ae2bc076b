#include "grammar/constraint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>

#include "grammar/grammar_test_support.h"

namespace jige::grammar {
namespace {

using testing::acceptor_of;
using testing::fits;
using testing::grammar_of;
using testing::Kind;

// Tokens that begin, end and stand in the middle of everything, half characters among them.
std::vector<std::string> some_tokens(Rng& rng) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  const std::string pieces[] = {"{\"",  "\":",       "\": ", "\",\"", "ab",    "a",
                                "\xC3", "\xC3\xA9x", "12",   "}",     "]",     "true",
                                "\n  ", ", ",        "0",    ".5e",   "\\u00", "\\"};
  for (int i = 0; i < 400; ++i) {
    std::string token;
    for (uint64_t j = 0; j <= rng.below(3); ++j) token += pieces[rng.below(std::size(pieces))];
    tokens.push_back(std::move(token));
  }
  tokens.emplace_back();  // a special one
  return tokens;
}

const std::vector<ConstraintSource>& some_sources() {
  static const std::vector<ConstraintSource> sources = {
      {Kind::kRegex, "(a|b1?)*\\u00e9{0,3}x"},
      {Kind::kChoices, Json::array({"true", "0.5", "abab", "a"})},
      {Kind::kJsonObject, Json()},
  };
  return sources;
}

TEST(Constraint, AllowsTheTokensThatFitAndNoOthers) {
  Rng rng(derive_key(2, "constraint"));
  const auto trie = std::make_shared<const TokenTrie>(some_tokens(rng));
  for (const ConstraintSource& source : some_sources()) {
    const auto grammar = grammar_of(source);
    Acceptor plain = *Acceptor::create(grammar);
    for (int round = 0; round < 20; ++round) {
      ConstraintCursor cursor(*Constraint::create(grammar, trie));
      int state = plain.start();
      for (int step = 0; step < 12; ++step) {
        const TokenSet set = *cursor.allowed();
        std::vector<int32_t> allowed;
        for (int32_t id = 0; id < static_cast<int32_t>(trie->vocab_size()); ++id) {
          int behind = trie->text(id).empty() ? kNoState : state;
          for (const char byte : trie->text(id)) {
            Work work;
            if (behind != kNoState) behind = *plain.next(behind, static_cast<uint8_t>(byte), work);
          }
          const bool bit = (*set)[static_cast<size_t>(id) / 64] >> (id % 64) & 1;
          ASSERT_EQ(bit, behind != kNoState) << trie->text(id);
          if (bit) allowed.push_back(id);
        }
        EXPECT_EQ(cursor.accepts(), plain.accepts(state));
        EXPECT_EQ(cursor.is_last(), allowed.empty());
        if (allowed.empty()) break;
        const int32_t token = allowed[rng.below(allowed.size())];
        ASSERT_TRUE(cursor.advance(token));
        for (const char byte : trie->text(token)) {
          Work work;
          state = *plain.next(state, static_cast<uint8_t>(byte), work);
        }
      }
    }
  }
}

TEST(Constraint, RefusesTokensThatDoNotFit) {
  const auto trie = std::make_shared<const TokenTrie>(std::vector<std::string>{"a", "b", ""});
  ConstraintCursor cursor(*Constraint::create(grammar_of({Kind::kRegex, "ab?"}), trie));
  EXPECT_FALSE(cursor.advance(1));
  EXPECT_FALSE(cursor.advance(2));
  EXPECT_FALSE(cursor.advance(3));
  ASSERT_TRUE(cursor.advance(0)) << "what was refused has changed nothing";
  EXPECT_TRUE(cursor.accepts());
  EXPECT_FALSE(cursor.is_last());
  ASSERT_TRUE(cursor.advance(1));
  EXPECT_TRUE(cursor.is_last());
}

TEST(Constraint, ACursorAtTheLimitsGoesOnByItself) {
  const auto trie = std::make_shared<const TokenTrie>(std::vector<std::string>{"a", "b", "ab"});
  const auto grammar = grammar_of({Kind::kRegex, "[ab]{2000}"});
  const auto shared = *Constraint::create(grammar, trie, {.states_max = 60});
  for (int answer = 0; answer < 2; ++answer) {
    ConstraintCursor cursor(shared);
    for (int i = 0; i < 50; ++i) {
      ASSERT_TRUE(cursor.allowed());
      ASSERT_TRUE(cursor.advance(i % 2)) << i;
    }
  }
  // Its own acceptor cannot read the text again either: it fails, and the others go on.
  ConstraintCursor runaway(shared), other(shared);
  Status status;
  for (int i = 0; i < 100 && status; ++i) status = runaway.advance(0);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::kInvalidArgument);
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(other.advance(0)) << i;
}

TEST(Constraint, TooManyReadingsAtOnceFail) {
  const auto grammar = grammar_of({Kind::kRegex, "(a?){5000}b"});
  const auto acceptor = Acceptor::create(grammar, {.places_of_state_max = 1000});
  ASSERT_FALSE(acceptor);
  EXPECT_EQ(acceptor.error().code, Code::kExhausted);
}

// Texts of up to three letters: a walk meets many states.
std::shared_ptr<const TokenTrie> letters_trie() {
  std::vector<std::string> tokens = {">"};
  std::vector<std::string> last = {""};
  for (int length = 1; length <= 3; ++length) {
    std::vector<std::string> longer;
    for (const std::string& text : last) {
      for (char letter = 'a'; letter <= 'z'; ++letter) longer.push_back(text + letter);
    }
    tokens.insert(tokens.end(), longer.begin(), longer.end());
    last = std::move(longer);
  }
  return std::make_shared<const TokenTrie>(std::move(tokens));
}

TEST(Constraint, AnAnswerWhoseNextTokenIsTooMuchWorkFailsAndStaysRefused) {
  const auto trie = letters_trie();
  const auto shared = *Constraint::create(
      grammar_of({Kind::kRegex, ">(a?b?c?d?e?f?g?h?i?j?k?l?m?n?o?p?q?r?s?t?u?v?w?x?y?z?){90}"}),
      trie);
  for (int answer = 0; answer < 2; ++answer) {
    ConstraintCursor cursor(shared);
    ASSERT_TRUE(cursor.allowed()) << "so far there is but one way";
    ASSERT_TRUE(cursor.advance(0));
    const auto set = cursor.allowed();
    ASSERT_FALSE(set);
    EXPECT_EQ(set.error().code, Code::kInvalidArgument);
  }
  Work again;
  const auto behind = shared->advance(shared->start().state, ">", again);
  EXPECT_FALSE(shared->allowed(behind->state, again));
  EXPECT_GT(again.left, kWorkMax - 100) << "what was refused is not tried again";
}

TEST(Constraint, OrdinaryOnesTakeASmallPartOfTheWork) {
  const auto trie = letters_trie();
  Json words = Json::array();
  for (size_t i = 0; i < kChoicesMax; ++i) {
    words.push_back(std::string(trie->text(static_cast<int32_t>(i * 4 + 1))) + " word");
  }
  const ConstraintSource sources[] = {
      {Kind::kJsonObject, Json()},
      {Kind::kChoices, words},
      {Kind::kRegex, "([A-Za-z][^.!?]{1,200}[.!?] ?){1,20}"},
      {Kind::kRegex, "(\\w+ ?){1,100}"},
      {Kind::kJsonSchema, {{"type", "string"}, {"pattern", "[a-z]{3,200}ing"}}},
      {Kind::kJsonSchema, {{"type", "string"}, {"minLength", 100}, {"maxLength", 9000}}}};
  for (const ConstraintSource& source : sources) {
    SCOPED_TRACE(source.value.dump().substr(0, 80));
    const auto constraint = *Constraint::create(grammar_of(source), trie);
    const bool in_string = source.kind == Kind::kJsonSchema;
    Work before, work;
    const auto place =
        constraint->advance(constraint->start().state, in_string ? "\"" : "", before);
    ASSERT_TRUE(constraint->allowed(place->state, work));
    EXPECT_GT(work.left, kWorkMax / 2);
  }
}

TEST(Constraint, ThreadsShareOne) {
  Rng rng(derive_key(3, "constraint"));
  const auto trie = std::make_shared<const TokenTrie>(some_tokens(rng));
  const auto shared = *Constraint::create(grammar_of({Kind::kJsonObject, Json()}), trie);
  const auto answer = [&](uint64_t key) {
    Rng own(derive_key(key, "thread"));
    ConstraintCursor cursor(shared);
    std::string text;
    for (int step = 0; step < 40 && !cursor.is_last(); ++step) {
      const auto set = cursor.allowed();
      if (!set) return std::string("failed");
      auto token = static_cast<int32_t>(own.below(trie->vocab_size()));
      while (((**set)[static_cast<size_t>(token) / 64] >> (token % 64) & 1) == 0) {
        token = (token + 1) % static_cast<int32_t>(trie->vocab_size());
      }
      if (!cursor.advance(token)) return std::string("failed");
      text += trie->text(token);
    }
    return text;
  };
  std::vector<std::string> texts(4);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < 4; ++i) threads.emplace_back([&, i] { texts[i] = answer(i % 2); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(texts[0], texts[2]) << "whatever others do meanwhile";
  EXPECT_EQ(texts[1], texts[3]);
  EXPECT_EQ(texts[0], answer(0));
  EXPECT_NE(texts[0], texts[1]);
}

}  // namespace
}  // namespace jige::grammar
