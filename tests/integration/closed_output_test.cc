// What whoever reads standard output does to a command when going away, as `| head -1` does.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <thread>

#include "integration/serving.h"
#include "integration/tiny_run.h"

namespace jige::integration {
namespace {

// A jige whose standard output is read to the end of its first line, and no further.
class ReadOnce {
 public:
  explicit ReadOnce(const std::vector<std::string>& arguments) {
    EXPECT_EQ(mkfifo((folder_ / "out").c_str(), 0600), 0);
    process_ = std::make_unique<Process>(arguments, folder_.path());
    std::ifstream reader(folder_ / "out");
    std::getline(reader, line_);
  }
  const std::string& line() const { return line_; }
  Process& process() { return *process_; }

 private:
  TestFolder folder_;
  std::unique_ptr<Process> process_;
  std::string line_;
};

TEST(ClosedOutput, AServerGoesOn) {
  ReadOnce server({"serve", TinyRun::get().run(), "--port", "0", "--json"});
  const auto first = parse_json(server.line(), "standard output");
  ASSERT_TRUE(first) << server.line();
  const auto port = (*first)["port"].get<uint16_t>();
  int status = 0;
  for (int i = 0; i < 2000 && status != 200 && server.process().running(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    status = api::testing::fetch(port, "GET", "/ready", "", "").status;
  }
  EXPECT_EQ(status, 200);
  server.process().send(SIGTERM);  // it says so at the end, to nobody
  const Outcome outcome = server.process().wait_without_output();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
}

TEST(ClosedOutput, ATrainingRunGoesOn) {
  const TestFolder folder;
  std::vector<std::string> arguments = tiny_train_arguments(TinyRun::get().corpus(), 5);
  arguments.insert(arguments.end(), {"--out", folder / "run"});
  std::string command = "(" + shell_quoted(jige_binary());
  for (const std::string& word : arguments) command += " " + shell_quoted(word);
  command += " 2>&1; echo $? > " + shell_quoted(folder / "code") + ") | true";
  ASSERT_EQ(std::system(command.c_str()), 0);
  EXPECT_EQ(read_text(folder / "code"), "0\n");
  EXPECT_TRUE(exists(folder / "run/model"));
}

TEST(ClosedOutput, WhatIsMadeToBeReadEnds) {
  ReadOnce words({"generate", TinyRun::get().run(), "--prompt", "A", "--samples", "50"});
  EXPECT_EQ(words.process().wait_without_output().exit_code, 128 + SIGPIPE);
}

// Messages are for people who may have gone; results are what counts.
TEST(ClosedOutput, MessagesThatNobodyCanReadEndNothing) {
  const TestFolder folder;
  write_text(folder / "texts.jsonl", "{\"text\": \"a b c\"}\n");
  const std::string model = shell_quoted(TinyRun::get().run());
  const std::string texts = shell_quoted(folder / "texts.jsonl");
  for (const std::string_view end : {"2>/dev/full", "2>&-"}) {
    for (const std::string& command :
         {"score " + model + " " + texts, "embed " + model + " " + texts,
          "chat " + model + " --max-new-tokens 2 </dev/null"}) {
      const std::string line =
          shell_quoted(jige_binary()) + " " + command + " >/dev/null " + std::string(end);
      EXPECT_EQ(std::system(line.c_str()), 0) << line;
    }
  }
}

TEST(ClosedOutput, RanksEndAsOneProcessDoes) {
  ReadOnce rates({"bench", "collective", "--ranks", "2", "--max-bytes", "1M", "--iters", "200"});
  const Outcome outcome = rates.process().wait_without_output();
  EXPECT_EQ(outcome.exit_code, 128 + SIGPIPE);
  EXPECT_EQ(outcome.err, "");
}

TEST(ClosedOutput, WhatRanksCouldNotPrintIsAnError) {
  const std::string command = shell_quoted(jige_binary()) +
                              " bench collective --ranks 2 --max-bytes 1K --quiet 2>&1 >/dev/full";
  std::array<char, 256> line = {};
  std::FILE* const messages = popen(command.c_str(), "r");
  ASSERT_NE(messages, nullptr);
  EXPECT_NE(std::fgets(line.data(), line.size(), messages), nullptr);
  EXPECT_EQ(pclose(messages), 6 << 8);
  EXPECT_STREQ(line.data(),
               "error: standard output: No space left on device; the result is not complete\n");
}

}  // namespace
}  // namespace jige::integration
