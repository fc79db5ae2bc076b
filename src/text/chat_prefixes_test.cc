// Renders of beginnings of conversations: the same bytes as from the start, for less.
#include "text/chat_prefixes.h"

#include "base/rng.h"
#include "text/chat_encode.h"
#include "text/test_fixtures.h"

namespace jige::text {
namespace {

const char* const kTemplates[] = {"chatml", "deepseek", "gemma",         "llama2",
                                  "llama3", "mistral",  "phi3",          "qwen25",
                                  "qwen3",  "zephyr",   "llama31_tools", "schema_macros"};

ChatTemplate recorded_template(const std::string& name) {
  const auto source = read_file(fixture_path("templates/" + name + "/template.jinja"));
  return *ChatTemplate::parse(*source, name);
}

const ChatOptions kTokens = {.bos_token = "<s>", .eos_token = "</s>"};

Json conversation(int turns) {
  Json messages = Json::array();
  for (int i = 0; i < turns; ++i) {
    messages.push_back({{"role", "user"}, {"content", fmt::format("question {}", i)}});
    messages.push_back({{"role", "assistant"}, {"content", fmt::format("answer {}", i)}});
  }
  return messages;
}

std::string whole_text(const ChatPrefixes& renders, const ChatVariantText& text) {
  return renders.text().substr(0, text.shared) + text.rest +
         renders.text().substr(renders.text().size() - text.tail);
}

// Every beginning, with and without prompt, and with a message changed, which has a prompt or not
// in turn, against the template's own render. How many of them shared something with the whole.
int expect_exact(const ChatTemplate& chat, const Json& messages, const ChatOptions& options) {
  int sharing = 0;
  auto renders = ChatPrefixes::create(chat, messages, options);
  const auto whole = chat.render(messages, options);
  EXPECT_EQ(renders.has_value(), whole.has_value());
  if (!renders || !whole) return 0;
  EXPECT_EQ(renders->text(), *whole);
  for (size_t count = 1; count <= messages.size(); ++count) {
    for (const size_t changed : {messages.size(), count - 1, count / 2}) {
      for (const bool prompt : {false, true}) {
        if (changed < count && prompt != ((count + changed) % 2 == 0)) continue;
        ChatVariant variant{.count = count, .prompt = prompt, .changed_at = {}, .changed = {}};
        Json part(messages.begin(), messages.begin() + static_cast<std::ptrdiff_t>(count));
        if (changed < count) {
          variant.changed_at = changed;
          variant.changed = messages[changed];
          variant.changed["content"] = "q";
          part[changed] = variant.changed;
        }
        ChatOptions chosen = options;
        chosen.add_generation_prompt = prompt;
        const auto expected = chat.render(part, chosen);
        const auto made = renders->render(variant);
        EXPECT_EQ(made.has_value(), expected.has_value()) << count << part.dump();
        if (made && expected) {
          EXPECT_EQ(whole_text(*renders, *made), *expected) << count;
          sharing += made->shared > 0 ? 1 : 0;
        } else if (!made && !expected) {
          EXPECT_EQ(made.error().message, expected.error().message);
        }
      }
    }
  }
  return sharing;
}

TEST(ChatPrefixes, AreTheBytesOfTheTemplatesOwnRenders) {
  for (const char* name : kTemplates) {
    SCOPED_TRACE(name);
    const ChatTemplate chat = recorded_template(name);
    expect_exact(chat, conversation(4), kTokens);
    ChatOptions asking = kTokens;
    asking.add_generation_prompt = true;
    expect_exact(chat, conversation(2), asking);
  }
}

TEST(ChatPrefixes, AreExactForEveryRecordedConversation) {
  int count = 0;
  for (const char* name : kTemplates) {
    SCOPED_TRACE(name);
    const ChatTemplate chat = recorded_template(name);
    for (const Json& row : fixture_rows(fmt::format("templates/{}/cases.jsonl", name))) {
      if (!row.contains("messages") || !row["messages"].is_array()) continue;
      ++count;
      ChatOptions options = kTokens;
      if (row.contains("tools") && row["tools"].is_array()) options.tools = &row["tools"];
      expect_exact(chat, row["messages"], options);
    }
  }
  EXPECT_GE(count, 50);
}

// What looks at the list in every way that there is, among turns: an expression in each and a
// statement behind it.
TEST(ChatPrefixes, AreExactHoweverATemplateLooksAtTheList) {
  Json messages = conversation(4);
  const Json system = {{"role", "system"}, {"content", "be kind"}};
  messages.insert(messages.begin(), system);
  messages[3]["content"] = nullptr;
  int sharing = 0;
  for (const auto& [look, statement] :
       {std::pair{"loop.last", ""},
        {"loop.length", ""},
        {"loop.revindex", ""},
        {"loop.revindex0", ""},
        {"(loop.nextitem or m).content", ""},
        {"loop.previtem.content", ""},
        {"loop.index", ""},
        {"messages|length", ""},
        {"messages[-1].content", ""},
        {"messages[loop.index0 + 1].content", ""},
        {"messages[loop.index0 - 1].content", ""},
        {"messages[2:][0].content", ""},
        {"messages[2:]|length", ""},
        {"messages[:2]|length", ""},
        {"messages[7:]|tojson", ""},
        {"(messages|last).content", ""},
        {"(messages|first).content", ""},
        {"messages|tojson", ""},
        {"m == messages[-1]", ""},
        {"m in messages", ""},
        {"messages[99] is defined", ""},
        {"messages[1:][1:][0].content", ""},
        {"(messages + messages)|length", ""},
        {"messages[2:] is sequence", ""},
        {"loop.changed(m.role)", ""},
        {"loop.cycle('a', 'b', 'c')", ""},
        {"messages is iterable", ""},
        {"(messages|list)[3].content", ""},
        {"messages.index(m)", ""},
        {"messages|map(attribute='role')|join(',')", ""},
        {"ns.rest|length", ""},
        {"'yes' if ns.rest else 'no'", ""},
        {"macro_of(messages)", ""},
        {"loop|string|length", ""},
        {"''", "{% if loop.index == 5 %}{% break %}{% endif %}"},
        {"''", "{% continue %}"},
        {"''",
         "{% for x in [[m, [m]], m] recursive %}{{ loop(x) if x is not mapping else x.role }}"
         "{{ '{:>3}'.format(messages|length) if loop.depth == 2 }}{% endfor %}"},
        {"''", "{% if loop.index < 4 %}{% continue %}{% endif %}"},
        {"''", "{% if m.content and '2' not in m.content %}{% continue %}{% endif %}"},
        {"ns.loop.index", "{% if loop.index == 3 %}{% set ns.loop = loop %}{% endif %}"},
        {"ns.list[1].index",
         "{% if loop.index == 2 %}{% set ns.list = ns.list + [loop] %}{% endif %}"},
        {"ns.join()", "{% if loop.index == 3 %}{% set ns.join = joiner('+') %}{% endif %}"},
        {"ns.cycle.next()", "{% if loop.index == 3 %}{% set ns.cycle = cycler(1, 2) %}{% endif %}"},
        {"ns.say()", "{% macro say() %}{{ loop.index }}{% endmacro %}{% set ns.say = say %}"},
        {"ns.list[-2].x", "{% set n = namespace(x=1) %}{% set ns.list = ns.list + [n] %}"},
        {"ns.list[2].x",
         "{% set n = namespace(x=0) %}{% set ns.list = ns.list + [n] %}"
         "{% if loop.index > 3 %}{% set k = ns.list[2] %}{% set k.x = k.x + 1 %}"
         "{% endif %}"},
        {"ns.say()",
         "{% if loop.index == 2 %}{% with %}{% set n = namespace(x=1) %}"
         "{% macro say() %}{{ n.x }}{% set n.x = n.x + 1 %}{% endmacro %}"
         "{% set ns.say = say %}{% endwith %}{% endif %}"},
        {"ns.inner.x", "{% set ns.inner = namespace(x=loop.index) %}"},
        {"ns.inner.x",
         "{% if loop.index % 3 == 1 %}{% set ns.inner = namespace(x=loop.index) %}{% endif %}"}}) {
    SCOPED_TRACE(std::string(look) + statement);
    const std::string source = fmt::format(
        "{{%- macro macro_of(l) %}}{{{{ l|length }}}}{{% endmacro -%}}"
        "{{%- set ns = namespace(seen='', list=[], rest=messages[3:], join=macro_of, say=macro_of) "
        "%}}{{%- if messages[0].role == 'system' %}}{{% set list = messages[1:] %}}"
        "{{% else %}}{{% set list = messages %}}{{% endif %}}"
        "{{%- for m in list %}}<{{{{ m.role }}}}:{{{{ m.content }}}}:{{{{ {} if loop.index > 3 "
        "}}}}>"
        "{}{{%- set ns.seen = ns.seen ~ m.role[0] %}}{{% set ns.list = ns.list + [m] %}}"
        "{{%- else %}}nobody{{% endfor %}}{{{{ ns.seen }}}}{{{{ list|length }}}}"
        "{{%- if add_generation_prompt %}}<assistant:{{% endif %}}{{{{ messages[-1].content }}}}",
        look, statement);
    const auto chat = ChatTemplate::parse(source, "look");
    ASSERT_TRUE(chat) << chat.error().message;
    const auto whole = chat->render(messages, {});
    EXPECT_TRUE(whole) << whole.error().message;
    sharing += expect_exact(*chat, messages, {});
  }
  EXPECT_GT(sharing, 1000);
}

// What a scan of the messages leaves behind, as the loop that writes them looks at it.
TEST(ChatPrefixes, AreExactWhereALoopLooksAtWhatOneBeforeItFound) {
  const Json messages = conversation(5);
  int sharing = 0;
  for (const auto& [look, statement] :
       {std::pair{"loop.index0 > ns.last", ""},
        {"ns.last < loop.index0", ""},
        {"ns.last >= loop.index0", ""},
        {"loop.index0 <= ns.last", ""},
        {"0 < ns.last < loop.index0", ""},
        {"loop.index0 == ns.last", ""},
        {"ns.last", ""},
        {"ns.last > ns.first", ""},
        {"ns.last > 'a'|length", ""},
        {"ns.last + 1 > loop.index0", ""},
        {"users|length", ""},
        {"users[-1] == m", ""},
        {"last.content", ""},
        {"loop.last", ""},
        {"found is defined", ""},
        {"ns.late is defined", ""},
        {"ns.first", "{% set ns.first = ns.first + 1 %}"},
        {"ns.first > loop.index0", "{% set ns.first = 0 %}"},
        {"ns.first > 2", "{% if loop.index == 5 %}{% set ns.last = 0 %}{% endif %}"},
        {"ns.inner.x", "{% set ns.inner = namespace(x=loop.index) %}"},
        {"other.x", "{% set other.x = ns.last %}"},
        {"other.x", "{% set other.x = loop.index0 %}"},
        {"say()", "{% if loop.index == 4 %}{% set ns.first = 7 %}{% endif %}"},
        {"ns.say()", "{% macro own() %}{{ loop.index }}{% endmacro %}{% set ns.say = own %}"},
        {"'' if ns.first > 3 else 'x'", "{% if loop.index == 7 %}{% break %}{% endif %}"}}) {
    SCOPED_TRACE(std::string(look) + statement);
    const std::string source = fmt::format(
        "{{%- set ns = namespace(last=messages|length, first=0, say=0) %}}"
        "{{%- set other = namespace(x=0) %}}{{% set list = messages %}}"
        "{{%- set users = messages|selectattr('role', 'equalto', 'user')|list %}}"
        "{{%- set last = messages[-1] %}}{{% macro say() %}}{{{{ ns.first }}}}{{% endmacro %}}"
        "{{%- if messages|length > 4 %}}{{% set found = 1 %}}{{% set ns.late = 1 %}}{{% endif %}}"
        "{{%- for m in messages[::-1] %}}{{% set index = messages|length - loop.index %}}"
        "{{%- if m.role == 'user' and ns.last == messages|length %}}{{% set ns.last = index %}}"
        "{{%- endif %}}{{%- endfor %}}"
        "{{%- for m in messages %}}{{% set ns.first = ns.first + (m.content|length > 8) %}}"
        "{{%- endfor %}}"
        "{{%- for m in list %}}<{{{{ m.role }}}}:{{{{ m.content }}}}:{{{{ {} if loop.index > 1 "
        "}}}}>{}{{%- endfor %}}{{{{ ns.first }}}}{{{{ ns.last }}}}{{{{ other.x }}}}"
        "{{%- if add_generation_prompt %}}<assistant:{{% endif %}}",
        look, statement);
    const auto chat = ChatTemplate::parse(source, "look");
    ASSERT_TRUE(chat) << chat.error().message;
    const auto whole = chat->render(messages, {});
    EXPECT_TRUE(whole) << whole.error().message;
    sharing += expect_exact(*chat, messages, {});
  }
  EXPECT_GT(sharing, 400);
}

Json random_message(Rng& rng) {
  const std::string texts[] = {"",          "hi",
                               " a b ",     "<think>\nwhy\n</think>\n\nso",
                               "</think>x", "<tool_response>1</tool_response>",
                               "q",         "z7"};
  const std::string roles[] = {"user", "assistant", "user", "assistant", "tool", "system"};
  Json message = {{"role", roles[rng.below(6)]}, {"content", texts[rng.below(8)]}};
  if (message["role"] == "assistant" && rng.below(4) == 0) {
    const Json function = {{"name", "f"}, {"arguments", {{"x", rng.below(3)}}}};
    message["tool_calls"] =
        Json::array({{{"id", "123456789"}, {"type", "function"}, {"function", function}}});
  }
  if (rng.below(8) == 0) message["reasoning_content"] = "because";
  if (rng.below(12) == 0) message["content"] = nullptr;
  return message;
}

// Of two kinds: any roles in any order, and question and answer by turns, which no template
// refuses.
Json random_conversation(Rng& rng) {
  Json messages = Json::array();
  const bool in_turns = rng.below(2) == 0;
  const size_t count = 1 + rng.below(9);
  for (size_t i = 0; i < count; ++i) {
    messages.push_back(random_message(rng));
    if (in_turns) messages[i]["role"] = i % 2 == 0 ? "user" : "assistant";
  }
  return messages;
}

const Json kOneTool = Json::array({{{"type", "function"}, {"function", {{"name", "f"}}}}});

ChatOptions random_options(Rng& rng) {
  ChatOptions options = kTokens;
  options.add_generation_prompt = rng.below(3) == 0;
  if (rng.below(4) == 0) options.tools = &kOneTool;
  return options;
}

TEST(ChatPrefixes, AreExactForConversationsDrawnAtRandom) {
  Rng rng(derive_key(2026, "random conversations"));
  int sharing = 0;
  for (const char* name : kTemplates) {
    SCOPED_TRACE(name);
    const ChatTemplate chat = recorded_template(name);
    for (int round = 0; round < 12; ++round) {
      const Json messages = random_conversation(rng);
      sharing += expect_exact(chat, messages, random_options(rng));
    }
  }
  EXPECT_GT(sharing, 1200);
}

// A template that holds a cycler goes on from no place: all of its renders are from the start.
TEST(ChatPrefixes, AnswersAreThoseOfRendersFromTheStart) {
  Rng rng(derive_key(2026, "random answers"));
  int count = 0;
  for (const char* name : kTemplates) {
    const ChatTemplate chat = recorded_template(name);
    const auto plain =
        ChatTemplate::parse("{% set own_cycler = cycler(1) %}" + chat.source(), name);
    ASSERT_TRUE(plain) << plain.error().message;
    for (int round = 0; round < 40; ++round) {
      const Json messages = random_conversation(rng);
      const ChatOptions options = random_options(rng);
      const auto found = render_answers(chat, messages, options);
      const auto expected = render_answers(*plain, messages, options);
      ASSERT_EQ(found.has_value(), expected.has_value()) << name << messages.dump();
      if (!found) continue;
      ASSERT_EQ(found->text, expected->text) << name << messages.dump();
      ASSERT_EQ(found->generated, expected->generated) << name << messages.dump();
      count += static_cast<int>(found->generated.size());
    }
  }
  EXPECT_GT(count, 400);
}

// Steps that finding the answers takes.
int64_t answer_steps(const ChatTemplate& chat, int turns) {
  const auto found = render_answers(chat, conversation(turns), kTokens);
  EXPECT_TRUE(found) << found.error().message;
  if (!found) return 0;
  EXPECT_EQ(found->generated.size(), static_cast<size_t>(turns));
  return found->steps;
}

// These look through all messages before they write the first; that alone is run again.
TEST(ChatPrefixes, TheLoopBehindOneThatScansTheMessagesIsNotRunAgain) {
  for (const char* name : {"qwen3", "mistral"}) {
    SCOPED_TRACE(name);
    const ChatTemplate chat = recorded_template(name);
    const auto plain =
        ChatTemplate::parse("{% set own_cycler = cycler(1) %}" + chat.source(), name);
    ASSERT_TRUE(plain);
    const int64_t steps = answer_steps(chat, 40);
    const int64_t from_the_start = answer_steps(*plain, 40);
    RecordProperty(name, fmt::format("{} of {}", steps, from_the_start));
    EXPECT_LT(steps, from_the_start / 4);
  }
}

TEST(ChatPrefixes, ANamespaceForEachTurnCostsNothingLater) {
  const auto chat = ChatTemplate::parse(
      "{% for m in messages %}{% set own = namespace(text=m.content) %}<{{ m.role }}>{{ own.text "
      "}}\n"
      "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}",
      "small");
  ASSERT_TRUE(chat);
  EXPECT_LT(answer_steps(*chat, 320), 5 * answer_steps(*chat, 80));
}

TEST(ChatPrefixes, AnswersCostWhatTheConversationCosts) {
  for (const char* name :
       {"chatml", "llama2", "llama3", "gemma", "qwen25", "zephyr", "llama31_tools", "deepseek"}) {
    SCOPED_TRACE(name);
    const ChatTemplate chat = recorded_template(name);
    const int64_t small = answer_steps(chat, 20);
    const int64_t middle = answer_steps(chat, 80);
    const int64_t large = answer_steps(chat, 320);
    const auto once = chat.render_with_spans(conversation(320), kTokens);
    ASSERT_TRUE(once);
    RecordProperty(name,
                   fmt::format("{} {} {}, rendered once {}", small, middle, large, once->steps));
    EXPECT_LT(middle, 5 * small);
    EXPECT_LT(large, 5 * middle);
    EXPECT_LT(large, 6 * once->steps);
  }
}

}  // namespace
}  // namespace jige::text
