#include "api/vector_session.h"

#include <functional>
#include <span>
#include <utility>

#include "api/answer_format.h"

namespace jige::api {
namespace {

class VectorSessionSink final : public serve::RequestSink {
 public:
  VectorSessionSink(std::shared_ptr<VectorSession> session, std::shared_ptr<Responder> responder,
                    size_t input)
      : session_(std::move(session)), responder_(std::move(responder)), input_(input) {}

  void on_vector(std::span<const float> vector) override {
    vector_.assign(vector.begin(), vector.end());
  }
  void on_piece(int32_t, const serve::AnswerPiece&) override {}
  void on_choice(const serve::ChoiceEnd&) override {}
  void on_done(const serve::RequestReport& report) override {
    responder_->post([session = session_, input = input_, vector = std::move(vector_),
                      report]() mutable { session->on_vector(input, std::move(vector), report); });
  }
  void on_failed(const Error& error) override {
    responder_->post([session = session_, error] { session->on_failed(error); });
  }

 private:
  const std::shared_ptr<VectorSession> session_;
  const std::shared_ptr<Responder> responder_;
  const size_t input_;
  std::vector<float> vector_;
};

}  // namespace

VectorSession::VectorSession(std::string id, VectorWork request, serve::Engine& engine,
                             WorkQueue& work, std::shared_ptr<Responder> responder)
    : id_(std::move(id)),
      request_(std::move(request)),
      engine_(engine),
      work_(work),
      responder_(std::move(responder)),
      vectors_(request_.engine.size()) {}

void VectorSession::start() {
  responder_->on_gone([weak = weak_from_this()] {
    if (const auto session = weak.lock()) session->cancel();
  });
  for (size_t i = 0; i < request_.engine.size() && !over_; ++i) {
    auto sink = std::make_shared<VectorSessionSink>(shared_from_this(), responder_, i);
    const auto id = engine_.submit(std::move(request_.engine[i]), std::move(sink));
    if (id) {
      ids_.push_back(*id);
      continue;
    }
    const bool of_input = id.error().field == serve::RequestField::kPrompt;
    ApiError error = to_api_error(id.error(), of_input ? std::string(request_.field) : "");
    if (error.status == 429 || error.status == 503) {
      error.retry_after_s = engine_.retry_after_seconds();
    }
    fail_with(error);
  }
}

void VectorSession::on_vector(size_t input, std::vector<float> vector,
                              const serve::RequestReport& report) {
  if (over_) return;
  if (vector.empty()) {
    return fail_with({.status = 503,
                      .message = "the server is shutting down",
                      .code = "draining",
                      .retry_after_s = 5});
  }
  vectors_[input] = std::move(vector);
  reports_.push_back(report);
  if (reports_.size() == vectors_.size()) finish();
}

void VectorSession::on_failed(const Error& error) {
  if (!over_) fail_with(to_api_error(error));
}

void VectorSession::finish() {
  over_ = true;
  const size_t bytes = vectors_.size() * vectors_.front().size() * sizeof(float);
  std::function<void()> job = [self = shared_from_this()] {
    self->responder_->post(
        [self, response = self->answer()] { self->responder_->respond(response); });
  };
  if (!work_.try_push(job, bytes)) responder_->respond(answer());
}

HttpResponse VectorSession::answer() const {
  const serve::RequestReport report = merge_reports(reports_);
  return {.headers = {{"x-request-id", id_}, {"x-jige-timing", timing_header(report)}},
          .body = request_.write(vectors_, report.prompt_tokens, id_)};
}

void VectorSession::fail_with(const ApiError& error) {
  cancel();
  responder_->respond(error_response(error));
}

void VectorSession::cancel() {
  over_ = true;
  for (const serve::RequestId id : ids_) engine_.cancel(id);
}

}  // namespace jige::api
