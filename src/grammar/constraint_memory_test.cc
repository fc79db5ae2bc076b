#include "grammar/constraint_memory.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "grammar/grammar_test_support.h"

namespace jige::grammar {
namespace {

using testing::grammar_of;
using testing::Kind;

std::shared_ptr<const TokenTrie> bytes_trie() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  for (const char* more : {"ab", "\": ", "true", "[1, ", "}]"}) tokens.emplace_back(more);
  return std::make_shared<const TokenTrie>(tokens);
}

Result<std::shared_ptr<Constraint>> created(const std::shared_ptr<ConstraintMemory>& memory,
                                            const std::string& regex) {
  static const auto trie = bytes_trie();
  return Constraint::create(grammar_of({Kind::kRegex, regex}), trie, {}, memory);
}

// What one of them takes before anything is read.
size_t bytes_of(const std::string& regex) {
  const auto memory = std::make_shared<ConstraintMemory>(size_t{1} << 30);
  const auto constraint = created(memory, regex);
  return memory->bytes_taken();
}

TEST(ConstraintMemory, WhatWasUsedLeastLatelyMakesRoom) {
  const auto memory = std::make_shared<ConstraintMemory>(bytes_of("a{500}") * 5 / 2);
  for (const char* key : {"a", "b"}) memory->keep(key, *created(memory, "a{500}"));
  EXPECT_TRUE(memory->find("a"));
  EXPECT_EQ(memory->kept_count(), 2u);
  memory->keep("c", *created(memory, "a{500}"));
  EXPECT_TRUE(memory->find("a"));
  EXPECT_FALSE(memory->find("b"));
  EXPECT_TRUE(memory->find("c"));
  EXPECT_LE(memory->bytes_taken(), memory->bytes_max());
  memory->forget_all();
  EXPECT_EQ(memory->bytes_taken(), 0u);
}

TEST(ConstraintMemory, WhatIsInUseStaysAndOthersWait) {
  const auto memory = std::make_shared<ConstraintMemory>(bytes_of("a{500}") * 5 / 2);
  auto first = created(memory, "a{500}"), second = created(memory, "a{500}");
  memory->keep("a", *first);
  ASSERT_TRUE(first && second);
  auto third = created(memory, "a{500}");
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().code, Code::kUnavailable);
  EXPECT_TRUE(memory->find("a"));
  first = tl::unexpected(Error{});  // kept, but not in use
  EXPECT_TRUE(created(memory, "a{500}"));
  EXPECT_FALSE(memory->find("a"));
  const auto large = created(memory, "a{5000}");
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().code, Code::kExhausted) << "waiting would not help";
  memory->forget_all();
}

TEST(ConstraintMemory, TheLastOnesAreKeptByNumber) {
  const auto memory = std::make_shared<ConstraintMemory>(size_t{1} << 30);
  for (size_t i = 0; i < kConstraintsMax + 3; ++i) {
    memory->keep(std::to_string(i), *created(memory, "a"));
  }
  EXPECT_EQ(memory->kept_count(), kConstraintsMax);
  EXPECT_FALSE(memory->find("2"));
  EXPECT_TRUE(memory->find("3"));
  memory->forget_all();
}

std::string random_answer(ConstraintCursor& cursor, uint64_t key, Status& status) {
  Rng rng(derive_key(key, "answer"));
  std::string text;
  for (int step = 0; step < 60 && !cursor.is_last(); ++step) {
    const auto set = cursor.allowed();
    if (!set) {
      status = tl::unexpected(set.error());
      break;
    }
    auto token = rng.below(261);
    while (((**set)[token / 64] >> (token % 64) & 1) == 0) token = (token + 1) % 261;
    status = cursor.advance(static_cast<int32_t>(token));
    if (!status) break;
    text += std::to_string(token) + " ";
  }
  return text;
}

TEST(ConstraintMemory, IsNeverPassedAndChangesNoAnswer) {
  const ConstraintSource json = {Kind::kJsonObject, Json()};
  const auto trie = bytes_trie();
  const auto grammar = grammar_of(json);
  std::vector<std::string> expected;
  for (uint64_t key = 0; key < 40; ++key) {
    Status status;
    ConstraintCursor cursor(*Constraint::create(grammar, trie));
    expected.push_back(random_answer(cursor, key, status));
  }
  const auto memory = std::make_shared<ConstraintMemory>(size_t{400} << 10);
  std::atomic<int> failed = 0, right = 0, passed = 0;
  const auto work = [&](uint64_t thread) {
    for (uint64_t key = thread; key < 40; key += 4) {
      const std::string name = std::to_string(key % 6);
      auto constraint = memory->find(name);
      if (!constraint) {
        auto made = Constraint::create(grammar, trie, {}, memory);
        if (!made) {
          ++failed;
          continue;
        }
        constraint = std::move(*made);
        memory->keep(name, constraint);
      }
      Status status;
      ConstraintCursor cursor(std::move(constraint));
      const std::string text = random_answer(cursor, key, status);
      if (memory->bytes_taken() > memory->bytes_max()) ++passed;
      if (!status) {
        ++failed;
        EXPECT_TRUE(status.error().code == Code::kUnavailable ||
                    status.error().code == Code::kInvalidArgument);
      } else if (text == expected[key]) {
        ++right;
      }
    }
  };
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < 4; ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(passed, 0);
  EXPECT_EQ(right + failed, 40);
  EXPECT_GT(right, 0);
  memory->forget_all();
  EXPECT_EQ(memory->bytes_taken(), 0u);
}

// Against the C library's own count (none under sanitizers, which have another allocator).
TEST(ConstraintMemory, CoversWhatIsAllocated) {
  const auto trie = bytes_trie();
  for (const ConstraintSource& source :
       {ConstraintSource{Kind::kJsonObject, Json()}, {Kind::kRegex, "(ab|[a-z]{2}){0,300}x"}}) {
    const auto memory = std::make_shared<ConstraintMemory>(size_t{1} << 30);
    const auto before = static_cast<int64_t>(mallinfo2().uordblks);
    auto constraint = *Constraint::create(grammar_of(source), trie, {}, memory);
    for (uint64_t key = 0; key < 200; ++key) {
      Status status;
      ConstraintCursor cursor(constraint);
      random_answer(cursor, key, status);
      ASSERT_TRUE(status);
      const int64_t allocated = static_cast<int64_t>(mallinfo2().uordblks) - before;
      ASSERT_LE(allocated, static_cast<int64_t>(memory->bytes_taken()) + (16 << 10)) << key;
    }
    EXPECT_GT(memory->bytes_taken(), size_t{64} << 10);
  }
}

}  // namespace
}  // namespace jige::grammar
