// The field "input" of POST /v1/responses as messages of a chat completion.
//
// Threads: pure function.
#pragma once

#include "api/chat_form.h"

namespace jige::api {

// Adds the messages, at most `items_max` items. Returns what is wrong.
Wrong add_input(ChatForm& form, const Json* input, size_t items_max);

}  // namespace jige::api
