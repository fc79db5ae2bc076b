// Chats with tools: what the template is shown, and what is refused with which field's name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/request_test_support.h"

namespace jige::api {
namespace {

using ::testing::ElementsAre;
using testing::expect_refused;
using testing::json_of;
using testing::kHi;
using testing::kSeed;
using testing::Refusal;
using testing::test_model;

// A model whose template shows tools, earlier calls and what came of them.
ServedModel tool_model() {
  ServedModel model = test_model();
  model.tool_format = ToolFormat::kHermes;
  model.chat_template = testing::value_of(text::ChatTemplate::parse(
      "{% for t in tools or [] %}<{{ t.function.name }}:{{ t.function.parameters.type }}>"
      "{% endfor %}{% for m in messages %}[{{ m.role }}]{{ m.content or '' }}"
      "{% for c in m.tool_calls or [] %}({{ c.id }} {{ c.function.name }} "
      "{{ c.function.arguments.x }}){% endfor %}{{ m.tool_call_id }}{% endfor %}",
      "tools"));
  return model;
}

ApiResult<PreparedRequest> tool_chat(const std::string& members) {
  return prepare_chat(json_of("{" + members + "}"), tool_model(), {}, kSeed);
}

constexpr const char* kTools = R"("tools":[{"type":"function","function":
    {"name":"f","description":"d","parameters":{"type":"object"},"strict":true}}])";

std::string shown_prompt(const ApiResult<PreparedRequest>& read) {
  if (!read) return read.error().message;
  return *testing::character_tokenizer().decode(read->engine[0].prompt, {});
}

TEST(ToolRequest, ShowsTheTemplateToolsCallsAndTheirResults) {
  const auto read = tool_chat(std::string(kTools) + R"(,"messages":[
      {"role":"user","content":"q"},
      {"role":"assistant","content":null,"tool_calls":[
        {"id":"c1","type":"function","function":{"name":"f","arguments":"{\"x\": 5}"}},
        {"id":"c2","type":"function","function":{"name":"g","arguments":{"x":6}}}]},
      {"role":"tool","tool_call_id":"c1","content":"r"}],"parallel_tool_calls":false)");
  EXPECT_EQ(shown_prompt(read), "<f:object>[user]q[assistant](c1 f 5)(c2 g 6)[tool]rc1");
  EXPECT_EQ(read->tools.format, ToolFormat::kHermes);
  EXPECT_THAT(read->tools.names, ElementsAre("f"));
  EXPECT_FALSE(read->tools.parallel);
}

TEST(ToolRequest, WithoutToolsOrWithTheChoiceNoneAnswersAreText) {
  auto read = tool_chat(kHi);
  EXPECT_EQ(shown_prompt(read), "[user]hi");
  EXPECT_EQ(read->tools.format, ToolFormat::kNone);
  read = tool_chat(std::string(kTools) + R"(,"tool_choice":"none",)" + kHi);
  EXPECT_EQ(shown_prompt(read), "[user]hi");
  EXPECT_EQ(read->tools.format, ToolFormat::kNone);
  read = tool_chat(std::string(kTools) + R"(,"tool_choice":"auto",)" + kHi);
  EXPECT_EQ(shown_prompt(read), "<f:object>[user]hi");
}

TEST(ToolRequest, AForcedCallConstrainsTheAnswer) {
  const auto chosen = [](const std::string& choice) {
    auto read = tool_chat(std::string(kTools) + "," + kHi + R"(,"tool_choice":)" + choice);
    EXPECT_TRUE(read) << read.error().message;
    return read;
  };
  const auto required = chosen(R"("required")");
  EXPECT_TRUE(required->engine[0].constraint);
  EXPECT_FALSE(required->tools.named);
  EXPECT_EQ(shown_prompt(required), "<f:object>[user]hi");
  const auto named = chosen(R"({"type":"function","function":{"name":"f"}})");
  EXPECT_TRUE(named->engine[0].constraint);
  EXPECT_NE(named->engine[0].constraint, required->engine[0].constraint) << "one call, or several";
  EXPECT_TRUE(named->tools.named);
  EXPECT_FALSE(chosen(R"("auto")")->engine[0].constraint);
}

TEST(ToolRequest, CallsMayComeBesideTheFormatOfTheAnswer) {
  const auto with_format = [](const std::string& more) {
    return tool_chat(std::string(kTools) + "," + kHi + R"(,"response_format":)" + more);
  };
  const std::string schema = R"({"type":"json_schema","json_schema":{"schema":{"type":"object"}}})";
  const auto alone = tool_chat(std::string(kHi) + R"(,"response_format":)" + schema);
  ASSERT_TRUE(alone) << alone.error().message;
  for (const std::string& format : {schema, std::string(R"({"type":"json_object"})")}) {
    const auto both = with_format(format);
    ASSERT_TRUE(both) << both.error().message;
    EXPECT_TRUE(both->engine[0].constraint);
    EXPECT_NE(both->engine[0].constraint, alone->engine[0].constraint) << "calls are let through";
    EXPECT_EQ(both->tools.format, ToolFormat::kHermes);
    EXPECT_EQ(shown_prompt(both), "<f:object>[user]hi");
  }
  EXPECT_TRUE(with_format(schema + R"(,"tool_choice":"required")"));
  EXPECT_FALSE(with_format(R"({"type":"text"})")->engine[0].constraint);
  expect_refused(
      {{std::string(kTools) + "," + kHi + R"(,"guided_regex":"a")", "tools", "do not go together"}},
      tool_chat);
}

TEST(ToolRequest, ToolsThatAreNotAllowedAreNotThere) {
  const auto chosen = [](const std::string& mode) {
    auto read = tool_chat(
        R"("tools":[{"type":"function","function":{"name":"e"}},
            {"type":"function","function":{"name":"f","parameters":{"type":"object"}}}],)" +
        std::string(kHi) + R"(,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":")" +
        mode + R"(","tools":[{"type":"function","function":{"name":"f"}}]}})");
    EXPECT_TRUE(read) << read.error().message;
    return read;
  };
  const auto free = chosen("auto");
  EXPECT_EQ(shown_prompt(free), "<f:object>[user]hi");
  EXPECT_EQ(free->tools.names, std::vector<std::string>{"f"});
  EXPECT_FALSE(free->engine[0].constraint);
  const auto required = chosen("required");
  EXPECT_EQ(shown_prompt(required), "<f:object>[user]hi");
  EXPECT_TRUE(required->engine[0].constraint);
  EXPECT_FALSE(required->tools.named);
}

TEST(ToolRequest, RefusesWhatIsWrongAndNamesTheField) {
  const auto tools = [](const std::string& list) {
    return R"("tools":)" + list + "," + std::string(kHi);
  };
  const auto call = [](const std::string& text) {
    return R"("messages":[{"role":"assistant","tool_calls":[)" + text + "]}]";
  };
  const auto force = [&](const std::string& schema) {
    return tools(R"([{"function":{"name":"f","parameters":)" + schema + "}}]") +
           R"(,"tool_choice":"required")";
  };
  const auto allowed = [](const std::string& members) {
    return R"("tool_choice":{"type":"allowed_tools","allowed_tools":{)" + members + "}}";
  };
  const std::string both = std::string(kTools) + "," + kHi + ",";
  const std::vector<Refusal> refusals = {
      {tools("5"), "tools", "list of at most 128, found 5"},
      {tools("[5]"), "tools[0]", "must be an object"},
      {tools(R"([{"type":"web"}])"), "tools[0].type", "must be \"function\""},
      {tools(R"([{"type":"function"}])"), "tools[0].function", "found nothing"},
      {tools(R"([{"function":{"name":"a b"}}])"), "tools[0].function.name", "\"a b\""},
      {tools(R"([{"function":{}}])"), "tools[0].function.name", "found nothing"},
      {tools(R"([{"function":{"name":"f","description":5}}])"), "tools[0].function.description",
       "must be a text"},
      {tools(R"([{"function":{"name":"f","parameters":[]}}])"), "tools[0].function.parameters",
       "a JSON schema"},
      {both + R"("tool_choice":"maybe")", "tool_choice", "\"maybe\""},
      {both + R"("tool_choice":{"type":"tools"})", "tool_choice.type", "\"tools\""},
      {both + R"("tool_choice":{"type":"allowed_tools"})", "tool_choice.allowed_tools", "nothing"},
      {both + allowed(R"("mode":"none")"), "tool_choice.allowed_tools.mode", "\"none\""},
      {both + allowed(R"("mode":"auto","tools":[])"), "tool_choice.allowed_tools.tools",
       "a list of 1"},
      {both + allowed(R"("mode":"auto","tools":[{"function":{"name":"g"}}])"),
       "tool_choice.allowed_tools.tools[0]", "none of the tools"},
      {both + allowed(R"("mode":"auto","tools":[{"type":"mcp"}])"),
       "tool_choice.allowed_tools.tools[0].type", "\"mcp\""},
      {both + R"("tool_choice":{"type":"function"})", "tool_choice.function", "found nothing"},
      {both + R"("tool_choice":{"function":{}})", "tool_choice.function.name", "found nothing"},
      {both + R"("tool_choice":{"function":{"name":"g"}})", "tool_choice",
       "\"g\", which is none of the tools"},
      {std::string(kHi) + R"(,"tool_choice":"required")", "tool_choice", "where tools are given"},
      {both + R"("tool_choice":"required","guided_regex":"a")", "tools", "do not go together"},
      {force(R"({"properties":{"a":{"not":{}}}})"), "tools",
       "tools[0].function.parameters of \"f\": #/properties/a/not is not supported"},
      {force(R"({"type":"array"})"), "tools[0].function.parameters",
       "of \"f\": #/type must be \"object\""},
      {force(R"({"$ref":"#/$defs/a","$defs":{"a":{"type":"array"}}})"),
       "tools[0].function.parameters", "of \"f\": #/$defs/a/type must be \"object\""},
      {force(R"({"$ref":"#/$defs/b"})"), "tools[0].function.parameters",
       "there is no \"#/$defs/b\""},
      {both + R"("parallel_tool_calls":5)", "parallel_tool_calls", "true or false"},
      {call("5"), "messages[0].tool_calls[0]", "must be an object"},
      {call(R"({"function":{"name":"f","arguments":"5"}})"),
       "messages[0].tool_calls[0].function.arguments", "text of a JSON object"},
      {call(R"({"id":5,"function":{"name":"f"}})"), "messages[0].tool_calls[0].id", "a text"},
      {R"("messages":[{"role":"assistant","tool_calls":5}])", "messages[0].tool_calls", "found 5"},
      {R"("messages":[{"role":"assistant","tool_calls":[]}])", "messages[0].content", "nothing"},
      {R"("messages":[{"role":"tool"}])", "messages[0].content", "found nothing"},
  };
  expect_refused(refusals, tool_chat);
}

}  // namespace
}  // namespace jige::api
