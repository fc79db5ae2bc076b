#include "cli/bad_lines.h"

#include <fmt/format.h>

#include "base/log.h"
#include "cli/flags.h"

namespace jige::cli {

void declare_skip_bad(Flags& flags, bool& skip) {
  flags.toggle("--skip-bad", skip, "leave bad lines out and count them");
}

std::string bad_lines_text(int64_t count) {
  return fmt::format("{} bad line{} left out", count, count == 1 ? "" : "s");
}

void warn_of_bad_lines(int64_t count) {
  if (count > 0) log_warn("{}", bad_lines_text(count));
}

}  // namespace jige::cli
