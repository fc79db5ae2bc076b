// Forced calls: whatever the constraint lets through, the parser reads as calls that fit.
#include "api/forced_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "api/arguments_schema.h"
#include "api/service_test_support.h"
#include "api/tool_call_parser.h"
#include "grammar/grammar_test_support.h"
#include "grammar/pieces.h"
#include "grammar/schema_test_support.h"

namespace jige::api {
namespace {

using grammar::testing::acceptor_of;
using grammar::testing::fits;
using testing::character_tokenizer;
using ::testing::HasSubstr;
using testing::json_of;
using testing::value_of;

std::vector<CallableTool> two_tools() {
  const Json add = json_of(R"({"type":"object","properties":{"a":{"type":"integer"},
      "b":{"enum":["x","}\"{"]}},"required":["a"]})");
  return {{.name = "add", .place = "tools[0]", .schema = add},
          {.name = "see.it", .place = "tools[1]", .schema = value_of(arguments_schema(nullptr))}};
}

ServedModel model_of(ToolFormat format, std::string_view marks = "") {
  ServedModel model = testing::test_model();
  model.tool_format = format;
  model.chat_template =
      value_of(text::ChatTemplate::parse(fmt::format("tools [TOOL_CALLS]x{}", marks), "test"));
  return model;
}

struct Form {
  ToolFormat format;
  std::string_view marks;  // that the template has besides the first
  std::string one;         // a call of "add"
  std::string two;         // none where there is one call alone
};

const Form kForms[] = {
    {ToolFormat::kHermes, "",
     "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\":1}}\n</tool_call>",
     "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\":1}}\n</tool_call>\n"
     "<tool_call>\n{\"name\": \"see.it\", \"arguments\": {}}\n</tool_call>"},
    {ToolFormat::kMistral, "", R"([TOOL_CALLS] [{"name": "add", "arguments": {"a":1}}])",
     R"([TOOL_CALLS][{"name": "add", "arguments": {"a":1}}, {"name": "see.it", "arguments": {}}])"},
    {ToolFormat::kMistral, "[ARGS]", R"([TOOL_CALLS]add[ARGS]{"a":1})",
     R"([TOOL_CALLS]add[ARGS]{"a":1}[TOOL_CALLS]see.it[ARGS]{})"},
    {ToolFormat::kMistral, "[CALL_ID][ARGS]", R"([TOOL_CALLS]add[CALL_ID]abcDEF123[ARGS]{"a":1})",
     R"([TOOL_CALLS]add[CALL_ID]a00000000[ARGS]{"a":1})"
     R"([TOOL_CALLS]see.it[CALL_ID]b00000000[ARGS]{})"},
    {ToolFormat::kLlama, "", R"({"name": "add", "parameters": {"a":1}})",
     R"({"name": "add", "parameters": {"a":1}}; {"name": "see.it", "parameters": {}})"},
    {ToolFormat::kHarmony, "",
     R"(<|channel|>commentary to=functions.add <|constrain|>json<|message|>{"a":1})", ""},
};

TEST(ForcedCalls, HaveTheFormOfTheFamily) {
  for (const Form& form : kForms) {
    SCOPED_TRACE(form.one);
    const ServedModel model = model_of(form.format, form.marks);
    const auto several = forced_calls(model, two_tools(), true);
    EXPECT_TRUE(fits(several, form.one));
    EXPECT_EQ(fits(several, form.two), !form.two.empty());
    EXPECT_FALSE(fits(several, ""));
    EXPECT_FALSE(fits(several, "x" + form.one));
    const auto single = forced_calls(model, two_tools(), false);
    EXPECT_TRUE(fits(single, form.one));
    EXPECT_FALSE(fits(single, form.two));
    const auto other = forced_calls(model, {two_tools()[1]}, true);
    EXPECT_FALSE(fits(other, form.one)) << "not among the tools";
  }
}

TEST(ForcedCalls, MayComeBesideJsonThatFitsASchema) {
  const Json schema = json_of(R"({"type":"object","properties":{"ok":{"type":"boolean"}},
      "required":["ok"],"additionalProperties":false})");
  for (const Form& form : kForms) {
    if (form.format == ToolFormat::kHarmony) continue;
    SCOPED_TRACE(form.one);
    const ServedModel model = model_of(form.format, form.marks);
    const auto several = calls_or_json(model, two_tools(), true, schema);
    for (const std::string& text : {form.one, form.two, std::string(R"({"ok":true})")}) {
      EXPECT_TRUE(fits(several, text)) << text;
    }
    for (const std::string& text : {std::string(R"({"ok":1})"), std::string("ok"), std::string(),
                                    form.one + R"({"ok":true})", R"({"ok":true})" + form.one}) {
      EXPECT_FALSE(fits(several, text)) << text;
    }
    EXPECT_FALSE(fits(calls_or_json(model, two_tools(), false, schema), form.two));
  }
}

TEST(ForcedCalls, AreReadBackWithArgumentsThatFit) {
  Rng rng(derive_key(3, "forced calls"));
  for (const Form& form : kForms) {
    const auto source = forced_calls(model_of(form.format, form.marks), two_tools(), true);
    auto acceptor = acceptor_of(source);
    size_t texts = 0, calls = 0;
    for (int round = 0; round < 40; ++round) {
      const std::string text = grammar::testing::random_text(acceptor, rng, rng.below(120));
      if (text.empty()) continue;
      SCOPED_TRACE(text);
      ++texts;
      ToolCallParser parser(form.format, {"add", "see.it"});
      const ParsedPiece read = parser.push(text);
      EXPECT_EQ(read.content + parser.finish().content, "");
      ASSERT_FALSE(read.calls.empty());
      for (const ToolCall& call : read.calls) {
        ASSERT_TRUE(call.name == "add" || call.name == "see.it");
        const Json schema = two_tools()[call.name == "add" ? 0 : 1].schema;
        EXPECT_TRUE(grammar::testing::validates(json_of(call.arguments), schema, schema));
      }
      calls += read.calls.size();
    }
    EXPECT_GT(texts, 20u);
    if (!form.two.empty()) {
      EXPECT_GT(calls, texts) << "more than one in some";
    }
  }
}

TEST(ForcedCalls, AMarkThatIsASpecialTokenIsThatToken) {
  ServedModel model = model_of(ToolFormat::kMistral);
  const std::string rest = R"([{"name": "add", "arguments": {"a":1}}])";
  EXPECT_TRUE(fits(forced_calls(model, two_tools(), false), "[TOOL_CALLS]" + rest));
  model.tokenizer = character_tokenizer("}", "[TOOL_CALLS]");
  const auto source = forced_calls(model, two_tools(), false);
  EXPECT_TRUE(fits(source, grammar::special_text("[TOOL_CALLS]") + rest));
  EXPECT_FALSE(fits(source, "[TOOL_CALLS]" + rest));
}

TEST(ForcedCalls, ArgumentsAreObjects) {
  EXPECT_EQ(*arguments_schema(nullptr), json_of(R"({"type":"object","properties":{}})"));
  const auto schema = [](const char* text) {
    const Json given = json_of(text);
    return arguments_schema(&given);
  };
  EXPECT_EQ(*schema(R"({"properties":{}})"), json_of(R"({"properties":{},"type":"object"})"));
  EXPECT_EQ(*schema(R"({"type":"object","nullable":true})"), json_of(R"({"type":"object"})"));
  EXPECT_EQ(*schema(R"({"type":["object","null"]})"), json_of(R"({"type":"object"})"));
  for (const char* text : {R"({"type":["array","null"]})", R"({"anyOf":[true]})", R"({"$ref":"#"})",
                           R"({"oneOf":[{"type":"string"}]})"}) {
    const auto refused = schema(text);
    ASSERT_FALSE(refused) << text;
    EXPECT_THAT(refused.error().message, HasSubstr("where a call is forced"));
  }
}

TEST(ForcedCalls, OpenSchemasUntilTheirBranchesAreObjects) {
  const auto fitting = [](const char* text, const char* arguments) {
    const Json given = json_of(text);
    const auto schema = arguments_schema(&given);
    EXPECT_TRUE(schema) << schema.error().message;
    const auto source = forced_calls(model_of(ToolFormat::kLlama),
                                     {{.name = "f", .place = "p", .schema = *schema}}, false);
    return fits(source, fmt::format(R"({{"name": "f", "parameters": {}}})", arguments));
  };
  constexpr const char* kTree = R"({"$ref":"#/$defs/t","$defs":{"t":{"type":"object",
      "properties":{"v":{"type":"integer"},"l":{"$ref":"#/$defs/t"}},"required":["v"]}}})";
  EXPECT_TRUE(fitting(kTree, R"({"v":1,"l":{"v":2,"l":{"v":3}}})"));
  EXPECT_FALSE(fitting(kTree, R"({"v":1,"l":{}})"));
  EXPECT_FALSE(fitting(kTree, "5"));
  constexpr const char* kEither = R"({"oneOf":[{"$ref":"#/$defs/a"},{"allOf":[{"properties":
      {"b":{"type":"boolean"}},"required":["b"]}]}],"$defs":{"a":{"properties":
      {"a":{"type":"integer"}},"required":["a"]}}})";
  EXPECT_TRUE(fitting(kEither, R"({"a":1})"));
  EXPECT_TRUE(fitting(kEither, R"({"b":true})"));
  EXPECT_FALSE(fitting(kEither, R"({"a":1,"b":true})"));
  EXPECT_FALSE(fitting(kEither, "null"));
  EXPECT_TRUE(fitting(R"({"anyOf":[{},{"type":"object","properties":{}}]})", R"({"x":[1]})"));
  EXPECT_FALSE(fitting(R"({"anyOf":[{},{"type":"object","properties":{}}]})", "[1]"));
}

TEST(ForcedCalls, SchemasThatGrowAsTheyAreOpenedAreRefused) {
  Json doubling = {{"$ref", "#/$defs/0"}, {"$defs", Json::object()}};
  for (int i = 0; i < 14; ++i) {
    const Json next = {{"$ref", "#/$defs/" + std::to_string(i + 1)}};
    doubling["$defs"][std::to_string(i)] = {{"anyOf", {next, next}}};
  }
  doubling["$defs"]["14"] = {{"type", "object"}};
  const auto refused = arguments_schema(&doubling);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("for too long"));
}

// From random weights, through the whole server.
TEST(ForcedCalls, AreWhatAnyModelAnswers) {
  for (const auto& [format, special] :
       {std::pair(ToolFormat::kLlama, "<s>"), std::pair(ToolFormat::kMistral, "[TOOL_CALLS]")}) {
    const auto tokenizer = character_tokenizer("}", special);
    testing::TestServer server({.with_model = false, .tokenizer = tokenizer});
    ServedModel model = model_of(format);
    model.tokenizer = tokenizer;
    model.constraints = std::make_shared<grammar::ConstraintCompiler>(tokenizer);
    server.set_model(std::move(model));
    Json body = json_of(R"({"messages":[{"role":"user","content":"a"}],"temperature":2,"tools":[
        {"type":"function","function":{"name":"f","parameters":{"type":"object","properties":
          {"a":{"type":"boolean"}},"required":["a"],"additionalProperties":false}}},
        {"type":"function","function":{"name":"g"}}],"parallel_tool_calls":false})");
    for (int seed = 0; seed < 12; ++seed) {
      const std::string named = seed % 3 == 0 ? "f" : seed % 3 == 1 ? "g" : "";
      body["seed"] = seed;
      body["tool_choice"] = "required";
      if (!named.empty()) {
        body["tool_choice"] = {{"type", "function"}, {"function", {{"name", named}}}};
      }
      const auto response = server.post("/v1/chat/completions", dump_json(body));
      ASSERT_EQ(response.status, 200) << response.body;
      const Json choice = json_of(response.body)["choices"][0];
      EXPECT_EQ(choice["finish_reason"], named.empty() ? "tool_calls" : "stop") << choice;
      EXPECT_TRUE(choice["message"]["content"].is_null()) << choice;
      ASSERT_EQ(choice["message"]["tool_calls"].size(), 1u) << choice;
      const Json& function = choice["message"]["tool_calls"][0]["function"];
      EXPECT_TRUE(named.empty() || function["name"] == named) << choice;
      const Json arguments = json_of(function["arguments"].get<std::string>());
      EXPECT_EQ(arguments.size(), function["name"] == "f" ? 1u : 0u);
      EXPECT_TRUE(arguments.empty() || arguments["a"].is_boolean()) << choice;
    }
  }
}

// What a prompt has begun to think comes first, whatever it is.
TEST(ForcedCalls, StandBehindReasoning) {
  const auto tokenizer = character_tokenizer("}", "</think>");
  testing::TestServer server({.with_model = false, .tokenizer = tokenizer});
  ServedModel model = model_of(ToolFormat::kLlama);
  model.tokenizer = tokenizer;
  model.constraints = std::make_shared<grammar::ConstraintCompiler>(tokenizer);
  model.has_reasoning = true;
  model.chat_template =
      testing::value_of(text::ChatTemplate::parse("{{ messages[0].content }}<think> ", "thinks"));
  server.set_model(std::move(model));
  Json body = json_of(R"({"messages":[{"role":"user","content":"a"}],"temperature":1,
      "tools":[{"type":"function","function":{"name":"g"}}],"tool_choice":"required",
      "parallel_tool_calls":false,"logit_bias":{"1":5}})");
  size_t thoughts = 0;
  for (int seed = 0; seed < 8; ++seed) {
    body["seed"] = seed;
    const auto response = server.post("/v1/chat/completions", dump_json(body));
    ASSERT_EQ(response.status, 200) << response.body;
    const Json choice = json_of(response.body)["choices"][0];
    EXPECT_EQ(choice["finish_reason"], "tool_calls") << choice;
    ASSERT_EQ(choice["message"]["tool_calls"].size(), 1u) << choice;
    EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["name"], "g");
    const Json& reasoning = choice["message"]["reasoning_content"];
    thoughts += reasoning.is_string() ? reasoning.get<std::string>().size() : 0;
  }
  EXPECT_GT(thoughts, 0u);
}

}  // namespace
}  // namespace jige::api
