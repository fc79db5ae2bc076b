// Answers in the forms of /v1/responses and /v1/messages from events, without an engine: a stream's
// deltas add up to the whole answer of the same events, in the order that clients expect.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "api/generation_session.h"
#include "api/messages_request.h"
#include "api/protocol_test_support.h"
#include "api/responses_request.h"

namespace jige::api {
namespace {

using serve::FinishReason;
using testing::events_of;
using testing::FakeResponder;
using testing::joined_items;
using testing::joined_message;
using testing::json_of;
using testing::value_of;
using text::ReasoningStart;

constexpr const char* kAsksItems = R"("input":"hi","tools":[{"type":"function","name":"f",
    "parameters":{"type":"object"}}])";
constexpr const char* kAsksBlocks =
    R"("max_tokens":9,"messages":[{"role":"user","content":"hi"}],
       "tools":[{"name":"f","input_schema":{"type":"object"}}],
       "thinking":{"type":"adaptive"})";
const std::string kPlayedCall =
    R"(<tool_call>{"name": "f", "arguments": {"x": "\u00e9"}}</tool_call>)";

struct PlayedAnswer {
  std::vector<std::string> pieces;
  serve::ChoiceEnd end;
};

const PlayedAnswer kPlayedAnswers[] = {
    {{"Yes", ", ", "", "indeed."}, {.finish = FinishReason::kStopId}},
    {{"<think>", "Hm", ".", "</think>", "Yes."}, {.finish = FinishReason::kLength}},
    {{"<think>", "Hm"}, {.finish = FinishReason::kLength}},
    {{kPlayedCall}, {.finish = FinishReason::kStopId}},
    {{"<think>a</think>See: ", kPlayedCall, kPlayedCall, "So."}, {.finish = FinishReason::kStopId}},
    {{"<tool_call>{\"na", "me\": 5}"}, {.finish = FinishReason::kContextFull}},
    {{"Yes"}, {.finish = FinishReason::kStopString, .stop_string = "END"}},
    {{"Yes"}, {.finish = FinishReason::kCancelled}},
    {{}, {.finish = FinishReason::kStopId}},
};

class ProtocolSession : public ::testing::Test {
 protected:
  std::shared_ptr<GenerationSession> start(Endpoint endpoint, const std::string& more) {
    responder_ = std::make_shared<FakeResponder>();
    const bool responses = endpoint == Endpoint::kResponses;
    const Json body = json_of("{" + std::string(responses ? kAsksItems : kAsksBlocks) + more + "}");
    auto request = value_of(responses ? prepare_responses(body, model_, {}, 1)
                                      : prepare_messages(body, model_, {}, 1));
    AnswerHead head{.endpoint = endpoint, .id = "id", .model = "tiny"};
    head.reasoning = request.engine.front().reasoning != ReasoningStart::kNone;
    head.prompt_tokens = 4;
    head.echo = request.echo;
    head.logprobs = request.logprobs;
    return std::make_shared<GenerationSession>(head, std::move(request), model_, work_, responder_);
  }
  void play(Endpoint endpoint, const PlayedAnswer& answer, bool stream) {
    const auto session = start(endpoint, stream ? R"(,"stream":true)" : "");
    for (const std::string& piece : answer.pieces) {
      session->on_piece(0, 0, {.token = 5, .text = piece});
    }
    session->on_choice(0, answer.end);
    session->on_done(
        {.prompt_tokens = 4, .cached_tokens = 1, .generated_tokens = 8, .reasoning_tokens = 3});
  }
  Json whole(Endpoint endpoint, const PlayedAnswer& answer) {
    play(endpoint, answer, false);
    return json_of(responder_->head.body);
  }
  std::vector<Json> events(Endpoint endpoint, const PlayedAnswer& answer) {
    play(endpoint, answer, true);
    EXPECT_TRUE(responder_->ended);
    return events_of(responder_->written);
  }

  ServedModel model_ = testing::agent_model();
  WorkQueue work_{{.thread_count = 1}};
  std::shared_ptr<FakeResponder> responder_;
};

TEST_F(ProtocolSession, StreamsOfResponsesAddUpToTheWholeAnswer) {
  for (size_t i = 0; i < std::size(kPlayedAnswers); ++i) {
    SCOPED_TRACE(i);
    Json answer = whole(Endpoint::kResponses, kPlayedAnswers[i]);
    const std::vector<Json> told = events(Endpoint::kResponses, kPlayedAnswers[i]);
    EXPECT_EQ(joined_items(told), answer["output"]);
    Json last = told.back()["response"];
    EXPECT_EQ(told.back()["type"], "response." + answer["status"].get<std::string>());
    for (Json* one : {&answer, &last}) one->erase("completed_at");
    EXPECT_EQ(last, answer);
  }
}

TEST_F(ProtocolSession, StreamsOfMessagesAddUpToTheWholeAnswer) {
  for (size_t i = 0; i < std::size(kPlayedAnswers); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(joined_message(events(Endpoint::kMessages, kPlayedAnswers[i])),
              whole(Endpoint::kMessages, kPlayedAnswers[i]));
  }
}

// The answer's text with the tokens it consists of, each with as many alternatives as were wanted.
class ResponseLogProbs : public ProtocolSession {
 protected:
  static constexpr const char* kAsked =
      R"(,"include":["message.output_text.logprobs"],"top_logprobs":1)";

  // One token a character, as the tokenizer has it.
  std::shared_ptr<GenerationSession> play_tokens(const std::string& text, const std::string& more) {
    const auto session = start(Endpoint::kResponses, kAsked + more);
    for (const char c : text) {
      const auto ids = value_of(model_.tokenizer.encode(std::string(1, c), {}));
      const int32_t id = ids.empty() ? 4 : ids.front();  // "}" of calls is in no token
      session->on_piece(0, 0, {.token = id, .text = {c}, .logprob = -1, .top = {{id, -1}}});
    }
    return session;
  }
  Json end(GenerationSession& session, const serve::ChoiceEnd& how) {
    session.on_choice(0, how);
    session.on_done({.prompt_tokens = 4, .generated_tokens = 8});
    work_.stop();  // large answers are written out there
    responder_->run_posted();
    if (!responder_->streaming) return json_of(responder_->head.body)["output"];
    EXPECT_TRUE(responder_->ended);
    const std::vector<Json> told = events_of(responder_->written);
    EXPECT_EQ(joined_items(told), told.back()["response"]["output"]);
    return told.back()["response"]["output"];
  }
  static std::string joined_tokens(const Json& item) {
    std::string text;
    for (const Json& entry : item["content"][0]["logprobs"]) {
      EXPECT_EQ(entry["logprob"], -1.0);
      EXPECT_EQ(entry["top_logprobs"][0]["token"], entry["token"]);
      text += entry["token"].get<std::string>();
    }
    return text;
  }
};

TEST_F(ResponseLogProbs, AreThoseOfEachMessagesText) {
  const std::string text = "<think>a</think>See: " + kPlayedCall + "So.";
  for (const char* more : {"", R"(,"stream":true)", R"(,"include_reasoning":false)",
                           R"(,"include_reasoning":false,"stream":true)"}) {
    SCOPED_TRACE(more);
    const Json items = end(*play_tokens(text, more), {.finish = FinishReason::kStopId});
    std::vector<std::string> texts;
    for (const Json& item : items) {
      if (item["type"] == "reasoning") {
        EXPECT_FALSE(item["content"][0].contains("logprobs"));
      }
      if (item["type"] != "message") continue;
      texts.push_back(item["content"][0]["text"]);
      EXPECT_EQ(joined_tokens(item), texts.back());
    }
    EXPECT_THAT(texts, ::testing::ElementsAre("See:", "So."));
  }
}

TEST_F(ResponseLogProbs, HaveTokensThatCameBeforeTheirTextAndNoneOfAStop) {
  for (const char* more : {"", R"(,"stream":true)"}) {
    SCOPED_TRACE(more);
    const auto session = play_tokens("ab", more);
    session->on_piece(0, 0, {.token = 7, .text = ""});  // half a character
    session->on_piece(0, 0, {.token = 8, .text = "\u00e9"});
    session->on_piece(0, 0, {.token = 9, .text = ""});  // held back, and then the end
    const Json items = end(*session, {.finish = FinishReason::kStopString, .stop_string = "END"});
    ASSERT_EQ(items.size(), 1u);
    EXPECT_EQ(items[0]["content"][0]["text"], "ab\u00e9");
    EXPECT_EQ(items[0]["content"][0]["logprobs"].size(), 4u);
  }
}

std::vector<std::string> types_of(const Json& items) {
  std::vector<std::string> types;
  for (const Json& item : items) types.push_back(item["type"]);
  return types;
}

TEST_F(ProtocolSession, WhatTheModelWroteComesInItsOrder) {
  using ::testing::ElementsAre;
  const Json response = whole(Endpoint::kResponses, kPlayedAnswers[4]);
  const Json& items = response["output"];
  ASSERT_THAT(types_of(items),
              ElementsAre("reasoning", "message", "function_call", "function_call", "message"));
  EXPECT_EQ(items[0]["content"][0]["text"], "a");
  EXPECT_EQ(items[1]["content"][0]["text"], "See:") << "white space before a call belongs to it";
  EXPECT_EQ(items[2]["name"], "f");
  EXPECT_EQ(json_of(items[2]["arguments"])["x"], "é");
  EXPECT_NE(items[2]["call_id"], items[3]["call_id"]);
  EXPECT_EQ(items[4]["content"][0]["text"], "So.");
  EXPECT_EQ(response["usage"]["input_tokens"], 4);
  EXPECT_EQ(response["usage"]["input_tokens_details"]["cached_tokens"], 1);
  EXPECT_EQ(response["usage"]["output_tokens_details"]["reasoning_tokens"], 3);
  EXPECT_EQ(response["usage"]["total_tokens"], 12);
  const Json message = whole(Endpoint::kMessages, kPlayedAnswers[4]);
  ASSERT_THAT(types_of(message["content"]),
              ElementsAre("thinking", "text", "tool_use", "tool_use", "text"));
  EXPECT_EQ(message["content"][2]["input"]["x"], "é");
  EXPECT_EQ(message["usage"]["input_tokens"], 3);
  EXPECT_EQ(message["usage"]["cache_read_input_tokens"], 1);
  EXPECT_EQ(message["usage"]["output_tokens"], 8);
}

TEST_F(ProtocolSession, TellsWhatEndedTheAnswer) {
  const std::vector<std::string> statuses = {"completed", "incomplete", "incomplete",
                                             "completed", "completed",  "incomplete",
                                             "completed", "failed",     "completed"};
  const std::vector<std::string> reasons = {"end_turn",      "max_tokens", "max_tokens",
                                            "tool_use",      "tool_use",   "max_tokens",
                                            "stop_sequence", "abort",      "end_turn"};
  for (size_t i = 0; i < std::size(kPlayedAnswers); ++i) {
    SCOPED_TRACE(i);
    const Json response = whole(Endpoint::kResponses, kPlayedAnswers[i]);
    EXPECT_EQ(response["status"], statuses[i]);
    EXPECT_EQ(response["incomplete_details"].is_null(), statuses[i] != "incomplete");
    EXPECT_EQ(response["error"].is_null(), statuses[i] != "failed");
    EXPECT_EQ(whole(Endpoint::kMessages, kPlayedAnswers[i])["stop_reason"], reasons[i]);
  }
  EXPECT_EQ(whole(Endpoint::kMessages, kPlayedAnswers[6])["stop_sequence"], "END");
  EXPECT_EQ(whole(Endpoint::kResponses, kPlayedAnswers[1])["incomplete_details"]["reason"],
            "max_output_tokens");
  EXPECT_EQ(whole(Endpoint::kResponses, kPlayedAnswers[1])["output"][1]["status"], "incomplete");
}

TEST_F(ProtocolSession, AForcedCallEndsAMessageWithToolUse) {
  const auto session = start(Endpoint::kMessages, R"(,"tool_choice":{"type":"tool","name":"f"})");
  session->on_piece(0, 0, {.token = 5, .text = kPlayedCall});
  session->on_choice(0, {.finish = FinishReason::kComplete});
  session->on_done({});
  EXPECT_EQ(json_of(responder_->head.body)["stop_reason"], "tool_use");
}

TEST_F(ProtocolSession, FailuresHaveTheFormOfTheProtocol) {
  const Error error{.code = Code::kInternal, .message = "broken"};
  start(Endpoint::kMessages, "")->on_failed(error);
  EXPECT_EQ(responder_->head.status, 500);
  EXPECT_EQ(json_of(responder_->head.body),
            json_of(R"({"type":"error","error":{"type":"api_error","message":"broken"}})"));
  start(Endpoint::kResponses, "")->on_failed(error);
  EXPECT_EQ(json_of(responder_->head.body)["error"]["type"], "server_error");

  for (const Endpoint endpoint : {Endpoint::kMessages, Endpoint::kResponses}) {
    const auto session = start(endpoint, R"(,"stream":true)");
    session->on_piece(0, 0, {.token = 5, .text = "Yes"});
    session->on_failed(error);
    EXPECT_TRUE(responder_->ended);
    const Json last = events_of(responder_->written).back();
    if (endpoint == Endpoint::kMessages) {
      EXPECT_EQ(last["type"], "error");
      EXPECT_EQ(last["error"]["message"], "broken");
    } else {
      EXPECT_EQ(last["type"], "response.failed");
      EXPECT_EQ(last["response"]["status"], "failed");
      EXPECT_EQ(last["response"]["error"]["message"], "broken");
    }
  }
}

TEST_F(ProtocolSession, ReasoningThatWasNotAskedForIsNotInAMessage) {
  model_.chat_template = testing::test_template();
  const Json body =
      json_of(R"({"max_tokens":9,"messages":[{"role":"user","content":"hi"}],"stream":true})");
  auto request = value_of(prepare_messages(body, model_, {}, 1));
  responder_ = std::make_shared<FakeResponder>();
  const AnswerHead head{.endpoint = Endpoint::kMessages, .id = "id", .reasoning = true};
  const auto session =
      std::make_shared<GenerationSession>(head, std::move(request), model_, work_, responder_);
  session->on_piece(0, 0, {.token = 5, .text = "<think>Hm</think>Yes"});
  session->on_choice(0, {.finish = FinishReason::kStopId});
  session->on_done({});
  const Json message = joined_message(events_of(responder_->written));
  ASSERT_EQ(message["content"].size(), 1u);
  EXPECT_EQ(message["content"][0]["text"], "Yes");
}

}  // namespace
}  // namespace jige::api
