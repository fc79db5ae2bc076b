#include "train/record_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "train/option_flags.h"

namespace jige::train {
namespace {

constexpr size_t kFieldsShown = 8;
constexpr size_t kNameBytesShown = 40;

// How a file whose lines are no records becomes one whose lines are.
std::string_view remedy_of(std::string_view line) {
  const size_t first = line.find_first_not_of(" \t\r\xef\xbb\xbf");
  const char begin = first == std::string_view::npos ? ' ' : line[first];
  if (begin == '{') return "; a record stands on one line, as `jq -c . FILE` writes it";
  if (begin == '[') return "; a record is an object, as `jq -c '.[]' FILE` takes them from a list";
  return "";
}

// "user", "assistant" or "system", or nothing.
std::string_view role_of(std::string_view writer) {
  if (writer == "human" || writer == "user") return "user";
  if (writer == "gpt" || writer == "assistant") return "assistant";
  return writer == "system" ? "system" : "";
}

Result<Json> message_of(const Json& turn, const std::string& where) {
  if (!turn.is_object()) return fail(Code::kInvalidArgument, "{}: is not an object", where);
  if (turn.contains("role") && !turn.contains("from")) return turn;
  JIGE_TRY(const std::string writer, get_string(turn, "from", where));
  JIGE_TRY(std::string text, get_string(turn, "value", where));
  const std::string_view role = role_of(writer);
  if (!role.empty()) return Json{{"role", role}, {"content", std::move(text)}};
  return fail(Code::kInvalidArgument,
              "{}: is from {}; known are human, user, gpt, assistant and system: write others as "
              "\"messages\" with the roles of the chat template",
              where, dump_json(writer));
}

// Puts "messages" in the place of "conversations".
Status bring_to_messages(Json& object, const std::string& where) {
  const Json& turns = object["conversations"];
  if (!turns.is_array() || turns.empty()) {
    return fail(Code::kInvalidArgument,
                "{}: field \"conversations\" must be a list of {{\"from\", \"value\"}}", where);
  }
  Json messages = Json::array();
  JIGE_TRY(const std::string system, get_string_or(object, "system", "", where));
  if (!system.empty()) messages.push_back({{"role", "system"}, {"content", system}});
  for (size_t i = 0; i < turns.size(); ++i) {
    JIGE_TRY(Json message, message_of(turns[i], fmt::format("{}: conversations[{}]", where, i)));
    messages.push_back(std::move(message));
  }
  object.erase("conversations");
  object["messages"] = std::move(messages);
  return {};
}

}  // namespace

Result<Json> read_json_record(std::string_view line, const std::string& where) {
  auto object = parse_json(line, where);
  if (!object) {
    Error error = std::move(object.error());
    error.message += remedy_of(line);
    return tl::unexpected(std::move(error));
  }
  if (!object->is_object()) {
    const bool messages =
        object->is_array() && !object->empty() && find_field((*object)[0], "role");
    return fail(Code::kInvalidArgument, "{}: is not a JSON object such as {{\"text\": …}}{}", where,
                messages ? "; `jq -c '{messages: .}' FILE` makes one of a list of messages"
                         : remedy_of(line));
  }
  if (object->contains("conversations") && !object->contains("messages")) {
    JIGE_DO(bring_to_messages(*object, where));
  }
  return object;
}

std::string fields_text(const Json& object) {
  std::string names;
  size_t shown = 0;
  for (const auto& [name, value] : object.items()) {
    if (shown++ == kFieldsShown) return names + " and others";
    const bool whole = name.size() <= kNameBytesShown;
    names += (names.empty() ? "" : ", ") +
             dump_json(Json(whole ? name : name.substr(0, kNameBytesShown) + "…"));
  }
  return names.empty() ? "none" : names;
}

tl::unexpected<Error> no_known_field(const Json& object, const std::string& text_field,
                                     const std::string& where) {
  return fail(
      Code::kInvalidArgument,
      "{}: has none of the fields \"{}\", \"messages\", \"conversations\", or \"prompt\" "
      "with \"completion\", but {}; name the one with a text by {}, or rename them, as with "
      "`jq -c '{{prompt: .A, completion: .B}}' FILE`",
      where, text_field, fields_text(object), flag_of("data.text_field"));
}

}  // namespace jige::train
