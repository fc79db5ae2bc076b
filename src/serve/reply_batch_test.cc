#include "serve/reply_batch.h"

#include <atomic>

#include "base/rng.h"
#include "serve/generator.h"
#include "serve/serve_test_support.h"

namespace jige::serve {
namespace {

using testing::Loaded;
using testing::value_of;

std::vector<std::vector<int32_t>> random_prompts(uint64_t seed, size_t count) {
  Rng rng(derive_key(seed, "prompts"));
  std::vector<std::vector<int32_t>> prompts(count);
  for (auto& prompt : prompts) {
    for (size_t length = 1 + rng.below(20); prompt.size() < length;) {
      prompt.push_back(static_cast<int32_t>(rng.below(96)));
    }
  }
  return prompts;
}

// One after another.
std::vector<std::string> texts_alone(Loaded& loaded,
                                     const std::vector<std::vector<int32_t>>& prompts) {
  Generator generator(*loaded.model, loaded.tokenizer);
  GenerateOptions options{.tokens_max = 12};
  options.stop_ids = end_ids(loaded.tokenizer, loaded.model->config());
  std::vector<std::string> texts;
  for (const auto& prompt : prompts) {
    texts.push_back(value_of(generator.generate(prompt, options)).text);
  }
  return texts;
}

TEST(ReplyBatch, GivesWhatGeneratorGivesForEachAlone) {
  for (const char* name : {"llama3", "qwen3_5"}) {
    Loaded loaded(
        name, {.context_max = 40, .kv_block_count = 12, .state_count = 4, .batch_tokens_max = 32});
    const auto prompts = random_prompts(1, 24);
    const auto expected = texts_alone(loaded, prompts);
    size_t next = 0;
    const auto take = [&](size_t prompt, Result<std::string> text) -> Status {
      EXPECT_EQ(prompt, next++) << "the order is theirs";
      EXPECT_EQ(value_of(std::move(text)), expected[prompt]) << name << " prompt " << prompt;
      return {};
    };
    ASSERT_TRUE(reply_to_all(*loaded.model, loaded.tokenizer, prompts, {.tokens_max = 12}, take));
    EXPECT_EQ(next, prompts.size());
  }
}

TEST(ReplyBatch, APromptAtFaultFailsAlone) {
  Loaded loaded("llama3", {.context_max = 40});
  auto prompts = random_prompts(2, 5);
  prompts[1].clear();
  prompts[3].assign(40, 7);
  std::vector<size_t> failed;
  const auto take = [&](size_t prompt, Result<std::string> text) -> Status {
    if (text) return {};
    failed.push_back(prompt);
    EXPECT_EQ(text.error().code, Code::kInvalidArgument);
    return {};
  };
  ASSERT_TRUE(reply_to_all(*loaded.model, loaded.tokenizer, prompts, {}, take));
  EXPECT_EQ(failed, (std::vector<size_t>{1, 3}));
}

TEST(ReplyBatch, StopsWhereItIsCancelledOrAnAnswerIsNotTaken) {
  Loaded loaded("llama3", {.context_max = 64});
  const auto prompts = random_prompts(3, 30);
  std::atomic<bool> cancelled = true;
  const auto refuse = [](size_t, Result<std::string>) -> Status {
    return fail(Code::kIo, "no room");
  };
  const Status refused = reply_to_all(*loaded.model, loaded.tokenizer, prompts, {}, refuse);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kIo);
  // A long answer is waited for when the flag is seen, or comes before.
  size_t taken = 0;
  const auto take = [&](size_t, Result<std::string>) -> Status {
    ++taken;
    return {};
  };
  const Status stopped = reply_to_all(*loaded.model, loaded.tokenizer, prompts,
                                      {.tokens_max = 60, .cancelled = &cancelled}, take);
  if (stopped) {
    EXPECT_EQ(taken, prompts.size());
  } else {
    EXPECT_EQ(stopped.error().code, Code::kCancelled);
  }
}

}  // namespace
}  // namespace jige::serve
