// Real links with a bottleneck that nobody described: network namespaces with shaped links, agents
// on them, and a ring planned by measuring. Needs root.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>

#include "integration/process.h"

namespace jige::integration {
namespace {

constexpr int kSkipped = 77;

// Slow links: what they carry then hangs on them alone, also where the processors have other work.
constexpr const char* kQuick = "--quick --hosts 4 --link-mbit 100 --trunk-mbit 100";

// The exit code; what the command says goes to files in the folder.
int shell(const TestFolder& folder, const std::string& command) {
  const std::string whole = command + " > '" + (folder / "out") + "' 2> '" + (folder / "err") + "'";
  const int status = std::system(whole.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string script(const std::string& flags) {
  return "python3 '" JIGE_SOURCE_DIR "/bench/congestion_netns' --jige '" + jige_binary() + "' " +
         flags;
}

bool python_is_there(const TestFolder& folder) { return shell(folder, "python3 -c pass") == 0; }

// The rates are measured, and other work on this machine can spoil a measurement: three tries.
void expect_the_trunk_is_found(const std::string& flags) {
  std::string seen;
  for (int tries = 0; tries < 3; ++tries) {
    const TestFolder folder;
    const int code = shell(folder, script(flags));
    const std::string out = read_text(folder / "out"), err = read_text(folder / "err");
    if (code == kSkipped) GTEST_SKIP() << err;
    if (code == 0) {
      EXPECT_THAT(out, ::testing::HasSubstr("x rank order"));
      return;
    }
    seen += out + err;
  }
  ADD_FAILURE() << seen;
}

TEST(Congestion, AHiddenTrunkIsFoundAndAvoided) {
  const TestFolder folder;
  if (!python_is_there(folder)) GTEST_SKIP() << "needs python3";
  expect_the_trunk_is_found(kQuick);
}

// The same measured by ranks of MPI, one in the namespace of each host.
TEST(Congestion, MpiFindsItAsWell) {
  const TestFolder folder;
  if (!python_is_there(folder)) GTEST_SKIP() << "needs python3";
  const bool mpi = shell(folder, "command -v mpirun") == 0 && exists(jige_binary() + "-mpi-links");
  if (!mpi) GTEST_SKIP() << "needs mpirun and a build with MPI";
  expect_the_trunk_is_found(std::string(kQuick) + " --mpi");
}

TEST(Congestion, AnInterruptedRunTakesItsNetworkDown) {
  const TestFolder folder;
  if (!python_is_there(folder)) GTEST_SKIP() << "needs python3";
  // The script's own namespaces carry the number of its process.
  const int code =
      shell(folder, "{ setsid " + script(kQuick) + " & echo $! > '" + (folder / "pid") +
                        "'; sleep 3; kill -INT $(cat '" + (folder / "pid") + "'); wait $!; }");
  if (code == kSkipped) GTEST_SKIP() << read_text(folder / "err");
  EXPECT_NE(code, 0) << "it ended before it was interrupted";
  std::string pid = read_text(folder / "pid");
  while (!pid.empty() && pid.back() == '\n') pid.pop_back();
  ASSERT_EQ(shell(folder, "ip netns list"), 0);
  EXPECT_THAT(read_text(folder / "out"), ::testing::Not(::testing::HasSubstr("jigelab." + pid)));
}

}  // namespace
}  // namespace jige::integration
