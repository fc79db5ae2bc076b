// VectorSession: one request on its way for which the engine makes vectors: of the inputs of
// POST /v1/embeddings, or of one number each for the pairs of POST /v1/rerank.
//
// The answer comes when all vectors have, with the body that the request's writer makes of them; a
// client that goes away, and the first input that fails, cancel the others.
// Invariant: after over_ no event has an effect, and every engine request has ended or was
// cancelled.
// Threads: the server's thread; sinks run on the engine's, and the answer is written out by the
// work queue, when the session changes no more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "api/api_error.h"
#include "api/http_message.h"
#include "api/work_queue.h"
#include "serve/engine.h"

namespace jige::api {

// The body of an answer, of the vectors in the order of their requests.
using VectorWriter = std::function<std::string(const std::vector<std::vector<float>>& vectors,
                                               int64_t prompt_tokens, std::string_view id)>;

// What is to become of a request.
struct VectorWork {
  std::vector<serve::EngineRequest> engine;  // all of one adapter
  std::string_view field;                    // of the body that the engine's refusals are about
  std::string_view noun;                     // of one of its items
  VectorWriter write;
};

class VectorSession : public std::enable_shared_from_this<VectorSession> {
 public:
  // `engine` and `work` must outlive the session.
  VectorSession(std::string id, VectorWork request, serve::Engine& engine, WorkQueue& work,
                std::shared_ptr<Responder> responder);

  // Hands the inputs to the engine, unless the client has gone by now.
  void start();

  // Events of an input. A vector that is empty was cut off by a shutdown.
  void on_vector(size_t input, std::vector<float> vector, const serve::RequestReport& report);
  void on_failed(const Error& error);

 private:
  void fail_with(const ApiError& error);
  void cancel();
  void finish();
  HttpResponse answer() const;

  const std::string id_;
  VectorWork request_;
  serve::Engine& engine_;
  WorkQueue& work_;
  const std::shared_ptr<Responder> responder_;
  std::vector<serve::RequestId> ids_;
  std::vector<std::vector<float>> vectors_;
  std::vector<serve::RequestReport> reports_;
  bool over_ = false;
};

}  // namespace jige::api
