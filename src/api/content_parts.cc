#include "api/content_parts.h"

#include <nlohmann/json.hpp>

#include "text/chat_content.h"

namespace jige::api {

ApiResult<std::string> join_parts(const Json& parts, const std::string& where) {
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string param = fmt::format("{}[{}]", where, i);
    const Json& part = parts[i];
    if (!part.is_object() || !part.contains("type") || !part["type"].is_string()) {
      return tl::unexpected(bad_field(param, "{} must be an object with a type", param));
    }
    if (part["type"] != "text") {
      return tl::unexpected(unsupported_field(
          param + ".type", fmt::format("parts of type {} are", shown_value(part["type"]))));
    }
    if (!part.contains("text") || !part["text"].is_string()) {
      return tl::unexpected(bad_field(param + ".text", "{}.text must be a text", param));
    }
  }
  auto joined = text::chat_content_text(parts, where);
  if (!joined) return tl::unexpected(bad_field(where, "{}", joined.error().message));
  return std::move(*joined);
}

}  // namespace jige::api
