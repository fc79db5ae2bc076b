#include "text/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>

#include "text/jinja_interpreter.h"
#include "text/jinja_parser.h"

namespace jige::text {
namespace {

using ::testing::HasSubstr;

Result<std::string> render(std::string_view source, const Json& messages = Json::array(),
                           const ChatOptions& options = {}) {
  const auto chat = ChatTemplate::parse(source, "template");
  if (!chat) return tl::unexpected<Error>(chat.error());
  return chat->render(messages, options);
}

Code failure(std::string_view source) {
  const auto text = render(source);
  EXPECT_FALSE(text.has_value()) << source << " gave " << text.value_or("");
  return text ? Code::kInternal : text.error().code;
}

// What stops a template that would not end, as its error says: rendered within a million steps and
// 16 MiB, as every template is within more of both.
std::string what_stops(std::string_view source) {
  const auto tree = jinja::parse_template(source, "template");
  if (!tree) return tree.error().message;
  jinja::Interpreter run(*tree, 0, jinja::Budget(1'000'000, 16 << 20));
  const auto rendered = run.run();
  if (rendered) return "gave " + rendered->text;
  EXPECT_EQ(rendered.error().code, Code::kExhausted) << source;
  return rendered.error().message;
}

TEST(ChatTemplate, NamesFileAndLineOfAnError) {
  const auto text = render("a\nb\n{{ missing.attribute }}");
  ASSERT_FALSE(text.has_value());
  EXPECT_EQ(text.error().message, "template: line 3: 'missing' is undefined");
  const auto syntax = ChatTemplate::parse("{% if x %}\n{{ 1 + }}", "chat_template.jinja");
  ASSERT_FALSE(syntax.has_value());
  EXPECT_EQ(syntax.error().code, Code::kCorrupt);
  EXPECT_NE(syntax.error().message.find("chat_template.jinja: line 2"), std::string::npos)
      << syntax.error().message;
}

// As SmolVLM's template does; it shows nothing of a text.
TEST(ChatTemplate, GivesAListOfPartsToTemplatesThatLoopOverThem) {
  const std::string_view source =
      "{% for m in messages %}{{ m.role }}{{ ':' if m.content[0].type == 'image' else ': ' }}"
      "{% for p in m.content %}{% if p.type == 'text' %}{{ p.text }}{% elif p.type == 'image' %}"
      "<image>{% endif %}{% endfor %};{% endfor %}";
  const Json talk = Json::parse(R"([{"role": "a", "content": "x y"}, {"role": "b", "content": ""},
      {"role": "c", "content": [{"type": "image"}, {"type": "text", "text": "z"}]}])");
  EXPECT_EQ(render(source, talk).value_or("failed"), "a: x y;b: ;c:<image>z;");
  // Others, which know both, are given what is there.
  const std::string_view both =
      "{% for m in messages %}{% if m.content is string %}<{{ m.content }}>{% else %}"
      "{% for p in m.content %}{% if p.type == 'text' %}({{ p.text }}){% endif %}{% endfor %}"
      "{% endif %}{% endfor %}";
  EXPECT_EQ(render(both, talk).value_or("failed"), "<x y><>(z)");
  // Nor are those that show neither.
  EXPECT_EQ(render("{{ messages[0].content is string }} type", talk).value_or("failed"),
            "True type");
}

TEST(ChatTemplate, KeepsANullContentForTemplatesThatAskForIt) {
  // As the template of DeepSeek-R1's distilled models does; "none" comes from the null itself.
  const std::string_view source =
      "{% for m in messages %}{% if m['content'] is none %}[{{ m['tool_calls'][0] }}]"
      "{% else %}{{ '<' + m['content'] + '>' }}{% endif %}{% endfor %}";
  const Json talk = Json::parse(R"([{"role": "user", "content": "q", "name": null},
      {"role": "assistant", "content": null, "tool_calls": ["call"], "thinking": null}])");
  EXPECT_EQ(render(source, talk).value_or("failed"), "<q>[call]");
  // Where a missing member will do, it is missing; and the first error is the one that is told.
  EXPECT_EQ(render("{{ messages[1].content }}", talk).value_or("failed"), "");
  const auto text = render("{{ messages[0].role + messages[1].content }}", talk);
  ASSERT_FALSE(text.has_value());
  EXPECT_THAT(text.error().message, HasSubstr("has no attribute 'content'"));
}

TEST(ChatTemplate, PassesOnTheMessageOfRaiseException) {
  const auto text = render("{{ raise_exception('roles must alternate') }}");
  ASSERT_FALSE(text.has_value());
  EXPECT_EQ(text.error().code, Code::kInvalidArgument);
  EXPECT_NE(text.error().message.find("roles must alternate"), std::string::npos);
}

TEST(ChatTemplate, ShowsTheGivenTime) {
  const char* before = std::getenv("TZ");
  const std::string zone = before ? before : "";
  ::setenv("TZ", "UTC", 1);
  ::tzset();
  EXPECT_EQ(*render("{{ strftime_now('%d %b %Y %H:%M') }}", Json::array(), {.now_s = 86400 * 365}),
            "01 Jan 1971 00:00");
  before ? ::setenv("TZ", zone.c_str(), 1) : ::unsetenv("TZ");
  ::tzset();
}

TEST(ChatTemplate, LeavesTokensItWasNotGivenUndefined) {
  EXPECT_EQ(*render("{{ bos_token is defined }}{{ eos_token }}"), "False");
  EXPECT_EQ(*render("{{ bos_token }}", Json::array(), {.bos_token = "<s>"}), "<s>");
  EXPECT_EQ(*render("{{ tools is none }}{{ documents is none }}"), "TrueTrue");
}

TEST(ChatTemplate, TreatsNullMembersAsAbsent) {
  const Json messages =
      Json::parse(R"([{"role": "assistant", "content": null, "reasoning": "r"}])");
  EXPECT_EQ(
      *render("{{ messages[0].content is defined }}{{ messages[0].reasoning_content }}", messages),
      "Falser");
}

TEST(ChatTemplate, RefusesMessagesThatAreNotObjectsInAList) {
  EXPECT_EQ(render("x", Json::object()).error().code, Code::kInvalidArgument);
  EXPECT_EQ(render("x", Json::array({1})).error().code, Code::kInvalidArgument);
}

TEST(ChatTemplate, RefusesTagsOutsideTheSubsetByName) {
  for (const std::string tag : {"include 'x'", "import 'x' as y", "extends 'x'", "block a", "do 1",
                                "autoescape true", "trans"}) {
    const auto text = render("{% " + tag + " %}");
    ASSERT_FALSE(text.has_value());
    EXPECT_EQ(text.error().code, Code::kUnsupported);
    EXPECT_NE(text.error().message.find(tag.substr(0, tag.find(' '))), std::string::npos);
  }
}

TEST(ChatTemplate, KeepsTheSpansOfGenerationBlocks) {
  const auto chat = ChatTemplate::parse(
      "{% for m in messages %}<{{ m.role }}>{% generation %}{{ m.content }}{% endgeneration %};"
      "{% endfor %}",
      "template");
  ASSERT_TRUE(chat.has_value());
  EXPECT_TRUE(chat->has_generation_blocks());
  const Json messages =
      Json::parse(R"([{"role": "u", "content": "caf\u00e9"}, {"role": "a", "content": ""}])");
  const auto render = chat->render_with_spans(messages, {});
  ASSERT_TRUE(render.has_value());
  EXPECT_EQ(render->text, "<u>caf\xC3\xA9;<a>;");
  EXPECT_EQ(render->generated, (std::vector<ChatSpan>{{3, 8}, {12, 12}}));
}

TEST(HostileTemplate, EndsLoopsThatWouldNotEnd) {
  std::string branches;
  for (int i = 0; i < 12; ++i) branches += "{% if a %}{% endif %}";
  EXPECT_THAT(what_stops("{% for a in range(99999) %}" + branches + "{% endfor %}"),
              HasSubstr("more than 1000000 steps"));
  EXPECT_EQ(
      failure("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"),
      Code::kExhausted);
  EXPECT_EQ(failure("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"), Code::kExhausted);
  EXPECT_THAT(what_stops("{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}"
                         "{% for i in range(2) %}{{ a() }}{% endfor %}{% endmacro %}{{ a() }}"),
              HasSubstr("nests calls deeper"));
}

TEST(HostileTemplate, EndsLoopsThatCallThemselves) {
  EXPECT_THAT(what_stops("{% for a in [1] recursive %}{{ loop([a]) }}{% endfor %}"),
              HasSubstr("nests calls deeper"));
  EXPECT_THAT(what_stops("{% for a in 'ab' recursive %}{{ loop('ab' if loop.depth < 40) }}"
                         "{% endfor %}"),
              HasSubstr("more than 1000000 steps"));
  EXPECT_THAT(what_stops("{% for a in 'ab' recursive %}{{ ('x' * 99999) ~ loop('ab' if loop.depth "
                         "< 12) }}{% endfor %}"),
              HasSubstr("more than 16777216 bytes"));
  EXPECT_EQ(failure("{% for a in [1] %}{{ loop([a]) }}{% endfor %}"), Code::kInvalidArgument);
}

// The scope that a loop stands in is there for as long as somebody may call it.
TEST(ChatTemplate, ARecursiveLoopOutlivesItsScope) {
  EXPECT_EQ(*render("{% set ns = namespace() %}{% macro m(v) %}{% for a in [v] recursive %}"
                    "{{ v }}{{ a }};{% set ns.kept = loop %}{% endfor %}{% endmacro %}"
                    "{% for i in range(3) %}{{ m(i) }}{% endfor %}{% for i in range(9) %}"
                    "{% set w = i %}{% endfor %}{{ ns.kept([7]) }}"),
            "00;11;22;27;");
}

TEST(HostileTemplate, EndsFormatsThatGrow) {
  for (const char* use :
       {"{{ '{:65537}'.format(1) }}", "{{ '{:.99999999999999999999}'.format(1.5) }}",
        "{{ '{:{}}'.format(1, 99999999) }}", "{{ '%65537d' % 1 }}", "{{ '%.65537f' % 1.5 }}",
        "{{ '%*d' % (-9223372036854775807 - 1, 1) }}", "{{ '%.*f' % (99999999, 1) }}"}) {
    EXPECT_EQ(failure(use), Code::kExhausted) << use;
  }
  EXPECT_EQ(render("{{ '{:65536}{:.65536f}'.format(1, 1.5) }}")->size(), 65536u + 65538u);
  EXPECT_THAT(
      what_stops("{% for i in range(9999) %}{% set x = '{:65536}'.format(i) %}{% endfor %}"),
      HasSubstr("more than 16777216 bytes"));
  EXPECT_THAT(what_stops("{% for i in range(9999) %}{% set x = '%65536d' % i %}{% endfor %}"),
              HasSubstr("more than 16777216 bytes"));
  EXPECT_EQ(failure("{{ '{0[99999999999999999999]}{99999999999999999999}'.format([]) }}"),
            Code::kInvalidArgument);
  EXPECT_EQ(failure("{{ '{:c}'.format(55296) }}"), Code::kInvalidArgument) << "half a character";
  EXPECT_EQ(failure("{{ '%d' % 1e300 }}"), Code::kInvalidArgument) << "beyond 64 bits";
}

TEST(HostileTemplate, EndsTextsThatGrow) {
  EXPECT_THAT(what_stops("{% set n = namespace(x='aaaaaaaa') %}{% for i in range(99) %}"
                         "{% set n.x = n.x ~ n.x %}{% endfor %}"),
              HasSubstr("more than 16777216 bytes"));
  EXPECT_THAT(render("{{ 'a' * 999999999999 }}").error().message,
              HasSubstr("more than 536870912 bytes"));
  EXPECT_EQ(failure("{{ [1] * 999999999999 }}"), Code::kExhausted);
  EXPECT_EQ(failure("{{ 'aa' | replace('a', 'b' * 99999) | replace('b', 'c' * 99999) }}"),
            Code::kExhausted);
  EXPECT_THAT(
      render("{% for i in range(99999) %}{{ ('x' * 99) * 99 }}{% endfor %}").error().message,
      HasSubstr("writes more than 67108864 bytes"));
  EXPECT_EQ(failure("{{ '%99999999d' % 1 }}{{ ''.center(99999999999) }}"), Code::kExhausted);
}

TEST(HostileTemplate, EndsStructuresThatNestOrShareTooMuch) {
  EXPECT_EQ(failure("{% set n = namespace(x=[]) %}{% for i in range(99999) %}{% set n.x = [n.x] %}"
                    "{% endfor %}"),
            Code::kUnsupported);
  const std::string shared =
      "{% set n = namespace(x=[1], y=[1]) %}{% for i in range(150) %}{% set n.x = [n.x, n.x] %}"
      "{% set n.y = [n.y, n.y] %}{% endfor %}";
  ASSERT_EQ(*render(shared), "");
  for (const std::string use : {"{{ n.x == n.y }}", "{{ n.x }}", "{{ n.x | tojson }}"}) {
    EXPECT_THAT(what_stops(shared + use), HasSubstr("more than")) << use;
  }
  EXPECT_EQ(*render("{% set n = namespace() %}{% set n.me = n %}{% set n.l = [n] %}{{ n.l }}"),
            "[<namespace>]");
}

TEST(HostileTemplate, IsRefusedWhenItNestsTooDeep) {
  const auto repeat = [](const std::string& part, int count) {
    std::string out;
    for (int i = 0; i < count; ++i) out += part;
    return out;
  };
  EXPECT_EQ(failure("{{ " + repeat("(", 5000) + "1" + repeat(")", 5000) + " }}"),
            Code::kUnsupported);
  EXPECT_EQ(failure("{{ " + repeat("[", 5000) + repeat("]", 5000) + " }}"), Code::kUnsupported);
  EXPECT_EQ(failure("{{ " + repeat("-", 5000) + "1 }}"), Code::kUnsupported);
  EXPECT_EQ(failure("{{ " + repeat("not ", 5000) + "1 }}"), Code::kUnsupported);
  EXPECT_EQ(failure("{{ 1" + repeat("+1", 5000) + " }}"), Code::kUnsupported);
  EXPECT_EQ(failure("{{ x" + repeat(".a", 5000) + " }}"), Code::kUnsupported);
  EXPECT_EQ(failure("{{ 1" + repeat("|int", 5000) + " }}"), Code::kUnsupported);
  EXPECT_EQ(failure("{{ 1" + repeat(" if 1 else 1", 5000) + " }}"), Code::kUnsupported);
  EXPECT_EQ(failure(repeat("{% if 1 %}", 5000) + repeat("{% endif %}", 5000)), Code::kUnsupported);
  EXPECT_EQ(ChatTemplate::parse(std::string(2 << 20, 'a'), "big").error().code, Code::kUnsupported);
  EXPECT_EQ(render("{{ 1" + repeat("~1", 5000) + " }}")->size(), 5001u);
}

TEST(HostileTemplate, CannotReachArithmeticTraps) {
  EXPECT_EQ(failure("{{ -9223372036854775807 - 2 }}"), Code::kInvalidArgument);
  EXPECT_EQ(failure("{{ 9223372036854775807 * 2 }}"), Code::kInvalidArgument);
  EXPECT_EQ(failure("{{ 10 ** 99 }}"), Code::kInvalidArgument);
  EXPECT_EQ(failure("{{ (-9223372036854775807 - 1) // -1 }}"), Code::kInvalidArgument);
  EXPECT_EQ(*render("{{ (-9223372036854775807 - 1) % -1 }}"), "0");
  EXPECT_EQ(failure("{{ 99999999999999999999 }}"), Code::kCorrupt);
  EXPECT_EQ(*render("{{ 'abc'[-9223372036854775807:9223372036854775807:9223372036854775807] }}"),
            "a");
  EXPECT_EQ(*render("{{ 'abc'[::-9223372036854775807] }}"), "c");
  EXPECT_EQ(*render("{{ 1e308 * 10 }} {{ (1e308 * 10) | int }}"), "inf 0");
}

// A loop with an output in its body has work in every turn, so it is never left early.
TEST(ChatTemplate, ALoopThatIsLeftWhereNothingIsLeftToDoGivesTheSame) {
  const char* const bodies[] = {
      "{% if ns.go and i == 2 %}{% set ns.go = false %}{{ i }}{% endif %}",
      "{% set k = 9 - loop.index0 %}{% if ns.go and k == 5 %}{% set ns.go = false %}{{ k }}"
      "{% elif ns.more %}{{ i }}{% endif %}",
      "{% if ns.go %}{% set ns.go = false %}{% set ns.kept = loop %}{% endif %}",
      "{% if ns.go %}{% set ns.go = false %}{% else %}{{ i }}{% endif %}",
      "{% if ns.more and i.no.such %}x{% endif %}",
      "{% if ns.more or i == 7 %}x{% endif %}",
      "{% set ns = 4 %}{% if ns.go %}x{% endif %}",
      "{% if i == 7 and ns.go %}x{% endif %}",
      "{% set ns.more = i == 6 %}{% if ns.more %}x{% endif %}",
      "{% if ns.more %}x{% endif %}{% if i == 8 %}{% break %}{% endif %}",
  };
  for (const char* body : bodies) {
    for (const char* target : {"i in range(20)", "ns.x in range(20)", "i, j in pairs"}) {
      std::string texts[2];
      for (const bool busy : {false, true}) {
        const auto chat = ChatTemplate::parse(
            fmt::format("{{% set ns = namespace(go=true, more=false, kept=0, x=0) %}}"
                        "{{% set pairs = [[1, 2], [2, 3], [8, 8], [4]] %}}"
                        "{{% for {} %}}{}{}{{% endfor %}}{{{{ ns.kept.index }}}},{{{{ ns.x }}}}",
                        target, body, busy ? "{{ '' }}" : ""),
            "small");
        if (!chat) continue;
        const auto text = chat->render(Json::array(), {});
        texts[busy] = text ? *text : text.error().message;
      }
      EXPECT_EQ(texts[0], texts[1]) << target << body;
    }
  }
}

TEST(ChatTemplate, ALoopIsLeftWhereNothingIsLeftToDo) {
  int64_t steps[2] = {};
  for (const bool busy : {false, true}) {
    const auto chat = ChatTemplate::parse(
        fmt::format("{{% set ns = namespace(go=true) %}}{{% for i in range(1000) %}}"
                    "{{% if ns.go and i == 2 %}}{{% set ns.go = false %}}{{% endif %}}{}"
                    "{{% endfor %}}",
                    busy ? "{{ '' }}" : ""),
        "small");
    ASSERT_TRUE(chat);
    const auto render = chat->render_with_spans(Json::array(), {});
    ASSERT_TRUE(render);
    steps[busy] = render->steps;
  }
  EXPECT_LT(2 * steps[0], steps[1]);
}

}  // namespace
}  // namespace jige::text
