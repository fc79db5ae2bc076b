// A record of two answers to one prompt, of which one is preferred, as two documents.
//
//   {"prompt": text, "chosen": text, "rejected": text}
//   {"prompt": [messages], "chosen": [messages], "rejected": [messages]}
//   {"chosen": [messages], "rejected": [messages]}     whole conversations that begin alike
//
// Each is the document that {"prompt", "completion"} or {"messages"} would be (document_encoder.h):
// the same tokens, and learned is what is learned there. Of conversations, answers that both have
// before they begin to differ are the prompt's, and are not learned; the one that differs is, from
// its beginning. "tools" are for both.
// Threads: a pure function.
#pragma once

#include <cstdint>
#include <string>

#include "base/json.h"
#include "base/result.h"
#include "train/document_encoder.h"

namespace jige::train {

// Both documents, the chosen answer's first. Fails with kInvalidArgument where a field is missing,
// empty or of another type, where both answers are the same, and where one with its prompt has more
// than `context` inputs; `where` comes before every message.
Result<EncodedPart> encode_pair(const DocumentEncoder& encoder, const Json& object, int64_t context,
                                const std::string& where);

}  // namespace jige::train
