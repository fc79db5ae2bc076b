// Sessions from events, without an engine: what the engine says becomes what the client gets.
#include "api/generation_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/api_test_support.h"

namespace jige::api {
namespace {

using testing::FakeResponder;
using testing::frames_of;
using testing::json_of;

class GenerationSessionTest : public ::testing::Test {
 protected:
  std::shared_ptr<GenerationSession> make(const std::string& members, Endpoint endpoint) {
    const Json body = json_of("{" + members + "}");
    auto prepared = endpoint == Endpoint::kChat ? prepare_chat(body, model_, {}, 1)
                                                : prepare_completion(body, model_, {}, 1);
    EXPECT_TRUE(prepared) << prepared.error().message;
    const AnswerHead head{.endpoint = endpoint,
                          .id = "id",
                          .model = "tiny",
                          .logprobs = prepared->logprobs,
                          .include_usage = prepared->include_usage};
    return std::make_shared<GenerationSession>(head, std::move(*prepared), model_, work_,
                                               responder_);
  }

  ServedModel model_ = testing::test_model();
  WorkQueue work_{{.thread_count = 1}};
  std::shared_ptr<FakeResponder> responder_ = std::make_shared<FakeResponder>();
};

constexpr const char* kChat = R"("messages":[{"role":"user","content":"hi"}])";

TEST_F(GenerationSessionTest, GathersAWholeAnswer) {
  const auto session = make(R"("prompt":["a","b"],"n":2)", Endpoint::kCompletions);
  session->on_piece(1, 1, {.token = 5, .text = "four"});
  session->on_piece(0, 0, {.token = 5, .text = "on"});
  session->on_piece(0, 1, {.token = 5, .text = "two"});
  session->on_piece(0, 0, {.token = -1, .text = "e"});
  session->on_choice(0, {.choice = 0, .finish = serve::FinishReason::kStopString});
  session->on_choice(0, {.choice = 1, .finish = serve::FinishReason::kLength});
  session->on_done({.prompt_tokens = 1, .generated_tokens = 3});
  EXPECT_FALSE(responder_->answered) << "the second prompt is under way";
  session->on_choice(1, {.choice = 0, .finish = serve::FinishReason::kContextFull});
  session->on_choice(1, {.choice = 1, .finish = serve::FinishReason::kCancelled});
  session->on_done({.prompt_tokens = 1, .generated_tokens = 1});
  ASSERT_TRUE(responder_->answered);
  EXPECT_FALSE(responder_->streaming);
  const Json answer = json_of(responder_->head.body);
  ASSERT_EQ(answer["choices"].size(), 4u);
  EXPECT_EQ(answer["choices"][0]["text"], "one");
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(answer["choices"][1]["text"], "two");
  EXPECT_EQ(answer["choices"][1]["finish_reason"], "length");
  EXPECT_EQ(answer["choices"][2]["finish_reason"], "length");
  EXPECT_EQ(answer["choices"][3]["text"], "four");
  EXPECT_EQ(answer["choices"][3]["finish_reason"], "abort");
  EXPECT_EQ(answer["usage"]["completion_tokens"], 4);
}

TEST_F(GenerationSessionTest, StreamsChatWithTheRoleFirst) {
  const auto session =
      make(std::string(kChat) + R"(,"n":2,"stream":true,"stream_options":{"include_usage":true})",
           Endpoint::kChat);
  EXPECT_FALSE(responder_->answered) << "the head waits: the request may still fail";
  session->on_piece(0, 1, {.token = 5, .text = "b"});
  session->on_piece(0, 0, {.token = 6, .text = ""});  // half a character
  session->on_piece(0, 0, {.token = 7, .text = "é"});
  session->on_choice(0, {.choice = 0, .finish = serve::FinishReason::kStopId});
  session->on_choice(0, {.choice = 1, .finish = serve::FinishReason::kLength});
  session->on_done({.prompt_tokens = 4, .generated_tokens = 3});
  EXPECT_EQ(responder_->head.content_type, "text/event-stream; charset=utf-8");
  EXPECT_TRUE(responder_->ended);
  const std::vector<Json> frames = frames_of(responder_->written);
  ASSERT_EQ(frames.size(), 7u);
  EXPECT_EQ(frames[0]["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(frames[1]["choices"][0]["index"], 1);
  EXPECT_EQ(frames[2]["choices"][0]["delta"]["content"], "b");
  EXPECT_TRUE(frames[2]["usage"].is_null());
  EXPECT_EQ(frames[3]["choices"][0]["delta"]["content"], "é");
  EXPECT_EQ(frames[4]["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(frames[5]["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(frames[6]["usage"]["completion_tokens"], 3);
}

// A chat whose model may call "f".
constexpr const char* kToolChat = R"("messages":[{"role":"user","content":"hi"}],
    "tools":[{"type":"function","function":{"name":"f"}}])";

void play_calls(GenerationSession& session, serve::FinishReason finish) {
  for (const char* text : {"I lo", "ok.", "\n", "<tool_call>", R"({"name": "f", "argu)",
                           R"(ments": {"x": 1}})", "</tool_call>", R"(<tool_call>{"name": "g"})"}) {
    session.on_piece(0, 0, {.token = 5, .text = text});
  }
  session.on_piece(0, 0, {.token = -1, .text = "</tool_call> <"});
  session.on_choice(0, {.choice = 0, .finish = finish});
  session.on_done({.prompt_tokens = 4, .generated_tokens = 8});
}

TEST_F(GenerationSessionTest, TakesCallsOfToolsOutOfAWholeAnswer) {
  model_.tool_format = ToolFormat::kHermes;
  const auto session = make(kToolChat, Endpoint::kChat);
  play_calls(*session, serve::FinishReason::kStopId);
  const Json choice = json_of(responder_->head.body)["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  const Json& message = choice["message"];
  EXPECT_EQ(message["content"], "I look. <") << "what may have been another call";
  ASSERT_EQ(message["tool_calls"].size(), 2u);
  EXPECT_EQ(message["tool_calls"][0]["type"], "function");
  EXPECT_EQ(message["tool_calls"][0]["function"],
            json_of(R"({"name":"f","arguments":"{\"x\":1}"})"));
  EXPECT_EQ(message["tool_calls"][1]["function"], json_of(R"({"name":"g","arguments":"{}"})"));
  EXPECT_NE(message["tool_calls"][0]["id"], message["tool_calls"][1]["id"]);
}

TEST_F(GenerationSessionTest, ACallThatTheRequestNamedEndsWithStop) {
  model_.tool_format = ToolFormat::kHermes;
  const auto session =
      make(std::string(kToolChat) + R"(,"tool_choice":{"type":"function","function":{"name":"f"}})",
           Endpoint::kChat);
  session->on_piece(0, 0, {.token = 5, .text = R"(<tool_call>{"name": "f"}</tool_call>)"});
  session->on_choice(0, {.choice = 0, .finish = serve::FinishReason::kComplete});
  session->on_done({.prompt_tokens = 4, .generated_tokens = 1});
  const Json choice = json_of(responder_->head.body)["choices"][0];
  EXPECT_EQ(choice["message"]["tool_calls"].size(), 1u);
  EXPECT_EQ(choice["finish_reason"], "stop");
}

TEST_F(GenerationSessionTest, StreamsCallsOfToolsOneAFrame) {
  model_.tool_format = ToolFormat::kHermes;
  const auto session = make(std::string(kToolChat) + R"(,"stream":true)", Endpoint::kChat);
  play_calls(*session, serve::FinishReason::kStopId);
  std::string content;
  std::vector<Json> calls;
  const std::vector<Json> frames = frames_of(responder_->written);
  for (const Json& frame : frames) {
    const Json& delta = frame["choices"][0]["delta"];
    if (delta.contains("content")) content += delta["content"].get<std::string>();
    if (delta.contains("tool_calls")) calls.push_back(delta["tool_calls"]);
  }
  EXPECT_EQ(content, "I look. <");
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0][0]["index"], 0);
  EXPECT_EQ(calls[0][0]["function"]["arguments"], R"({"x":1})");
  EXPECT_EQ(calls[1][0]["index"], 1);
  EXPECT_EQ(frames.back()["choices"][0]["finish_reason"], "tool_calls");
}

TEST_F(GenerationSessionTest, OneCallIsAllWhereSeveralAreNotWanted) {
  model_.tool_format = ToolFormat::kHermes;
  const auto session =
      make(std::string(kToolChat) + R"(,"parallel_tool_calls":false)", Endpoint::kChat);
  play_calls(*session, serve::FinishReason::kLength);
  const Json choice = json_of(responder_->head.body)["choices"][0];
  EXPECT_EQ(choice["message"]["tool_calls"].size(), 1u);
  EXPECT_EQ(choice["finish_reason"], "length") << "what else may have come is not known";
}

TEST_F(GenerationSessionTest, AnAnswerOfCallsAloneHasNoContent) {
  model_.tool_format = ToolFormat::kHermes;
  const auto session = make(kToolChat, Endpoint::kChat);
  session->on_piece(0, 0, {.token = 5, .text = R"(<tool_call>{"name": "f"}</tool_call>)"});
  session->on_choice(0, {.choice = 0, .finish = serve::FinishReason::kStopId});
  session->on_done({});
  EXPECT_TRUE(json_of(responder_->head.body)["choices"][0]["message"]["content"].is_null());
}

TEST_F(GenerationSessionTest, StreamsEveryTokenWhereLogprobsAreWanted) {
  const auto session = make(R"("prompt":"a","stream":true,"logprobs":0)", Endpoint::kCompletions);
  session->on_piece(0, 0, {.token = 70, .text = ""});
  session->on_piece(0, 0, {.token = 71, .text = "xy"});
  session->on_piece(0, 0, {.token = 72, .text = "z"});
  session->on_choice(0, {.finish = serve::FinishReason::kLength});
  session->on_done({});
  const std::vector<Json> frames = frames_of(responder_->written);
  ASSERT_EQ(frames.size(), 4u);
  EXPECT_EQ(frames[0]["choices"][0]["logprobs"]["tokens"].size(), 1u);
  EXPECT_EQ(frames[2]["choices"][0]["logprobs"]["text_offset"][0], 2);
}

TEST_F(GenerationSessionTest, WholeLogprobsAreWrittenOutOnAnotherThread) {
  const auto session = make(R"("prompt":"a","logprobs":1)", Endpoint::kCompletions);
  session->on_piece(0, 0, {.token = 70, .text = "c", .top = {{70, -1}}});
  session->on_choice(0, {.finish = serve::FinishReason::kLength});
  session->on_done({.generated_tokens = 1});
  EXPECT_FALSE(responder_->answered);
  work_.stop();
  responder_->run_posted();
  ASSERT_TRUE(responder_->answered);
  const Json answer = json_of(responder_->head.body);
  EXPECT_EQ(answer["choices"][0]["logprobs"]["tokens"].size(), 1u);
  EXPECT_EQ(answer["usage"]["completion_tokens"], 1);

  const auto late = make(R"("prompt":"a","logprobs":1)", Endpoint::kCompletions);
  responder_->answered = false;
  late->on_done({});
  EXPECT_TRUE(responder_->answered) << "here, where no other thread is left";
}

TEST_F(GenerationSessionTest, FailuresBeforeTheFirstByteAreAStatus) {
  const auto session = make(R"("prompt":"a","stream":true)", Endpoint::kCompletions);
  session->on_failed({Code::kInternal, "the logits are not numbers"});
  EXPECT_FALSE(responder_->streaming);
  EXPECT_EQ(responder_->head.status, 500);
  EXPECT_EQ(json_of(responder_->head.body)["error"]["message"], "the logits are not numbers");
  session->on_piece(0, 0, {.token = 5, .text = "late"});
  session->on_done({});
}

TEST_F(GenerationSessionTest, FailuresLaterAreAFrame) {
  const auto session = make(R"("prompt":"a","stream":true)", Endpoint::kCompletions);
  session->on_piece(0, 0, {.token = 5, .text = "x"});
  session->on_failed({Code::kInternal, "broken"});
  EXPECT_TRUE(responder_->ended);
  const std::vector<Json> frames = frames_of(responder_->written, false);
  ASSERT_EQ(frames.size(), 2u);
  EXPECT_EQ(frames[1]["error"]["message"], "broken");
}

TEST_F(GenerationSessionTest, StopsWritingToClientsThatAreGivenUp) {
  const auto session = make(std::string(kChat) + R"(,"stream":true,"n":3)", Endpoint::kChat);
  responder_->refuse_writes = true;
  session->on_piece(0, 0, {.token = 5, .text = "x"});
  session->on_piece(0, 0, {.token = 5, .text = "y"});
  session->on_done({});
  EXPECT_EQ(responder_->written, "");
  EXPECT_FALSE(responder_->ended);
}

}  // namespace
}  // namespace jige::api
