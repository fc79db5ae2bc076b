// Adapters that come and go while a server runs: what is refused, who waits for whom, and that an
// answer is of the adapter it was asked of, whatever happens beside it.
#include <gmock/gmock.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "api/service_test_support.h"
#include "serve/adapter_folders.h"

namespace jige::api {
namespace {

namespace fs = std::filesystem;

using serve::testing::AdapterFolders;
using ::testing::HasSubstr;
using testing::json_of;
using testing::TestResponse;
using testing::TestServer;
using testing::TestServerOptions;
using testing::text_of;
using testing::value_of;

std::string load_body(const std::string& name, const std::string& path) {
  return Json{{"lora_name", name}, {"lora_path", path}}.dump();
}

// Its prompt is longer than two cache blocks.
std::string greedy(const std::string& model, int tokens = 20) {
  return Json{{"prompt", "Once upon a time there was a small model"},
              {"model", model},
              {"max_tokens", tokens},
              {"temperature", 0},
              {"ignore_eos", true}}
      .dump();
}

class AdapterLoading : public ::testing::Test {
 protected:
  explicit AdapterLoading(const std::string& model = "llama3") : model_(model), folders_(model) {}

  TestServer& start(TestServerOptions options = {}) {
    options.model = model_;
    options.adapter_root = folders_.path;
    options.adapter_rooms = 2;
    server_ = std::make_unique<TestServer>(std::move(options));
    return *server_;
  }
  TestResponse load(const std::string& name, const std::string& path) {
    return server_->post("/v1/load_lora_adapter", load_body(name, path));
  }
  TestResponse unload(const std::string& name) {
    return server_->post("/v1/unload_lora_adapter", Json{{"lora_name", name}}.dump());
  }
  std::vector<std::string> names() {
    std::vector<std::string> names;
    const Json models = json_of(server_->get("/v1/models").body);
    for (const Json& model : models["data"]) names.push_back(model["id"]);
    return names;
  }
  // The text of each adapter where it was there from the start.
  std::vector<std::string> expected_texts() {
    TestServer whole({.model = model_, .adapters = folders_.sources});
    std::vector<std::string> texts;
    for (const auto& source : folders_.sources) {
      texts.push_back(text_of(whole.post("/v1/completions", greedy(source.name))));
    }
    return texts;
  }
  void expect_refused(const std::string& name, const std::string& path, int status,
                      const std::string& message) {
    SCOPED_TRACE(path);
    const TestResponse response = load(name, path);
    EXPECT_EQ(response.status, status);
    EXPECT_THAT(response.body, HasSubstr(message));
    EXPECT_THAT(response.body, ::testing::Not(HasSubstr(folders_.path)));
    EXPECT_EQ(server_->model().adapter_rooms().free_count(), 2);
  }

  void expect_nobody_disturbed(const TestServerOptions& options);

  const std::string model_;
  AdapterFolders folders_;
  std::unique_ptr<TestServer> server_;
};

TEST_F(AdapterLoading, AnswersWithWhatWasLoadedUntilItIsUnloaded) {
  const std::vector<std::string> expected = expected_texts();
  TestServer& server = start();
  EXPECT_THAT(names(), ::testing::ElementsAre("tiny"));
  EXPECT_EQ(load("poet", "all").status, 200);
  EXPECT_EQ(load("coder", folders_.path + "/some").status, 200) << "a whole path inside the root";
  EXPECT_THAT(names(), ::testing::ElementsAre("tiny", "poet", "coder"));
  EXPECT_EQ(json_of(server.get("/v1/models/poet").body)["root"], "all");
  EXPECT_EQ(text_of(server.post("/v1/completions", greedy("poet"))), expected[0]);
  EXPECT_EQ(text_of(server.post("/v1/completions", greedy("coder"))), expected[1]);
  EXPECT_THAT(server.get("/metrics").body, HasSubstr(R"(adapter="coder"} 1)"));
  EXPECT_EQ(unload("poet").status, 200);
  EXPECT_THAT(names(), ::testing::ElementsAre("tiny", "coder"));
  EXPECT_EQ(server.post("/v1/completions", greedy("poet")).status, 404);
  EXPECT_EQ(unload("poet").status, 404);
  EXPECT_EQ(text_of(server.post("/v1/completions", greedy("coder"))), expected[1]);
}

// The keys and values of the first are still cached, and are of no use to the second.
TEST_F(AdapterLoading, ANameThatComesBackFindsNothingOfItsOldAdapter) {
  const std::vector<std::string> expected = expected_texts();
  TestServer& server = start();
  const auto answer = [&] { return json_of(server.post("/v1/completions", greedy("poet")).body); };
  const auto cached = [](const Json& json) {
    return json["usage"]["prompt_tokens_details"]["cached_tokens"].get<int64_t>();
  };
  for (const size_t i : {0, 1, 0}) {
    EXPECT_EQ(load("poet", folders_.sources[i].name).status, 200);
    const Json first = answer();
    EXPECT_EQ(first["choices"][0]["text"], expected[i]);
    EXPECT_EQ(cached(first), 0);
    const Json second = answer();
    EXPECT_EQ(second["choices"][0]["text"], expected[i]);
    EXPECT_GT(cached(second), 0);
    EXPECT_EQ(unload("poet").status, 200);
  }
}

TEST_F(AdapterLoading, NothingOutsideTheRootIsRead) {
  const AdapterFolders others("llama3");
  fs::create_directory_symlink(others.path + "/all", folders_.path + "/link");
  fs::create_directory_symlink(folders_.path + "/all", folders_.path + "/inner");
  fs::create_directories(folders_.path + "/files");
  for (const char* file : {"adapter_config.json", "adapter_model.safetensors"}) {
    fs::create_symlink(others.path + "/all/" + file, folders_.path + "/files/" + file);
  }
  start();
  for (const std::string& path :
       {std::string("../") + fs::path(others.path).filename().string() + "/all",
        std::string("all/../all"), others.path + "/all", std::string("/nowhere"),
        folders_.path + "x", std::string("link"), std::string("files")}) {
    SCOPED_TRACE(path);
    const TestResponse response = load("poet", path);
    EXPECT_EQ(response.status, 403) << response.body;
    EXPECT_EQ(json_of(response.body)["error"]["param"], "lora_path");
  }
  EXPECT_THAT(names(), ::testing::ElementsAre("tiny"));
  EXPECT_EQ(load("poet", "inner").status, 200) << "a link that stays inside";
}

TEST_F(AdapterLoading, RefusesWhatDoesNotFitAndStaysAsItWas) {
  const std::string base = serve::testing::fixture("llama3");
  const formats::LoraConfig wide{.rank = 9, .alpha = 9};
  model::testing::write_adapter(folders_.path + "/wide", base, wide, 7);
  model::testing::write_adapter(folders_.path + "/strange", serve::testing::fixture("gpt2"),
                                {.rank = 2, .alpha = 2}, 8);
  fs::create_directories(folders_.path + "/cut");
  fs::copy(folders_.path + "/all/adapter_config.json", folders_.path + "/cut");
  const std::string tensors = value_of(read_file(folders_.path + "/all/adapter_model.safetensors"));
  EXPECT_TRUE(write_file_atomic(folders_.path + "/cut/adapter_model.safetensors",
                                tensors.substr(0, tensors.size() / 2)));
  start();
  expect_refused("poet", "nowhere", 404, "no folder with adapter_config.json");
  expect_refused("poet", ".", 404, "no folder with adapter_config.json");
  expect_refused("poet", "wide", 400, "its rank is 9, and there is room for 8");
  expect_refused("poet", "strange", 400, "is no linear layer of this base");
  expect_refused("poet", "cut", 400, "adapter_model.safetensors");
  expect_refused("tiny", "all", 400, "is served already");
  expect_refused("", "all", 400, "lora_name must have");
  expect_refused("a\nb", "all", 400, "lora_name must have");
  expect_refused("poet", "", 400, "lora_path must name");
  EXPECT_THAT(names(), ::testing::ElementsAre("tiny"));
}

TEST_F(AdapterLoading, NamesAndRoomsAreTakenOnce) {
  start();
  EXPECT_EQ(load("poet", "all").status, 200);
  TestResponse response = load("poet", "some");
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(json_of(response.body)["error"]["code"], "adapter_exists");
  EXPECT_EQ(load("coder", "all").status, 200) << "one folder under two names";
  response = load("third", "other");
  EXPECT_EQ(response.status, 409);
  EXPECT_THAT(response.body, HasSubstr("--max-adapters"));
  EXPECT_EQ(unload("poet").status, 200);
  EXPECT_EQ(load("third", "other").status, 200);
}

TEST_F(AdapterLoading, WithoutARootThereIsNothingToLoadFrom) {
  server_ = std::make_unique<TestServer>(TestServerOptions{.adapters = folders_.sources});
  const TestResponse response = load("poet", "all");
  EXPECT_EQ(response.status, 404);
  EXPECT_THAT(response.body, HasSubstr("--adapter-root"));
  EXPECT_EQ(unload("all").status, 404);
}

TEST_F(AdapterLoading, ThoseOfTheStartStay) {
  start({.adapters = folders_.sources});
  const TestResponse response = unload("all");
  EXPECT_EQ(response.status, 400);
  EXPECT_THAT(response.body, HasSubstr("stays"));
  EXPECT_EQ(load("all", "all").status, 400);
  EXPECT_EQ(load("more", "other").status, 200);
}

TEST_F(AdapterLoading, UnloadingWaitsForTheRequestsThatRun) {
  TestServer& server = start({.iteration_ms = 10});
  ASSERT_EQ(load("poet", "all").status, 200);
  std::atomic<bool> answered = false;
  TestResponse answer;
  std::thread client([&] {
    answer = server.post("/v1/completions", greedy("poet", 80));
    answered = true;
  });
  while (server.engine().status().running_sequences == 0) std::this_thread::yield();
  std::atomic<bool> unloaded = false;
  std::thread remover([&] {
    EXPECT_EQ(unload("poet").status, 200);
    unloaded = true;
  });
  while (server.post("/v1/completions", greedy("poet", 1)).status != 404) std::this_thread::yield();
  EXPECT_FALSE(unloaded);
  EXPECT_FALSE(answered);
  EXPECT_EQ(json_of(server.get("/top").body)["requests"][0]["model"], "poet");
  EXPECT_EQ(server.model().adapter_rooms().free_count(), 1);
  remover.join();
  client.join();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(json_of(answer.body)["usage"]["completion_tokens"], 80);
  EXPECT_EQ(server.model().adapter_rooms().free_count(), 2);
}

// While adapters come and go and others ask.
void AdapterLoading::expect_nobody_disturbed(const TestServerOptions& options) {
  const std::vector<std::string> expected = expected_texts();
  TestServer& server = start(options);
  const std::string base = text_of(server.post("/v1/completions", greedy("tiny")));
  constexpr int kRounds = 6;
  std::atomic<bool> over = false;
  std::atomic<int> served = 0;
  const auto ask = [&](const std::string& model, const std::string& wanted) {
    while (!over) {
      const TestResponse response = server.post("/v1/completions", greedy(model));
      if (response.status == 404) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        continue;
      }
      EXPECT_EQ(response.status, 200) << response.body;
      EXPECT_EQ(text_of(response), wanted);
      ++served;
    }
  };
  std::vector<std::thread> clients;
  clients.emplace_back(ask, "tiny", base);
  for (size_t i = 0; i < 2; ++i) clients.emplace_back(ask, folders_.sources[i].name, expected[i]);
  std::vector<std::thread> movers;
  for (size_t i = 0; i < 2; ++i) {
    movers.emplace_back([&, name = folders_.sources[i].name] {
      for (int round = 0; round < kRounds; ++round) {
        EXPECT_EQ(load(name, name).status, 200);
        std::this_thread::sleep_for(std::chrono::milliseconds(7 * round));
        EXPECT_EQ(unload(name).status, 200);
      }
    });
  }
  for (std::thread& mover : movers) mover.join();
  over = true;
  for (std::thread& client : clients) client.join();
  EXPECT_GT(served, 2);
  EXPECT_EQ(server.model().adapter_rooms().free_count(), 2);
  EXPECT_TRUE(server.engine().status().counters.requests_by_adapter.empty());
}

TEST_F(AdapterLoading, ComingAndGoingDisturbsNobody) {
  expect_nobody_disturbed({.iteration_ms = 1});
}

class AdapterLoadingWithStates : public AdapterLoading {
 protected:
  AdapterLoadingWithStates() : AdapterLoading("qwen3_5") {}
};

TEST_F(AdapterLoadingWithStates, ComingAndGoingDisturbsNobody) {
  expect_nobody_disturbed({.engine = {.kept_state_count = 2}, .iteration_ms = 1, .states = 6});
  EXPECT_GT(server_->engine().status().counters.prefix_hit_tokens, 0);
}

}  // namespace
}  // namespace jige::api
