#include "cli/shell_word.h"

#include <gtest/gtest.h>

#include "base/process.h"

namespace jige::cli {
namespace {

TEST(ShellWord, LeavesPlainPathsAsTheyAre) {
  EXPECT_EQ(shell_word("/var/lib/jige-1.2/graph_3.xml"), "/var/lib/jige-1.2/graph_3.xml");
  EXPECT_EQ(shell_word(""), "''");
}

TEST(ShellWord, IsReadBackByAShellWhateverIsInIt) {
  for (const std::string text :
       {"/a b/c", "it's", "$HOME", "`id`", "a;b", "/a:~/b", "two\nlines", "\\", "*", "#no", "ü"}) {
    const auto ran =
        run_process({"sh", "-c", "VALUE=" + shell_word(text) + "\nprintf %s \"$VALUE\""});
    ASSERT_TRUE(ran) << ran.error().message;
    EXPECT_EQ(ran->out, text);
  }
}

}  // namespace
}  // namespace jige::cli
