// `jige serve` as its users meet it: from the first line to the exit code.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <thread>

#include "integration/image_folder.h"
#include "integration/serving.h"
#include "integration/tiny_run.h"

namespace jige::integration {
namespace {

using api::testing::request_text;
using api::testing::TestClient;
using api::testing::TestResponse;
using ::testing::HasSubstr;
using ::testing::Not;

Json json_of(const std::string& text) {
  Result<Json> parsed = parse_json(text, "an answer");
  EXPECT_TRUE(parsed) << text;
  return parsed ? *parsed : Json(nullptr);
}

std::string completion(int tokens, const std::string& more = "") {
  return R"({"prompt":"A small story","ignore_eos":true,"seed":1,"max_tokens":)" +
         std::to_string(tokens) + more + "}";
}

// Waits until the engine has been handed so many requests.
void wait_for_requests(const Serving& server, int64_t count) {
  int64_t received = 0;
  for (int i = 0; i < 2000 && received < count; ++i) {
    const std::string metrics = server.get("/metrics").body;
    const size_t line = metrics.find("\njige:requests_received_total{");
    ASSERT_NE(line, std::string::npos) << metrics;
    received = std::atoll(metrics.c_str() + metrics.find("} ", line) + 2);
  }
  ASSERT_GE(received, count);
}

TEST(Serve, AnswersUntilItIsToldToStop) {
  Serving server({TinyRun::get().run()});
  EXPECT_THAT(server.out(), HasSubstr("listening on http://127.0.0.1:"));
  EXPECT_THAT(server.out(), HasSubstr("weights"));
  EXPECT_THAT(server.out(), HasSubstr("ready after"));
  EXPECT_EQ(server.get("/ready").status, 200);
  const Json models = json_of(server.get("/v1/models").body);
  EXPECT_EQ(models["data"][0]["id"], "run") << "the run's name, not \"model\"";

  const TestResponse whole = server.post("/v1/completions", completion(24));
  ASSERT_EQ(whole.status, 200) << whole.body;
  EXPECT_EQ(json_of(whole.body)["usage"]["completion_tokens"], 24);
  const TestResponse chat = server.post(
      "/v1/chat/completions",
      R"({"model":"run","messages":[{"role":"user","content":"Hello"}],"max_tokens":5})");
  EXPECT_EQ(chat.status, 200) << chat.body;
  const TestResponse streamed = server.post("/v1/completions", completion(24, R"(,"stream":true)"));
  EXPECT_THAT(streamed.body, HasSubstr("data: {\"id\":\"cmpl-"));
  EXPECT_TRUE(streamed.body.ends_with("data: [DONE]\n\n"));

  server.process().send(SIGTERM);
  const Outcome outcome = server.process().wait();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
}

TEST(Serve, GivesTheTextThatGenerateGives) {
  const std::string model = TinyRun::get().model();
  Serving server({model, "--threads", "1"});
  const TestResponse greedy = server.post(
      "/v1/completions",
      R"({"prompt":"A small story","max_tokens":20,"temperature":0,"add_special_tokens":true})");
  const Outcome generated = run_jige({"generate", model, "--prompt", "A small story",
                                      "--temperature", "0", "--max-new-tokens", "20", "--json"});
  ASSERT_EQ(generated.exit_code, 0) << generated.err;
  const Json json = generated.json();
  EXPECT_EQ(json_of(greedy.body)["choices"][0]["text"], json["text"]) << generated.out;
}

// A template that opens the reasoning: what the model writes is all of it, as it never ends it.
TEST(Serve, GivesReasoningApartFromTheContent) {
  const TestFolder folder;
  const std::string model = TinyRun::get().copy_model(folder);
  write_text(model + "/chat_template.jinja",
             "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}<think>\n");
  const std::string body =
      R"({"messages":[{"role":"user","content":"Hello"}],"max_tokens":8,"temperature":0})";
  const auto message = [&](const char* reasoning) {
    Serving server({model, "--threads", "1", "--reasoning", reasoning});
    const TestResponse response = server.post("/v1/chat/completions", body);
    return json_of(response.body)["choices"][0]["message"];
  };
  const Json whole = message("off");
  EXPECT_FALSE(whole.contains("reasoning_content"));
  const Json parted = message("auto");
  EXPECT_TRUE(parted["content"].is_null()) << parted;
  EXPECT_TRUE(
      whole["content"].get<std::string>().ends_with(parted["reasoning_content"].get<std::string>()))
      << whole << parted;
  const Outcome chat = run_jige(
      {"chat", model, "--threads", "1", "--temperature", "0", "--max-new-tokens", "8", "--json"},
      "Hello\n");
  EXPECT_EQ(chat.json()["reasoning_content"], parted["reasoning_content"]) << chat.err;
  EXPECT_EQ(chat.json()["content"], "");
  const Outcome generated =
      run_jige({"generate", model, "--threads", "1", "--temperature", "0", "--max-new-tokens", "8",
                "--chat", "--prompt", "Hello", "--json"});
  EXPECT_EQ(generated.json()["reasoning_content"], parted["reasoning_content"]) << generated.err;
  EXPECT_EQ(generated.json()["text"], whole["content"]);
  const Outcome plain = run_jige({"chat", model, "--threads", "1", "--temperature", "0",
                                  "--max-new-tokens", "8", "--json", "--reasoning", "off"},
                                 "Hello\n");
  EXPECT_FALSE(plain.json().contains("reasoning_content"));
  EXPECT_EQ(plain.json()["content"], whole["content"]) << plain.err;
  const Outcome unparted =
      run_jige({"generate", model, "--threads", "1", "--temperature", "0", "--max-new-tokens", "8",
                "--chat", "--prompt", "Hello", "--json", "--reasoning", "off"});
  EXPECT_FALSE(unparted.json().contains("reasoning_content")) << unparted.err;
  expect_error(run_jige({"generate", model, "--prompt", "Hello", "--reasoning", "off"}), 2,
               {"--reasoning", "--chat"});
}

TEST(Serve, FinishesRequestsUnderWayBeforeItEnds) {
  Serving server({TinyRun::get().model(), "--threads", "1"});
  std::vector<TestClient> clients;
  for (int i = 0; i < 8; ++i) {
    clients.emplace_back(server.port());
    clients.back().send(request_text("POST", "/v1/completions", completion(70, R"(,"n":8)")));
  }
  // All have been taken once the first has made a token.
  for (int i = 0; i < 2000; ++i) {
    const Json top = json_of(server.get("/top").body);
    if (top["running"].get<int>() + top["waiting_requests"].get<int>() >= 8 ||
        top["generated_tokens"].get<int>() > 0) {
      break;
    }
  }
  server.process().send(SIGTERM);
  int answered = 0;
  for (TestClient& client : clients) {
    const TestResponse response = client.read_response();
    EXPECT_TRUE(response.status == 200 || response.status == 503) << response.status;
    if (response.status == 200) {
      ++answered;
      EXPECT_EQ(json_of(response.body)["usage"]["completion_tokens"], 8 * 70);
    }
  }
  EXPECT_GT(answered, 0);
  EXPECT_EQ(server.process().wait().exit_code, 0);
}

TEST(Serve, ASecondSignalEndsItAtOnce) {
  Serving server(
      {TinyRun::get().model(), "--threads", "1", "--kv-tokens", "96", "--max-batch", "1"});
  std::vector<TestClient> clients;
  for (int i = 0; i < 200; ++i) {
    clients.emplace_back(server.port());
    clients.back().send(request_text("POST", "/v1/completions", completion(80)));
  }
  wait_for_requests(server, 200);
  server.process().send(SIGINT);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  server.process().send(SIGINT);
  EXPECT_EQ(server.process().wait().exit_code, 130);
}

TEST(Serve, CutsOffWhatTheDrainTimeDoesNotHold) {
  Serving server({TinyRun::get().model(), "--threads", "1", "--kv-tokens", "96", "--max-batch", "1",
                  "--drain-seconds", "0"});
  std::vector<TestClient> clients;
  for (int i = 0; i < 200; ++i) {
    clients.emplace_back(server.port());
    clients.back().send(request_text("POST", "/v1/completions", completion(80)));
  }
  wait_for_requests(server, 200);
  server.process().send(SIGTERM);
  const Outcome outcome = server.process().wait();
  EXPECT_EQ(outcome.exit_code, 130) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("--drain-seconds"));
  EXPECT_THAT(clients[199].read_until(""), HasSubstr("abort"));
}

TEST(Serve, TakesTheKeyFromTheEnvironment) {
  setenv("JIGE_API_KEY", "key-of-the-test\n", 1);
  Serving server({TinyRun::get().model()});
  unsetenv("JIGE_API_KEY");
  EXPECT_EQ(server.get("/v1/models").status, 401);
  EXPECT_EQ(server.get("/health").status, 200);
  EXPECT_EQ(server.get("/v1/models", "Authorization: Bearer key-of-the-test\r\n").status, 200);
  EXPECT_THAT(server.out(), Not(HasSubstr("key-of-the-test")));
}

TEST(Serve, PrintsEventsAsJson) {
  const Outcome outcome =
      serve_and_stop({TinyRun::get().model(), "--json", "--constraint-memory", "8MiB"});
  EXPECT_EQ(outcome.exit_code, 0);
  const JsonLines events = outcome.json_lines();
  ASSERT_EQ(events.size(), 3u) << outcome.out;
  EXPECT_EQ(events[0]["event"], "listening");
  EXPECT_GT(events[0]["port"].get<int>(), 0);
  EXPECT_EQ(events[1]["event"], "ready");
  EXPECT_EQ(events[1]["context_max"], 96);
  EXPECT_EQ(events[1]["memory_bytes"].get<int64_t>(),
            events[1]["weights_bytes"].get<int64_t>() + events[1]["kv_bytes"].get<int64_t>() +
                events[1]["workspace_bytes"].get<int64_t>() +
                events[1]["drafts_bytes"].get<int64_t>() +
                events[1]["constraints_bytes"].get<int64_t>());
  EXPECT_GT(events[1]["constraints_bytes"].get<int64_t>(), 8 << 20) << "the vocabulary, too";
  EXPECT_LT(events[1]["constraints_bytes"].get<int64_t>(), 9 << 20);
  EXPECT_EQ(events[2]["drained"], true);
}

TEST(Serve, SaysWhatKeepsItFromStarting) {
  const std::string model = TinyRun::get().model();
  EXPECT_EQ(run_jige({"serve", "/nowhere"}).exit_code, 3);
  EXPECT_EQ(run_jige({"serve", model, "--port", "70000"}).exit_code, 2);
  const Outcome memory = run_jige({"serve", model, "--port", "0", "--memory-limit", "64KiB"});
  EXPECT_EQ(memory.exit_code, 6);
  EXPECT_THAT(memory.err, HasSubstr("memory limit of 64"));
  const Outcome nested = run_jige({"serve", model, "--port", "0", "--in-flight", "2"});
  EXPECT_EQ(nested.exit_code, 5);
  EXPECT_THAT(nested.err, HasSubstr("jige simulate serve --in-flight 2"));
  const Outcome tls = run_jige({"serve", model, "--port", "0", "--tls-cert", "/nowhere.pem"});
  EXPECT_EQ(tls.exit_code, 2);
  EXPECT_THAT(tls.err, HasSubstr("--tls-cert and --tls-key go together"));
  const Outcome keys = run_jige({"serve", model, "--port", "0", "--api-key-file", "/nowhere"});
  EXPECT_EQ(keys.exit_code, 3);
  expect_error(run_jige({"serve", model, "--port", "0", "--allowed-origins", "chat.example/"}), 2,
               {"--allowed-origins", "\"chat.example/\"", "https://chat.example"});
  Serving first({model});
  const Outcome taken = run_jige({"serve", model, "--port", std::to_string(first.port())});
  EXPECT_EQ(taken.exit_code, 8);
  EXPECT_THAT(taken.err, HasSubstr("--port"));
}

TEST(Serve, PagesInABrowserMayUseItWhereTheyAreNamed) {
  Serving server({TinyRun::get().model(), "--allowed-origins", "https://chat.example,localhost"});
  const auto asked_by = [&](const std::string& origin) {
    return api::testing::fetch(server.port(), "POST", "/v1/completions",
                               completion(4, R"(,"stream":true)"), "Origin: " + origin + "\r\n");
  };
  for (const char* origin : {"https://chat.example", "http://localhost:3000"}) {
    const TestResponse response = asked_by(origin);
    EXPECT_EQ(response.status, 200) << response.body;
    EXPECT_EQ(response.field("Access-Control-Allow-Origin"), origin);
  }
  EXPECT_EQ(asked_by("https://chat.example:8443").status, 403);
  server.process().send(SIGTERM);
  EXPECT_THAT(server.process().wait().err, Not(HasSubstr("any page")));
  Serving open({TinyRun::get().model(), "--allowed-origins", "*"});
  open.process().send(SIGTERM);
  EXPECT_THAT(open.process().wait().err, HasSubstr("any page that a browser opens"));
}

TEST(Serve, ScoresPromptsAsJigeScoreDoes) {
  const std::string text = "The cat sees a house. Nobody knows why the fox is blue.";
  const Json scored =
      run_jige({"score", TinyRun::get().model(), "--quiet"}, dump_json(Json{{"text", text}}))
          .json_lines()[0];
  Serving server({TinyRun::get().model(), "--batch-tokens", "16", "--max-batch", "3"});
  const Json wanted = {
      {"prompt", {text, text}}, {"echo", true}, {"logprobs", 1}, {"max_tokens", 0}};
  const TestResponse response = server.post("/v1/completions", dump_json(wanted));
  ASSERT_EQ(response.status, 200) << response.body;
  const Json answer = json_of(response.body);
  for (const Json& choice : answer["choices"]) {
    EXPECT_EQ(choice["text"], text);
    Json logprobs = choice["logprobs"]["token_logprobs"];
    EXPECT_TRUE(logprobs[0].is_null());
    logprobs.erase(0);
    EXPECT_EQ(logprobs, scored["logprobs"]);
  }
}

// Clients that others made, where a Python with them is at hand.
class PythonClient : public ::testing::Test {
 protected:
  // Runs a script of tests/tools against the server, or skips the test.
  static void run(const std::string& script, const Serving& server, const std::string& more) {
    const std::string command = test_python() + " " +
                                shell_quoted(JIGE_SOURCE_DIR "/tests/tools/" + script) +
                                " http://127.0.0.1:" + std::to_string(server.port()) + more;
    EXPECT_EQ(std::system(command.c_str()), 0);
  }
  // A model whose answers begin inside their reasoning where that is asked for.
  static std::string reasoning_model(const TestFolder& folder) {
    const std::string model = TinyRun::get().copy_model(folder);
    write_text(model + "/chat_template.jinja",
               "{% for m in messages %}{{ m.content or '' }}{% endfor %}"
               "{% if enable_thinking or reasoning_effort %}<think>{% endif %}");
    return model;
  }
};

TEST_F(PythonClient, OfOpenAiWorksUnchanged) {
  if (!python_has("openai")) GTEST_SKIP() << test_python() << " has no package openai";
  const TestFolder folder;
  run("check_openai_client.py",
      Serving({reasoning_model(folder), "--served-model-name", "tiny", "--tool-calls", "llama"}),
      " --reasoning");
}

TEST_F(PythonClient, OfAnthropicWorksUnchanged) {
  if (!python_has("anthropic")) GTEST_SKIP() << test_python() << " has no package anthropic";
  const TestFolder folder;
  const std::string keys = folder / "keys";
  write_text(keys, "a-key-of-tests\n");
  run("check_anthropic_client.py",
      Serving({reasoning_model(folder), "--served-model-name", "tiny", "--tool-calls", "llama",
               "--api-key-file", keys}),
      " --reasoning");
}

TEST_F(PythonClient, OfEitherSendsImages) {
  if (!python_has("openai, anthropic"))
    GTEST_SKIP() << test_python() << " lacks openai or anthropic";
  const TestFolder folder;
  write_image_folder(folder.path());
  const std::string more = " --image " + shell_quoted(picture_file("kept_table.gif"));
  run("check_openai_client.py", Serving({folder.path()}), more);
  run("check_anthropic_client.py", Serving({folder.path()}), more);
}

TEST_F(PythonClient, OfEitherTakesStreamsThatAreLongInComing) {
  if (!python_has("openai, anthropic"))
    GTEST_SKIP() << test_python() << " lacks openai or anthropic";
  run("check_late_streams.py", Serving({TinyRun::get().model(), "--served-model-name", "tiny"}),
      " " + shell_quoted(jige_binary()));
}

TEST_F(PythonClient, TheEvaluationHarnessMeasuresWhatJigeScoreDoes) {
  if (!python_has("lm_eval, tenacity, transformers"))
    GTEST_SKIP() << test_python() << " lacks lm_eval[api] or transformers";
  const std::string model = TinyRun::get().model();
  run("check_lm_eval.py", Serving({model}),
      " " + shell_quoted(model) + " " + shell_quoted(jige_binary()) + " 5");
}

}  // namespace
}  // namespace jige::integration
