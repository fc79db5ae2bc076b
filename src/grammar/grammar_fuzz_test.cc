// Seeded mutations of what this folder reads: nothing may crash, hang or pass the limits, and what
// compiles must lead to an end. The seed is printed; JIGE_FUZZ_SEED sets another, JIGE_FUZZ_ROUNDS
// multiplies the number of rounds.
#include <gtest/gtest.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <span>

#include "base/test_fuzz_rounds.h"
#include "grammar/grammar_test_support.h"
#include "grammar/schema_test_support.h"

namespace jige::grammar {
namespace {

using testing::compiled;
using testing::Kind;

class GrammarFuzz : public ::testing::Test {
 protected:
  GrammarFuzz() : seed_(fuzz_seed(2024)), rng_(derive_key(seed_, "grammar fuzz")) {
    std::printf("fuzz seed %llu\n", static_cast<unsigned long long>(seed_));
  }

  std::string mutate(std::string text, std::span<const std::string_view> words) {
    for (uint64_t edits = 1 + rng_.below(4); edits > 0 && !text.empty(); --edits) {
      const size_t at = rng_.below(text.size());
      const size_t size = std::min<size_t>(rng_.below(12), text.size() - at);
      switch (rng_.below(5)) {
        case 0:
          text[at] = static_cast<char>(rng_.below(256));
          break;
        case 1:
          text.erase(at, size);
          break;
        case 2:
          text.insert(rng_.below(text.size()), text.substr(at, size));
          break;
        default:
          text.insert(at, words[rng_.below(words.size())]);
          break;
      }
    }
    return text;
  }

  // Replaces, removes or doubles one random value somewhere in the tree.
  void change_tree(Json& node) {
    if (node.is_structured() && !node.empty() && rng_.below(6) != 0) {
      auto child = node.begin();
      std::advance(child, static_cast<std::ptrdiff_t>(rng_.below(node.size())));
      return change_tree(*child);
    }
    static const Json kValues[] = {nullptr,
                                   true,
                                   false,
                                   -1,
                                   3,
                                   1e300,
                                   "",
                                   "string",
                                   "#",
                                   "#/$defs",
                                   "^(a|b)*$",
                                   Json::array(),
                                   Json::object(),
                                   Json::array({1, "x"}),
                                   Json{{"$ref", "#/$defs/node"}},
                                   Json{{"maxLength", 9000}},
                                   Json{{"pattern", "(.{90}){90}"}}};
    node = kValues[rng_.below(std::size(kValues))];
  }

  // Walks a little: every state leads on, or says that a limit is reached.
  void use(const ConstraintSource& source) {
    const auto grammar = compiled(source);
    if (!grammar) {
      EXPECT_FALSE(grammar.error().message.empty());
      return;
    }
    ++compiled_count_;
    auto acceptor = Acceptor::create(*grammar, {.states_max = 5000, .places_max = 100'000});
    if (!acceptor) return;
    int state = acceptor->start();
    for (int step = 0; step < 30; ++step) {
      std::vector<int> ways;
      for (int byte = 0; byte < 256; ++byte) {
        Work work;
        const auto next = acceptor->next(state, static_cast<uint8_t>(byte), work);
        if (!next) {
          EXPECT_EQ(next.error().code, Code::kExhausted);
          return;
        }
        if (*next != kNoState) ways.push_back(*next);
      }
      ASSERT_EQ(ways.empty(), acceptor->is_last(state));
      if (ways.empty()) {
        ASSERT_TRUE(acceptor->accepts(state)) << "a dead end";
        return;
      }
      state = ways[rng_.below(ways.size())];
    }
  }

  uint64_t seed_;
  Rng rng_;
  int compiled_count_ = 0;
};

TEST_F(GrammarFuzz, Expressions) {
  static constexpr std::string_view kWords[] = {
      "(",   ")",       "[",  "]", "{2,3}", "{0,10000}", "*",        "+?", "|", "^", "$",     "\\",
      "\\d", "\\u00e9", "[^", "-", ".",     "(?:",       "\xC3\xA9", "{",  ",", "}", "\\xff", "a"};
  static constexpr std::string_view kSeeds[] = {
      "(a|b)*c{2,5}",   "[a-z]+@[a-z]+\\.(com|org)", "^\\d{4}-\\d\\d(T[0-9:]{8})?$",
      "((a?){20}){20}", "(.|\\n)*\"[^\"]*\"",        "[\\w\\-]+(, [\\w\\-]+){0,9}"};
  for (uint64_t round = 0; round < fuzz_rounds(800); ++round) {
    const std::string pattern = mutate(std::string(kSeeds[rng_.below(std::size(kSeeds))]), kWords);
    SCOPED_TRACE(pattern);
    use({Kind::kRegex, pattern});
  }
  EXPECT_GT(compiled_count_, 100);
}

TEST_F(GrammarFuzz, Rules) {
  static constexpr std::string_view kWords[] = {
      "(",  ")", "[", "]",   "{2,3}", "{0,10000}", "*",    "+",          "|",
      "?",  "^", "-", "::=", "a",     "b",         "\\n",  "\\x41",      "\\U0001F600",
      "\\", "#", ".", "\n",  "\"x\"", "\"",        "root", "root ::= a", "\nb ::= root"};
  static constexpr std::string_view kSeeds[] = {
      "root ::= a (\", \" a)* # list\na ::= [a-z]{1,9} | \"(\" root \")\"",
      "root ::= (a \"=\" b? \"\\n\")+\na ::= [0-9]+ b\nb ::= [ \\t]* | c c ::= . | \"\\u00e9\"",
      "root ::= \"a\" b | b\nb ::= [^\\x00-\\x7F\\]]{3} root? \"z\"",
      "root ::= ((\"a\"? b){20}){20} b ::= \"b\" | \"\""};
  for (uint64_t round = 0; round < fuzz_rounds(800); ++round) {
    const std::string rules = mutate(std::string(kSeeds[rng_.below(std::size(kSeeds))]), kWords);
    SCOPED_TRACE(rules);
    use({Kind::kEbnf, rules});
  }
  EXPECT_GT(compiled_count_, 30);
}

TEST_F(GrammarFuzz, Schemas) {
  for (uint64_t round = 0; round < fuzz_rounds(350); ++round) {
    Json schema = testing::random_root_schema(rng_);
    for (uint64_t edits = rng_.below(4); edits > 0; --edits) change_tree(schema);
    SCOPED_TRACE(schema.dump());
    use({Kind::kJsonSchema, schema});
  }
  EXPECT_GT(compiled_count_, 58);
}

}  // namespace
}  // namespace jige::grammar
