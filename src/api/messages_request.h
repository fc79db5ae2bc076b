// POST /v1/messages and /v1/messages/count_tokens: from the body to a request for the engine, by
// way of a chat completion.
//
// A user's message with results of tools becomes messages of those tools and of the user, in the
// order of the blocks. Thinking is shown where it is asked for.
// Threads: pure functions.
#pragma once

#include "api/completion_request.h"

namespace jige::api {

// Fails with 400 and the name of the field, or 404 where another model is asked for.
ApiResult<PreparedRequest> prepare_messages(const Json& body, const ServedModel& model,
                                            const RequestLimits& limits, uint64_t seed);

// {"input_tokens": N} of the prompt that such a request makes, which may be longer than the
// context.
ApiResult<Json> count_message_tokens(const Json& body, const ServedModel& model,
                                     const RequestLimits& limits);

}  // namespace jige::api
