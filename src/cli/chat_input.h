// The user's side of `jige chat`: lines from a terminal with a prompt, or from a pipe without.
//
// Threads: one thread.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"

namespace jige::cli {

class ChatInput {
 public:
  explicit ChatInput(bool quiet);

  // On a terminal, says what this is and how to end it.
  void greet(const std::string& model);
  // The next message; lines that end with a backslash are joined with the next one. Nothing at the
  // end of input or when Ctrl-C comes at the prompt. Fails with kIo, and with kExhausted on a
  // message longer than 16 MiB.
  Result<std::optional<std::string>> next();

 private:
  // The next line without its end; nothing at the end of input.
  Result<std::optional<std::string>> read_line();
  void show_prompt(const char* text) const;

  bool terminal_;
  bool quiet_;
  bool color_;
  std::string buffer_;
  bool at_end_ = false;
};

}  // namespace jige::cli
