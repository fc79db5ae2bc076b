// A content of a message: a text, or a list of typed parts, such as {"type": "text", "text": "…"}.
//
// Threads: pure functions.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "api/field_reader.h"

namespace jige::api {

class RequestImages;  // request_images.h

// The text of a part, which must be of one of these types. Errors name what is wrong, behind
// `where`: the part.
ApiResult<std::string> part_text(const Json& part, const std::string& where,
                                 std::span<const std::string_view> types);

// The content as one text: a text, or those of parts of these types, one right behind the other.
// Errors name the part, behind `where`.
ApiResult<std::string> content_text(const Json& content, const std::string& where,
                                    std::span<const std::string_view> types);

// The parts of a chat completion's message as chat templates take them: one text or, with images
// among them, the list of {"type": "text", "text": …} and {"type": "image"}. What the images are
// goes to `images`, by `role` of the message. REQUIRES: `parts` is a list.
ApiResult<Json> read_parts(const Json& parts, const std::string& where, std::string_view role,
                           RequestImages& images);

// Adds a text to a content that is null, a text or a list of parts: to the text that it ends with,
// or as a part of its own.
void add_text(Json& content, const std::string& text);
// Adds a part that is no text; the content becomes a list.
void add_part(Json& content, Json part);
// Whether it is, or ends with, a text.
bool ends_with_text(const Json& content);

}  // namespace jige::api
