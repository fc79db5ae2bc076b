// Fields of the APIs that are spoken here and of their common extensions that Jige knows and cannot
// serve yet. Asking for them gives a clear 400 instead of an answer that has passed them over.
//
// Threads: pure functions.
#pragma once

#include "api/field_reader.h"

namespace jige::api {

// What a request asks; the last two are answered as chats are, in words of their own.
enum class Endpoint { kCompletions, kChat, kResponses, kMessages };

// Refuses the first field that asks for what is not there. Values that ask for nothing (null, an
// empty list, false, the default) pass.
void refuse_unserved(FieldReader& fields, Endpoint endpoint);

}  // namespace jige::api
