// A model on several GPUs as users meet it, by emulated GPUs (jige_emulated): those of one machine
// (--device cuda:0,cuda:1), and those of `jige layers`, here processes of the same machine.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "integration/emulated_gpus.h"
#include "integration/layer_process.h"
#include "integration/serving.h"
#include "integration/tiny_run.h"

namespace jige::integration {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Three GPUs.
class GpuLayers : public OnEmulatedGpus {
 protected:
  void SetUp() override {
    OnEmulatedGpus::SetUp();
    if (IsSkipped()) return;
    set_variable("JIGE_EMULATED_GPUS", "3");
  }

  static std::string model() { return TinyRun::get().model(); }
  static std::vector<std::string> joined(std::vector<std::string> words,
                                         const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  static Outcome succeeds(const std::vector<std::string>& words,
                          const std::vector<std::string>& more) {
    const Outcome outcome = run_jige(joined(words, more));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome;
  }
  static std::vector<std::string> generate(const std::vector<std::string>& more) {
    return joined({"generate", model(), "--prompt", "A small story", "--max-new-tokens", "20",
                   "--temperature", "0"},
                  more);
  }
};

TEST_F(GpuLayers, AnswersAreThoseOfOneGpu) {
  for (const std::string dtype : {"f32", "bf16"}) {
    const std::vector<std::string> words = generate({"--dtype", dtype});
    const Outcome whole = succeeds(words, {"--device", "cuda"});
    const Outcome two = succeeds(words, {"--device", "cuda:1,2"});
    EXPECT_EQ(two.out, whole.out);
    EXPECT_THAT(two.err, AllOf(HasSubstr("layers 0 here"), HasSubstr("1 on cuda:2")));
    const Outcome all = succeeds(words, {"--device", "cuda:all", "--layers-here", "0"});
    EXPECT_EQ(all.out, whole.out);
    EXPECT_THAT(all.err, AllOf(HasSubstr("layers none here"), HasSubstr("0 on cuda:1"),
                               HasSubstr("1 on cuda:2")));
  }
}

// What inspect tells of GPUs is what a command takes of them, layer by layer.
TEST_F(GpuLayers, AreSeenBeforehandByInspect) {
  const auto memory_of = [&](const std::string& device) {
    const Outcome told =
        run_jige({"inspect", model(), "--device", device, "--dtype", "f32", "--json"});
    EXPECT_EQ(told.exit_code, 0) << told.out << told.err;
    return Json(told.json()["memory"]);
  };
  const Json two = memory_of("cuda:1,2");
  EXPECT_FALSE(two.contains("train"));  // `jige plan train` tells of it
  const Json& gpus = two["run"]["gpus"];
  ASSERT_EQ(gpus.size(), 2u);
  EXPECT_EQ(gpus[0]["name"], "cuda:1");
  EXPECT_EQ(gpus[0]["layers_begin"], 0);
  EXPECT_EQ(gpus[0]["layers_end"], gpus[1]["layers_begin"]);
  EXPECT_EQ(gpus[1]["layers_end"], 2);
  EXPECT_GT(two["run"]["host_parts"]["rows between GPUs, pinned"].get<int64_t>(), 0);
  EXPECT_EQ(two["run"]["total_bytes"].get<int64_t>(),
            gpus[0]["bytes"].get<int64_t>() + gpus[1]["bytes"].get<int64_t>());
  const Json whole = memory_of("cuda")["run"];
  EXPECT_GT(two["run"]["total_bytes"], whole["total_bytes"]);
  EXPECT_LT(gpus[0]["bytes"], whole["total_bytes"]);
  const Outcome shown = run_jige({"inspect", model(), "--device", "cuda:0,cuda:1"});
  EXPECT_EQ(shown.exit_code, 0) << shown.err;
  EXPECT_THAT(shown.out, AllOf(HasSubstr("is what others wait for"), HasSubstr("0, the ends"),
                               HasSubstr("jige plan train ")));
  // Of GPUs that have too little together, what is missing is said.
  const Outcome small =
      run_jige({"inspect", model(), "--device", "cuda:0,cuda:1", "--device-memory", "64KiB"});
  EXPECT_EQ(small.exit_code, 6) << small.out;
}

// Of more than 512 tokens: one GPU reads them one piece after the other, two work at once.
TEST_F(GpuLayers, LongPromptsAreReadInThePiecesOfOneGpu) {
  const TestFolder folder;
  const std::string copy = TinyRun::get().copy_model(folder);
  nlohmann::json config = nlohmann::json::parse(read_text(copy + "/config.json"));
  config["max_position_embeddings"] = 2048;
  write_text(copy + "/config.json", config.dump());
  std::string prompt;
  for (int i = 0; i < 100; ++i) prompt += fmt::format("{} small stories. ", i);
  const std::vector<std::string> words = {
      "generate", copy, "--prompt", prompt, "--max-new-tokens", "12",   "--temperature", "1",
      "--seed",   "5",  "--dtype",  "f32",  "--context",        "2048", "--json"};
  const auto answer = [&](const std::string& device) {
    nlohmann::json told = succeeds(words, {"--device", device}).json_lines().back();
    EXPECT_GT(told["stats"]["prompt_tokens"].get<int>(), 1024);
    return told["tokens"].dump();
  };
  EXPECT_EQ(answer("cuda:0,1"), answer("cuda"));
}

TEST_F(GpuLayers, ScoresAndVectorsAreThoseOfOneGpu) {
  const TestFolder folder;
  write_text(folder / "texts.jsonl", "{\"text\": \"A small story of a house\"}\n");
  write_text(folder / "texts.txt", "\"a red kite\"\n\"x\"\n");
  const std::string vectors = std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/embedding/qwen3";
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"score", model(), folder / "texts.jsonl"},
        {"embed", vectors, folder / "texts.txt", "--context", "80"}}) {
    const Outcome whole = succeeds(words, {"--device", "cuda"});
    EXPECT_FALSE(whole.out.empty());
    EXPECT_EQ(succeeds(words, {"--device", "cuda:0,cuda:1"}).out, whole.out) << words[0];
  }
}

TEST_F(GpuLayers, AServerHasABatchAtWorkForEachGpuAndTheAnswersOfOne) {
  const auto answers_of = [](std::vector<std::string> words, const std::string& in_flight) {
    words = joined(words, {"--dtype", "f32", "--json"});
    const Serving server(words);
    std::vector<std::string> answers(8);
    std::vector<std::thread> users;
    for (size_t i = 0; i < answers.size(); ++i) {
      users.emplace_back([&, i] {
        const auto reply = server.post(
            "/v1/completions",
            fmt::format(
                R"({{"prompt":"A small story of {}","max_tokens":20,"seed":{},"temperature":1}})",
                i, i));
        EXPECT_EQ(reply.status, 200) << reply.body;
        answers[i] = nlohmann::json::parse(reply.body)["choices"].dump();
      });
    }
    for (std::thread& user : users) user.join();
    EXPECT_THAT(server.out(), HasSubstr("\"in_flight\":" + in_flight));
    return answers;
  };
  const auto expected = answers_of({model(), "--device", "cuda"}, "1");
  EXPECT_EQ(answers_of({model(), "--device", "cuda:0,cuda:1"}, "2"), expected);
  EXPECT_EQ(answers_of({model(), "--device", "cuda:all", "--layers-here", "0"}, "3"), expected);
  EXPECT_EQ(answers_of({model(), "--device", "cuda:0,1", "--in-flight", "1"}, "1"), expected);
}

TEST_F(GpuLayers, OfAnotherMachineHaveTheBitsToo) {
  const std::vector<std::string> words = generate({"--dtype", "f32"});
  const Outcome whole = succeeds(words, {"--device", "cuda"});
  LayerProcess other(model(), {"--device", "cuda:2"});
  for (const std::string device : {"cuda:0", "cuda:0,1"}) {
    const Outcome outcome =
        succeeds(words, {"--device", device, "--layers-on", other.address(), "--layers-here", "0"});
    EXPECT_EQ(outcome.out, whole.out);
    EXPECT_THAT(outcome.err, HasSubstr("on " + other.address()));
    EXPECT_EQ(outcome.err.find("computes with"), std::string::npos) << outcome.err;
  }
  const Outcome head_on_cpu =
      succeeds(words, {"--layers-on", other.address(), "--layers-here", "1"});
  EXPECT_EQ(head_on_cpu.out, whole.out);
  EXPECT_THAT(head_on_cpu.err, HasSubstr("computes with emulated"));
}

TEST_F(GpuLayers, AServerGoesOnWhenAMachineOfTheGroupIsBack) {
  auto other =
      std::make_unique<LayerProcess>(model(), std::vector<std::string>{"--device", "cuda:2"});
  const std::string address = other->address();
  const Serving server({model(), "--dtype", "f32", "--device", "cuda:0,1", "--layers-on", address,
                        "--layers-here", "0"});
  const auto text = [&] {
    const auto reply = server.post(
        "/v1/completions",
        R"({"prompt":"A small story","max_tokens":40,"ignore_eos":true,"seed":3,"temperature":1})");
    return reply.status == 200 ? nlohmann::json::parse(reply.body)["choices"].dump() : "";
  };
  const std::string expected = text();
  EXPECT_NE(expected, "");
  other->stop(SIGKILL);
  other = std::make_unique<LayerProcess>(model(), std::vector<std::string>{"--device", "cuda:2"},
                                         address);
  // What came while it was not noticed yet is refused, or waits.
  std::string again;
  for (int i = 0; i < 200 && again.empty(); ++i) {
    again = text();
    if (again.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_EQ(again, expected);
}

TEST_F(GpuLayers, AServerThatLosesThemEndsAndSaysWhose) {
  LayerProcess other(model(), {"--device", "cuda:1"});
  Serving server({model(), "--device", "cuda:0", "--layers-on", other.address(), "--layers-here",
                  "1", "--layers-wait", "0"});
  const std::string request = R"({"prompt":"A small story","max_tokens":5})";
  ASSERT_EQ(server.post("/v1/completions", request).status, 200);
  other.stop(SIGKILL);
  EXPECT_EQ(server.post("/v1/completions", request).status, 503);
  const Outcome ended = server.process().wait();
  EXPECT_EQ(ended.exit_code, 8);
  EXPECT_THAT(ended.err, HasSubstr(other.address()));
}

TEST_F(GpuLayers, WhatCannotBeIsRefusedByName) {
  const auto refused = [](const std::vector<std::string>& more, int exit_code) {
    const Outcome outcome = run_jige(generate(more));
    EXPECT_EQ(outcome.exit_code, exit_code) << outcome.err;
    return outcome.err;
  };
  EXPECT_THAT(refused({"--device", "cuda:0,cuda:1", "--device-memory", "200KiB"}, 6),
              AllOf(HasSubstr("layers take"), HasSubstr("cuda:1"), HasSubstr("KiB")));
  EXPECT_THAT(refused({"--device", "cuda:0,cuda:7"}, 3), HasSubstr("no GPU 7"));
  EXPECT_THAT(refused({"--device", "cuda:1,1"}, 2), HasSubstr("twice"));
  EXPECT_THAT(refused({"--device", "cuda:0,1", "--resident-layers", "1"}, 5),
              HasSubstr("--resident-layers"));
  EXPECT_THAT(refused({"--device", "cuda:0", "--layers-here", "1"}, 2), HasSubstr("--layers-here"));
  EXPECT_THAT(refused({"--device", "cuda:0,1", "--layers-here", "9"}, 2), HasSubstr("9 layers"));
  const Outcome bench = run_jige({"bench", "inference", "--size", "tiny", "--device", "cuda:0,1"});
  EXPECT_NE(bench.exit_code, 0);
  EXPECT_THAT(bench.err, HasSubstr("computes on one"));
  const Outcome many = run_jige({"layers", model(), "--device", "cuda:0,1"});
  EXPECT_EQ(many.exit_code, 2);
  EXPECT_THAT(many.err, HasSubstr("computes on one"));
}

}  // namespace
}  // namespace jige::integration
