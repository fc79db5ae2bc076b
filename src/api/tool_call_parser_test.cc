// Calls of tools in answers: what the families' own templates write is read back, however the text
// is cut; what is no call stays text.
#include "api/tool_call_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "api/api_test_support.h"
#include "base/file.h"
#include "base/rng.h"
#include "base/test_fuzz_rounds.h"

namespace jige::api {
namespace {

using testing::json_of;
using testing::value_of;

struct Parsed {
  std::string content;
  std::vector<std::string> calls;  // "name arguments"
  bool operator==(const Parsed&) const = default;
};

void PrintTo(const Parsed& parsed, std::ostream* out) {
  *out << "\"" << parsed.content << "\" and " << Json(parsed.calls).dump();
}

void add(Parsed& parsed, ParsedPiece piece) {
  parsed.content += piece.content;
  for (const ToolCall& call : piece.calls) parsed.calls.push_back(call.name + " " + call.arguments);
}

Parsed parse_pieces(ToolFormat format, const std::vector<std::string>& pieces) {
  ToolCallParser parser(format, {"weather", "add"});
  Parsed parsed;
  for (const std::string& piece : pieces) add(parsed, parser.push(piece));
  add(parsed, parser.finish());
  return parsed;
}

// Parses the text whole, in single bytes and in two parts cut everywhere: all must agree.
Parsed parse(ToolFormat format, const std::string& text) {
  const Parsed whole = parse_pieces(format, {text});
  std::vector<std::string> bytes;
  for (const char c : text) bytes.emplace_back(1, c);
  EXPECT_EQ(parse_pieces(format, bytes), whole) << text;
  for (size_t cut = 1; cut < text.size(); ++cut) {
    EXPECT_EQ(parse_pieces(format, {text.substr(0, cut), text.substr(cut)}), whole)
        << text.substr(0, cut) << "|" << text.substr(cut);
  }
  return whole;
}

const std::string kSum = R"({"a":1,"b":-2.5})";

TEST(ToolCallParser, ReadsHermesCalls) {
  const auto read = [](const std::string& text) { return parse(ToolFormat::kHermes, text); };
  const std::string call = R"({"name": "add", "arguments": {"a": 1, "b": -2.5}})";
  const std::string shown = "add " + kSum;
  EXPECT_EQ(read("<tool_call>\n" + call + "\n</tool_call>"), (Parsed{"", {shown}}));
  EXPECT_EQ(read("Let me see.\n<tool_call>" + call + "</tool_call>\n<tool_call>\n" + call +
                 "\n</tool_call>\n"),
            (Parsed{"Let me see.", {shown, shown}}));
  EXPECT_EQ(read("<tool_call>" + call), (Parsed{"", {shown}})) << "the end mark may be missing";
  EXPECT_EQ(read("<tool_call>" + call + "</tool_call> Done."), (Parsed{" Done.", {shown}}));
  EXPECT_EQ(read(R"(<tool_call>{"name": "weather"}</tool_call>)"), (Parsed{"", {"weather {}"}}));
  EXPECT_EQ(read(R"(<tool_call>{"name": "f", "arguments": "{\"a\": 1}"}</tool_call>)"),
            (Parsed{"", {R"(f {"a":1})"}}))
      << "arguments as the text of an object";
  EXPECT_EQ(read(R"(<tool_call>{"name": "f", "arguments": {"x": "}</tool_call>\"{"}}</tool_call>)"),
            (Parsed{"", {R"(f {"x":"}</tool_call>\"{"})"}}));
}

TEST(ToolCallParser, ReadsMistralCalls) {
  const auto read = [](const std::string& text) { return parse(ToolFormat::kMistral, text); };
  const std::string call = R"({"name": "add", "arguments": {"a": 1, "b": -2.5}})";
  const std::string shown = "add " + kSum;
  EXPECT_EQ(read("[TOOL_CALLS] [" + call + ", " + call + "]"), (Parsed{"", {shown, shown}}));
  EXPECT_EQ(read("Well. [TOOL_CALLS][" + call + "] done"), (Parsed{"Well. done", {shown}}));
  EXPECT_EQ(read("[TOOL_CALLS]add[ARGS]" + kSum), (Parsed{"", {shown}}));
  EXPECT_EQ(read("[TOOL_CALLS]add[CALL_ID]abcdefghi[ARGS]" + kSum + "[TOOL_CALLS]weather{}"),
            (Parsed{"", {shown, "weather {}"}}));
}

TEST(ToolCallParser, ReadsLlamaCalls) {
  const auto read = [](const std::string& text) { return parse(ToolFormat::kLlama, text); };
  const std::string call = R"({"name": "add", "parameters": {"a": 1, "b": -2.5}})";
  const std::string shown = "add " + kSum;
  EXPECT_EQ(read(call), (Parsed{"", {shown}}));
  EXPECT_EQ(read("\n" + call + "; " + call + "\n"), (Parsed{"", {shown, shown}}));
  EXPECT_EQ(read("<|python_tag|>" + call), (Parsed{"", {shown}}));
  EXPECT_EQ(read(R"({"name": "other", "parameters": {}})"),
            (Parsed{R"({"name": "other", "parameters": {}})", {}}))
      << "JSON that somebody asked for";
}

TEST(ToolCallParser, ReadsHarmonyCalls) {
  const auto read = [](const std::string& text) { return parse(ToolFormat::kHarmony, text); };
  const std::string shown = "add " + kSum;
  const std::string call =
      "<|channel|>commentary to=functions.add <|constrain|>json<|message|>" + kSum;
  EXPECT_EQ(read(call), (Parsed{"", {shown}}));
  EXPECT_EQ(read(call + "<|call|>"), (Parsed{"", {shown}}));
  EXPECT_EQ(read("I look.<|start|>assistant" + call), (Parsed{"I look.", {shown}}));
  EXPECT_EQ(read(" to=functions.add<|channel|>commentary json<|message|>" + kSum),
            (Parsed{"", {shown}}));
  EXPECT_EQ(read("<|start|>assistant to=functions.weather<|channel|>analysis<|message|>{}"),
            (Parsed{"", {"weather {}"}}));
  EXPECT_EQ(read(call + "<|call|><|start|>assistant" + call), (Parsed{"", {shown, shown}}));
  EXPECT_EQ(read("<|channel|>final<|message|>a" + call),
            (Parsed{"<|channel|>final<|message|>a", {shown}}));
  const std::string longest(256 - std::string(" to=functions.add").size(), ' ');
  EXPECT_EQ(read("<|channel|> to=functions.add" + longest + "<|message|>{}"),
            (Parsed{"", {"add {}"}}));
}

TEST(ToolCallParser, WhatIsNoCallStaysTextToTheByte) {
  const std::string texts[] = {
      "plain",
      "  spaces \n\n ",
      "a < b <tool_cal [TOOL_CAL",
      "<tool_call>",
      "<tool_call>not JSON</tool_call> more <tool_call>",
      R"(<tool_call>{"name": 5}</tool_call>)",
      R"(<tool_call>{"name": "f", "arguments": [1]}</tool_call>)",
      R"(<tool_call>{"name": "f", "arguments": {</tool_call>)",
      "<tool_call> {broken} </tool_call>",
      "[TOOL_CALLS] [5]",
      "[TOOL_CALLS]not a name{}",
      "[TOOL_CALLS]" + std::string(300, 'x'),
      R"([TOOL_CALLS] [{"name": 1}, {"name": 2}])",
      "{\"a\": 1} and {\"name\": \"add\"}",
      "{ unfinished",
      "a {\"name\": \"add\", \"parameters\": {}}",
      std::string(200, ' '),
      "<|channel|>commentary to=python code<|message|>{}",
      "<|channel|>commentary to=functions.<|message|>{}",
      "<|channel|>commentary to=functions.add <|constrain|>json<|message|>[1]",
      "<|channel|>commentary to=functions.add <|constrain|>json<|message|>{broken}",
      "<|start|>assistant to=functions.add" + std::string(300, ' ') + "<|message|>{}",
      "tell me to=functions.add <|mess",
      "<|start|>user<|message|>{}",
  };
  for (const ToolFormat format :
       {ToolFormat::kHermes, ToolFormat::kMistral, ToolFormat::kLlama, ToolFormat::kHarmony}) {
    for (const std::string& text : texts) {
      EXPECT_EQ(parse(format, text), (Parsed{text, {}})) << "format " << static_cast<int>(format);
    }
  }
}

TEST(ToolCallParser, SomethingBehindABrokenCallIsReadAgain) {
  const Parsed parsed = parse(ToolFormat::kHermes,
                              "<tool_call>oh</tool_call>\n"
                              R"(<tool_call>{"name": "add", "arguments": {}}</tool_call>)");
  EXPECT_EQ(parsed, (Parsed{"<tool_call>oh</tool_call>", {"add {}"}}));
}

// Random texts of the marks' and JSON's own parts: no cut changes what is read, and nothing of a
// text without calls is lost.
TEST(ToolCallParser, RandomTextsAreReadTheSameHoweverTheyAreCut) {
  const std::string parts[] = {"<tool_call>",
                               "</tool_call>",
                               "[TOOL_CALLS]",
                               "[ARGS]",
                               "[",
                               "]",
                               "{",
                               "}",
                               "\"",
                               "\\",
                               ",",
                               ";",
                               " ",
                               "\n",
                               "x",
                               "<|python_tag|>",
                               "<|channel|>commentary",
                               "<|start|>assistant",
                               " to=functions.add",
                               "<|message|>",
                               "<|call|>",
                               R"({"name":"add","arguments":{}})",
                               "add"};
  Rng rng(7);
  int calls = 0;
  for (uint64_t i = 0; i < fuzz_rounds(4'000); ++i) {
    std::string text;
    const uint64_t count = 1 + rng.below(8);
    for (uint64_t k = 0; k < count; ++k) text += parts[rng.below(std::size(parts))];
    const auto format = static_cast<ToolFormat>(1 + i % 4);
    const Parsed parsed = parse(format, text);
    calls += static_cast<int>(parsed.calls.size());
    // llama's tag is no text; all else is.
    if (parsed.calls.empty() && format != ToolFormat::kLlama) {
      EXPECT_EQ(parsed.content, text);
    }
  }
  EXPECT_GT(calls, 50);
}

// What a template writes behind the generation prompt for an assistant's message.
std::string written_answer(const text::ChatTemplate& chat, const Json& tools, const Json& calls) {
  Json messages = json_of(R"([{"role": "user", "content": "hi"}])");
  const std::string before = value_of(
      chat.render(messages, {.add_generation_prompt = true, .bos_token = "<s>", .tools = &tools}));
  messages.push_back({{"role", "assistant"}, {"content", nullptr}, {"tool_calls", calls}});
  std::string all =
      value_of(chat.render(messages, {.bos_token = "<s>", .eos_token = "</s>", .tools = &tools}));
  EXPECT_TRUE(all.starts_with(before)) << all;
  all.erase(0, before.size());
  for (const std::string_view end : {"<|im_end|>", "<|eot_id|>", "<|eom_id|>", "</s>"}) {
    if (const size_t at = all.find(end); at != std::string::npos) all.resize(at);
  }
  return all;
}

struct Family {
  std::string name;
  ToolFormat format;
  bool several;         // calls in one answer
  std::string content;  // that stands before them
};

TEST(ToolCallParser, ReadsWhatTheTemplatesOfTheFamiliesWrite) {
  const Json tools = json_of(R"([{"type": "function", "function": {"name": "add",
      "description": "Adds.", "parameters": {"type": "object", "properties": {}}}}])");
  Json calls = json_of(R"([
      {"type": "function", "id": "abcdefghi",
       "function": {"name": "add", "arguments": {"a": 1, "text": "é \"{</tool_call>"}}},
      {"type": "function", "id": "abcdefghj", "function": {"name": "weather", "arguments": {}}}])");
  for (const Family& family : {Family{"qwen25", ToolFormat::kHermes, true, ""},
                               Family{"qwen3", ToolFormat::kHermes, true, "<think>\n\n</think>"},
                               Family{"mistral", ToolFormat::kMistral, true, ""},
                               Family{"llama31_tools", ToolFormat::kLlama, false, ""}}) {
    SCOPED_TRACE(family.name);
    const std::string path = std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/text/templates/" +
                             family.name + "/template.jinja";
    const auto chat = value_of(text::ChatTemplate::parse(value_of(read_file(path)), family.name));
    EXPECT_EQ(tool_format_of(chat), family.format);
    Json written = calls;
    if (!family.several) written.erase(1);
    const Parsed parsed = parse(family.format, written_answer(chat, tools, written));
    Parsed expected{family.content, {}};
    for (const Json& call : written) {
      expected.calls.push_back(call["function"]["name"].get<std::string>() + " " +
                               call["function"]["arguments"].dump());
    }
    EXPECT_EQ(parsed, expected);
  }
}

TEST(ToolFormat, IsToldFromTheTemplate) {
  const auto format = [](const char* source) {
    return tool_format_of(value_of(text::ChatTemplate::parse(source, "test")));
  };
  EXPECT_EQ(format("{{ messages[0].content }}"), ToolFormat::kNone);
  EXPECT_EQ(format("<tool_call>"), ToolFormat::kNone) << "no tools are shown to the model";
  EXPECT_EQ(format("{{ tools }}"), ToolFormat::kNone);
  EXPECT_EQ(format("{{ tools }}<tool_call>"), ToolFormat::kHermes);
  EXPECT_EQ(format("{{ tools }}[TOOL_CALLS]"), ToolFormat::kMistral);
  EXPECT_EQ(format("{{ tools }}<|python_tag|>"), ToolFormat::kLlama);
  EXPECT_EQ(format("{{ tools }}<|channel|>commentary"), ToolFormat::kHarmony);
  EXPECT_EQ(find_tool_format("off"), ToolFormat::kNone);
  EXPECT_EQ(find_tool_format("hermes"), ToolFormat::kHermes);
  EXPECT_EQ(find_tool_format("mistral"), ToolFormat::kMistral);
  EXPECT_EQ(find_tool_format("llama"), ToolFormat::kLlama);
  EXPECT_EQ(find_tool_format("harmony"), ToolFormat::kHarmony);
  EXPECT_FALSE(find_tool_format("auto"));
}

TEST(ToolCallId, IsAnotherForEveryCallAndFitsTheFormat) {
  const std::string first = tool_call_id(ToolFormat::kHermes, "chatcmpl-1", 0, 0);
  EXPECT_THAT(first, ::testing::MatchesRegex("call_[0-9a-f]{16}"));
  EXPECT_NE(tool_call_id(ToolFormat::kHermes, "chatcmpl-1", 0, 1), first);
  EXPECT_NE(tool_call_id(ToolFormat::kHermes, "chatcmpl-1", 1, 0), first);
  EXPECT_NE(tool_call_id(ToolFormat::kHermes, "chatcmpl-2", 0, 0), first);
  EXPECT_THAT(tool_call_id(ToolFormat::kMistral, "chatcmpl-1", 0, 0),
              ::testing::MatchesRegex("[0-9A-Za-z]{9}"));
}

}  // namespace
}  // namespace jige::api
