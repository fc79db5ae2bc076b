#include "api/responses_input.h"

#include <algorithm>

#include "api/content_parts.h"

namespace jige::api {
namespace {

constexpr std::string_view kTextParts[] = {"input_text", "output_text", "text"};
constexpr std::string_view kReasoningParts[] = {"reasoning_text", "summary_text"};
constexpr std::string_view kRoles[] = {"user", "assistant", "system", "developer"};

// The assistant's message that the next item of an answer goes on with; a new one where there is
// none.
Json& answer_message(ChatForm& form, const std::string& where) {
  if (Json* open = form.open_answer()) return *open;
  form.add_message({{"role", "assistant"}, {"content", nullptr}}, where);
  return *form.open_answer();
}

// An answer's message joins the reasoning before it and the calls that were made; any other begins
// a message of its own.
void add_answer_text(ChatForm& form, std::string text, const std::string& where) {
  Json* open = form.open_answer();
  if (!open || (open->at("content").is_string() && !open->contains("tool_calls"))) {
    form.add_message({{"role", "assistant"}, {"content", std::move(text)}}, where);
    return;
  }
  append_text(*open, "content", text);
}

Wrong add_input_image(ChatForm& form, const Json& part, const std::string& where) {
  if (find_field(part, "file_id")) {
    const std::string param = where + ".file_id";
    return bad_field(
        param, "{}: no files are kept here; send the image as a data: URL in image_url", param);
  }
  Json image = {{"type", "image_url"}, {"image_url", {{"url", member_of(part, "image_url")}}}};
  form.add_image(std::move(image), where, where + ".image_url");
  return std::nullopt;
}

constexpr ImagePart kInputImage = {.type = "input_image", .add = add_input_image};

Wrong add_message_item(ChatForm& form, const Json& item, const std::string& where) {
  const Json& role = member_of(item, "role");
  const bool known =
      role.is_string() &&
      std::ranges::find(kRoles, role.get_ref<const std::string&>()) != std::end(kRoles);
  if (!known) {
    const std::string param = where + ".role";
    return bad_field(param, "{} must be user, assistant, system or developer, found {}", param,
                     role.is_null() ? "nothing" : shown_value(role));
  }
  const Json& content = member_of(item, "content");
  if (role == "assistant") {
    auto text = content_text(content, where + ".content", kTextParts);
    if (!text) return std::move(text.error());
    add_answer_text(form, std::move(*text), where);
    return std::nullopt;
  }
  form.add_message({{"role", role}, {"content", nullptr}}, where);
  return form.add_content(content, where + ".content", kTextParts, kInputImage);
}

Wrong add_call_item(ChatForm& form, const Json& item, const std::string& where) {
  answer_message(form, where);
  Json call = {{"type", "function"},
               {"function",
                {{"name", member_of(item, "name")}, {"arguments", member_of(item, "arguments")}}}};
  if (const Json* id = find_field(item, "call_id")) call["id"] = *id;
  form.add_call(std::move(call), where);
  return std::nullopt;
}

Wrong add_output_item(ChatForm& form, const Json& item, const std::string& where) {
  const Json& id = member_of(item, "call_id");
  if (!id.is_string()) {
    const std::string param = where + ".call_id";
    return bad_field(param, "{} must be a text, found {}", param,
                     id.is_null() ? "nothing" : shown_value(id));
  }
  form.add_message({{"role", "tool"}, {"content", nullptr}, {"tool_call_id", id}}, where);
  return form.add_content(member_of(item, "output"), where + ".output", kTextParts, kInputImage);
}

Wrong add_reasoning_item(ChatForm& form, const Json& item, const std::string& where) {
  const bool has_content = find_field(item, "content") != nullptr;
  const char* name = has_content ? "content" : "summary";
  const Json& parts = member_of(item, name);
  if (parts.is_null()) return std::nullopt;
  auto text = content_text(parts, where + "." + name, kReasoningParts);
  if (!text) return std::move(text.error());
  if (text->empty()) return std::nullopt;
  const Json* open = form.open_answer();
  // Behind a text or a call it begins the next answer.
  const bool begins = !open || !open->at("content").is_null() || open->contains("tool_calls");
  if (begins) form.add_message({{"role", "assistant"}, {"content", nullptr}}, where);
  append_text(*form.open_answer(), "reasoning_content", *text);
  return std::nullopt;
}

Wrong add_item(ChatForm& form, const Json& item, const std::string& where) {
  if (!item.is_object()) {
    return bad_field(where, "{} must be an object, found {}", where, shown_value(item));
  }
  const Json& type = member_of(item, "type");
  if (type == "message" || type.is_null()) return add_message_item(form, item, where);
  if (type == "function_call") return add_call_item(form, item, where);
  if (type == "function_call_output") return add_output_item(form, item, where);
  if (type == "reasoning") return add_reasoning_item(form, item, where);
  return unsupported_field(where + ".type", fmt::format("items of type {} are", shown_value(type)));
}

}  // namespace

Wrong add_input(ChatForm& form, const Json* input, size_t items_max) {
  if (input && input->is_string()) {
    form.add_message({{"role", "user"}, {"content", *input}}, "input");
    return std::nullopt;
  }
  if (!input || !input->is_array() || input->empty() || input->size() > items_max) {
    return bad_field("input", "input must be a text or a list of 1 to {} items, found {}",
                     items_max, input ? shown_value(*input) : "nothing");
  }
  for (size_t i = 0; i < input->size(); ++i) {
    if (Wrong wrong = add_item(form, (*input)[i], fmt::format("input[{}]", i))) return wrong;
  }
  return std::nullopt;
}

}  // namespace jige::api
