// CountedResponder: a Responder that tells the status of the answer before it goes on.
//
// Threads: as Responder; the callback runs on the server's thread.
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <utility>

#include "api/http_message.h"

namespace jige::api {

class CountedResponder final : public Responder {
 public:
  CountedResponder(std::shared_ptr<Responder> inner, std::function<void(int status)> count)
      : inner_(std::move(inner)), count_(std::move(count)) {}

  void respond(HttpResponse response) override {
    count_(response.status);
    inner_->respond(std::move(response));
  }
  void begin(HttpResponse head) override {
    count_(head.status);
    inner_->begin(std::move(head));
  }
  bool write(std::string_view piece) override { return inner_->write(piece); }
  void end() override { inner_->end(); }
  void when_sent(std::function<void()> callback) override {
    inner_->when_sent(std::move(callback));
  }
  void post(std::function<void()> work) override { inner_->post(std::move(work)); }
  void on_gone(std::function<void()> callback) override { inner_->on_gone(std::move(callback)); }
  void on_silence(std::function<void()> callback) override {
    inner_->on_silence(std::move(callback));
  }

 private:
  const std::shared_ptr<Responder> inner_;
  const std::function<void(int status)> count_;
};

}  // namespace jige::api
