#include "cli/output.h"

#include <gtest/gtest.h>
#include <unistd.h>

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

}  // namespace
}  // namespace jige::cli
