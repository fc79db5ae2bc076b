#include "cli/output.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <string>

#include "base/progress.h"
#include "base/test_terminal.h"

namespace jige::cli {
namespace {

TEST(PrintText, TakesThePlaceOfAProgressBar) {
  const std::optional<std::string> shown =
      shown_on_terminal({STDOUT_FILENO, STDERR_FILENO}, 80, [] {
        Progress progress("scoring", 4);
        progress.update(1, "1 record");
        print_text("a result\n");
        print_text("another\n");
        progress.update(2, "2 records", true);
      });
  if (!shown.has_value()) GTEST_SKIP() << kNoTerminal;
  const std::string& text = *shown;
  const std::string end_of_bar = "left  1 record\x1b[K";
  const size_t bar = text.find(end_of_bar);
  ASSERT_NE(bar, std::string::npos) << text;
  EXPECT_TRUE(
      text.substr(bar + end_of_bar.size()).starts_with("\r\x1b[Ka result\r\nanother\r\n\rscoring"))
      << text;
}

TEST(AllowsColor, UnlessTheUserOrTheTerminalWantsNone) {
  const auto kept = [](const char* name) -> std::optional<std::string> {
    const char* const value = std::getenv(name);
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
  const auto refused = kept("NO_COLOR"), terminal = kept("TERM");
  const auto allowed = [](const char* no_color, const char* term) {
    setenv("NO_COLOR", no_color, 1);
    setenv("TERM", term, 1);
    return allows_color();
  };
  EXPECT_TRUE(allowed("", "xterm-256color"));
  EXPECT_FALSE(allowed("1", "xterm-256color"));
  EXPECT_FALSE(allowed("", "dumb"));
  refused ? setenv("NO_COLOR", refused->c_str(), 1) : unsetenv("NO_COLOR");
  terminal ? setenv("TERM", terminal->c_str(), 1) : unsetenv("TERM");
}

}  // namespace
}  // namespace jige::cli
