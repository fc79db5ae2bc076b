#include "base/printable.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "base/log.h"
#include "base/progress.h"
#include "base/test_terminal.h"

namespace jige {
namespace {

TEST(Printable, ShowsWhatWouldCommandATerminal) {
  EXPECT_EQ(printable("plain, größer, 字, 🙂"), "plain, größer, 字, 🙂");
  EXPECT_EQ(printable("a\x1b[2J\nb\r\tc\x7f"), "a\\x1b[2J\\nb\\r\\tc\\x7f");
  EXPECT_EQ(printable(std::string_view("\0a", 2)), "\\x00a");
  EXPECT_EQ(printable("\xC2\x9B"
                      "2J\xC2\xA0"),
            "\\u009b2J\xC2\xA0");
}

TEST(Printable, ShowsBytesThatAreNotUtf8) {
  EXPECT_EQ(printable("\x9B"
                      "2J"),
            "\\x9b2J");
  EXPECT_EQ(printable("caf\xE9"), "caf\\xe9");
  EXPECT_EQ(printable("\xE0\x82\x9B"), "\\xe0\\x82\\x9b");  // a control character, made longer
  EXPECT_EQ(printable("\xC1\x9B"), "\\xc1\\x9b");
  EXPECT_EQ(printable("\xED\xA0\x80"), "\\xed\\xa0\\x80");
  EXPECT_EQ(printable("\xF4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
  EXPECT_EQ(printable("\xF0\x9F\x99"), "\\xf0\\x9f\\x99");
}

TEST(Printable, LinesStayAndCanBeSetIn) {
  EXPECT_EQ(printable_lines("a\tb\nc\x1b\n"), "a\tb\nc\\x1b\n");
  EXPECT_EQ(printable_lines("a\nerror: b\n", "  "), "a\n  error: b\n");
}

TEST(Printable, CutsBetweenCharacters) {
  EXPECT_EQ(cut_to_columns("größer", 3), "grö");
  EXPECT_EQ(cut_to_columns("größer", 9), "größer");
  EXPECT_EQ(column_count("größer"), 6u);
}

TEST(Printable, LeavesOutOfAModelsTextWhatCommandsATerminal) {
  EXPECT_EQ(without_controls("größer\n\t👍"), "größer\n\t👍");
  EXPECT_EQ(without_controls("a\x1b[2Jb\rc\x7f\x07"), "a[2Jbc");
  EXPECT_EQ(without_controls("a\u009b2Jb\u0085\u00a0"), "a2Jb\u00a0");
  EXPECT_EQ(without_controls("a\xff\xc3"), "a");
}

TEST(Log, ALineCannotCommandTheTerminalNorBeginAnother) {
  const std::optional<std::string> shown = shown_on_terminal(
      {STDERR_FILENO}, 80, [] { log_warn("model\x1b[2J\x1b]0;title\x07: odd\nerror: none"); });
  if (!shown.has_value()) GTEST_SKIP() << kNoTerminal;
  const std::string& text = *shown;
  EXPECT_NE(text.find("model\\x1b[2J\\x1b]0;title\\x07: odd\r\n  error: none"), std::string::npos)
      << text;
}

TEST(Progress, NotesCannotCommandTheTerminal) {
  const std::optional<std::string> shown = shown_on_terminal({STDERR_FILENO}, 200, [] {
    Progress progress("of \x1b[2J", 2);
    progress.update(1, "ring a\nb", true);
    progress.finish("ring \x1b]0;x\x07");
  });
  if (!shown.has_value()) GTEST_SKIP() << kNoTerminal;
  const std::string& text = *shown;
  EXPECT_EQ(text.find("\x1b[2J"), std::string::npos) << text;
  EXPECT_EQ(text.find("\x1b]"), std::string::npos) << text;
  EXPECT_NE(text.find("ring a\\nb"), std::string::npos) << text;
}

}  // namespace
}  // namespace jige
