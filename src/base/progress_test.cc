#include "base/progress.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>

#include "base/log.h"
#include "base/test_terminal.h"

namespace jige {
namespace {

std::string drawn(const std::function<void()>& body) {
  testing::internal::CaptureStderr();
  body();
  return testing::internal::GetCapturedStderr();
}

// What body() writes to standard error while that is a terminal of `columns` columns.
std::optional<std::string> drawn_on_terminal(unsigned short columns,
                                             const std::function<void()>& body) {
  return shown_on_terminal({STDERR_FILENO}, columns, body);
}

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(Progress, WritesALineNowAndThenWhereThereIsNoTerminal) {
  const std::string text = drawn([] {
    Progress progress("training", 1000);
    for (int i = 0; i <= 1000; ++i) progress.update(i, "loss 2.5");  // well within five seconds
    progress.update(500, "half", true);
    progress.finish("final loss 1.5");
  });
  EXPECT_EQ(count_of(text, "\n"), 3u) << text;
  EXPECT_EQ(count_of(text, "\r"), 0u);
  EXPECT_NE(text.find("training"), std::string::npos);
  EXPECT_NE(text.find("50 %"), std::string::npos);
  EXPECT_NE(text.find("final loss 1.5"), std::string::npos);
}

TEST(Progress, SaysNothingOfWorkThatIsOverSoonerThanItIsShown) {
  EXPECT_EQ(drawn([] {
              Progress progress("tokenizing", 10, false, 3600);
              progress.update(5, "note", true);
              progress.finish("end");
            }),
            "");
  const std::string text = drawn([] {
    Progress progress("tokenizing", 10, false, 1e-9);
    progress.update(5, "note");
    progress.finish("end");
  });
  EXPECT_NE(text.find("50 %"), std::string::npos) << text;
  EXPECT_NE(text.find("tokenizing done in"), std::string::npos) << text;
}

TEST(Progress, QuietWritesNothing) {
  EXPECT_EQ(drawn([] {
              Progress progress("training", 10, true);
              progress.update(5, "note", true);
              progress.finish("end");
            }),
            "");
}

TEST(Progress, TakesAnyTotalAndPosition) {
  const std::string text = drawn([] {
    for (const int64_t total : {int64_t{0}, int64_t{-5}, INT64_MAX}) {
      Progress progress("odd", total);
      for (const int64_t done : {int64_t{-1}, int64_t{0}, int64_t{7}, INT64_MAX}) {
        progress.update(done, "", true);
      }
    }
  });
  EXPECT_EQ(count_of(text, "\n"), 12u);
  EXPECT_NE(text.find("100 %"), std::string::npos);
  EXPECT_EQ(text.find("-"), std::string::npos) << text;
}

TEST(Progress, RedrawsOneLineWithinTheTerminal) {
  const std::optional<std::string> shown = drawn_on_terminal(40, [] {
    Progress progress("training", 10);
    progress.update(3, "a note that is much longer than the terminal is wide, äöü", true);
    progress.update(4, "again", true);
    progress.finish("end");
  });
  if (!shown.has_value()) GTEST_SKIP() << kNoTerminal;
  const std::string& text = *shown;
  EXPECT_EQ(count_of(text, "\n"), 1u) << text;
  EXPECT_EQ(count_of(text, "\x1b[K"), 3u);
  // Between the carriage return and the erasure stand fewer characters than columns.
  const size_t begin = text.find('\r') + 1;
  const std::string line = text.substr(begin, text.find("\x1b[K") - begin);
  size_t characters = 0;
  for (const char c : line) characters += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  EXPECT_EQ(characters, 39u) << line;
}

// A long note, such as that of training, neither hides what is left nor is hidden by the bar.
TEST(Progress, ShowsWhatIsLeftHoweverNarrowTheTerminal) {
  const std::string note = "loss 5.153  42.3 k tokens/s  244.6 GFLOP/s (27 %)";
  const auto shown_at = [&note](unsigned short columns) {
    return drawn_on_terminal(columns, [&note] { Progress("training", 10).update(5, note, true); });
  };
  const std::optional<std::string> wide = shown_at(120), usual = shown_at(80),
                                   narrow = shown_at(40);
  if (!wide.has_value()) GTEST_SKIP() << kNoTerminal;
  EXPECT_EQ(wide->find("training ████████████░░░░░░░░░░░░  50 %  0:00 left  loss"), 1u) << *wide;
  EXPECT_NE(wide->find("(27 %)\x1b[K"), std::string::npos) << *wide;
  EXPECT_EQ(usual->find("training ████░░░░  50 %  0:00 left  loss 5.153  42.3 k"), 1u) << *usual;
  EXPECT_EQ(narrow->find("training  50 %  0:00 left  loss 5.153"), 1u) << *narrow;
}

TEST(Progress, EndsItsLineWhenItIsDropped) {
  const std::optional<std::string> shown = drawn_on_terminal(80, [] {
    Progress progress("training", 10);
    progress.update(3, "note", true);
  });
  if (!shown.has_value()) GTEST_SKIP() << kNoTerminal;
  const std::string& text = *shown;
  ASSERT_FALSE(text.empty());
  EXPECT_EQ(text.back(), '\n');
}

TEST(Progress, LogLinesTakeThePlaceOfTheBar) {
  const std::optional<std::string> shown = drawn_on_terminal(60, [] {
    Progress progress("planning", 100);
    progress.update(10, "note", true);
    log_warn("look here");
    log_warn("and here");
    progress.update(20, "note", true);
  });
  if (!shown.has_value()) GTEST_SKIP() << kNoTerminal;
  const std::string& text = *shown;
  const size_t warning = text.find("warning");
  ASSERT_NE(warning, std::string::npos) << text;
  const std::string cleared = "\r\x1b[K";
  // The level stands behind a colour.
  EXPECT_NE(text.rfind(cleared, warning), std::string::npos) << text;
  EXPECT_GT(text.rfind(cleared, warning), text.find("10 %")) << text;
  EXPECT_EQ(text.find(cleared, warning), std::string::npos) << "no bar stood below the first line";
  EXPECT_GT(text.find("20 %"), text.find("and here")) << text;
}

}  // namespace
}  // namespace jige
