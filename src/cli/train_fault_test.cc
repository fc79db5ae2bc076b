// jige train whose device fails in the middle of a step: the command ends by itself, says what
// failed and where the run stands, and goes on when it is given again.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "base/clock.h"
#include "base/file.h"
#include "base/test_path.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/output.h"
#include "cli/train_command.h"
#include "formats/checkpoint.h"

namespace jige::cli {
namespace {

using ::testing::HasSubstr;

constexpr double kSecondsMax = 60;

struct Outcome {
  int exit_code = -1;  // -1: it did not end by itself
  std::string errors;
};

// Runs the command in a process of its own, as cli::run does.
Outcome run_command(Command& command, const std::vector<std::string>& words,
                    const std::string& errors_path) {
  const pid_t child = fork();
  if (child == 0) {
    const int fd = open(errors_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || dup2(fd, STDERR_FILENO) < 0) _exit(126);
    Flags flags("train");
    command.declare(flags);
    Status status = flags.parse(words);
    if (status) status = command.run();
    if (!status) print_error(status.error(), false);
    _exit(status ? 0 : exit_code(status.error().code));
  }
  int status = 0;
  const StopWatch watch;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (watch.seconds() > kSecondsMax) kill(child, SIGKILL);
    usleep(1000);
  }
  return {.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1,
          .errors = read_file(errors_path).value_or("")};
}

TEST(TrainCommand, EndsWhenADeviceFailsAndGoesOnWithTheSameBits) {
  const std::string folder = test_root() + "jige_train_fault." + std::to_string(getpid());
  std::filesystem::create_directories(folder);
  std::string text;
  for (int i = 0; i < 60; ++i) text += "Item " + std::to_string(i * 7) + " is on the shelf.\n\n";
  ASSERT_TRUE(write_file_atomic(folder + "/a.txt", text));
  const auto words = [&](const std::string& out) {
    return std::vector<std::string>{"--data",
                                    folder + "/a.txt",
                                    "--split",
                                    "blank-lines",
                                    "--width",
                                    "32",
                                    "--layers",
                                    "4",
                                    "--heads",
                                    "2",
                                    "--context",
                                    "32",
                                    "--steps",
                                    "6",
                                    "--dtype",
                                    "f32",
                                    "--threads",
                                    "1",
                                    "--devices",
                                    "2",
                                    "--quiet",
                                    "--save-every",
                                    "1",
                                    "--vocab-size",
                                    "300",
                                    "--batch-tokens",
                                    "128",
                                    "--micro-batch-tokens",
                                    "32",
                                    "--out",
                                    folder + "/" + out};
  };
  const auto whole = make_train_command();
  const Outcome expected = run_command(*whole, words("whole"), folder + "/err");
  ASSERT_EQ(expected.exit_code, 0) << expected.errors;

  // In the first task of a step: the checkpoint of the step before is being written.
  const auto faulty = make_adjusted_train_command([](train::TrainOptions& options) {
    options.pipeline->before_task = [](int64_t step, int32_t task) -> Status {
      if (step == 4 && task == 0) return fail(Code::kUnavailable, "the device is lost");
      return {};
    };
  });
  const StopWatch watch;
  const Outcome failed = run_command(*faulty, words("failed"), folder + "/err");
  EXPECT_LT(watch.seconds(), kSecondsMax / 2);
  EXPECT_EQ(failed.exit_code, exit_code(Code::kUnavailable)) << failed.errors;
  EXPECT_THAT(failed.errors, HasSubstr("error: step 4 failed; the checkpoint of step 3 is whole"));
  EXPECT_THAT(failed.errors, HasSubstr("task #0 "));
  EXPECT_THAT(failed.errors, HasSubstr(" on device 0"));
  EXPECT_THAT(failed.errors, HasSubstr("the device is lost"));
  const auto latest = formats::find_latest_checkpoint(folder + "/failed/checkpoints");
  ASSERT_TRUE(latest) << latest.error().message;
  EXPECT_THAT(*latest, HasSubstr("step-00000003"));

  const auto again = make_train_command();
  const Outcome resumed = run_command(*again, words("failed"), folder + "/err");
  ASSERT_EQ(resumed.exit_code, 0) << resumed.errors;
  EXPECT_EQ(*read_file(folder + "/failed/model/model.safetensors"),
            *read_file(folder + "/whole/model/model.safetensors"));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace jige::cli
