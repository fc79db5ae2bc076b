#include "api/messages_input.h"

#include <span>

#include "api/content_parts.h"

namespace jige::api {
namespace {

constexpr std::string_view kTextBlocks[] = {"text"};

// Turns of one role that follow one another are one, in which a line feed parts what they say.
void say(ChatForm& form, const std::string& role, const std::string& text,
         const std::string& where) {
  const Json* open = form.open_message(role);
  if (!open) form.add_message({{"role", role}, {"content", nullptr}}, where);
  const bool goes_on = open && ends_with_text(member_of(*open, "content"));
  form.add_text(goes_on ? "\n" + text : text);
}

ApiResult<std::string> text_member(const Json& block, const std::string& where, const char* name) {
  const Json& value = member_of(block, name);
  if (value.is_string()) return value.get<std::string>();
  const std::string param = where + "." + name;
  return tl::unexpected(bad_field(param, "{} must be a text, found {}", param,
                                  value.is_null() ? "nothing" : shown_value(value)));
}

Wrong add_image_block(ChatForm& form, const Json& block, const std::string& where) {
  const Json& source = member_of(block, "source");
  const Json& type = member_of(source, "type");
  const std::string place = where + ".source";
  const bool coded = type == "base64";
  if (!coded && type != "url") {
    const std::string param = place + ".type";
    return bad_field(param, "{} must be base64, found {}; no files are kept here", param,
                     type.is_null() ? "nothing" : shown_value(type));
  }
  Json url = member_of(source, "url");
  if (coded) {
    const auto media_type = text_member(source, place, "media_type");
    if (!media_type) return media_type.error();
    const auto data = text_member(source, place, "data");
    if (!data) return data.error();
    url = "data:" + *media_type + ";base64," + *data;
  }
  Json image = {{"type", "image_url"}, {"image_url", {{"url", std::move(url)}}}};
  form.add_image(std::move(image), where, place + (coded ? ".data" : ".url"));
  return std::nullopt;
}

constexpr ImagePart kImageBlock = {.type = "image", .add = add_image_block};

Wrong add_result(ChatForm& form, const Json& block, const std::string& place) {
  auto id = text_member(block, place, "tool_use_id");
  if (!id) return std::move(id.error());
  form.add_message({{"role", "tool"}, {"tool_call_id", *id}, {"content", ""}}, place);
  const Json& content = member_of(block, "content");
  if (content.is_null()) return std::nullopt;
  return form.add_content(content, place + ".content", kTextBlocks, kImageBlock);
}

// What the user says between results of tools is one message.
Wrong add_user_turn(ChatForm& form, const Json& blocks, const std::string& where) {
  bool begun = false;  // a message of the user, by this turn
  for (size_t i = 0; i < blocks.size(); ++i) {
    const Json& block = blocks[i];
    const std::string place = fmt::format("{}.content[{}]", where, i);
    if (member_of(block, "type") == "tool_result") {
      if (Wrong wrong = add_result(form, block, place)) return wrong;
      begun = false;
    } else if (member_of(block, "type") == kImageBlock.type) {
      if (!form.open_message("user")) form.add_message({{"role", "user"}, {"content", ""}}, where);
      if (Wrong wrong = kImageBlock.add(form, block, place)) return wrong;
      begun = true;
    } else {
      const auto text = part_text(block, place, kTextBlocks);
      if (!text) return text.error();
      if (begun) {
        form.add_text(*text);
      } else {
        say(form, "user", *text, where);
      }
      begun = true;
    }
  }
  return std::nullopt;
}

// `parted`: the text goes on from the text of another turn.
Wrong add_answer_block(ChatForm& form, const Json& block, const std::string& place, bool parted) {
  const Json& type = member_of(block, "type");
  if (type == "tool_use") {
    Json call = {{"id", member_of(block, "id")},
                 {"type", "function"},
                 {"function",
                  {{"name", member_of(block, "name")}, {"arguments", member_of(block, "input")}}}};
    form.add_call(std::move(call), place);
    return std::nullopt;
  }
  const bool thinking = type == "thinking";
  auto text =
      thinking ? text_member(block, place, "thinking") : part_text(block, place, kTextBlocks);
  if (!text) return std::move(text.error());
  append_text(*form.open_answer(), thinking ? "reasoning_content" : "content",
              parted ? "\n" + *text : *text);
  return std::nullopt;
}

Wrong add_answer_turn(ChatForm& form, const Json& blocks, const std::string& where) {
  if (!form.open_answer()) form.add_message({{"role", "assistant"}, {"content", nullptr}}, where);
  bool parted = member_of(*form.open_answer(), "content").is_string();
  for (size_t i = 0; i < blocks.size(); ++i) {
    const std::string place = fmt::format("{}.content[{}]", where, i);
    const bool is_text = member_of(blocks[i], "type") == "text";
    if (Wrong wrong = add_answer_block(form, blocks[i], place, parted && is_text)) return wrong;
    parted = parted && !is_text;
  }
  return std::nullopt;
}

Wrong add_turn(ChatForm& form, const Json& message, const std::string& where) {
  if (!message.is_object()) {
    return bad_field(where, "{} must be an object, found {}", where, shown_value(message));
  }
  const Json& role = member_of(message, "role");
  if (role != "user" && role != "assistant" && role != "system") {
    const std::string param = where + ".role";
    return bad_field(param, "{} must be user, assistant or system, found {}", param,
                     role.is_null() ? "nothing" : shown_value(role));
  }
  const Json& content = member_of(message, "content");
  if (!content.is_array() || role == "system") {
    auto text = content_text(content, where + ".content", kTextBlocks);
    if (!text) return std::move(text.error());
    say(form, role.get<std::string>(), *text, where);
    return std::nullopt;
  }
  if (content.empty()) {
    const std::string param = where + ".content";
    return bad_field(param, "{} must be a text or a list of blocks, found none", param);
  }
  return role == "user" ? add_user_turn(form, content, where)
                        : add_answer_turn(form, content, where);
}

}  // namespace

Wrong add_conversation(ChatForm& form, const Json& body, size_t messages_max) {
  if (const Json* system = find_field(body, "system")) {
    auto text = content_text(*system, "system", kTextBlocks);
    if (!text) return std::move(text.error());
    form.add_message({{"role", "system"}, {"content", std::move(*text)}}, "system");
  }
  const Json* list = find_field(body, "messages");
  if (!list || !list->is_array() || list->empty() || list->size() > messages_max) {
    return bad_field("messages", "messages must be a list of 1 to {}, found {}", messages_max,
                     list ? shown_value(*list) : "nothing");
  }
  for (size_t i = 0; i < list->size(); ++i) {
    if (Wrong wrong = add_turn(form, (*list)[i], fmt::format("messages[{}]", i))) return wrong;
  }
  // A last message of the assistant begins the answer.
  if (form.open_answer()) {
    const std::string last = fmt::format("messages[{}]", list->size() - 1);
    form.set("continue_final_message", true, last);
    form.set("add_generation_prompt", false, last);
  }
  return std::nullopt;
}

}  // namespace jige::api
