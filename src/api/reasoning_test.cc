// Chats with reasoning: what requests say of it, and what clients get, whole and in streams.
#include <gtest/gtest.h>

#include "api/api_test_support.h"
#include "api/generation_session.h"
#include "base/file.h"

namespace jige::api {
namespace {

using testing::FakeResponder;
using testing::frames_of;
using testing::json_of;
using testing::value_of;
using text::ReasoningStart;

// Shows what messages reasoned; with `thinking` the prompt opens the tag, or closes it.
ServedModel reasoning_model(const std::string& last_token = "|") {
  ServedModel model = testing::test_model();
  model.has_reasoning = true;
  model.tokenizer = serve::testing::character_tokenizer(last_token);
  model.constraints = std::make_shared<grammar::ConstraintCompiler>(model.tokenizer);
  model.chat_template = value_of(text::ChatTemplate::parse(
      "{% for m in messages %}[{{ m.role }}]"
      "{% if m.reasoning_content %}({{ m.reasoning_content }}){% endif %}{{ m.content }}"
      "{% endfor %}[assistant]{% if thinking is defined %}<think> "
      "{% if not thinking %} </think> {% endif %}{% endif %}",
      "reasoning"));
  return model;
}

constexpr const char* kAsks = R"("messages":[{"role":"user","content":"hi"}])";
constexpr const char* kOpens = R"(,"chat_template_kwargs":{"thinking":true})";
constexpr const char* kCloses = R"(,"chat_template_kwargs":{"thinking":false})";

PreparedRequest prepare(const std::string& members, const ServedModel& model) {
  return value_of(prepare_chat(json_of("{" + members + "}"), model, {}, 1));
}

std::string prompt_of(const std::string& messages) {
  const ServedModel model = reasoning_model();
  const PreparedRequest read = prepare(R"("messages":[)" + messages + "]", model);
  return value_of(model.tokenizer.decode(read.engine[0].prompt, {}));
}

TEST(ReasoningRequest, IsToldFromThePrompt) {
  const auto start = [](const std::string& more, const ServedModel& model) {
    return prepare(kAsks + more, model).engine[0].reasoning;
  };
  ServedModel model = reasoning_model();
  EXPECT_EQ(start("", model), ReasoningStart::kMayOpen);
  EXPECT_EQ(start(kOpens, model), ReasoningStart::kOpened);
  EXPECT_EQ(start(kCloses, model), ReasoningStart::kNone);
  const std::string regex = R"(,"guided_regex":"a")";
  EXPECT_EQ(start(kOpens + regex, model), ReasoningStart::kOpened);
  EXPECT_EQ(start(regex, model), ReasoningStart::kNone) << "no token could open it";
  EXPECT_EQ(start(regex, reasoning_model("<think>")), ReasoningStart::kMayOpen);
  model.has_reasoning = false;
  EXPECT_EQ(start(kOpens, model), ReasoningStart::kNone);
}

TEST(ReasoningRequest, CanBeTurnedOffByAVariableOfTheTemplate) {
  ServedModel model = reasoning_model();
  model.context_max = 1000;
  const std::string path =
      std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/text/templates/qwen3/template.jinja";
  model.chat_template = value_of(text::ChatTemplate::parse(value_of(read_file(path)), "qwen3"));
  const auto start = [&](const std::string& more) {
    return prepare(kAsks + more, model).engine[0].reasoning;
  };
  EXPECT_EQ(start(""), ReasoningStart::kMayOpen);
  EXPECT_EQ(start(R"(,"chat_template_kwargs":{"enable_thinking":false})"), ReasoningStart::kNone);
  EXPECT_EQ(start(R"(,"chat_template_kwargs":{"enable_thinking":true})"), ReasoningStart::kMayOpen);
}

TEST(ReasoningRequest, GivesTheTemplateWhatEarlierAnswersReasoned) {
  for (const std::string name : {"reasoning_content", "reasoning"}) {
    EXPECT_EQ(prompt_of(R"({"role":"assistant","content":"b",")" + name + R"(":"a"})"),
              "[assistant](a)b[assistant]");
    EXPECT_EQ(prompt_of(R"({"role":"assistant","content":null,")" + name + R"(":"a"})"),
              "[assistant](a)[assistant]")
        << "an answer that ended inside it";
  }
  const auto refused = prepare_chat(
      json_of(R"({"messages":[{"role":"assistant","content":null,"reasoning_content":5}]})"),
      reasoning_model(), {}, 1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().param, "messages[0].content");
  const auto wrong = prepare_chat(json_of("{" + std::string(kAsks) + R"(,"include_reasoning":3})"),
                                  reasoning_model(), {}, 1);
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().param, "include_reasoning");
}

// What a client gets.
struct Received {
  Json message;  // put together from the pieces of a stream
  Json usage;
  std::string finish;
  std::vector<Json> frames;  // of a stream
};

class ReasoningSession : public ::testing::Test {
 protected:
  // Plays an answer of these pieces, one a token.
  Received play(const std::string& members, const std::vector<std::string>& pieces) {
    responder_ = std::make_shared<FakeResponder>();
    PreparedRequest request = prepare(members, model_);
    const AnswerHead head{.endpoint = Endpoint::kChat,
                          .id = "id",
                          .model = "tiny",
                          .logprobs = request.logprobs,
                          .include_usage = request.include_usage,
                          .reasoning = request.engine.front().reasoning != ReasoningStart::kNone};
    const bool stream = request.stream;
    const auto session =
        std::make_shared<GenerationSession>(head, std::move(request), model_, work_, responder_);
    for (const std::string& piece : pieces) session->on_piece(0, 0, {.token = 5, .text = piece});
    session->on_choice(0, {.finish = serve::FinishReason::kStopId});
    session->on_done({.prompt_tokens = 4, .generated_tokens = 8, .reasoning_tokens = 3});
    if (stream) return joined(frames_of(responder_->written));
    work_.stop();
    responder_->run_posted();
    const Json answer = json_of(responder_->head.body);
    const Json& choice = answer["choices"][0];
    return {choice["message"], answer["usage"], choice["finish_reason"], {choice["logprobs"]}};
  }

  ServedModel model_ = reasoning_model();
  WorkQueue work_{{.thread_count = 1}};
  std::shared_ptr<FakeResponder> responder_;

 private:
  static Received joined(const std::vector<Json>& frames) {
    Received received{.message = Json::object(), .frames = frames};
    for (const Json& frame : frames) {
      if (frame["choices"].empty()) {
        received.usage = frame["usage"];
        continue;
      }
      const Json& choice = frame["choices"][0];
      for (const char* name : {"reasoning_content", "reasoning", "content"}) {
        if (!choice["delta"].contains(name)) continue;
        const std::string before = received.message.value(name, "");
        received.message[name] = before + choice["delta"][name].get<std::string>();
      }
      if (choice["delta"].contains("tool_calls")) {
        received.message["tool_calls"] = choice["delta"]["tool_calls"];
      }
      if (choice["finish_reason"].is_string()) received.finish = choice["finish_reason"];
    }
    return received;
  }
};

const std::vector<std::string> kAnswer = {"<thi", "nk>\nHm", ".\n", "</think>\n", "\nYes", "."};
constexpr const char* kStreams = R"(,"stream":true,"stream_options":{"include_usage":true})";

TEST_F(ReasoningSession, AWholeAnswerHasItBesideTheContent) {
  const Received got = play(kAsks, kAnswer);
  EXPECT_EQ(got.message["reasoning_content"], "Hm.");
  EXPECT_EQ(got.message["reasoning"], "Hm.");
  EXPECT_EQ(got.message["content"], "Yes.");
  EXPECT_EQ(got.usage["completion_tokens_details"]["reasoning_tokens"], 3);
}

TEST_F(ReasoningSession, AStreamHasItFirst) {
  const Received got = play(std::string(kAsks) + kStreams, kAnswer);
  EXPECT_EQ(got.message["reasoning_content"], "Hm.");
  EXPECT_EQ(got.message["reasoning"], "Hm.");
  EXPECT_EQ(got.message["content"], "Yes.");
  EXPECT_EQ(got.usage["completion_tokens_details"]["reasoning_tokens"], 3);
  bool content = false;
  for (const Json& frame : got.frames) {
    if (frame["choices"].empty()) continue;
    const Json& delta = frame["choices"][0]["delta"];
    content = content || (delta.contains("content") && delta["content"] != "");
    EXPECT_FALSE(content && delta.contains("reasoning_content"));
  }
}

TEST_F(ReasoningSession, APieceOfBothBecomesTwoFrames) {
  const Received got =
      play(std::string(kAsks) + kStreams + R"(,"logprobs":true)", {"<think>a</think>b"});
  EXPECT_EQ(got.message["reasoning_content"], "a");
  EXPECT_EQ(got.message["content"], "b");
  int tokens = 0;
  for (const Json& frame : got.frames) {
    if (frame["choices"].empty() || frame["choices"][0]["logprobs"].is_null()) continue;
    tokens += static_cast<int>(frame["choices"][0]["logprobs"]["content"].size());
  }
  EXPECT_EQ(tokens, 1);
}

TEST_F(ReasoningSession, LogprobsCoverAllTokens) {
  const std::string members = std::string(kAsks) + R"(,"logprobs":true)";
  EXPECT_EQ(play(members, kAnswer).frames[0]["content"].size(), kAnswer.size());
  for (const char* more : {"", R"(,"include_reasoning":false)"}) {
    size_t tokens = 0;
    for (const Json& frame : play(members + kStreams + more, kAnswer).frames) {
      if (frame["choices"].empty() || frame["choices"][0]["logprobs"].is_null()) continue;
      tokens += frame["choices"][0]["logprobs"]["content"].size();
    }
    EXPECT_EQ(tokens, kAnswer.size()) << more;
  }
}

TEST_F(ReasoningSession, AnswersWithoutTagsAreContent) {
  for (const char* more : {"", kStreams}) {
    const Received got = play(std::string(kAsks) + more, {" a <th", "ink>b", "</think>\n"});
    EXPECT_EQ(got.message["content"], " a <think>b</think>\n");
    EXPECT_TRUE(got.message.value("reasoning_content", Json()).is_null());
  }
  EXPECT_EQ(play(kAsks, {"", " <thi"}).message["content"], " <thi");
}

TEST_F(ReasoningSession, BehindAnOpenedTagAllIsReasoningUntilItsEnd) {
  const Received got = play(std::string(kAsks) + kOpens, {"Hm", ".</thi", "nk>Yes"});
  EXPECT_EQ(got.message["reasoning_content"], "Hm.");
  EXPECT_EQ(got.message["content"], "Yes");
  const Received cut = play(std::string(kAsks) + kOpens, {"Hm", ".</thi"});
  EXPECT_EQ(cut.message["reasoning_content"], "Hm.</thi");
  EXPECT_TRUE(cut.message["content"].is_null());
  EXPECT_EQ(play(std::string(kAsks) + kOpens + kStreams, {"Hm", ".</thi"}).message["content"], "");
}

TEST_F(ReasoningSession, IsLeftOutWhereItIsNotWanted) {
  for (const char* more : {"", kStreams}) {
    const Received got = play(std::string(kAsks) + R"(,"include_reasoning":false)" + more, kAnswer);
    EXPECT_FALSE(got.message.contains("reasoning_content"));
    EXPECT_FALSE(got.message.contains("reasoning"));
    EXPECT_EQ(got.message["content"], "Yes.");
    EXPECT_EQ(got.usage["completion_tokens_details"]["reasoning_tokens"], 3);
  }
}

TEST_F(ReasoningSession, CallsOfToolsComeBehindIt) {
  model_.tool_format = ToolFormat::kHermes;
  const std::string members =
      std::string(kAsks) + R"(,"tools":[{"type":"function","function":{"name":"f"}}])";
  const std::string call = R"(<tool_call>{"name": "f"}</tool_call>)";
  for (const char* more : {"", kStreams}) {
    Received got = play(members + more, {"<think>", call, "</think>\n\n", call});
    EXPECT_EQ(got.message["reasoning_content"], call) << "a call in the reasoning is none";
    EXPECT_EQ(got.message["tool_calls"].size(), 1u);
    EXPECT_EQ(got.finish, "tool_calls");
    got = play(members + more, {"<think>", call, "</think>No."});
    EXPECT_EQ(got.message["content"], "No.");
    EXPECT_FALSE(got.message.contains("tool_calls"));
    EXPECT_EQ(got.finish, "stop");
  }
}

TEST_F(ReasoningSession, ModelsWithoutItAnswerAsBefore) {
  model_.has_reasoning = false;
  const Received got = play(kAsks, kAnswer);
  EXPECT_EQ(got.message["content"], "<think>\nHm.\n</think>\n\nYes.");
  EXPECT_FALSE(got.message.contains("reasoning_content"));
  EXPECT_FALSE(got.usage.contains("completion_tokens_details"));
}

}  // namespace
}  // namespace jige::api
