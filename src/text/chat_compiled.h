// A parsed chat template and what is given to it. Internal to chat_template.cc and
// chat_prefixes.cc.
//
// Threads: immutable after parsing; the functions are pure.
#pragma once

#include <string>

#include "base/json.h"
#include "base/result.h"
#include "text/chat_template.h"
#include "text/jinja_ast.h"
#include "text/jinja_interpreter.h"

namespace jige::text {

struct ChatTemplate::Compiled {
  jinja::Template tree;
  std::string source;
  bool wants_parts = false;  // shows a content that is a list of parts, and not one that is a text
};

// What becomes of members that are null: most templates handle a missing one better.
enum class Nulls { kDrop, kKeep };

// How a template is given messages.
struct MessageForm {
  Nulls nulls = Nulls::kDrop;
  bool parts = false;  // contents that are texts as lists of one part
};

// The message as templates see it. REQUIRES: an object.
Json prepared_message(const Json& message, MessageForm form);
// All of them. Fails with kInvalidArgument where they are no list of objects.
Result<Json> prepared_messages(const Json& messages, MessageForm form);
// Gives the run every variable but the messages. Fails with kInvalidArgument on variables that are
// no object or hold messages.
Status define_options(jinja::Interpreter& run, const ChatOptions& options);

}  // namespace jige::text
