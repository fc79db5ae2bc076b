// EmbeddingSession: one request for vectors on its way: from the engine's events to the answer,
//
//   {"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.25, …]}, …],
//    "model":"NAME","usage":{"prompt_tokens":12,"total_tokens":12}}
//
// where numbers have the fewest digits that give the same float, or, in base64, are the floats'
// bytes, the lowest first. The answer comes when all vectors have; a client that goes away, and the
// first input that fails, cancel the others.
// Invariant: after over_ no event has an effect, and every engine request has ended or was
// cancelled.
// Threads: the server's thread; sinks run on the engine's, and the answer is written out by the
// work queue, when the session changes no more.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "api/embedding_request.h"
#include "api/http_message.h"
#include "api/work_queue.h"

namespace jige::api {

class EmbeddingSession : public std::enable_shared_from_this<EmbeddingSession> {
 public:
  // `engine` and `work` must outlive the session. `model_name` is repeated by the answer.
  EmbeddingSession(std::string id, std::string model_name, PreparedEmbeddings request,
                   serve::Engine& engine, WorkQueue& work, std::shared_ptr<Responder> responder);

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
  const std::string model_name_;
  PreparedEmbeddings request_;
  serve::Engine& engine_;
  WorkQueue& work_;
  const std::shared_ptr<Responder> responder_;
  std::vector<serve::RequestId> ids_;
  std::vector<std::vector<float>> vectors_;
  std::vector<serve::RequestReport> reports_;
  bool over_ = false;
};

}  // namespace jige::api
