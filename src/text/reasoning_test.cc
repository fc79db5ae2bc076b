// Reasoning in answers: it is told from the answer however the text is cut, and nothing else is
// taken for it.
#include "text/reasoning.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/rng.h"
#include "text/reasoning_test_support.h"

namespace jige::text {
namespace {

using testing::parse_pieces;
using testing::Parsed;
using Start = ReasoningStart;

// Parses the text whole, in single bytes and in two parts cut everywhere: all must agree.
Parsed parse(const std::string& text, Start start = Start::kMayOpen) {
  const Parsed whole = parse_pieces(start, {text});
  std::vector<std::string> bytes;
  for (const char c : text) bytes.emplace_back(1, c);
  EXPECT_EQ(parse_pieces(start, bytes), whole) << text;
  for (size_t cut = 1; cut < text.size(); ++cut) {
    EXPECT_EQ(parse_pieces(start, {text.substr(0, cut), text.substr(cut)}), whole)
        << text.substr(0, cut) << "|" << text.substr(cut);
  }
  return whole;
}

TEST(Reasoning, IsTakenOffTheFrontOfAnAnswer) {
  EXPECT_EQ(parse("<think>\nHm, é.\n\nWell.\n</think>\n\nYes.\n"),
            (Parsed{"Hm, é.\n\nWell.", "Yes.\n"}));
  EXPECT_EQ(parse(" \n<think>a</think>b"), (Parsed{"a", "b"}));
  EXPECT_EQ(parse("<think>\n\n</think>\n\n  b"), (Parsed{"", "  b"}));
  EXPECT_EQ(parse("<think> a < b </thin </think> c"), (Parsed{" a < b </thin ", " c"}));
  EXPECT_EQ(parse("<think>a</think>b</think><think>c</think>"),
            (Parsed{"a", "b</think><think>c</think>"}))
      << "the first tag ends it";
  EXPECT_EQ(parse("<think><think></think>b"), (Parsed{"<think>", "b"}));
}

TEST(Reasoning, BehindAnOpenedTagEverythingIsReasoningUntilItsEnd) {
  EXPECT_EQ(parse("Hm.\n</think>\n\nYes.", Start::kOpened), (Parsed{"Hm.", "Yes."}));
  EXPECT_EQ(parse("\nHm.\n\n", Start::kOpened), (Parsed{"Hm.\n\n", ""}));
  EXPECT_EQ(parse("Hm. </think", Start::kOpened), (Parsed{"Hm. </think", ""}));
  EXPECT_EQ(parse("</think>Yes.", Start::kOpened), (Parsed{"", "Yes."}));
  EXPECT_EQ(parse("", Start::kOpened), (Parsed{"", ""}));
}

TEST(Reasoning, AnAnswerMayEndInsideIt) {
  EXPECT_EQ(parse("<think>Hm"), (Parsed{"Hm", ""}));
  EXPECT_EQ(parse("<think>"), (Parsed{"", ""}));
  EXPECT_EQ(parse("<think>Hm\n</thi"), (Parsed{"Hm\n</thi", ""}));
}

TEST(Reasoning, WhatHasNoneIsContentToTheByte) {
  for (const std::string& text :
       {std::string("plain"), std::string("  \n\n spaces \n"), std::string("<thin"),
        std::string("<thinking>"), std::string("a <think>b</think>"), std::string("</think>\n\nb"),
        std::string(200, ' '), std::string(65, '\n') + "<think>a</think>", std::string("<"),
        std::string()}) {
    EXPECT_EQ(parse(text), (Parsed{"", text}));
    EXPECT_EQ(parse(text, Start::kNone), (Parsed{"", text}));
  }
  EXPECT_EQ(parse("<think>a</think>b", Start::kNone), (Parsed{"", "<think>a</think>b"}));
}

// Random texts of the tags' parts: no cut changes what is read, and nothing but tags, line feeds
// beside them and white space before them is lost.
TEST(Reasoning, RandomTextsAreReadTheSameHoweverTheyAreCut) {
  const std::string parts[] = {
      "<think>", "</think>", "<", "/",  "think", ">", "</thi",
      "<thi",    "\n",       " ", "\t", "x",     "é", std::string(70, '\n')};
  Rng rng(11);
  int opened = 0, closed = 0;
  for (int i = 0; i < 4500; ++i) {
    std::string text = i % 2 == 0 ? "<think>" : "";
    const uint64_t count = 1 + rng.below(7);
    for (uint64_t k = 0; k < count; ++k) text += parts[rng.below(std::size(parts))];
    const Parsed parsed = parse(text, i % 3 == 0 ? Start::kOpened : Start::kMayOpen);
    opened += parsed.reasoning.empty() ? 0 : 1;
    closed += parsed.reasoning.empty() || parsed.content.empty() ? 0 : 1;
    EXPECT_EQ(parsed.reasoning.find(kReasoningClose), std::string::npos);
    EXPECT_TRUE(text.ends_with(parsed.content));
    EXPECT_NE(text.find(parsed.reasoning), std::string::npos);
    if (parsed.reasoning.empty() && text.find("<think>") == std::string::npos && i % 3 != 0) {
      EXPECT_EQ(parsed.content, text);
    }
  }
  EXPECT_GT(opened, 500);
  EXPECT_GT(closed, 250);
}

TEST(Reasoning, LittleIsHeldAndThePartsOfTagsAreNamed) {
  ReasoningParser parser(Start::kOpened);
  EXPECT_EQ(parser.rest_of_close(), "");
  EXPECT_EQ(parser.push("a <").reasoning, "a ");
  EXPECT_EQ(parser.rest_of_close(), "/think>");
  EXPECT_EQ(parser.push("/think").reasoning, "");
  EXPECT_EQ(parser.rest_of_close(), ">");
  EXPECT_EQ(parser.push("?").reasoning, "</think?");
  EXPECT_EQ(parser.push(std::string(100, '\n')).reasoning, std::string(36, '\n'));
  EXPECT_EQ(parser.push("</think>b").content, "b");
  EXPECT_FALSE(parser.is_inside());
  EXPECT_EQ(parser.push("</").content, "</");
  EXPECT_EQ(parser.rest_of_close(), "");
}

ChatTemplate template_of(const std::string& source) {
  auto chat = ChatTemplate::parse(source, "test");
  EXPECT_TRUE(chat) << chat.error().message;
  return *chat;
}

TEST(Reasoning, IsToldFromTheTemplate) {
  EXPECT_FALSE(has_reasoning(template_of("{{ messages[0].content }}")));
  EXPECT_TRUE(has_reasoning(template_of("{{ messages[0].content }}<think>")));
  for (const auto& [name, expected] :
       {std::pair{"qwen3", true}, {"deepseek", true}, {"qwen25", false}, {"llama3", false}}) {
    const auto source = read_file(std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/text/templates/" +
                                  name + "/template.jinja");
    ASSERT_TRUE(source) << source.error().message;
    EXPECT_EQ(has_reasoning(template_of(*source)), expected) << name;
  }
}

Tokenizer tag_tokenizer() {
  return testing::marks_tokenizer("</think>\n x", {{"<think>", false}, {"</think>", true}});
}

// What the template of Qwen 3 writes behind the generation prompt is read back.
TEST(Reasoning, IsReadAsATemplateWritesIt) {
  const auto source = read_file(std::string(JIGE_SOURCE_DIR) +
                                "/tests/fixtures/text/templates/qwen3/template.jinja");
  const ChatTemplate chat = template_of(*source);
  Json messages = Json::array({{{"role", "user"}, {"content", "hi"}}});
  const std::string before = *chat.render(messages, {.add_generation_prompt = true});
  messages.push_back(
      {{"role", "assistant"}, {"reasoning_content", "Hm.\n\nWell."}, {"content", "Yes.\nNo."}});
  std::string written = *chat.render(messages, {});
  ASSERT_TRUE(written.starts_with(before)) << written;
  written = written.substr(before.size(), written.rfind("<|im_end|>") - before.size());
  EXPECT_EQ(parse(written), (Parsed{"Hm.\n\nWell.", "Yes.\nNo."}));
  // Behind a further question the answer is what was read, to the byte.
  messages.push_back({{"role", "user"}, {"content", "more"}});
  EXPECT_NE((*chat.render(messages, {})).find("assistant\nYes.\nNo.<|im_end|>"), std::string::npos);
}

TEST(Reasoning, BeginsWhereThePromptSaysSo) {
  const Tokenizer tokenizer = tag_tokenizer();
  const auto start = [&](const std::string& prompt, bool spelled = false) {
    return reasoning_start(tokenizer, *tokenizer.encode(prompt, {.allow_special = !spelled}));
  };
  EXPECT_EQ(start("x"), Start::kMayOpen);
  EXPECT_EQ(start(""), Start::kMayOpen);
  EXPECT_EQ(start("x<think>x"), Start::kMayOpen);
  EXPECT_EQ(start("x<think>"), Start::kOpened);
  EXPECT_EQ(start("x<think>\n"), Start::kOpened);
  EXPECT_EQ(start("x<think>\n", true), Start::kOpened);
  EXPECT_EQ(start("x<think>\n\n</think>\n\n"), Start::kNone);
  EXPECT_EQ(reasoning_mark_ids(tokenizer),
            std::vector<int32_t>{*tokenizer.token_to_id("</think>")});
}

}  // namespace
}  // namespace jige::text
