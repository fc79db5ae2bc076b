// LoRA adapters as `jige train` writes them, run and served beside their base.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "integration/serving.h"
#include "integration/tiny_run.h"

namespace jige::integration {
namespace {

using api::testing::TestResponse;
using ::testing::HasSubstr;

Json parsed(const std::string& text) {
  Result<Json> json = parse_json(text, "a test's JSON");
  EXPECT_TRUE(json) << text;
  return json ? *json : Json();
}

// Two runs that trained an adapter of the tiny model each, one of them merged too.
class Adapters : public ::testing::Test {
 protected:
  Adapters() {
    train("poet", {"--lora-rank", "2", "--lr", "1e-2"});
    train("coder", {"--lora-rank", "5", "--lr", "2e-2", "--lora-target", "q_proj", "--no-merge"});
  }
  void train(const std::string& name, const std::vector<std::string>& more) {
    std::vector<std::string> words = {"train",
                                      "--from",
                                      TinyRun::get().model(),
                                      "--lora",
                                      "--data",
                                      TinyRun::get().corpus(),
                                      "--steps",
                                      "4",
                                      "--batch-tokens",
                                      "384",
                                      "--micro-batch-tokens",
                                      "192",
                                      "--out",
                                      folder_ / name};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = run_jige(words);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  }
  static Json generate(const std::string& model, const std::vector<std::string>& more = {}) {
    std::vector<std::string> words = {
        "generate", model,           "--prompt", "A small story",    "--dtype",
        "f32",      "--temperature", "0",        "--max-new-tokens", "12",
        "--json",   "--logprobs",    "1"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = run_jige(words);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome.json();
  }
  const std::string base_ = TinyRun::get().model();
  TestFolder folder_;
};

TEST_F(Adapters, GenerateChatAndScoreRunThemWithoutMerging) {
  const Json merged = generate(folder_ / "poet");
  const Json beside = generate(base_, {"--adapter", folder_ / "poet/adapter"});
  EXPECT_EQ(beside["tokens"], merged["tokens"]);
  for (size_t i = 0; i < merged["logprobs"].size(); ++i) {
    EXPECT_NEAR(beside["logprobs"][i]["logprob"].get<double>(),
                merged["logprobs"][i]["logprob"].get<double>(), 1e-4);
  }
  // A run stands for its adapter.
  EXPECT_EQ(generate(base_, {"--adapter", folder_ / "poet"})["logprobs"], beside["logprobs"]);
  EXPECT_NE(generate(base_)["logprobs"], beside["logprobs"]);

  const auto score = [&](std::vector<std::string> more) {
    std::vector<std::string> words = {"score", base_, "--quiet"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = run_jige(words, "{\"text\": \"A small story of a cat\"}\n");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome.out;
  };
  EXPECT_NE(score({"--adapter", folder_ / "coder"}), score({}));
  const Outcome chat =
      run_jige({"chat", base_, "--adapter", folder_ / "coder", "--quiet"}, "Hello\n");
  EXPECT_EQ(chat.exit_code, 0) << chat.err;
}

TEST_F(Adapters, ExportMergesOneIntoItsBase) {
  const std::string out = folder_ / "models/coder";
  const std::vector<std::string> words = {"export", base_, out, "--merge", folder_ / "coder"};
  const Outcome made = run_jige(words);
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_THAT(made.out, HasSubstr("coder/adapter merged into it, f32"));
  EXPECT_EQ(list_tree(out), list_tree(base_));
  const Json merged = generate(out);
  const Json beside = generate(base_, {"--adapter", folder_ / "coder"});
  EXPECT_EQ(merged["tokens"], beside["tokens"]);
  for (size_t i = 0; i < merged["logprobs"].size(); ++i) {
    EXPECT_NEAR(beside["logprobs"][i]["logprob"].get<double>(),
                merged["logprobs"][i]["logprob"].get<double>(), 1e-4);
  }
  EXPECT_NE(merged["logprobs"], generate(base_)["logprobs"]);

  const auto refused = [&](std::vector<std::string> more, int code, const std::string& part) {
    more.insert(more.begin(), words.begin(), words.end());
    const Outcome outcome = run_jige(more);
    EXPECT_EQ(outcome.exit_code, code) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(part));
  };
  refused({}, 2, "replace it with --replace");
  refused({"--step", "3"}, 2, "--step: is of checkpoints");
  EXPECT_EQ(run_jige({"export", base_, out, "--merge", folder_ / "coder", "--replace"}).exit_code,
            0);
  EXPECT_EQ(run_jige({"export", base_, "--merge", folder_ / "coder"}).exit_code, 2);
  EXPECT_EQ(run_jige({"export", base_, folder_ / "x", "--merge", folder_ / "none"}).exit_code, 3);
  EXPECT_FALSE(exists(folder_ / "x"));
}

TEST_F(Adapters, OneServerServesThemBesideTheirBase) {
  Serving server({TinyRun::get().run(), "--dtype", "f32", "--adapter", "poet=" + folder_ / "poet",
                  "--adapter", "coder=" + folder_ / "coder/adapter", "--memory-limit", "200MiB"});
  EXPECT_THAT(server.out(), HasSubstr("adapter \"poet\": rank 2, "));
  EXPECT_THAT(server.out(), HasSubstr("adapter \"coder\": rank 5, "));
  const auto text = [&](const std::string& model) {
    const TestResponse answer = server.post(
        "/v1/completions",
        R"({"prompt":"A small story","max_tokens":12,"temperature":0,"model":")" + model + "\"}");
    EXPECT_EQ(answer.status, 200) << answer.body;
    return parsed(answer.body)["choices"][0]["text"];
  };
  EXPECT_EQ(text("run"), generate(base_)["text"]);
  EXPECT_EQ(text("poet"), generate(base_, {"--adapter", folder_ / "poet"})["text"]);
  EXPECT_EQ(text("coder"), generate(base_, {"--adapter", folder_ / "coder"})["text"]);
  const Json models = parsed(server.get("/v1/models").body)["data"];
  ASSERT_EQ(models.size(), 3u);
  EXPECT_EQ(models[1]["parent"], "run");
  EXPECT_EQ(models[2]["root"], "coder") << "the run's name";
  server.process().send(SIGTERM);
  EXPECT_EQ(server.process().wait().exit_code, 0);
}

TEST_F(Adapters, AServerLoadsAndUnloadsThoseOfItsFolder) {
  Serving server({TinyRun::get().run(), "--dtype", "f32", "--adapter", "poet=" + folder_ / "poet",
                  "--adapter-root", folder_ / ".", "--max-adapters", "2", "--max-adapter-rank", "5",
                  "--memory-limit", "200MiB"});
  EXPECT_THAT(server.out(), HasSubstr("room for 2 adapters of "));
  const auto ask = [&](const std::string& model) {
    return server.post(
        "/v1/completions",
        R"({"prompt":"A small story","max_tokens":12,"temperature":0,"model":")" + model + "\"}");
  };
  const auto tell = [&](const std::string& what, const Json& body) {
    return server.post("/v1/" + what + "_lora_adapter", dump_json(body)).status;
  };
  EXPECT_EQ(ask("coder").status, 404);
  EXPECT_EQ(tell("load", {{"lora_name", "coder"}, {"lora_path", "coder"}}), 200);
  EXPECT_EQ(parsed(ask("coder").body)["choices"][0]["text"],
            generate(base_, {"--adapter", folder_ / "coder"})["text"]);
  EXPECT_EQ(tell("load", {{"lora_name", "other"}, {"lora_path", "../coder"}}), 403);
  EXPECT_EQ(tell("unload", {{"lora_name", "poet"}}), 400);
  EXPECT_EQ(tell("unload", {{"lora_name", "coder"}}), 200);
  EXPECT_EQ(ask("coder").status, 404);
  server.process().send(SIGTERM);
  EXPECT_EQ(server.process().wait().exit_code, 0);
  const Outcome rootless =
      run_jige({"serve", TinyRun::get().run(), "--port", "0", "--max-adapters", "2"});
  EXPECT_EQ(rootless.exit_code, 2);
  EXPECT_THAT(rootless.err, HasSubstr("add --adapter-root"));
  const Outcome nowhere = run_jige(
      {"serve", TinyRun::get().run(), "--port", "0", "--adapter-root", folder_ / "nowhere"});
  EXPECT_EQ(nowhere.exit_code, 3);
  EXPECT_THAT(nowhere.err, HasSubstr("--adapter-root " + folder_ / "nowhere"));
}

TEST_F(Adapters, MistakesNameTheFlagTheFolderAndTheRemedy) {
  const std::string poet = folder_ / "poet";
  const auto refused = [&](const std::vector<std::string>& adapters, int code,
                           const std::vector<std::string>& parts) {
    std::vector<std::string> words = {"serve", TinyRun::get().run(), "--port", "0"};
    for (const std::string& adapter : adapters) {
      words.insert(words.end(), {"--adapter", adapter});
    }
    const Outcome outcome = run_jige(words);
    EXPECT_EQ(outcome.exit_code, code) << outcome.err;
    for (const std::string& part : parts) EXPECT_THAT(outcome.err, HasSubstr(part));
  };
  refused({poet}, 2, {"--adapter " + poet, "give --adapter NAME=" + poet});
  refused({"=" + poet}, 2, {"--adapter =" + poet, "NAME=FOLDER"});
  refused({"run=" + poet}, 2, {"--adapter run=" + poet, "--served-model-name"});
  refused({"a=" + poet, "a=" + folder_ / "coder"}, 2,
          {"--adapter a=" + folder_ / "coder", poet, "another name"});
  refused({"a=" + folder_ / "none"}, 3, {"--adapter a=" + folder_ / "none", "adapter_config.json"});
  refused({"a=" + base_}, 2, {"--adapter a=" + base_, "whole model"});
  refused({"a=" + TinyRun::get().corpus()}, 2, {"is a file; give the folder"});

  const std::string other = folder_ / "other";
  std::filesystem::copy(folder_ / "coder/adapter", other);
  const std::string config = other + "/adapter_config.json";
  Json json = parsed(read_text(config));
  json["use_qalora"] = true;
  write_text(config, dump_json(json));
  refused({"a=" + other}, 5, {"--adapter a=" + other, config, "\"use_qalora\""});
  json["use_qalora"] = false;
  json["r"] = 3;
  write_text(config, dump_json(json));
  refused({"a=" + other}, 4, {"--adapter a=" + other, "q_proj", "rank 3", "made for"});
  EXPECT_THAT(run_jige({"generate", folder_ / "coder", "-p", "a"}).err, HasSubstr("--adapter"));
}

}  // namespace
}  // namespace jige::integration
