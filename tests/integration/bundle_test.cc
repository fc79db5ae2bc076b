// tools/bundle: a folder with the binary and its libraries, for other machines.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "base/process.h"
#include "integration/process.h"

namespace jige::integration {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;

ProcessOutcome run(const std::vector<std::string>& words) {
  Result<ProcessOutcome> outcome = run_process(words, {.limit_s = 60});
  EXPECT_TRUE(outcome) << (outcome ? "" : outcome.error().message);
  return outcome ? *outcome : ProcessOutcome{.exit_code = -1};
}

ProcessOutcome bundle(const std::vector<std::string>& words) {
  std::vector<std::string> call = {std::string(JIGE_SOURCE_DIR) + "/tools/bundle"};
  call.insert(call.end(), words.begin(), words.end());
  return run(call);
}

std::set<std::string> names_in(const std::string& folder) {
  const std::vector<std::string> names = list_tree(folder);
  return {names.begin(), names.end()};
}

// Names of libraries that the loader takes from elsewhere than `folder`/lib; those it takes from
// there go to `own`.
std::set<std::string> libraries_elsewhere(const std::string& folder, std::set<std::string>* own) {
  const ProcessOutcome listed =
      run({"env", "LD_LIBRARY_PATH=", "LD_TRACE_LOADED_OBJECTS=1", folder + "/jige"});
  EXPECT_EQ(listed.exit_code, 0) << listed.err;
  std::set<std::string> others;
  const std::regex line("\t(\\S+) => (.+) \\(0x");
  for (std::sregex_iterator at(listed.out.begin(), listed.out.end(), line), end; at != end; ++at) {
    const std::string name = (*at)[1];
    (*at)[2] == folder + "/lib/" + name ? own->insert(name) : others.insert(name);
  }
  return others;
}

TEST(Bundle, RunsWithItsOwnLibraries) {
  const TestFolder folder;
  const std::string out = folder / "jige bundle";
  const ProcessOutcome made = bundle({out, "--binary", jige_binary()});
  ASSERT_EQ(made.exit_code, 0) << made.err;

  const ProcessOutcome version =
      run({"env", "LD_LIBRARY_PATH=", out + "/jige", "version", "--json"});
  EXPECT_EQ(version.exit_code, 0) << version.err;
  EXPECT_EQ(version.out, run_jige({"version", "--json"}).out);

  std::set<std::string> own;
  const std::set<std::string> others = libraries_elsewhere(out, &own);
  EXPECT_THAT(own, IsSupersetOf({"libstdc++.so.6", "libgcc_s.so.1", "libpcre2-8.so.0"}));
  std::set<std::string> ours = names_in(out + "/lib");
  EXPECT_EQ(own, ours);  // nothing is carried for nobody
  const std::set<std::string> of_c = {"libc.so.6",       "libm.so.6",  "libdl.so.2",
                                      "libpthread.so.0", "librt.so.1", "libresolv.so.2"};
  for (const std::string& name : others) EXPECT_TRUE(of_c.contains(name)) << name;

  // Moved elsewhere, it still finds them.
  const std::string moved = folder / "moved";
  std::filesystem::rename(out, moved);
  std::set<std::string> own_moved;
  EXPECT_EQ(libraries_elsewhere(moved, &own_moved), others);
  EXPECT_EQ(own_moved, own);
}

TEST(Bundle, LeavesNothingBehindWhereItCannotBeMade) {
  const TestFolder folder;
  const std::string binary = jige_binary();
  const auto refused = [&](const std::vector<std::string>& words, const std::string& said) {
    const ProcessOutcome outcome = bundle(words);
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_THAT(outcome.err, HasSubstr("error: "));
    EXPECT_THAT(outcome.err, HasSubstr(said));
  };
  refused({}, "which folder?");
  refused({folder / "out", "--preset"}, "--preset needs a value");
  refused({folder / "out", "--with-everything"}, "no flag --with-everything");
  refused({folder / "out", folder / "other"}, "one folder is made");
  refused({folder / "out", "--preset", "none"}, "build/none/jige; cmake --build --preset none");
  refused({folder / "none/out", "--binary", binary}, "there is no folder");
  // A program that does not look into lib: of no use elsewhere.
  refused({folder / "out", "--binary", "/bin/ls"}, "does not look for libraries in lib beside it");
  EXPECT_THAT(list_tree(folder.path()), IsEmpty());

  write_text(folder / "out", "mine");
  refused({folder / "out", "--binary", binary}, "is there already");
  EXPECT_EQ(read_text(folder / "out"), "mine");
  EXPECT_THAT(list_tree(folder.path()), ::testing::ElementsAre("out"));
}

}  // namespace
}  // namespace jige::integration
