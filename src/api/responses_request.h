// POST /v1/responses: from the body to a request for the engine, by way of a chat completion.
//
// "input" is a text, or items: messages, calls of functions with what came of them, reasoning. What
// the model wrote in one answer becomes one message again. Nothing is kept between requests.
// Threads: pure functions.
#pragma once

#include "api/completion_request.h"

namespace jige::api {

// Fails with 400 and the name of the field, or 404 where another model is asked for.
ApiResult<PreparedRequest> prepare_responses(const Json& body, const ServedModel& model,
                                             const RequestLimits& limits, uint64_t seed);

}  // namespace jige::api
