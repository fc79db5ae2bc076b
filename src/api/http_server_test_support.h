// HttpServerTest: a server whose handler does what the path says, for tests of HttpServer.
//
// Included by tests only. Threads: the test's and the server's.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "api/http_server.h"

namespace jige::api {

inline constexpr int kBurstPieces = 120;

// A server whose handler does what the path says.
class HttpServerTest : public ::testing::Test {
 protected:
  void start(HttpServerOptions options = {}) {
    auto made = HttpServer::listen(options, [this](HttpRequest request, auto responder) {
      handle(std::move(request), std::move(responder));
    });
    ASSERT_TRUE(made) << made.error().message;
    server_ = std::move(*made);
    port_ = server_->port();
  }
  void TearDown() override {
    if (server_) server_->stop(0);
    held_.clear();
  }

  void handle(HttpRequest request, std::shared_ptr<Responder> responder) {
    if (request.path == "/echo") {
      responder->respond({.content_type = "text/plain", .body = request.method + request.body});
    } else if (request.path == "/big") {
      responder->respond({.body = std::string(10'000, 'b')});
    } else if (request.path == "/later") {
      // Answered by another thread, as the engine does.
      std::thread([responder, body = request.body] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        responder->post([responder, body] { responder->respond({.body = body}); });
      }).detach();
    } else if (request.path == "/stream") {
      responder->begin({.content_type = "text/event-stream"});
      for (const char* piece : {"one ", "", "two ", "three"}) responder->write(piece);
      responder->end();
    } else if (request.path == "/hold" || request.path == "/waits") {
      responder->on_gone([this] { ++gone_; });
      if (request.path == "/waits") {
        responder->on_silence([weak = std::weak_ptr(responder)] {
          if (const auto waiting = weak.lock()) waiting->begin(event_stream_head());
        });
      }
      const std::lock_guard lock(mutex_);
      held_.push_back(std::move(responder));
      ++held_count_;
    } else if (request.path == "/events" || request.path == "/text") {
      const bool events = request.path == "/events";
      responder->begin(
          {.content_type = events ? "text/event-stream; charset=utf-8" : "text/plain"});
      responder->write("data: 1\n\n");
      const std::lock_guard lock(mutex_);
      held_.push_back(std::move(responder));
      ++held_count_;
    } else if (request.path == "/burst") {
      // As an engine that is quicker than this thread.
      responder->begin({.content_type = "text/event-stream"});
      for (int i = 0; i < kBurstPieces; ++i) {
        responder->post([responder] { responder->write(std::string(1000, 'b')); });
      }
      responder->post([responder] { responder->end(); });
    } else if (request.path == "/large") {
      responder->begin({});
      responder->write(std::string(200'000, 'x'));
      responder->end();
    } else if (request.path == "/flood") {
      responder->on_gone([this] { ++gone_; });
      responder->begin({});
      while (responder->write(std::string(1000, 'x'))) ++written_;
    }  // "/drop": nobody answers
  }
  size_t held() { return static_cast<size_t>(held_count_.load()); }

  std::unique_ptr<HttpServer> server_;
  uint16_t port_ = 0;
  std::mutex mutex_;
  std::vector<std::shared_ptr<Responder>> held_;
  std::atomic<int> held_count_{0}, gone_{0}, written_{0};
};

}  // namespace jige::api
