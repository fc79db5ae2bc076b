#include "text/chat_content.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace jige::text {

Result<std::string> chat_content_text(const Json& content, const std::string& where) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) {
    return fail(Code::kInvalidArgument,
                "{}: field \"content\" must be a text or a list of parts, found {}", where,
                content.type_name());
  }
  std::string text;
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string place = fmt::format("{}.content[{}]", where, i);
    if (!content[i].is_object()) {
      return fail(Code::kInvalidArgument,
                  "{}: is not an object such as {{\"type\": \"text\", \"text\": …}}", place);
    }
    JIGE_TRY(const std::string type, get_string(content[i], "type", place));
    if (type != "text") {
      return fail(Code::kUnsupported, "{}: is of type \"{}\"; only parts of type \"text\" are read",
                  place, type);
    }
    JIGE_TRY(const std::string part, get_string(content[i], "text", place));
    text += part;
  }
  return text;
}

}  // namespace jige::text
