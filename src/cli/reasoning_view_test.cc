// Reasoning in a terminal and in a pipe.
#include "cli/reasoning_view.h"

#include <gtest/gtest.h>

namespace jige::cli {
namespace {

using text::ReasoningStart;

struct Shown {
  std::string printed, reasoning, content;
};

Shown show(ReasoningStart start, bool dims, const std::string& text) {
  Shown shown;
  ReasoningView view(start, dims, [&](std::string_view part) { shown.printed += part; });
  for (const char c : text) view.push(std::string_view(&c, 1));
  view.finish();
  shown.reasoning = view.reasoning();
  shown.content = view.content();
  return shown;
}

TEST(ReasoningView, DimsReasoningInATerminal) {
  const Shown shown = show(ReasoningStart::kMayOpen, true, "<think>\nHm.\n</think>\n\nYes.");
  EXPECT_EQ(shown.printed, "\x1b[2mHm.\x1b[0m\n\nYes.");
  EXPECT_EQ(shown.reasoning, "Hm.");
  EXPECT_EQ(shown.content, "Yes.");
  EXPECT_EQ(show(ReasoningStart::kOpened, true, "Hm").printed, "\x1b[2mHm\x1b[0m");
  EXPECT_EQ(show(ReasoningStart::kMayOpen, true, "<think>\n\n</think>\n\nYes.").printed, "Yes.");
  EXPECT_EQ(show(ReasoningStart::kMayOpen, true, " <b>").printed, " <b>");
  EXPECT_EQ(show(ReasoningStart::kNone, true, "<think>a</think>").printed, "<think>a</think>");
}

TEST(ReasoningView, ShowsWhatTheModelWroteElsewhere) {
  for (const std::string text : {"<think>\nHm.\n</think>\n\nYes.", "<think>Hm", "Yes. <thi"}) {
    for (const auto start : {ReasoningStart::kMayOpen, ReasoningStart::kOpened}) {
      EXPECT_EQ(show(start, false, text).printed, text);
    }
  }
  EXPECT_EQ(show(ReasoningStart::kOpened, false, "Hm.\n</think>Yes.").content, "Yes.");
}

TEST(ReasoningView, LeavesTheTerminalAsItWasWhenAnAnswerBreaksOff) {
  std::string printed;
  {
    ReasoningView view(ReasoningStart::kOpened, true,
                       [&](std::string_view part) { printed += part; });
    view.push("Hm");
  }
  EXPECT_EQ(printed, "\x1b[2mHm\x1b[0m");
}

}  // namespace
}  // namespace jige::cli
