// Rendered chats and small templates against recordings from transformers' Jinja environment.
// A case is a line of a cases.jsonl, a family a folder with a template.jinja; neither needs C++.
#include "text/chat_template.h"
#include "text/test_fixtures.h"

namespace jige::text {
namespace {

ChatOptions options_of(const Json& row) {
  ChatOptions options;
  options.add_generation_prompt = row.value("add_generation_prompt", false);
  options.bos_token = row.value("bos_token", "");
  options.eos_token = row.value("eos_token", "");
  if (row.contains("tools")) options.tools = &row["tools"];
  if (row.contains("variables")) options.variables = &row["variables"];
  return options;
}

void check_case(const ChatTemplate& chat, const Json& row) {
  const auto render = chat.render_with_spans(row["messages"], options_of(row));
  if (row.contains("error")) {
    EXPECT_FALSE(render.has_value()) << render->text;
    return;
  }
  ASSERT_TRUE(render.has_value()) << render.error().message;
  EXPECT_EQ(render->text, row["text"].get<std::string>());
  if (!row.contains("spans")) return;
  std::vector<ChatSpan> spans;
  for (const Json& span : row["spans"]) spans.push_back({span[0], span[1]});
  EXPECT_EQ(render->generated, spans);
}

TEST(ChatTemplateFixtures, EveryFamilyRendersAsRecorded) {
  const auto folders = fixture_folders("templates");
  EXPECT_GE(folders.size(), 13u);
  for (const auto& name : folders) {
    SCOPED_TRACE(name);
    const auto source = read_file(fixture_path("templates/" + name + "/template.jinja"));
    ASSERT_TRUE(source.has_value());
    const auto chat = ChatTemplate::parse(*source, name);
    ASSERT_TRUE(chat.has_value()) << chat.error().message;
    for (const Json& row : fixture_rows("templates/" + name + "/cases.jsonl")) {
      SCOPED_TRACE(row.dump());
      check_case(*chat, row);
    }
  }
}

TEST(TemplateLanguageFixtures, EverySmallTemplateGivesTheRecordedTextOrAnError) {
  const Json messages = Json::array();
  size_t count = 0;
  for (const Json& row : fixture_rows("template_language/cases.jsonl")) {
    SCOPED_TRACE(row.dump());
    ++count;
    const auto chat = ChatTemplate::parse(row["template"].get<std::string>(), "small");
    if (row.contains("error")) {
      if (chat) {
        const auto render = chat->render(messages, options_of(row));
        EXPECT_FALSE(render.has_value()) << *render;
      }
      continue;
    }
    EXPECT_TRUE(chat.has_value()) << chat.error().message;
    if (!chat) continue;
    const auto render = chat->render(messages, options_of(row));
    EXPECT_TRUE(render.has_value()) << render.error().message;
    if (!render) continue;
    EXPECT_EQ(*render, row["text"].get<std::string>());
  }
  EXPECT_GE(count, 180u);
}

}  // namespace
}  // namespace jige::text
