// POST /v1/messages: what its fields ask for, as the prompt and the engine's request show it, and
// what is refused with which field's name.
#include "api/messages_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/messages_input.h"
#include "api/protocol_test_support.h"
#include "api/request_test_support.h"

namespace jige::api {
namespace {

using ::testing::ElementsAre;
using testing::expect_refused;
using testing::json_of;
using testing::kHi;
using testing::kSeed;
using testing::prompt_of;
using testing::Refusal;

ApiResult<PreparedRequest> message_request(const std::string& members) {
  return prepare_messages(json_of(R"({"max_tokens":5,)" + members + "}"), testing::agent_model(),
                          {}, kSeed);
}

ApiResult<PreparedRequest> message_turns(const std::string& messages) {
  return message_request(R"("messages":[)" + messages + "]");
}

constexpr const char* kCustomTools =
    R"("tools":[{"name":"f","description":"d","input_schema":{"type":"object"}}])";

TEST(MessagesRequest, FieldsBecomeThoseOfAChat) {
  const auto got = message_request(std::string(kHi) + R"(,"temperature":0.5,"top_p":0.25,"top_k":7,
      "stop_sequences":["x","y"],"stream":true,"metadata":{"user_id":"u"},
      "system":[{"type":"text","text":"s","cache_control":{"type":"ephemeral"}},
                {"type":"text","text":"t"}],
      "output_config":{"effort":"low"})");
  EXPECT_EQ(prompt_of(got), "[system]st[user]hi+low");
  const serve::EngineRequest& engine = got->engine[0];
  EXPECT_EQ(engine.tokens_max, 5);
  EXPECT_EQ(engine.sampling.temperature, 0.5f);
  EXPECT_EQ(engine.sampling.top_p, 0.25f);
  EXPECT_EQ(engine.sampling.top_k, 7);
  EXPECT_THAT(engine.stop_strings, ElementsAre("x", "y"));
  EXPECT_NE(engine.tenant, 0u);
  EXPECT_TRUE(got->stream);
}

TEST(MessagesRequest, BlocksBecomeMessagesOfTheAssistantTheToolsAndTheUser) {
  EXPECT_EQ(prompt_of(message_turns(R"({"role":"user","content":"q"},
      {"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":""},
        {"type":"text","text":"a"},{"type":"tool_use","id":"c1","name":"f","input":{"x":5}},
        {"type":"tool_use","id":"c2","name":"f","input":{}},{"type":"text","text":"b"}]},
      {"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"o"},
        {"type":"tool_result","tool_use_id":"c2","is_error":true,
         "content":[{"type":"text","text":"p"}]},
        {"type":"text","text":"r"},{"type":"text","text":"s"}]},
      {"role":"assistant","content":"c"},
      {"role":"user","content":[{"type":"tool_result","tool_use_id":"c3"}]})")),
            "[user]q[assistant]/t/ab(c1 f 5)(c2 f )[tool]oc1[tool]pc2[user]rs[assistant]c[tool]c3");
}

TEST(MessagesRequest, TurnsOfOneRoleThatFollowOneAnotherAreOne) {
  ChatForm form;
  const Json body = json_of(R"({"messages":[{"role":"user","content":"a"},
      {"role":"user","content":"b"},{"role":"assistant","content":"c"},
      {"role":"assistant","content":[{"type":"tool_use","id":"c1","name":"f","input":{}},
        {"type":"text","text":"d"},{"type":"text","text":"e"}]},
      {"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"o"}]},
      {"role":"user","content":[{"type":"text","text":"g"},{"type":"text","text":"h"}]},
      {"role":"user","content":"i"}]})");
  ASSERT_FALSE(add_conversation(form, body, 10));
  const Json& messages = form.body()["messages"];
  ASSERT_EQ(messages.size(), 4u);
  EXPECT_EQ(messages[0]["content"], "a\nb");
  EXPECT_EQ(messages[1]["content"], "c\nde");
  EXPECT_EQ(messages[1]["tool_calls"].size(), 1u);
  EXPECT_EQ(messages[2]["content"], "o");
  EXPECT_EQ(messages[3]["content"], "gh\ni");
}

TEST(MessagesRequest, ALastMessageOfTheAssistantBeginsTheAnswer) {
  EXPECT_EQ(prompt_of(message_turns(
                R"({"role":"user","content":"a"},{"role":"assistant","content":"b"})")),
            "[user]a[assistant]b");
}

TEST(MessagesRequest, ToolsAndTheirChoice) {
  const auto chosen = [](const std::string& choice) {
    auto got =
        message_request(std::string(kCustomTools) + R"(,"tool_choice":)" + choice + "," + kHi);
    EXPECT_TRUE(got) << got.error().message;
    return got;
  };
  EXPECT_EQ(prompt_of(message_request(std::string(kCustomTools) + "," + kHi)),
            "<f:object>[user]hi");
  EXPECT_FALSE(chosen(R"({"type":"auto"})")->engine[0].constraint);
  EXPECT_EQ(prompt_of(chosen(R"({"type":"none"})")), "[user]hi");
  EXPECT_TRUE(chosen(R"({"type":"any"})")->engine[0].constraint);
  EXPECT_TRUE(chosen(R"({"type":"any"})")->tools.parallel);
  EXPECT_FALSE(chosen(R"({"type":"any","disable_parallel_tool_use":true})")->tools.parallel);
  const auto named = chosen(R"({"type":"tool","name":"f"})");
  EXPECT_TRUE(named->engine[0].constraint);
  EXPECT_TRUE(named->tools.named);
}

TEST(MessagesRequest, ThinkingIsShownWhereItIsAskedFor) {
  const auto thinking = [](const std::string& text) {
    return message_request(std::string(kHi) + (text.empty() ? "" : R"(,"thinking":)" + text));
  };
  for (const char* none : {"", R"({"type":"disabled"})"}) {
    EXPECT_EQ(prompt_of(thinking(none)), "[user]hi");
    EXPECT_FALSE(thinking(none)->include_reasoning);
  }
  for (const char* some :
       {R"({"type":"enabled","budget_tokens":1024})", R"({"type":"adaptive"})"}) {
    EXPECT_EQ(prompt_of(thinking(some)), "[user]hi?");
    EXPECT_TRUE(thinking(some)->include_reasoning);
  }
  const auto omitted = thinking(R"({"type":"adaptive","display":"omitted"})");
  EXPECT_EQ(prompt_of(omitted), "[user]hi?");
  EXPECT_FALSE(omitted->include_reasoning);
  EXPECT_EQ(prompt_of(message_request(std::string(kHi) +
                                      R"(,"chat_template_kwargs":{"enable_thinking":1})")),
            "[user]hi?")
      << "what is said of the template counts";
}

TEST(MessagesRequest, AFormatConstrainsTheAnswer) {
  const auto got = message_request(
      std::string(kHi) + R"(,"output_config":{"format":{"type":"json_schema","schema":{}}})");
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_TRUE(got->engine[0].constraint);
}

TEST(MessagesRequest, CountsTheTokensOfThePromptItWouldMake) {
  const std::string body = std::string(kCustomTools) + "," + kHi + R"(,"system":"s")";
  const auto counted = count_message_tokens(json_of("{" + body + "}"), testing::agent_model(), {});
  ASSERT_TRUE(counted) << counted.error().message;
  EXPECT_EQ((*counted)["input_tokens"], message_request(body)->engine[0].prompt.size());
  const auto refused = count_message_tokens(json_of("{}"), testing::agent_model(), {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().param, "messages");
}

TEST(MessagesRequest, EditsThatLeaveTheContextAsItIsPass) {
  for (const char* edits : {"{}", R"({"edits":[]})",
                            R"({"edits":[{"type":"clear_thinking_20251015","keep":"all"}]})"}) {
    const auto got = message_request(std::string(kHi) + R"(,"context_management":)" + edits);
    ASSERT_TRUE(got) << got.error().message;
    EXPECT_EQ(prompt_of(got), "[user]hi");
  }
}

TEST(MessagesRequest, RefusesWhatIsWrongAndNamesTheField) {
  const auto with = [](const std::string& more) { return std::string(kHi) + "," + more; };
  const auto messages = [](const std::string& list) { return R"("messages":[)" + list + "]"; };
  const auto user = [&](const std::string& block) {
    return messages(R"({"role":"user","content":[{"type":"text","text":"a"},)" + block + "]}");
  };
  const auto answer = [&](const std::string& block) {
    return messages(R"({"role":"assistant","content":[)" + block +
                    R"(]},{"role":"user","content":"a"})");
  };
  const auto tools = [&](const std::string& list) { return with(R"("tools":[)" + list + "]"); };
  const std::vector<Refusal> refusals = {
      {R"("system":"s")", "messages", "found nothing"},
      {R"("messages":[])", "messages", "found a list of 0"},
      {with(R"("max_tokens":0)"), "max_tokens", "a whole number from 1"},
      {with(R"("system":5)"), "system", "found 5"},
      {with(R"("system":[{"type":"image"}])"), "system[0].type", "\"image\" are not supported"},
      {with(R"("container":"c")"), "container", "not supported"},
      {with(R"("mcp_servers":[{}])"), "mcp_servers", "not supported"},
      {with(R"("context_management":5)"), "context_management", "not supported"},
      {with(R"("context_management":{"edits":[{"type":"clear_tool_uses_20250919"}]})"),
       "context_management", "not supported"},
      {with(R"("stop_sequences":5)"), "stop_sequences", "stop_sequences must be"},
      {with(R"("temperature":"a")"), "temperature", "a number"},
      {with(R"("thinking":5)"), "thinking", "must be an object"},
      {with(R"("thinking":{"type":"deep"})"), "thinking.type", "\"deep\""},
      {with(R"("output_config":{"effort":5})"), "output_config.effort", "a text"},
      {with(R"("output_config":{"format":{"type":"xml"}})"), "output_config.format", "\"xml\""},
      {with(R"("metadata":{"user_id":5})"), "metadata.user_id", "metadata.user_id must be"},
      {tools("5"), "tools[0]", "must be an object"},
      {tools(R"({"type":"web_search_20250305","name":"web_search"})"), "tools[0].type",
       "\"web_search_20250305\" are not supported"},
      {tools(R"({"input_schema":{}})"), "tools[0].name", "tools[0].name must be"},
      {tools(R"({"name":"f","input_schema":5})"), "tools[0].input_schema",
       "tools[0].input_schema must be"},
      {tools(R"({"name":"f","input_schema":{"properties":{"a":{"not":{}}}}})") +
           R"(,"tool_choice":{"type":"any"})",
       "tools", "tools: tools[0].input_schema of \"f\": #/properties/a/not"},
      {with(std::string(kCustomTools) + R"(,"tool_choice":"auto")"), "tool_choice", "an object"},
      {with(std::string(kCustomTools) + R"(,"tool_choice":{"type":"some"})"), "tool_choice.type",
       "some"},
      {with(std::string(kCustomTools) + R"(,"tool_choice":{"type":"tool"})"), "tool_choice.name",
       "tool_choice.name must be"},
      {with(std::string(kCustomTools) +
            R"(,"tool_choice":{"type":"any","disable_parallel_tool_use":5})"),
       "tool_choice.disable_parallel_tool_use", "true or false"},
      {messages("5"), "messages[0]", "must be an object"},
      {messages(R"({"role":"tool","content":"a"})"), "messages[0].role", "\"tool\""},
      {messages(R"({"role":"user"})"), "messages[0].content", "found nothing"},
      {messages(R"({"role":"user","content":[]})"), "messages[0].content", "found none"},
      {user("5"), "messages[0].content[1]", "messages[0].content[1] must be an object"},
      {user(R"({"type":"image","source":{"type":"url","url":"u"}})"), "messages[0].content[1].type",
       "messages[0].content[1].type: the model \"tiny\" reads text alone"},
      {user(R"({"type":"tool_result"})"), "messages[0].content[1].tool_use_id", "found nothing"},
      {user(R"({"type":"tool_result","tool_use_id":"c","content":[{"type":"document"}]})"),
       "messages[0].content[1].content[0].type", "\"document\""},
      {answer(R"({"type":"redacted_thinking","data":"d"})"), "messages[0].content[0].type",
       "\"redacted_thinking\""},
      {answer(R"({"type":"thinking"})"), "messages[0].content[0].thinking", "found nothing"},
      {answer(R"({"type":"text","text":"a"},{"type":"tool_use","id":"c","name":"a b"})"),
       "messages[0].content[1].name", "messages[0].content[1].name must be"},
      {answer(R"({"type":"tool_use","id":"c","name":"f","input":5})"),
       "messages[0].content[0].input", "messages[0].content[0].input must be"},
  };
  expect_refused(refusals, message_request);
  const auto missing =
      prepare_messages(json_of("{" + std::string(kHi) + "}"), testing::agent_model(), {}, kSeed);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().param, "max_tokens");
}

}  // namespace
}  // namespace jige::api
