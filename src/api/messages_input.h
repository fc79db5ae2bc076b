// The fields "system" and "messages" of POST /v1/messages as messages of a chat completion.
//
// Threads: pure function.
#pragma once

#include "api/chat_form.h"

namespace jige::api {

// Adds the messages, at most `messages_max` of them. Returns what is wrong.
Wrong add_conversation(ChatForm& form, const Json& body, size_t messages_max);

}  // namespace jige::api
