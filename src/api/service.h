// Service: the routes of `jige serve`, behind the HTTP server and in front of the engine.
//
//   Service service({.version = "1.0"});
//   JIGE_TRY(auto server, HttpServer::listen(options, service.handler()));
//   …load the model…
//   service.set_model(std::move(model));          // /ready turns to 200
//   …
//   service.begin_drain();                        // new work is refused with 503
//   engine.drain(60);
//   service.stop();
//   server->stop(2000);
//
// Order of the checks: key (but for /health and the page to chat in), route, method, readiness, the
// engine's queue where it is to answer, and only then is the body read and tokenised, on threads of
// its own.
// Threads: handler() runs on the server's thread. set_model, begin_drain and stop from one other
// thread; set_model once. The service must outlive the server's run and the engine's sinks.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "api/answer_format.h"
#include "api/api_keys.h"
#include "api/http_message.h"
#include "api/http_server.h"
#include "api/route_table.h"
#include "api/served_model.h"
#include "api/server_metrics.h"
#include "api/vector_session.h"
#include "api/work_queue.h"

namespace jige::api {

struct ServiceOptions {
  std::string version;
  std::string model_name;  // shown while the model is loading
  ApiKeys keys;
  RequestLimits limits;
  WorkQueue::Limits work;
  // The HTTP server's own numbers, for /metrics; may be empty.
  std::function<HttpServerStats()> http_stats;
  bool page = false;  // to chat in, at "/" (api/page.h)
};

class Service {
 public:
  explicit Service(ServiceOptions options);
  ~Service();

  HttpHandler handler();
  void set_model(ServedModel model);
  // Rates that /metrics compares with; any time.
  void set_peaks(MachinePeaks peaks);
  void set_http_stats(std::function<HttpServerStats()> stats);
  // Whether what is silent may go on: not where the engine stalls, but where layers on another
  // machine are waited for. On any thread.
  bool answers_go_on() const;
  void begin_drain() { draining_ = true; }
  // Takes no more bodies, reads those it has (after begin_drain() they get 503 unread), and joins
  // the service's threads. The server must run still, to send the answers.
  void stop();

 private:
  using Respond = std::shared_ptr<Responder>;
  std::vector<RouteTable::Route> routes();

  void handle(HttpRequest request, Respond responder);
  const ServedModel* ready_model() const;
  std::optional<ApiError> unready() const;
  // What the engine says to a request with such a body. REQUIRES: not unready().
  std::optional<ApiError> queue_full(const HttpRequest& request) const;

  void health(HttpRequest request, const Respond& respond);
  void ready(HttpRequest request, const Respond& respond);
  void version(HttpRequest request, const Respond& respond);
  void metrics(HttpRequest request, const Respond& respond);
  void top(HttpRequest request, const Respond& respond);
  void list_models(HttpRequest request, const Respond& respond);
  void show_model(HttpRequest request, const Respond& respond);
  void tokenize(HttpRequest request, const Respond& respond);
  void detokenize(HttpRequest request, const Respond& respond);
  void load_adapter(HttpRequest request, const Respond& respond);
  void unload_adapter(HttpRequest request, const Respond& respond);
  void embeddings(HttpRequest request, const Respond& respond);
  void rerank(HttpRequest request, const Respond& respond);
  void completions(HttpRequest request, const Respond& respond);
  void chat_completions(HttpRequest request, const Respond& respond);
  void responses(HttpRequest request, const Respond& respond);
  void messages(HttpRequest request, const Respond& respond);
  void count_tokens(HttpRequest request, const Respond& respond);

  // Reads the body on a thread of the service and calls `body_handler` with it there.
  using BodyHandler = std::function<void(const Json& body, const Respond& respond)>;
  void with_body(HttpRequest request, const Respond& respond, BodyHandler body_handler);
  // The refusal of a request with more prompts than may ever wait: coming again later would not
  // help it. `field`: where they stand; `noun`: what one is called.
  std::optional<ApiError> never_fits(const std::vector<serve::EngineRequest>& prompts,
                                     std::string_view field, std::string_view noun) const;
  // What a model that is served for something else says to a request.
  std::optional<ApiError> wrong_kind(ServedKind wanted) const;
  std::string next_id(std::string_view prefix);
  void generate(HttpRequest request, const Respond& respond, Endpoint endpoint);
  // Requests that the engine makes vectors for.
  using PrepareVectors = ApiResult<VectorWork> (*)(const Json& body, const ServedModel& model,
                                                   const RequestLimits& limits, uint64_t tenant);
  struct VectorRoute {
    ServedKind kind = ServedKind::kEmbeddings;
    std::string_view id_prefix;
    PrepareVectors prepare = nullptr;
  };
  void make_vectors(HttpRequest request, const Respond& respond, const VectorRoute& route);
  MetricsSource metrics_source() const;
  AnswerHead next_head(Endpoint endpoint);

  ServiceOptions options_;
  RouteTable table_;
  const uint64_t key_;  // of ids and seeds
  std::atomic<uint64_t> next_number_{0};
  std::optional<ServedModel> model_;
  std::atomic<bool> model_set_{false};
  std::atomic<bool> draining_{false};
  mutable std::mutex mutex_;  // guards what follows
  MachinePeaks peaks_;
  WorkQueue work_;
  WorkQueue loading_;  // of adapters, one after another: requests need not wait for it
};

}  // namespace jige::api
