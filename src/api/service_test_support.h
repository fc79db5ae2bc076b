// A whole server on loopback: a tiny model, the engine, the routes, HTTP.
//
// Threads: one test at a time.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "api/adapter_loader.h"
#include "api/api_test_support.h"
#include "api/service.h"
#include "api/test_client.h"
#include "serve/engine_test_support.h"

namespace jige::api::testing {

// An answer that does not end by itself.
inline std::string completion_body(int seed, int tokens, const std::string& more = "") {
  return R"({"prompt":"Once upon a time","ignore_eos":true,"seed":)" + std::to_string(seed) +
         R"(,"max_tokens":)" + std::to_string(tokens) + more + "}";
}

// The text of a whole answer.
inline std::string text_of(const TestResponse& response) {
  return json_of(response.body)["choices"][0]["text"].get<std::string>();
}

struct TestServerOptions {
  std::string model = "llama3";  // of the fixtures
  serve::EngineOptions engine;
  HttpServerOptions http;
  ServiceOptions service;
  bool with_model = true;
  text::Tokenizer tokenizer = character_tokenizer();
  int iteration_ms = 0;  // at least, each: time for clients that come and go meanwhile
  int64_t kv_blocks = 128;
  int64_t states = 0;  // of a model with recurrent layers, kept ones among them; 0: the usual
  std::vector<model::AdapterSource> adapters;  // of the model, served under their names
  std::string adapter_root;                    // for adapters that are loaded later
  int64_t adapter_rooms = 0;
  int64_t adapter_rank_max = 8;
  bool embeds = false;  // the model makes vectors of texts
};

class TestServer {
 public:
  explicit TestServer(TestServerOptions options = {})
      : device_({.thread_count = 1}),
        model_(
            value_of(model::InferenceModel::load(serve::testing::fixture(options.model), device_,
                                                 {.context_max = kContext,
                                                  .kv_block_count = options.kv_blocks,
                                                  .state_count = options.states,
                                                  .batch_tokens_max = 64,
                                                  .logit_rows_max = 16,
                                                  .embeds = options.embeds,
                                                  .adapters = options.adapters,
                                                  .adapter_rooms = options.adapter_rooms,
                                                  .adapter_rank_max = options.adapter_rank_max}))),
        tokenizer_(options.tokenizer),
        adapter_root_(options.adapter_root),
        service_(std::move(options.service)),
        http_(value_of(HttpServer::listen(http_options(options.http), service_.handler()))) {
    options.engine.faults.before_forward = [hook = gate_.hook(),
                                            pause = options.iteration_ms](int64_t iteration) {
      if (pause > 0) std::this_thread::sleep_for(std::chrono::milliseconds(pause));
      return hook(iteration);
    };
    engine_ = value_of(serve::Engine::create(*model_, tokenizer_, options.engine));
    service_.set_http_stats([this] { return http_->stats(); });
    if (options.with_model) set_model();
  }
  ~TestServer() {
    gate_.open();
    engine_->stop();
    service_.stop();
    http_->stop(0);
  }

  void set_model() {
    ServedModel served = test_model();
    if (model_->sizes().embeds) served.embedding = test_embedding(model_->config().hidden_size);
    set_model(std::move(served));
  }
  void set_model(ServedModel served) {
    served.engine = engine_.get();
    int32_t number = 0;
    for (const model::Adapter& adapter : model_->adapters()) {
      const std::string& name = adapter.source().name;
      served.adapters->add({.name = name,
                            .root = name + " folder",
                            .fingerprint = "test-" + name,
                            .number = number++});
    }
    if (!adapter_root_.empty()) {
      served.loader = value_of(AdapterLoader::create(adapter_root_, *model_, "test"));
    }
    service_.set_model(std::move(served));
  }

  uint16_t port() const { return http_->port(); }
  serve::testing::Gate& iterations() { return gate_; }
  serve::Engine& engine() { return *engine_; }
  model::InferenceModel& model() { return *model_; }
  Service& service() { return service_; }
  HttpServerStats http_stats() const { return http_->stats(); }

  TestResponse post(std::string_view path, std::string_view body, std::string_view fields = "") {
    return fetch(port(), "POST", path, body, fields);
  }
  TestResponse get(std::string_view path, std::string_view fields = "") {
    return fetch(port(), "GET", path, "", fields);
  }
  // Whether the engine has nothing to do and holds no block.
  // By the requests that are there, not by counts: from when a request begins until its first
  // iteration is published it is counted neither as waiting nor as running.
  bool idle() const {
    const serve::EngineStatus status = engine_->status(true);
    return status.requests.empty() && status.running_sequences == 0 && status.kv_blocks_live == 0;
  }

 private:
  HttpServerOptions http_options(HttpServerOptions options) {
    options.alive = [this] { return service_.answers_go_on(); };
    return options;
  }

  CpuDevice device_;
  std::unique_ptr<model::InferenceModel> model_;
  text::Tokenizer tokenizer_;
  std::string adapter_root_;
  serve::testing::Gate gate_{serve::testing::Gate::kAll};
  Service service_;
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<serve::Engine> engine_;
};

}  // namespace jige::api::testing
