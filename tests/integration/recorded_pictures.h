// Conversations about pictures as tests/tools/record_image_towers.py and its like record them, and
// as requests.
//
// Threads: free functions; failures are the running test's.
#pragma once

#include <cstddef>
#include <string>

#include "base/json.h"
#include "integration/serving.h"

namespace jige::integration {

// Of a folder: {"messages", "ids", "answer_ids", "answer"}: one message, or three with two pictures
// behind one another.
Json recorded_conversation(const std::string& folder, size_t index);

// A chat completion of 8 tokens: its pictures as data: URLs.
Json request_of(const Json& recorded);

// That the server answers it as recorded, and counts its tokens.
void expect_answer(const Serving& server, const Json& recorded);

}  // namespace jige::integration
