// What a command does just now, in the last line of a terminal; nowhere else.
//
// Threads: one.
#pragma once

#include <string>
#include <string_view>

namespace jige::cli {

class PassingNote {
 public:
  // Writes to standard error, where that is a terminal; quiet writes nothing.
  explicit PassingNote(bool quiet = false);

  void say(std::string_view text);
  // Takes it away, before something else is written.
  void clear() const;
  // Puts it back.
  void show() const;

 private:
  bool terminal_;
  std::string text_;
};

}  // namespace jige::cli
