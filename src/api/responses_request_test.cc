// POST /v1/responses: what its fields ask for, as the prompt and the engine's request show it, and
// what is refused with which field's name.
#include "api/responses_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/protocol_test_support.h"
#include "api/request_test_support.h"

namespace jige::api {
namespace {

using testing::expect_refused;
using testing::json_of;
using testing::kSeed;
using testing::prompt_of;
using testing::Refusal;

ApiResult<PreparedRequest> response_request(const std::string& members) {
  return prepare_responses(json_of("{" + members + "}"), testing::agent_model(), {}, kSeed);
}

ApiResult<PreparedRequest> response_items(const std::string& items) {
  return response_request(R"("input":[)" + items + "]");
}

constexpr const char* kInput = R"("input":"hi")";
constexpr const char* kFlatTools =
    R"("tools":[{"type":"function","name":"f","parameters":{"type":"object"},"strict":true}])";

TEST(ResponsesRequest, ATextIsWhatTheUserSaysBehindTheInstructions) {
  EXPECT_EQ(prompt_of(response_request(kInput)), "[user]hi");
  EXPECT_EQ(prompt_of(response_request(std::string(kInput) + R"(,"instructions":"Be brief.")")),
            "[system]Be brief.[user]hi");
}

TEST(ResponsesRequest, FieldsBecomeThoseOfAChat) {
  const auto got =
      response_request(std::string(kInput) + R"(,"max_output_tokens":7,"temperature":0.5,
      "top_p":0.25,"stream":true,"stream_options":{"include_obfuscation":false},"seed":9,
      "reasoning":{"effort":"low","summary":"auto"},"include":["reasoning.encrypted_content"],
      "store":true,"text":{"format":{"type":"text"},"verbosity":"low"},"metadata":{"a":"b"})");
  EXPECT_EQ(prompt_of(got), "[user]hi+low");
  const serve::EngineRequest& engine = got->engine[0];
  EXPECT_EQ(engine.tokens_max, 7);
  EXPECT_EQ(engine.sampling.temperature, 0.5f);
  EXPECT_EQ(engine.sampling.top_p, 0.25f);
  EXPECT_EQ(engine.seed, 9u);
  EXPECT_TRUE(got->stream);
  EXPECT_EQ(got->echo["store"], false) << "nothing is kept, whatever is asked";
  EXPECT_EQ(got->echo["metadata"], json_of(R"({"a":"b"})"));
  EXPECT_EQ(got->echo["max_output_tokens"], 7);
}

TEST(ResponsesRequest, LogProbsAreAskedForByWhatIsIncluded) {
  const auto asked = [](const std::string& more) {
    auto got = response_request(std::string(kInput) + more);
    EXPECT_TRUE(got) << got.error().message;
    return std::pair(got->logprobs, got->engine[0].top_count);
  };
  EXPECT_EQ(asked(""), std::pair(false, 0));
  EXPECT_EQ(asked(R"(,"top_logprobs":0)"), std::pair(false, 0));
  EXPECT_EQ(asked(R"(,"include":["message.output_text.logprobs"])"), std::pair(true, 0));
  EXPECT_EQ(asked(R"(,"include":["reasoning.encrypted_content","message.output_text.logprobs"],
                     "top_logprobs":20)"),
            std::pair(true, 20));
}

TEST(ResponsesRequest, WhatOneAnswerSaidIsOneMessageAgain) {
  EXPECT_EQ(prompt_of(response_items(R"({"role":"user","content":[{"type":"input_text","text":"q"},
      {"type":"input_text","text":"r"}]},
      {"type":"reasoning","id":"rs_1","summary":[],
        "content":[{"type":"reasoning_text","text":"t"}]},
      {"type":"message","role":"assistant","id":"msg_1","content":[{"type":"output_text",
        "text":"a","annotations":[]}]},
      {"type":"function_call","call_id":"c1","name":"f","arguments":"{\"x\": 5}"},
      {"type":"function_call","call_id":"c2","name":"f","arguments":"{\"x\": 6}"},
      {"type":"message","role":"assistant","content":"b"},
      {"type":"function_call_output","call_id":"c1","output":"o"},
      {"type":"function_call_output","call_id":"c2","output":[{"type":"input_text","text":"p"}]},
      {"type":"reasoning","summary":[{"type":"summary_text","text":"u"}]},
      {"type":"function_call","call_id":"c3","name":"f","arguments":"{}"},
      {"type":"function_call_output","call_id":"c3","output":"s"},
      {"role":"developer","content":"d"})")),
            "[user]qr[assistant]/t/ab(c1 f 5)(c2 f 6)[tool]oc1[tool]pc2[assistant]/u/(c3 f )"
            "[tool]sc3[system]d");
  // Answers that came one behind the other stay apart.
  EXPECT_EQ(prompt_of(response_items(R"({"role":"assistant","content":"a"},
      {"role":"assistant","content":"b"},{"type":"reasoning","content":[
        {"type":"reasoning_text","text":"t"}],"summary":[]},{"role":"assistant","content":"c"})")),
            "[assistant]a[assistant]b[assistant]/t/c");
  // Reasoning that only its maker can read says nothing.
  EXPECT_EQ(prompt_of(response_items(R"({"type":"reasoning","encrypted_content":"?","summary":[]},
      {"role":"user","content":"q"})")),
            "[user]q");
}

TEST(ResponsesRequest, ToolsAreFlat) {
  auto got = response_request(std::string(kFlatTools) + "," + kInput);
  EXPECT_EQ(prompt_of(got), "<f:object>[user]hi");
  EXPECT_FALSE(got->engine[0].constraint);
  EXPECT_TRUE(got->tools.parallel);
  got = response_request(std::string(kFlatTools) + R"(,"tool_choice":"none",)" + kInput);
  EXPECT_EQ(prompt_of(got), "[user]hi");
  for (const char* choice : {R"("required")", R"({"type":"function","name":"f"})"}) {
    got =
        response_request(std::string(kFlatTools) +
                         R"(,"parallel_tool_calls":false,"tool_choice":)" + choice + "," + kInput);
    ASSERT_TRUE(got) << got.error().message;
    EXPECT_TRUE(got->engine[0].constraint) << choice;
    EXPECT_FALSE(got->tools.parallel);
  }
}

TEST(ResponsesRequest, AFormatConstrainsTheAnswer) {
  const auto format = [](const std::string& text) {
    return response_request(std::string(kInput) + R"(,"text":{"format":)" + text + "}");
  };
  EXPECT_FALSE(format(R"({"type":"text"})")->engine[0].constraint);
  EXPECT_TRUE(format(R"({"type":"json_object"})")->engine[0].constraint);
  EXPECT_TRUE(format(R"({"type":"json_schema","name":"n","schema":{"type":"array"},"strict":true})")
                  ->engine[0]
                  .constraint);
}

TEST(ResponsesRequest, RefusesWhatIsWrongAndNamesTheField) {
  const auto with = [](const std::string& more) { return std::string(kInput) + "," + more; };
  const auto items = [](const std::string& list) { return R"("input":[)" + list + "]"; };
  const auto tools = [&](const std::string& list) { return with(R"("tools":[)" + list + "]"); };
  const std::vector<Refusal> refusals = {
      {"", "input", "found nothing"},
      {R"("input":[])", "input", "found a list of 0"},
      {R"("input":5)", "input", "found 5"},
      {with(R"("previous_response_id":"r")"), "previous_response_id", "not supported"},
      {with(R"("conversation":"c")"), "conversation", "not supported"},
      {with(R"("background":true)"), "background", "not supported"},
      {with(R"("truncation":"auto")"), "truncation", "not supported"},
      {with(R"("prompt":{"id":"p"})"), "prompt", "not supported"},
      {with(R"("top_logprobs":2)"), "top_logprobs", "message.output_text.logprobs"},
      {with(R"("include":["message.output_text.logprobs"],"top_logprobs":21)"), "top_logprobs",
       "from 0 to 20"},
      {with(R"("include":5)"), "include", "must be a list"},
      {with(R"("include":["file_search_call.results"])"), "include[0]", "file_search"},
      {with(R"("store":5)"), "store", "true or false"},
      {with(R"("instructions":5)"), "instructions", "must be a text"},
      {with(R"("max_output_tokens":0)"), "max_output_tokens", "max_output_tokens must be"},
      {with(R"("temperature":3)"), "temperature", "from 0 to 2"},
      {with(R"("reasoning":5)"), "reasoning", "must be an object"},
      {with(R"("reasoning":{"effort":5})"), "reasoning.effort", "reasoning.effort must be a text"},
      {with(R"("text":{"format":{"type":"xml"}})"), "text.format", "text.format: its type"},
      {with(R"("text":{"format":{"type":"json_schema","name":"n"}})"), "text.format.schema",
       "text.format.schema must be"},
      {with(R"("text":{"format":{"type":"json_schema","schema":{"not":{}}}})"),
       "text.format.schema", "text.format.schema: #/not is not supported"},
      {with(R"("tools":5)"), "tools", "found 5"},
      {tools("5"), "tools[0]", "must be an object"},
      {tools(R"({"type":"web_search"})"), "tools[0].type", "\"web_search\" are not supported"},
      {tools(R"({"type":"function","name":"f"},{"type":"custom","name":"g"})"), "tools[1].type",
       "\"custom\""},
      {tools(R"({"type":"function","name":"a b"})"), "tools[0].name", "tools[0].name must be"},
      {tools(R"({"type":"function","name":"f","parameters":5})"), "tools[0].parameters",
       "tools[0].parameters must be"},
      {tools(R"({"type":"function","name":"f","parameters":{"properties":{"a":{"not":{}}}}})") +
           R"(,"tool_choice":"required")",
       "tools", "tools: tools[0].parameters of \"f\": #/properties/a/not"},
      {with(std::string(kFlatTools) + R"(,"tool_choice":{"type":"web_search"})"),
       "tool_choice.type", "\"web_search\""},
      {with(std::string(kFlatTools) + R"(,"tool_choice":{"type":"function"})"), "tool_choice.name",
       "tool_choice.name must be"},
      {with(R"("tool_choice":"required")"), "tool_choice", "where tools are given"},
      {items("5"), "input[0]", "must be an object"},
      {items("{}"), "input[0].role", "found nothing"},
      {items(R"({"role":"tool","content":"a"})"), "input[0].role", "\"tool\""},
      {items(R"({"role":"user"})"), "input[0].content", "found nothing"},
      {items(R"({"role":"user","content":[{"type":"input_image","image_url":"u"}]})"),
       "input[0].content[0].type", "input[0].content[0].type: the model \"tiny\" reads text alone"},
      {items(R"({"role":"user","content":"a"},{"type":"item_reference","id":"i"})"),
       "input[1].type", "\"item_reference\""},
      {items(R"({"type":"web_search_call","id":"i"})"), "input[0].type", "\"web_search_call\""},
      {items(R"({"role":"user","content":"a"},{"type":"function_call","name":"a b"})"),
       "input[1].name", "input[1].name must be"},
      {items(R"({"type":"function_call","name":"f","arguments":"["})"), "input[0].arguments",
       "input[0].arguments must be"},
      {items(R"({"type":"function_call","name":"f","call_id":5})"), "input[0].call_id", "a text"},
      {items(R"({"type":"function_call_output","output":"o"})"), "input[0].call_id", "nothing"},
      {items(R"({"type":"function_call_output","call_id":"c"})"), "input[0].output", "nothing"},
      {items(R"({"type":"reasoning","content":5})"), "input[0].content", "found 5"},
  };
  expect_refused(refusals, response_request);
  const auto other = response_request(with(R"("model":"other")"));
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().status, 404);
}

TEST(ResponsesRequest, ErrorsOfItemsNameThemWhereTheTemplateHasNoTools) {
  ServedModel model = testing::agent_model();
  model.tool_format = ToolFormat::kNone;
  const auto refused = [&](const std::string& items) {
    const auto result =
        prepare_responses(json_of(R"({"input":[)" + items + "]}"), model, {}, kSeed);
    return result ? "" : result.error().param;
  };
  EXPECT_EQ(refused(R"({"role":"user","content":"a"},{"type":"function_call","name":"f"})"),
            "input[1]");
  EXPECT_EQ(refused(R"({"type":"function_call_output","call_id":"c","output":"o"})"),
            "input[0].type");
  model.chat_template.reset();
  EXPECT_EQ(refused(R"({"role":"user","content":"a"})"), "input");
}

}  // namespace
}  // namespace jige::api
