// Reasoning in answers that are messages of channels.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/rng.h"
#include "text/reasoning.h"
#include "text/reasoning_test_support.h"

namespace jige::text {
namespace {

using testing::Parsed;

Parsed parse_channels(const std::vector<std::string>& pieces) {
  return testing::parse_pieces(ReasoningStart::kChannels, pieces);
}

// Parses the text whole and in single bytes: both must agree.
Parsed read_channels(const std::string& text) {
  const Parsed whole = parse_channels({text});
  std::vector<std::string> bytes;
  for (const char c : text) bytes.emplace_back(1, c);
  EXPECT_EQ(parse_channels(bytes), whole) << text;
  return whole;
}

const std::string kFinal = "<|channel|>final<|message|>";
const std::string kAnalysis = "<|channel|>analysis<|message|>";
const std::string kNext = "<|end|><|start|>assistant";

TEST(ReasoningChannels, AnalysisIsReasoningAndTheFinalMessageIsTheContent) {
  EXPECT_EQ(read_channels(kAnalysis + "Hm.\n" + kNext + kFinal + "\nYes."),
            (Parsed{"Hm.\n", "\nYes."}));
  EXPECT_EQ(read_channels(kFinal + "Yes."), (Parsed{"", "Yes."}));
  EXPECT_EQ(read_channels(kAnalysis + "a" + kNext + kAnalysis + "b" + kNext + kFinal + "c"),
            (Parsed{"ab", "c"}));
  EXPECT_EQ(read_channels(kAnalysis + "a <|en <|message|>" + kNext + kFinal + kAnalysis),
            (Parsed{"a <|en <|message|>", kAnalysis}))
      << "marks elsewhere are text";
}

TEST(ReasoningChannels, MessagesMayComeInAnyOrder) {
  const std::string said = "<|channel|>commentary<|message|>";
  EXPECT_EQ(read_channels(said + "I look." + kNext + kAnalysis + "Hm." + kNext + kFinal + "Yes."),
            (Parsed{"Hm.", "I look.Yes."}));
  EXPECT_EQ(read_channels(kFinal + "Yes.<|end|>"), (Parsed{"", "Yes."}));
  EXPECT_EQ(read_channels(kFinal + "Yes.<|e"), (Parsed{"", "Yes.<|e"}));
  const std::string call = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}";
  EXPECT_EQ(read_channels(kAnalysis + "Hm." + kNext + said + "I look." + kNext + call),
            (Parsed{"Hm.", "I look.<|start|>assistant" + call}));
}

TEST(ReasoningChannels, AMessageToTheUserIsContentAndOneToAToolShowsItsHeader) {
  EXPECT_EQ(read_channels("<|channel|>commentary<|message|>I look."), (Parsed{"", "I look."}));
  const std::string call = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}";
  EXPECT_EQ(read_channels(kAnalysis + "Hm." + kNext + call),
            (Parsed{"Hm.", "<|start|>assistant" + call}));
  const std::string other = " to=functions.f<|channel|>commentary<|message|>{}";
  EXPECT_EQ(read_channels(other), (Parsed{"", other}));
}

TEST(ReasoningChannels, AnAnswerMayEndAnywhere) {
  EXPECT_EQ(read_channels(""), (Parsed{"", ""}));
  EXPECT_EQ(read_channels("<|channel|>anal"), (Parsed{"", ""})) << "a header is no text";
  EXPECT_EQ(read_channels(kAnalysis), (Parsed{"", ""}));
  EXPECT_EQ(read_channels(kAnalysis + "Hm. <|en"), (Parsed{"Hm. <|en", ""}));
  EXPECT_EQ(read_channels(kAnalysis + "Hm." + kNext), (Parsed{"Hm.", ""}));
}

TEST(ReasoningChannels, WhatIsNoHeaderIsContentToTheByte) {
  for (const std::string& text :
       {std::string("Yes."), std::string("<|channel"), " " + kFinal, std::string("<|message|>a"),
        "<|channel|>final" + std::string(300, 'x'),
        "<|channel|>final" + std::string(300, 'x') + "<|message|>a"}) {
    const bool is_cut = kFinal.starts_with(text);
    EXPECT_EQ(read_channels(text), (Parsed{"", is_cut ? "" : text}));
  }
  EXPECT_EQ(read_channels(kAnalysis + "a<|end|>b" + kFinal), (Parsed{"a", "b" + kFinal}));
}

// No cut changes what is read, around the longest header too.
TEST(ReasoningChannels, RandomTextsAreReadTheSameHoweverTheyAreCut) {
  const std::string parts[] = {
      kFinal,   kAnalysis, kNext,   "<|end|>", "<|start|>",           "assistant",
      "to=",    "<|",      "|>",    "x",       std::string(240, 'y'), "<|channel|>",
      "<|mess", "age|>",   "final", "\n"};
  Rng rng(12);
  int reasoned = 0, answered = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string text = i % 2 == 0 ? kAnalysis : i % 4 == 1 ? "<|channel|>" : "";
    const uint64_t count = 1 + rng.below(8);
    for (uint64_t k = 0; k < count; ++k) text += parts[rng.below(std::size(parts))];
    const Parsed parsed = read_channels(text);
    const size_t cut = rng.below(text.size() + 1);
    EXPECT_EQ(parse_channels({text.substr(0, cut), text.substr(cut)}), parsed) << text;
    EXPECT_LE(parsed.reasoning.size() + parsed.content.size(), text.size());
    reasoned += parsed.reasoning.empty() ? 0 : 1;
    answered += parsed.reasoning.empty() || parsed.content.empty() ? 0 : 1;
  }
  EXPECT_GT(reasoned, 500);
  EXPECT_GT(answered, 100);
}

Tokenizer channel_tokenizer() {
  return testing::marks_tokenizer("asitnflxyem.", {{"<|start|>", true},
                                                   {"<|channel|>", true},
                                                   {"<|message|>", true},
                                                   {"<|end|>", true},
                                                   {"<|return|>", true}});
}

TEST(ReasoningChannels, BeginWhereThePromptSaysSo) {
  const Tokenizer tokenizer = channel_tokenizer();
  const auto start = [&](const std::string& prompt) {
    return reasoning_start(tokenizer, *tokenizer.encode(prompt, {}));
  };
  EXPECT_EQ(start("x<|end|><|start|>assistant"), ReasoningStart::kChannels);
  EXPECT_EQ(start("x<|end|>"), ReasoningStart::kMayOpen);
  EXPECT_EQ(reasoning_mark_ids(tokenizer).size(), 4u) << "the end of the answer is not shown";
  const auto chat = ChatTemplate::parse("<|start|>assistant<|channel|>{{ messages[0].x }}", "test");
  ASSERT_TRUE(chat);
  EXPECT_TRUE(has_reasoning(*chat));
}

TEST(ReasoningChannels, AConstrainedAnswerIsTheFinalMessageAtOnce) {
  const Tokenizer tokenizer = channel_tokenizer();
  std::vector<int32_t> prompt = *tokenizer.encode("x<|end|><|start|>assistant", {});
  EXPECT_EQ(constrained_start(tokenizer, reasoning_start(tokenizer, prompt), prompt),
            ReasoningStart::kNone);
  EXPECT_EQ(prompt, *tokenizer.encode("x<|end|><|start|>assistant" + kFinal, {}));
}

// A template of such a model: what was thought is shown behind the last question alone.
TEST(ReasoningChannels, AreReadAsATemplateWritesThem) {
  const auto chat = ChatTemplate::parse(
      "{%- macro message(role, channel, text, end) -%}"
      "{{ '<|start|>' + role }}{% if channel %}{{ '<|channel|>' + channel }}{% endif %}"
      "{{ '<|message|>' + text + end }}"
      "{%- endmacro -%}"
      "{%- for m in messages -%}"
      "{%- if m.role == 'assistant' -%}"
      "{%- if 'thinking' in m and loop.last and not add_generation_prompt -%}"
      "{{- message('assistant', 'analysis', m.thinking, '<|end|>') -}}"
      "{%- endif -%}"
      "{{- message('assistant', 'final', m.content, '<|return|>' if loop.last else '<|end|>') -}}"
      "{%- else -%}{{- message(m.role, none, m.content, '<|end|>') -}}{%- endif -%}"
      "{%- endfor -%}"
      "{%- if add_generation_prompt -%}<|start|>assistant{%- endif -%}",
      "channels");
  ASSERT_TRUE(chat) << chat.error().message;
  Json messages = Json::array({{{"role", "user"}, {"content", "hi"}}});
  const std::string before = *chat->render(messages, {.add_generation_prompt = true});
  messages.push_back({{"role", "assistant"}, {"reasoning_content", "Hm.\n"}, {"content", "Yes."}});
  std::string written = *chat->render(messages, {});
  ASSERT_TRUE(written.starts_with(before)) << written;
  written = written.substr(before.size(), written.rfind("<|return|>") - before.size());
  EXPECT_EQ(read_channels(written), (Parsed{"Hm.\n", "Yes."}));
}

}  // namespace
}  // namespace jige::text
