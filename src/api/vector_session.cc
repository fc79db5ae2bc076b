#include "api/embedding_session.h"

#include <bit>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <utility>

#include "api/answer_format.h"
#include "base/base64.h"

namespace jige::api {
namespace {

static_assert(std::endian::native == std::endian::little);

class EmbeddingSink final : public serve::RequestSink {
 public:
  EmbeddingSink(std::shared_ptr<EmbeddingSession> session, std::shared_ptr<Responder> responder,
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
  const std::shared_ptr<EmbeddingSession> session_;
  const std::shared_ptr<Responder> responder_;
  const size_t input_;
  std::vector<float> vector_;
};

void write_vector(std::span<const float> vector, bool base64, std::string& out) {
  if (base64) {
    const std::string_view bytes(reinterpret_cast<const char*>(vector.data()), vector.size_bytes());
    out += '"';
    out += base64_text(bytes);
    out += '"';
    return;
  }
  char open = '[';
  for (const float value : vector) {
    out += std::exchange(open, ',');
    fmt::format_to(std::back_inserter(out), "{}", value);
  }
  out += ']';
}

}  // namespace

EmbeddingSession::EmbeddingSession(std::string id, std::string model_name,
                                   PreparedEmbeddings request, serve::Engine& engine,
                                   WorkQueue& work, std::shared_ptr<Responder> responder)
    : id_(std::move(id)),
      model_name_(std::move(model_name)),
      request_(std::move(request)),
      engine_(engine),
      work_(work),
      responder_(std::move(responder)),
      vectors_(request_.engine.size()) {}

void EmbeddingSession::start() {
  responder_->on_gone([weak = weak_from_this()] {
    if (const auto session = weak.lock()) session->cancel();
  });
  for (size_t i = 0; i < request_.engine.size() && !over_; ++i) {
    auto sink = std::make_shared<EmbeddingSink>(shared_from_this(), responder_, i);
    const auto id = engine_.submit(std::move(request_.engine[i]), std::move(sink));
    if (id) {
      ids_.push_back(*id);
      continue;
    }
    const bool of_input = id.error().field == serve::RequestField::kPrompt;
    ApiError error = to_api_error(id.error(), of_input ? "input" : "");
    if (error.status == 429 || error.status == 503) {
      error.retry_after_s = engine_.retry_after_seconds();
    }
    fail_with(error);
  }
}

void EmbeddingSession::on_vector(size_t input, std::vector<float> vector,
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

void EmbeddingSession::on_failed(const Error& error) {
  if (!over_) fail_with(to_api_error(error));
}

void EmbeddingSession::finish() {
  over_ = true;
  const size_t bytes = vectors_.size() * vectors_.front().size() * sizeof(float);
  std::function<void()> job = [self = shared_from_this()] {
    self->responder_->post(
        [self, response = self->answer()] { self->responder_->respond(response); });
  };
  if (!work_.try_push(job, bytes)) responder_->respond(answer());
}

HttpResponse EmbeddingSession::answer() const {
  constexpr size_t kNumberBytes = 13;  // "-0.012345678,"
  const serve::RequestReport report = merge_reports(reports_);
  std::string body = R"({"object":"list","data":[)";
  body.reserve(vectors_.size() * (64 + vectors_.front().size() * kNumberBytes));
  for (size_t i = 0; i < vectors_.size(); ++i) {
    fmt::format_to(std::back_inserter(body), R"({}{{"object":"embedding","index":{},"embedding":)",
                   i > 0 ? "," : "", i);
    write_vector(vectors_[i], request_.base64, body);
    body += '}';
  }
  fmt::format_to(std::back_inserter(body),
                 R"(],"model":{},"usage":{{"prompt_tokens":{},"total_tokens":{}}}}})",
                 dump_json(Json(model_name_)), report.prompt_tokens, report.prompt_tokens);
  return {.headers = {{"x-request-id", id_}, {"x-jige-timing", timing_header(report)}},
          .body = std::move(body)};
}

void EmbeddingSession::fail_with(const ApiError& error) {
  cancel();
  responder_->respond(error_response(error));
}

void EmbeddingSession::cancel() {
  over_ = true;
  for (const serve::RequestId id : ids_) engine_.cancel(id);
}

}  // namespace jige::api
