// POST /v1/chat/completions: from the body to a request for the engine.
//
// Messages have a role (system, developer, user, assistant, tool) and a content: a text, or a list
// of {"type": "text", "text": …}, whose texts are joined, and of images in messages of users and
// tools (request_images.h); an assistant's may have "tool_calls" instead. The folder's chat
// template makes the prompt; what looks like a control token inside a message, a tool or its output
// stays ordinary text. Threads: pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "api/completion_request.h"

namespace jige::api {

// Fails with 400 and the name of the field, or 404 where another model is asked for.
ApiResult<PreparedRequest> prepare_chat(const Json& body, const ServedModel& model,
                                        const RequestLimits& limits, uint64_t seed);

struct ChatPrompt {
  std::vector<int32_t> ids;  // a placeholder for each image
  std::vector<ImageFile> images;
  int64_t image_tokens = 0;  // that images take beside their placeholders
  int64_t token_count() const { return std::ssize(ids) + image_tokens; }
  std::optional<std::string> continued;  // the text of the last message, which the answer goes on
};

// "messages" with the members that belong to them, `tools` among them. Fails with 400.
ApiResult<ChatPrompt> encode_messages(FieldReader& fields, const ToolRequest& tools,
                                      const ServedModel& model, const RequestLimits& limits);

}  // namespace jige::api
