#include "api/content_parts.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "api/request_images.h"

namespace jige::api {
namespace {

constexpr std::string_view kChatTexts[] = {"text"};

bool is_of_type(const Json& part, std::string_view type) {
  const Json* found = find_field(part, "type");
  return found && found->is_string() && found->get_ref<const std::string&>() == type;
}

}  // namespace

ApiResult<std::string> part_text(const Json& part, const std::string& where,
                                 std::span<const std::string_view> types) {
  const Json* type = find_field(part, "type");
  if (!type || !type->is_string()) {
    return tl::unexpected(bad_field(where, "{} must be an object with a type", where));
  }
  if (std::ranges::find(types, type->get_ref<const std::string&>()) == types.end()) {
    return tl::unexpected(unsupported_field(
        where + ".type", fmt::format("parts of type {} are", shown_value(*type))));
  }
  const Json* text = find_field(part, "text");
  if (text && text->is_string()) return text->get<std::string>();
  return tl::unexpected(bad_field(where + ".text", "{}.text must be a text", where));
}

ApiResult<std::string> content_text(const Json& content, const std::string& where,
                                    std::span<const std::string_view> types) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) {
    return tl::unexpected(bad_field(where, "{} must be a text or a list of parts, found {}", where,
                                    content.is_null() ? "nothing" : shown_value(content)));
  }
  std::string joined;
  for (size_t i = 0; i < content.size(); ++i) {
    auto text = part_text(content[i], fmt::format("{}[{}]", where, i), types);
    if (!text) return text;
    joined += *text;
  }
  return joined;
}

ApiResult<Json> read_parts(const Json& parts, const std::string& where, std::string_view role,
                           RequestImages& images) {
  std::string joined;
  Json list = Json::array();
  bool has_images = false;
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string place = fmt::format("{}[{}]", where, i);
    if (is_of_type(parts[i], "image_url")) {
      if (auto wrong = images.add(parts[i], place, role)) return tl::unexpected(std::move(*wrong));
      list.push_back({{"type", "image"}});
      has_images = true;
      continue;
    }
    auto text = part_text(parts[i], place, kChatTexts);
    if (!text) return tl::unexpected(std::move(text.error()));
    joined += *text;
    list.push_back({{"type", "text"}, {"text", std::move(*text)}});
  }
  if (has_images) return list;
  return Json(std::move(joined));
}

void add_text(Json& content, const std::string& text) {
  if (content.is_null()) content = "";
  if (content.is_string()) {
    content.get_ref<std::string&>() += text;
  } else if (ends_with_text(content)) {
    content.back()["text"].get_ref<std::string&>() += text;
  } else {
    content.push_back({{"type", "text"}, {"text", text}});
  }
}

void add_part(Json& content, Json part) {
  if (!content.is_array()) {
    Json list = Json::array();
    if (content.is_string() && content != "") list.push_back({{"type", "text"}, {"text", content}});
    content = std::move(list);
  }
  content.push_back(std::move(part));
}

bool ends_with_text(const Json& content) {
  if (content.is_array()) return !content.empty() && is_of_type(content.back(), "text");
  return content.is_string();
}

}  // namespace jige::api
