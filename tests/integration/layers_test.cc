// A model whose layers are on several machines, here processes of one, as users meet it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>

#include "integration/layer_process.h"
#include "integration/serving.h"
#include "integration/tiny_run.h"

namespace jige::integration {
namespace {

using ::testing::HasSubstr;

std::string model_folder() { return TinyRun::get().run() + "/model"; }

TEST(Layers, AnswersAreThoseOfOneMachine) {
  const std::vector<std::string> words = {
      "generate",         model_folder(), "--prompt",      "A small story",
      "--max-new-tokens", "20",           "--temperature", "0"};
  const Outcome whole = run_jige(words);
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  LayerProcess first(model_folder()), second(model_folder(), {"--memory-limit", "1GiB"});
  for (const std::string& machines : {first.address(), first.address() + "," + second.address()}) {
    std::vector<std::string> divided = words;
    divided.insert(divided.end(), {"--layers-on", machines, "--layers-here", "1"});
    const Outcome outcome = run_jige(divided);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_EQ(outcome.out, whole.out);
    EXPECT_THAT(outcome.err, HasSubstr("on " + first.address()));
  }
  const Outcome ended = first.stop(SIGINT);
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr(R"("event":"holding")"));
  EXPECT_THAT(ended.out, HasSubstr(R"("event":"released")"));
}

TEST(Layers, ScoresAreThoseOfOneMachine) {
  const TestFolder folder;
  write_text(folder / "texts.jsonl", "{\"text\": \"A small story of a house\"}\n");
  const std::vector<std::string> words = {"score", model_folder(), folder / "texts.jsonl"};
  const Outcome whole = run_jige(words);
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  LayerProcess holder(model_folder());
  std::vector<std::string> divided = words;
  divided.insert(divided.end(), {"--layers-on", holder.address(), "--layers-here", "0"});
  const Outcome outcome = run_jige(divided);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, whole.out);
}

TEST(Layers, AServerHasABatchAtWorkForEachMachineAndTheAnswersOfOne) {
  const auto answers_of = [](std::vector<std::string> words, const std::string& in_flight) {
    words.emplace_back("--json");
    Serving server(words);
    std::vector<std::string> answers(8);
    std::vector<std::thread> users;
    for (size_t i = 0; i < answers.size(); ++i) {
      users.emplace_back([&, i] {
        const auto reply = server.post(
            "/v1/completions",
            fmt::format(
                R"({{"prompt":"A small story of {}","max_tokens":30,"seed":{},"temperature":1}})",
                i, i));
        EXPECT_EQ(reply.status, 200);
        answers[i] = Json::parse(reply.body)["choices"].dump();
      });
    }
    for (std::thread& user : users) user.join();
    EXPECT_THAT(server.out(), HasSubstr("\"in_flight\":" + in_flight));
    return answers;
  };
  LayerProcess holder(model_folder());
  const std::vector<std::string> divided = {model_folder(), "--layers-on", holder.address(),
                                            "--layers-here", "1"};
  const auto expected = answers_of({model_folder()}, "1");
  EXPECT_EQ(answers_of(divided, "2"), expected);
  std::vector<std::string> three = divided;
  three.insert(three.end(), {"--in-flight", "3"});
  EXPECT_EQ(answers_of(three, "3"), expected);
}

TEST(Layers, AServerWhoseLayersComeBackGoesOnWithAnswersThatHadBegun) {
  auto holder = std::make_unique<LayerProcess>(model_folder());
  const std::string address = holder->address();
  Serving server({model_folder(), "--layers-on", address, "--layers-here", "1"});
  const std::string request =
      R"({"prompt":"A small story","max_tokens":100,"ignore_eos":true,"seed":3,"temperature":1})";
  const auto text_of = [&] {
    const auto reply = server.post("/v1/completions", request);
    EXPECT_EQ(reply.status, 200) << reply.body;
    return Json::parse(reply.body)["choices"].dump();
  };
  const std::string expected = text_of();
  const auto top_says = [&](const std::function<bool(const Json&)>& what) {
    for (int i = 0; i < 4000; ++i) {
      if (what(Json::parse(server.get("/top").body))) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return false;
  };
  const auto runs = [](const Json& top) { return top["running"] == 1; };
  std::string text;
  std::thread asks;
  // Until one stands still before its end.
  for (bool stands = false; !stands;) {
    if (asks.joinable()) asks.join();
    holder->send(SIGCONT);
    asks = std::thread([&] { text = text_of(); });
    EXPECT_TRUE(top_says(runs));
    holder->send(SIGSTOP);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    stands = runs(Json::parse(server.get("/top").body));
  }
  holder->stop(SIGKILL);
  EXPECT_TRUE(top_says([](const Json& top) { return top["layers_lost"] == true; }));
  EXPECT_EQ(server.get("/health").status, 503);
  EXPECT_EQ(server.post("/v1/completions", request).status, 503);
  holder = std::make_unique<LayerProcess>(model_folder(), std::vector<std::string>(), address);
  asks.join();
  EXPECT_EQ(text, expected);
  EXPECT_EQ(server.get("/health").status, 200);
  EXPECT_NE(server.get("/metrics").body.find("jige:layers_restored_total{model_name=\"run\"} 1"),
            std::string::npos);
}

TEST(Layers, AServerThatLosesItsLayersEndsAndSaysWhose) {
  auto holder = std::make_unique<LayerProcess>(model_folder());
  Serving server({model_folder(), "--layers-on", holder->address(), "--layers-here", "1",
                  "--layers-wait", "0"});
  const std::string request = R"({"prompt":"A small story","max_tokens":5})";
  ASSERT_EQ(server.post("/v1/completions", request).status, 200);
  const std::string address = holder->address();
  holder->stop(SIGKILL);
  EXPECT_EQ(server.post("/v1/completions", request).status, 503);
  const Outcome ended = server.process().wait();
  EXPECT_EQ(ended.exit_code, 8);
  EXPECT_THAT(ended.err, HasSubstr(address));
}

TEST(Layers, AServerIsStoppedThoughAHolderStandsStill) {
  LayerProcess holder(model_folder());
  Serving server({model_folder(), "--layers-on", holder.address(), "--layers-here", "1",
                  "--drain-seconds", "0.2"});
  holder.send(SIGSTOP);
  std::thread asks([&] {
    EXPECT_EQ(server.post("/v1/completions", R"({"prompt":"A small","max_tokens":5})").status, 503);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  server.process().send(SIGINT);
  EXPECT_EQ(server.process().wait().exit_code, 130);
  asks.join();
  holder.send(SIGCONT);
}

TEST(Layers, WhatCannotBeIsRefusedByName) {
  const auto refused = [](std::vector<std::string> more) {
    std::vector<std::string> words = {"generate", model_folder(), "--prompt", "A"};
    words.insert(words.end(), more.begin(), more.end());
    return run_jige(words);
  };
  const Outcome nobody = refused({"--layers-on", "127.0.0.1:x"});
  EXPECT_EQ(nobody.exit_code, 2);
  EXPECT_THAT(nobody.err, HasSubstr("--layers-on"));
  LayerProcess holder(model_folder());
  const Outcome many = refused({"--layers-on", holder.address(), "--layers-here", "99"});
  EXPECT_EQ(many.exit_code, 2);
  EXPECT_THAT(many.err, HasSubstr("99"));
  EXPECT_EQ(refused({"--layers-here", "1"}).exit_code, 2);
  LayerProcess small(model_folder(), {"--memory-limit", "1K"});
  const Outcome full = refused({"--layers-on", small.address(), "--layers-here", "0"});
  EXPECT_EQ(full.exit_code, 6);
  EXPECT_THAT(full.err, HasSubstr(small.address()));
}

}  // namespace
}  // namespace jige::integration
