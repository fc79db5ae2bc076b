// HttpExchange: the Responder of one request on one connection. Internal to the HTTP server.
//
// Invariants: after the end, after the client has gone, and after the connection has been
// destroyed, calls have no effect.
// Threads: as Responder; the destructor runs on any thread.
#pragma once

#include <functional>
#include <memory>

#include "api/http_message.h"

namespace jige::api {

struct HttpCore;
class HttpConnection;

class HttpExchange final : public Responder, public std::enable_shared_from_this<HttpExchange> {
 public:
  HttpExchange(std::shared_ptr<HttpCore> core, std::weak_ptr<HttpConnection> connection);
  // Answers 500 where nobody has answered.
  ~HttpExchange() override;

  void respond(HttpResponse response) override;
  void begin(HttpResponse head) override;
  bool write(std::string_view piece) override;
  void end() override;
  void when_sent(std::function<void()> callback) override;
  void post(std::function<void()> work) override;
  void on_gone(std::function<void()> callback) override;
  void on_silence(std::function<void()> callback) override;

  // The client has gone: tells who waits for it.
  void client_gone();
  // Nothing that was written waits any more: likewise.
  void output_sent();
  // Whether something may be said into a silence: it streams, or somebody waits to begin.
  bool may_break_silence() const { return state_ == State::kStreaming || on_silence_; }
  // Lets begin who waits for that.
  void begin_in_silence();

 private:
  enum class State { kFresh, kStreaming, kOver };

  std::shared_ptr<HttpCore> core_;
  std::weak_ptr<HttpConnection> connection_;
  State state_ = State::kFresh;
  bool gone_ = false;
  std::function<void()> on_gone_;
  std::function<void()> on_sent_;
  std::function<void()> on_silence_;  // while it is fresh
};

}  // namespace jige::api
