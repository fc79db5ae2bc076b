#include "serve/stop_matcher.h"

#include <gtest/gtest.h>

namespace jige::serve {
namespace {

TEST(StopMatcher, HoldsBackWhatMightBeAStop) {
  StopMatcher matcher({"\nUser:"});
  EXPECT_EQ(matcher.push("Hello\nUs"), "Hello");
  EXPECT_EQ(matcher.push("er"), "");
  EXPECT_FALSE(matcher.matched());
  EXPECT_EQ(matcher.push(": more"), "");
  EXPECT_TRUE(matcher.matched());
  EXPECT_EQ(matcher.push("text"), "");
  EXPECT_EQ(matcher.flush(), "");
}

TEST(StopMatcher, LetsOutWhatTurnsOutToBeNone) {
  StopMatcher matcher({"aab"});
  EXPECT_EQ(matcher.push("aa"), "");
  EXPECT_EQ(matcher.push("a"), "a");  // the last two may still begin one
  EXPECT_EQ(matcher.push("c"), "aac");
  EXPECT_EQ(matcher.push("xa"), "x");
  EXPECT_EQ(matcher.flush(), "a");
}

TEST(StopMatcher, TakesTheStopThatIsCompleteFirst) {
  StopMatcher matcher({"later", "", "now"});
  EXPECT_EQ(matcher.push("x now later"), "x ");
  EXPECT_TRUE(matcher.matched());
}

TEST(StopMatcher, TellsTheStopAndCanIncludeIt) {
  StopMatcher matcher({"sto", "stop", "top"}, true);
  EXPECT_EQ(matcher.push("a st"), "a ");
  EXPECT_EQ(matcher.matched_stop(), "");
  EXPECT_EQ(matcher.push("op b"), "sto");
  EXPECT_EQ(matcher.matched_stop(), "sto");
  EXPECT_EQ(matcher.push("c"), "");
}

TEST(StopMatcher, WithoutStopsEverythingPasses) {
  StopMatcher matcher({""});
  EXPECT_EQ(matcher.push("abc"), "abc");
  EXPECT_FALSE(matcher.matched());
}

// However a text is cut into pieces, what comes out is the text up to the first stop.
TEST(StopMatcher, DoesNotDependOnThePieces) {
  const std::string text = "abacabadabacaba";
  struct Case {
    std::vector<std::string> stops;
    std::string out, stop;
  };
  for (const Case& one : {Case{{"dab", "abad"}, "abac", "abad"}, Case{{"c", "bacab"}, "aba", "c"},
                          Case{{"bacab", "c"}, "aba", "c"}, Case{{"ad", "bad"}, "abaca", "bad"}}) {
    for (size_t step = 1; step <= text.size(); ++step) {
      StopMatcher matcher(one.stops);
      std::string out;
      for (size_t at = 0; at < text.size(); at += step) out += matcher.push(text.substr(at, step));
      out += matcher.flush();
      EXPECT_EQ(out, one.out) << "pieces of " << step;
      EXPECT_EQ(matcher.matched_stop(), one.stop) << "pieces of " << step;
    }
  }
}

}  // namespace
}  // namespace jige::serve
