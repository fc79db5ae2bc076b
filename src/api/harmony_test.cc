// Answers of gpt-oss in a server: its messages in channels, calls of tools among them, and what its
// template is shown of earlier ones.
#include <gtest/gtest.h>

#include "api/api_test_support.h"
#include "api/generation_session.h"
#include "text/reasoning_test_support.h"

namespace jige::api {
namespace {

using testing::FakeResponder;
using testing::frames_of;
using testing::json_of;
using testing::value_of;

// As the family's template does: what was thought or said before a call is one message, the result
// names the tool of the last call, and both members at once are refused.
constexpr const char* kTemplate = R"(
{%- for m in messages -%}
  {%- if m.role == 'assistant' and 'content' in m and '<|channel|>' in m.content -%}
    {{- raise_exception('a channel in the content') -}}
  {%- endif -%}
  {%- if m.tool_calls is defined -%}
    {%- if m.content and m.thinking %}{{ raise_exception('content and thinking') }}{% endif -%}
    {%- if m.content or m.thinking -%}
      {{- '<|start|>assistant<|channel|>analysis<|message|>' + (m.content or m.thinking) -}}
      {{- '<|end|>' -}}
    {%- endif -%}
    {%- set call = m.tool_calls[0].function -%}
    {{- '<|start|>assistant to=functions.' + call.name + '<|channel|>commentary json<|message|>' -}}
    {{- call.arguments|tojson + '<|call|>' -}}
  {%- elif m.role == 'tool' -%}
    {{- '<|start|>functions to=assistant<|channel|>commentary<|message|>' + m.content|tojson -}}
    {{- '<|end|>' -}}
  {%- else -%}
    {{- '<|start|>' + m.role + '<|message|>' + m.content + '<|end|>' -}}
  {%- endif -%}
{%- endfor -%}
{%- if tools %}{{ tools[0].function.name }}{% endif -%}
<|start|>assistant)";

ServedModel harmony_model() {
  ServedModel model = testing::test_model();
  std::string letters = "\n .,:?\"{}=_<>|/";
  for (char c = 'a'; c <= 'z'; ++c) letters += c;
  for (char c = '0'; c <= '9'; ++c) letters += c;
  model.tokenizer = text::testing::marks_tokenizer(letters + "HIY", {{"<|start|>", true},
                                                                     {"<|channel|>", true},
                                                                     {"<|constrain|>", true},
                                                                     {"<|message|>", true},
                                                                     {"<|end|>", true},
                                                                     {"<|call|>", true}});
  model.constraints = std::make_shared<grammar::ConstraintCompiler>(model.tokenizer);
  model.chat_template = value_of(text::ChatTemplate::parse(kTemplate, "harmony"));
  model.tool_format = tool_format_of(*model.chat_template);
  model.has_reasoning = text::has_reasoning(*model.chat_template);
  model.context_max = 2000;
  return model;
}

constexpr const char* kAdder = R"("tools":[{"type":"function","function":{"name":"add",
    "parameters":{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}}}],)";
constexpr const char* kAsked = R"("messages":[{"role":"user","content":"hi"}])";

PreparedRequest prepared(const std::string& members) {
  return value_of(prepare_chat(json_of("{" + members + "}"), harmony_model(), {}, 1));
}

std::string shown_to_model(const PreparedRequest& request) {
  return value_of(harmony_model().tokenizer.decode(request.engine[0].prompt, {}));
}

TEST(Harmony, EarlierCallsAreShownAsTheTemplateWantsThem) {
  const std::string call =
      R"("tool_calls":[{"id":"c","type":"function","function":{"name":"add",
         "arguments":"{\"a\": 1}"}}]},{"role":"tool","tool_call_id":"c","content":"2"}])";
  const std::string shown =
      "<|start|>assistant to=functions.add<|channel|>commentary json<|message|>{\"a\": 1}<|call|>"
      "<|start|>functions to=assistant<|channel|>commentary<|message|>\"2\"<|end|>"
      "<|start|>assistant";
  const std::string thought = "<|start|>assistant<|channel|>analysis<|message|>";
  const auto prompt = [&](const std::string& members) {
    return shown_to_model(prepared(R"("messages":[{"role":"assistant",)" + members + call));
  };
  EXPECT_EQ(prompt(""), shown);
  EXPECT_EQ(prompt(R"("content":null,)"), shown) << "as clients send it";
  EXPECT_EQ(prompt(R"("content":null,"reasoning_content":"hm",)"), thought + "hm<|end|>" + shown);
  EXPECT_EQ(prompt(R"("content":"i look",)"), thought + "i look<|end|>" + shown);
  EXPECT_EQ(prompt(R"("content":"","reasoning":"hm",)"), thought + "hm<|end|>" + shown);
  const std::string both =
      prompt(R"("content":"i look","reasoning":"hm","reasoning_content":"hm",)");
  EXPECT_EQ(both, thought + "hm\ni look<|end|>" + shown);
}

TEST(Harmony, AForcedCallIsAMessageOfItsOwn) {
  const PreparedRequest plain = prepared(kAdder + std::string(kAsked));
  EXPECT_EQ(plain.tools.format, ToolFormat::kHarmony);
  EXPECT_EQ(plain.engine[0].reasoning, text::ReasoningStart::kChannels);
  const PreparedRequest forced =
      prepared(kAdder + std::string(kAsked) + R"(,"tool_choice":"required")");
  ASSERT_TRUE(forced.engine[0].constraint);
  EXPECT_EQ(forced.engine[0].reasoning, text::ReasoningStart::kNone);
  EXPECT_EQ(shown_to_model(forced), shown_to_model(plain)) << "no header of the last message";
  const PreparedRequest regex = prepared(std::string(kAsked) + R"(,"guided_regex":"a")");
  EXPECT_TRUE(shown_to_model(regex).ends_with("<|channel|>final<|message|>"));
}

// What a client gets of an answer of these pieces: its message, and how it finished.
std::pair<Json, std::string> answer_of(const std::string& members,
                                       const std::vector<std::string>& pieces) {
  const ServedModel model = harmony_model();
  WorkQueue work{{.thread_count = 1}};
  const auto responder = std::make_shared<FakeResponder>();
  PreparedRequest request = prepared(members);
  const AnswerHead head{.endpoint = Endpoint::kChat,
                        .id = "id",
                        .model = "tiny",
                        .reasoning = request.engine[0].reasoning != text::ReasoningStart::kNone};
  const bool stream = request.stream;
  const auto session =
      std::make_shared<GenerationSession>(head, std::move(request), model, work, responder);
  for (const std::string& piece : pieces) session->on_piece(0, 0, {.token = 5, .text = piece});
  session->on_choice(0, {.finish = serve::FinishReason::kStopId});
  session->on_done({.prompt_tokens = 4, .generated_tokens = 8});
  if (!stream) {
    const Json choice = json_of(responder->head.body)["choices"][0];
    return {choice["message"], choice["finish_reason"]};
  }
  Json message = {{"content", ""}, {"reasoning_content", ""}, {"tool_calls", Json::array()}};
  std::string finish;
  for (const Json& frame : frames_of(responder->written)) {
    const Json& choice = frame["choices"][0];
    for (const char* name : {"content", "reasoning_content"}) {
      const auto it = choice["delta"].find(name);
      if (it != choice["delta"].end() && it->is_string()) {
        message[name] = message[name].get<std::string>() + it->get<std::string>();
      }
    }
    for (const Json& call : choice["delta"].value("tool_calls", Json::array())) {
      message["tool_calls"].push_back(call);
    }
    if (choice["finish_reason"].is_string()) finish = choice["finish_reason"];
  }
  return {message, finish};
}

TEST(Harmony, ACallComesBehindWhatWasThoughtAndSaid) {
  const std::vector<std::string> answer = {"<|channel|>",
                                           "analysis",
                                           "<|message|>",
                                           "Hm.",
                                           "<|end|>",
                                           "<|start|>",
                                           "assistant",
                                           "<|chan",
                                           "nel|>",
                                           "commentary",
                                           "<|message|>",
                                           "I look.",
                                           "<|end|>",
                                           "<|start|>",
                                           "assistant",
                                           "<|channel|>",
                                           "commentary to=functions.add ",
                                           "<|constrain|>",
                                           "json",
                                           "<|message|>",
                                           "{\"a\"",
                                           ": 1}"};
  for (const char* more : {"", R"(,"stream":true)"}) {
    const auto [message, finish] = answer_of(kAdder + std::string(kAsked) + more, answer);
    EXPECT_EQ(message["reasoning_content"], "Hm.");
    EXPECT_EQ(message["content"], "I look.");
    ASSERT_EQ(message["tool_calls"].size(), 1u) << message;
    EXPECT_EQ(message["tool_calls"][0]["function"]["name"], "add");
    EXPECT_EQ(message["tool_calls"][0]["function"]["arguments"], R"({"a":1})");
    EXPECT_EQ(finish, "tool_calls");
  }
}

TEST(Harmony, AForcedCallIsRead) {
  const std::vector<std::string> answer = {"<|channel|>",   "commentary to=functions.add ",
                                           "<|constrain|>", "json",
                                           "<|message|>",   "{\"a\":1}"};
  const auto [message, finish] =
      answer_of(kAdder + std::string(kAsked) + R"(,"tool_choice":"required")", answer);
  ASSERT_EQ(message["tool_calls"].size(), 1u) << message;
  EXPECT_TRUE(message["content"].is_null());
  EXPECT_EQ(finish, "tool_calls");
}

}  // namespace
}  // namespace jige::api
