// Requests that ask about their prompt, go on with a message, or forbid words: what is read of
// them, and what is refused with which field's name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/request_test_support.h"

namespace jige::api {
namespace {

using testing::chat;
using testing::completion;
using ::testing::ElementsAre;
using testing::expect_refused;
using testing::json_of;
using testing::kHi;
using testing::kSeed;
using testing::test_model;
using testing::value_of;
using text::ReasoningStart;

std::string decoded(const ApiResult<PreparedRequest>& read) {
  return value_of(test_model().tokenizer.decode(read->engine[0].prompt, {}));
}

TEST(PromptFields, AskTheEngineForScoresOnlyWhereTheyAreShown) {
  const auto scores = [](const std::string& members) {
    const auto read = completion(R"("prompt":"ab",)" + members);
    EXPECT_TRUE(read) << read.error().message;
    return read ? read->engine[0].prompt_top_count : std::nullopt;
  };
  EXPECT_EQ(scores(R"("logprobs":3)"), std::nullopt);
  EXPECT_EQ(scores(R"("echo":true)"), std::nullopt);
  EXPECT_EQ(scores(R"("echo":false,"logprobs":3)"), std::nullopt);
  EXPECT_EQ(scores(R"("echo":true,"logprobs":3)"), 3);
  EXPECT_EQ(scores(R"("echo":true,"logprobs":0)"), 0);
  EXPECT_EQ(scores(R"("echo":true,"max_tokens":0)"), 0) << "the prompt is all that is run";
  EXPECT_EQ(scores(R"("prompt_logprobs":0)"), 0);
  EXPECT_EQ(scores(R"("prompt_logprobs":2,"echo":true,"logprobs":5,"max_tokens":0)"), 5);
  const auto talk = chat(std::string(kHi) + R"(,"prompt_logprobs":4)");
  ASSERT_TRUE(talk) << talk.error().message;
  EXPECT_EQ(talk->engine[0].prompt_top_count, 4);
  EXPECT_EQ(talk->prompt.prompt_logprobs, 4);
}

TEST(PromptFields, AreRefusedByName) {
  const std::string p = R"("prompt":"a",)";
  expect_refused({{p + R"("echo":1)", "echo", "true or false"},
                  {p + R"("prompt_logprobs":21)", "prompt_logprobs", "from 0 to 20"},
                  {p + R"("prompt_logprobs":-1)", "prompt_logprobs", "from 0 to 20"},
                  {p + R"("prompt_logprobs":1,"stream":true)", "prompt_logprobs", "whole answers"},
                  {p + R"("max_tokens":0)", "max_tokens", "from 1"},
                  {p + R"("echo":true,"max_tokens":0,"min_tokens":1)", "min_tokens", "at most"},
                  {p + R"("truncate_prompt_tokens":0)", "truncate_prompt_tokens", "-1 or at least"},
                  {p + R"("truncate_prompt_tokens":-2)", "truncate_prompt_tokens", "from -1"},
                  {p + R"("allowed_token_ids":[96])", "allowed_token_ids", "from 0 to 95"},
                  {p + R"("allowed_token_ids":5)", "allowed_token_ids", "must be a list"},
                  {p + R"("bad_words":[""])", "bad_words", "empty text"},
                  {p + R"("bad_words":[5])", "bad_words", "list of at most 64 texts"}},
                 completion);
  const std::string hi = std::string(kHi) + ",";
  expect_refused(
      {{hi + R"("continue_final_message":true)", "continue_final_message", "is false"},
       {hi + R"("prompt_logprobs":1,"stream":true)", "prompt_logprobs", "whole answers"}},
      chat);
}

TEST(PromptFields, ScoresOfOneRequestAreBounded) {
  const Json body = {{"prompt", "abcdef"}, {"echo", true}, {"logprobs", 4}, {"n", 2}};
  EXPECT_TRUE(prepare_completion(body, test_model(), {.prompt_scores_max = 60}, kSeed));
  const auto more = prepare_completion(body, test_model(), {.prompt_scores_max = 59}, kSeed);
  ASSERT_FALSE(more);
  EXPECT_EQ(more.error().param, "prompt");
  EXPECT_THAT(more.error().message, ::testing::HasSubstr("are 60 numbers"));
}

TEST(PromptFields, TruncatingKeepsTheEnd) {
  const std::string text(200, 'a');
  EXPECT_FALSE(completion(R"("prompt":")" + text + "\""));
  const auto three = completion(R"("prompt":")" + text + R"(xyz","truncate_prompt_tokens":3)");
  ASSERT_TRUE(three) << three.error().message;
  EXPECT_EQ(decoded(three), "xyz");
  const auto room =
      completion(R"("prompt":")" + text + R"(","truncate_prompt_tokens":-1,"max_tokens":28)");
  ASSERT_TRUE(room) << room.error().message;
  EXPECT_EQ(room->engine[0].prompt.size(), 100u);
  const auto ids = completion(R"("prompt":[5,6,7,8],"truncate_prompt_tokens":2)");
  ASSERT_TRUE(ids) << ids.error().message;
  EXPECT_THAT(ids->engine[0].prompt, ElementsAre(7, 8));
  const auto whole = completion(R"("prompt":[5,6],"truncate_prompt_tokens":2)");
  ASSERT_TRUE(whole);
  EXPECT_THAT(whole->engine[0].prompt, ElementsAre(5, 6));
  EXPECT_FALSE(completion(R"("prompt":")" + text + R"(","truncate_prompt_tokens":128)"))
      << "that many do not fit";
  const auto talk = chat(R"("messages":[{"role":"user","content":")" + text +
                         R"("}],"truncate_prompt_tokens":11)");
  ASSERT_TRUE(talk) << talk.error().message;
  EXPECT_EQ(decoded(talk), "<assistant>");
}

TEST(ChatRequest, GoesOnWithTheLastMessage) {
  const auto prompt_of = [](const std::string& message) {
    const auto read = chat(R"("messages":[{"role":"user","content":"hi"},)" + message +
                           R"(],"add_generation_prompt":false,"continue_final_message":true)");
    EXPECT_TRUE(read) << read.error().message;
    if (!read) return std::string();
    EXPECT_TRUE(read->engine[0].continues_text);
    return decoded(read);
  };
  EXPECT_EQ(prompt_of(R"({"role":"assistant","content":"It is "})"), "<user>hi<assistant>It is ");
  EXPECT_EQ(prompt_of(R"({"role":"assistant","content":""})"), "<user>hi<assistant>");
  EXPECT_EQ(prompt_of(R"({"role":"user","content":[{"type":"text","text":"a"}]})"),
            "<user>hi<user>a");
  const auto ended = chat(std::string(kHi) + R"(,"add_generation_prompt":false)");
  ASSERT_TRUE(ended);
  EXPECT_FALSE(ended->engine[0].continues_text);
}

TEST(ChatRequest, ReasoningThatAMessageHasBegunGoesOn) {
  ServedModel model = test_model();
  model.has_reasoning = true;
  const auto start_of = [&](const std::string& content) {
    const Json body = {{"messages", {{{"role", "assistant"}, {"content", content}}}},
                       {"add_generation_prompt", false},
                       {"continue_final_message", true}};
    const auto read = prepare_chat(body, model, {}, kSeed);
    EXPECT_TRUE(read) << read.error().message;
    return read ? read->engine[0].reasoning : ReasoningStart::kNone;
  };
  EXPECT_EQ(start_of("<think>Let me"), ReasoningStart::kOpened);
  EXPECT_EQ(start_of("<think>a</think>It"), ReasoningStart::kNone);
  EXPECT_EQ(start_of("It is"), ReasoningStart::kNone);
  EXPECT_EQ(start_of(""), ReasoningStart::kMayOpen);
}

TEST(GenerationFields, ReadWhatMayBeDrawn) {
  const auto read =
      completion(R"("prompt":"a","allowed_token_ids":[5,64],"bad_words":["ab"," c"])");
  ASSERT_TRUE(read) << read.error().message;
  const serve::EngineRequest& request = read->engine[0];
  ASSERT_TRUE(request.allowed);
  EXPECT_EQ((*request.allowed)[0], uint64_t{1} << 5);
  EXPECT_EQ((*request.allowed)[1], uint64_t{1});
  const auto ids = [](const char* text) {
    return serve::testing::ids_of(testing::character_tokenizer(), text);
  };
  EXPECT_THAT(request.forbidden_rows, ElementsAre(ids("ab"), ids(" ab"), ids(" c")));
  EXPECT_FALSE(completion(R"("prompt":"a","allowed_token_ids":[])")->engine[0].allowed);
}

}  // namespace
}  // namespace jige::api
