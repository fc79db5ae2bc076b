// What every command promises: help, errors with remedies, exit codes, JSON.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "integration/process.h"
#include "integration/tiny_run.h"

namespace jige::integration {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::vector<std::vector<std::string>> all_commands() {
  std::vector<std::vector<std::string>> commands;
  const std::string help = run_jige({"--help"}).out;
  // Lines of the list: two spaces, one or two words, at least two spaces, the summary.
  const std::regex line("\n  ([a-z-]+)( [a-z-]+)?  +[a-z]");
  for (std::sregex_iterator at(help.begin(), help.end(), line), end; at != end; ++at) {
    commands.push_back({(*at)[1]});
    if ((*at)[2].matched) commands.back().push_back((*at)[2].str().substr(1));
  }
  return commands;
}

size_t columns(const std::string& line) {
  size_t count = 0;
  for (const char c : line) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

TEST(CommandLine, HelpListsEveryCommand) {
  const auto commands = all_commands();
  EXPECT_GT(commands.size(), 20u);
  EXPECT_THAT(commands, ::testing::Contains(std::vector<std::string>{"tokenizer", "train"}));
  EXPECT_EQ(run_jige({}).exit_code, 0);
}

TEST(CommandLine, ACommandOfTwoWordsTellsItsSecondOnes) {
  const Outcome alone = run_jige({"plan"});
  EXPECT_EQ(alone.exit_code, 2);
  EXPECT_THAT(alone.err, HasSubstr("jige plan needs one more word: `jige "));
  EXPECT_THAT(alone.err, HasSubstr("`jige plan rings`"));
  const Outcome other = run_jige({"plan", "ring", "--json"});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("no command \"plan ring\", only `jige plan "));
  EXPECT_THAT(other.err, HasSubstr("; did you mean plan rings?"));
  const Outcome help = run_jige({"plan", "--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, HasSubstr("\n  plan rings  "));
}

TEST(CommandLine, EveryHelpHasTwoExamplesAndFitsATerminal) {
  for (std::vector<std::string> command : all_commands()) {
    command.push_back("--help");
    const Outcome help = run_jige(command);
    EXPECT_EQ(help.exit_code, 0) << command[0];
    const size_t examples = help.out.find("\nExamples:\n  ");
    ASSERT_NE(examples, std::string::npos) << command[0];
    EXPECT_GE(
        std::count(help.out.begin() + static_cast<std::ptrdiff_t>(examples), help.out.end(), '\n'),
        4)
        << command[0];
    std::string before = help.out.substr(0, examples);
    if (before.find("  --out ") != std::string::npos) {
      EXPECT_NE(before.find("-o, --out "), std::string::npos) << command[0];
    }
    for (size_t begin = 0; begin < before.size();) {
      const size_t end = std::min(before.find('\n', begin), before.size());
      EXPECT_LE(columns(before.substr(begin, end - begin)), 80u)
          << before.substr(begin, end - begin);
      begin = end + 1;
    }
  }
}

TEST(CommandLine, EveryCommandRefusesUnknownFlags) {
  for (std::vector<std::string> command : all_commands()) {
    command.push_back("--jsom");
    const Outcome outcome = run_jige(command);
    EXPECT_EQ(outcome.exit_code, 2) << command[0];
    EXPECT_THAT(outcome.err, StartsWith("error: "));
    EXPECT_THAT(outcome.err, HasSubstr("--jsom; did you mean --json?"));
    EXPECT_EQ(outcome.out, "");
  }
}

TEST(CommandLine, MistypedCommandsGetASuggestion) {
  const Outcome outcome = run_jige({"trian"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("did you mean train?"));
  EXPECT_THAT(run_jige({"tokenizer"}).err, HasSubstr("tokenizer train"));
}

TEST(CommandLine, ErrorsAreJsonWhereJsonIsWanted) {
  const Outcome outcome = run_jige({"inspect", "/nowhere", "--json"});
  EXPECT_EQ(outcome.exit_code, 3);
  const Json json = outcome.json();
  EXPECT_EQ(json["error"]["code"], "not_found");
  EXPECT_EQ(json["error"]["exit_code"], 3);
  EXPECT_THAT(json["error"]["message"].get<std::string>(), HasSubstr("/nowhere"));
  EXPECT_THAT(outcome.err, StartsWith("error: /nowhere"));
}

TEST(CommandLine, FlagsThatContradictEachOtherAreRefused) {
  const auto train = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"train", "--data", "x.txt", "--out", "y"});
    return run_jige(more);
  };
  EXPECT_THAT(train({"--steps", "3", "--epochs", "1"}).err, HasSubstr("--steps and --epochs"));
  EXPECT_THAT(train({"--fresh", "--resume"}).err, HasSubstr("--resume and --fresh"));
  EXPECT_THAT(train({"--lora"}).err, HasSubstr("--from"));
  EXPECT_THAT(train({"--from", ""}).err, HasSubstr("--from is empty"));
  EXPECT_THAT(run_jige({"train", "--data", "", "--out", "y"}).err, HasSubstr("--data is empty"));
  EXPECT_THAT(train({"--width", "30", "--heads", "4", "--tokenizer", "z"}).err, HasSubstr("z"));
  EXPECT_THAT(train({"--lora-rank", "4", "--from", "z"}).err, HasSubstr("add --lora"));
  EXPECT_THAT(train({"--size", "tiny", "--from", "z"}).err, HasSubstr("--from and --size"));
  EXPECT_THAT(train({"--vocab-size", "300", "--from", "z"}).err, HasSubstr("--vocab-size"));
  EXPECT_THAT(train({"--vocab-size", "300", "--tokenizer", "z"}).err,
              HasSubstr("--tokenizer and --vocab-size"));
  EXPECT_THAT(train({"--batch-tokens", "99999999999999"}).err, HasSubstr("--batch-tokens"));
  EXPECT_THAT(train({"--separator", "-", "--split", "file"}).err, HasSubstr("--separator"));
  EXPECT_THAT(train({"--text-field", "t"}).err, HasSubstr("--text-field is about JSONL"));
  EXPECT_THAT(train({"--token-layout", "raw-u16"}).err, HasSubstr("--token-layout is about token"));
  EXPECT_THAT(train({"--rank-timeout", "9"}).err, HasSubstr("--rank-timeout is about several"));
  const auto generate = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"generate", TinyRun::get().model()});
    const Outcome outcome = run_jige(more, "x");
    EXPECT_EQ(outcome.exit_code, 2);
    return outcome.err;
  };
  EXPECT_THAT(generate({"--prompt", "a", "--file", "b"}), HasSubstr("not both"));
  EXPECT_THAT(generate({"--system", "a"}), HasSubstr("add --chat"));
  EXPECT_THAT(generate({"--logprobs", "1"}), HasSubstr("add --json"));
  EXPECT_THAT(generate({"--stop", ""}), HasSubstr("--stop is empty"));
  EXPECT_THAT(generate({"--echo", "--json"}), HasSubstr("--echo is for text"));
  EXPECT_THAT(run_jige({"tokenize", TinyRun::get().model(), "--decode", "--pieces"}, "1").err,
              HasSubstr("--pieces is about text"));
  EXPECT_THAT(run_jige({"tokenize", TinyRun::get().model(), "--count", "--pieces"}, "1").err,
              HasSubstr("--pieces and --count"));
  EXPECT_THAT(run_jige({"train", "--out", "y"}).err, HasSubstr("--data is missing"));
  EXPECT_THAT(run_jige({"train", "--data", "y"}).err, HasSubstr("--out is missing"));
}

// Who gives a flag expects it to do something.
TEST(CommandLine, FlagsWithoutAnEffectAreRefused) {
  const std::string model = TinyRun::get().model();
  const std::vector<std::string> train = {"train", "--data", "x.txt", "--out", "y"};
  const std::vector<std::string> url = {"bench", "serve", "http://127.0.0.1:9"};
  const std::vector<std::string> random = {"bench", "serve", "--random", "tiny"};
  const std::vector<std::string> rings = {"plan", "rings", "--reference", "trunk-4host"};
  const std::vector<std::string> links = {"profile", "links", "pairs", "--reference",
                                          "trunk-4host"};
  const std::vector<std::string> plan = {"plan", "train", "--size", "tiny"};
  const std::vector<std::string> planned = {"plan", "serve"};
  const std::vector<std::string> simulate = {"simulate", "serve"};
  const std::vector<std::string> serve = {"serve", model, "--port", "0"};
  const std::vector<std::pair<std::vector<std::string>, std::vector<std::string>>> cases = {
      {train, {"--decay-share", "0.5"}},
      {train, {"--min-lr-ratio", "0.5", "--schedule", "constant"}},
      {train, {"--eval-share", "0.5", "--eval-data", "z.txt"}},
      {train, {"--times", "assumed"}},
      {url, {"--quantize", "q8"}},
      {url, {"--kv-cache", "q8"}},
      {url, {"--device", "cpu"}},
      {url, {"--dtype", "f32"}},
      {url, {"--top-p", "0.5"}},
      {random, {"--top-k", "5"}},
      {random, {"--round-steps", "5"}},
      {random, {"--max-batch", "5", "--plan", "x.json"}},
      {random, {"--served-model", "x"}},
      {rings, {"--latency-us", "5"}},
      {rings, {"--nccl-version", "2.20"}},
      {rings, {"--rails"}},
      {rings, {"--set-seconds", "1"}},
      {links, {"--timeout", "5"}},
      {rings, {"--network-gb-per-s", "5"}},
      {links, {"--set", "host0>host1:send"}},
      {plan, {"--device-tflops", "5", "--measure"}},
      {plan, {"--threads", "2"}},
      {simulate, {"--device", "cuda"}},
      {simulate, {"--quantize", "q8"}},
      {simulate, {"--base-ms", "5", "--random", "tiny"}},
      {simulate, {"--base-ms", "5", "--profile", "p.json"}},
      {simulate, {"--turnaround-ms", "5"}},
      {simulate, {"--random", "tiny", "--profile", "p.json"}},
      {simulate, {"--seconds", "5", "--profile", "p.json"}},
      {simulate, {"--profile", "p.json", "--traces", "5"}},
      {simulate, {"--rate", "5", "--sweep", "1,2"}},
      {simulate, {"--policies", "orca", "--traces", "5"}},
      {planned, {"--margin", "0.1"}},
      {planned, {"--burstiness", "2"}},
      {planned, {"--batch-tokens", "64", "--policies", "orca"}},
      {serve, {"--pooling", "mean"}},
      {serve, {"--round-prompts", "4"}},
      {serve, {"--policy", "orca", "--plan", "x.json"}},
      {serve, {"--speculate", "4", "--embeddings"}},
      {serve, {"--draft-model", model, "--embeddings"}},
      {serve, {"--max-n", "4", "--embeddings"}},
  };
  for (const auto& [command, flags] : cases) {
    std::vector<std::string> words = command;
    words.insert(words.end(), flags.begin(), flags.end());
    expect_error(run_jige(words), 2, {"error: " + flags[0] + " is "});
  }
}

TEST(CommandLine, VersionTellsBuildAndKernels) {
  const Json json = run_jige({"version", "--json"}).json();
  for (const char* part : {"CUDA", "MPI", "NCCL", "Slurm", "oneDNN"}) {
    EXPECT_TRUE(json["build"]["parts"].contains(part)) << part;
  }
  EXPECT_FALSE(json["kernels"].empty());
  EXPECT_THAT(run_jige({"--version"}).out, StartsWith("jige "));
  const char* set = std::getenv("JIGE_ISA");
  const std::string before = set != nullptr ? set : "avx2";
  setenv("JIGE_ISA", "avx521", 1);
  EXPECT_THAT(run_jige({"version"}).err, HasSubstr("JIGE_ISA is \"avx521\""));
  setenv("JIGE_ISA", "avx2", 1);
  EXPECT_EQ(run_jige({"version"}).err, "");
  set != nullptr ? setenv("JIGE_ISA", before.c_str(), 1) : unsetenv("JIGE_ISA");
}

TEST(CommandLine, BenchMeasuresTheMachine) {
  const Outcome outcome = run_jige({"bench", "machine", "--json"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const JsonLines lines = outcome.json_lines();
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_GT(lines[1]["value"].get<double>(), 0);
  EXPECT_THAT(run_jige({"bench", "gem"}).err, HasSubstr("did you mean gemm?"));
}

TEST(CommandLine, BenchRunsATinyModel) {
  const Outcome outcome = run_jige({"bench", "inference", "train", "--size", "tiny", "--seconds",
                                    "0", "--json", "--prompt-tokens", "32", "--new-tokens", "4",
                                    "--batch-tokens", "128", "--context", "64"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.json_lines().size(), 8u);
}

// Gigabytes of random weights would stay in /tmp for good.
TEST(CommandLine, ABenchThatIsKilledLeavesNoWeightsBehind) {
  const std::vector<std::vector<std::string>> commands = {
      {"bench", "inference", "--size", "tiny", "--seconds", "60"},
      {"bench", "serve", "--random", "tiny", "--users", "1", "-n", "1000000"}};
  for (const std::vector<std::string>& command : commands) {
    const TestFolder temporary, streams;
    const char* set = std::getenv("TMPDIR");
    const std::string before = set != nullptr ? set : "";
    setenv("TMPDIR", temporary.path().c_str(), 1);
    Process process(command, streams.path());
    set != nullptr ? setenv("TMPDIR", before.c_str(), 1) : unsetenv("TMPDIR");
    // Both tell that the model is loaded.
    const auto told = [&] {
      const std::string out = exists(streams / "out") ? read_text(streams / "out") : "";
      return out.find("  load  ") != std::string::npos || out.find("random)") != std::string::npos;
    };
    for (int i = 0; i < 6000 && process.running() && !told(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_TRUE(told()) << command[1];
    process.send(SIGKILL);
    EXPECT_EQ(process.wait().exit_code, 128 + SIGKILL) << command[1];
    EXPECT_EQ(list_tree(temporary.path()), std::vector<std::string>{}) << command[1];
  }
}

TEST(CommandLine, BenchTrainsAStepOnRequest) {
  const std::vector<std::string> arguments = {"bench",     "train",  "--on-request",   "--size",
                                              "tiny",      "--json", "--batch-tokens", "128",
                                              "--context", "64"};
  const Outcome outcome = run_jige(arguments, "\n\n\n");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const JsonLines lines = outcome.json_lines();
  ASSERT_EQ(lines.size(), 4u);  // the machine first
  for (size_t i = 1; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i]["name"], "step");
    EXPECT_GT(lines[i]["value"].get<double>(), 0);
  }
  EXPECT_EQ(run_jige({"bench", "gemm", "--on-request"}).exit_code, 2);
}

TEST(CommandLine, BenchKeepsToTheMemoryLimit) {
  for (const char* subject : {"inference", "train"}) {
    const Outcome outcome = run_jige({"bench", subject, "--size", "tiny", "--seconds", "0",
                                      "--json", "--memory-limit", "64KiB"});
    EXPECT_EQ(outcome.exit_code, 6) << subject;
    EXPECT_THAT(outcome.err, HasSubstr("64.0 KiB")) << subject;
  }
}

// A signal mostly comes in the midst of a reply, or of a group of texts.
TEST(CommandLine, WhatIsStoppedSaysOnceWhere) {
  for (const bool score : {true, false}) {
    const TestFolder folder, streams;
    std::string lines;
    for (int i = 0; i < 100000; ++i) {
      lines +=
          score ? "{\"question\": \"who?\", \"answer\": \"nobody\"}\n" : "\"nobody is there\"\n";
    }
    write_text(folder / "a.jsonl", lines);
    std::vector<std::string> words = {score ? "score" : "embed", TinyRun::get().model(),
                                      folder / "a.jsonl"};
    if (score) words.push_back("--chat");
    Process process(words, streams.path());
    process.await_handler(SIGINT);
    while (process.running() && read_text(streams / "out").empty()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    process.send(SIGINT);
    const Outcome outcome = process.wait();
    EXPECT_EQ(outcome.exit_code, 130);
    EXPECT_THAT(outcome.err, HasSubstr("stopped: by a signal, at " + folder / "a.jsonl:"));
  }
}

TEST(CommandLine, MoreThreadsThanProcessorsCanServeAreRefusedAlike) {
  const std::vector<std::string> commands[] = {
      {"inspect", "m"}, {"generate", "m"},        {"chat", "m"},         {"score", "m"},
      {"serve", "m"},   {"train", "--data", "d"}, {"plan", "train", "m"}};
  for (std::vector<std::string> command : commands) {
    SCOPED_TRACE(command[0]);
    command.insert(command.end(), {"--threads", "1000000"});
    expect_error(run_jige(command), 2,
                 {"--threads: 1000000 is out of range", "8 for each of the", "processor"});
  }
}

}  // namespace
}  // namespace jige::integration
