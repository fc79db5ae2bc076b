// The flag --reasoning of the commands that answer chats: whether answers begin with reasoning
// (text/reasoning.h) that is not their content.
//
// Threads: one thread.
#pragma once

#include <string>

#include "text/chat_template.h"

namespace jige::cli {

class Flags;

struct ReasoningFlag {
  std::string format = "auto";

  void declare(Flags& flags);
  // Whether answers may begin with it; auto: where the template knows of it. Null: no template.
  bool is_expected(const text::ChatTemplate* chat) const;
};

}  // namespace jige::cli
