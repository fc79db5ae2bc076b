#include "cli/passing_note.h"

#include <unistd.h>

#include "base/printable.h"
#include "cli/output.h"

namespace jige::cli {

PassingNote::PassingNote(bool quiet) : terminal_(!quiet && isatty(STDERR_FILENO) == 1) {}

void PassingNote::say(std::string_view text) {
  clear();
  text_ = printable(text);
  show();
}

void PassingNote::clear() const {
  if (terminal_ && !text_.empty()) print_message("\r\x1b[K");
}

void PassingNote::show() const {
  if (terminal_ && !text_.empty()) print_message(text_ + " …");
}

}  // namespace jige::cli
