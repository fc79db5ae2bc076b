#include "api/http_exchange.h"

#include "api/http_connection.h"

namespace jige::api {

HttpExchange::HttpExchange(std::shared_ptr<HttpCore> core, std::weak_ptr<HttpConnection> connection)
    : core_(std::move(core)), connection_(std::move(connection)) {}

HttpExchange::~HttpExchange() {
  if (state_ == State::kOver) return;
  const bool fresh = state_ == State::kFresh;
  core_->post([connection = std::move(connection_), fresh] {
    const std::shared_ptr<HttpConnection> open = connection.lock();
    if (!open) return;
    if (!fresh) return open->close();  // a stream cut short must not look complete
    HttpResponse response;
    response.status = 500;
    response.body = R"({"error":{"message":"the request was dropped without an answer",)"
                    R"("type":"server_error","param":null,"code":null}})";
    open->send_whole(std::move(response));
  });
}

void HttpExchange::respond(HttpResponse response) {
  if (state_ != State::kFresh) return;
  state_ = State::kOver;
  on_gone_ = on_silence_ = nullptr;
  if (const auto connection = connection_.lock()) connection->send_whole(std::move(response));
}

void HttpExchange::begin(HttpResponse head) {
  if (state_ != State::kFresh) return;
  state_ = State::kStreaming;
  on_silence_ = nullptr;
  if (const auto connection = connection_.lock()) connection->send_head(std::move(head));
}

bool HttpExchange::write(std::string_view piece) {
  if (state_ != State::kStreaming) return false;
  const auto connection = connection_.lock();
  return connection && connection->send_piece(piece);
}

void HttpExchange::when_sent(std::function<void()> callback) {
  if (state_ != State::kStreaming) return;
  const auto connection = connection_.lock();
  if (!connection) return;
  if (connection->all_sent()) return callback();
  on_sent_ = std::move(callback);
}

void HttpExchange::output_sent() {
  if (const auto callback = std::exchange(on_sent_, nullptr)) callback();
}

void HttpExchange::end() {
  if (state_ != State::kStreaming) return;
  state_ = State::kOver;
  on_gone_ = on_sent_ = nullptr;
  if (const auto connection = connection_.lock()) connection->send_end();
}

void HttpExchange::post(std::function<void()> work) {
  core_->post([self = shared_from_this(), work = std::move(work)] { work(); });
}

void HttpExchange::on_gone(std::function<void()> callback) {
  if (gone_) return callback();
  if (state_ != State::kOver) on_gone_ = std::move(callback);
}

void HttpExchange::on_silence(std::function<void()> callback) {
  if (state_ == State::kFresh) on_silence_ = std::move(callback);
}

void HttpExchange::begin_in_silence() {
  if (const auto callback = std::exchange(on_silence_, nullptr)) callback();
}

void HttpExchange::client_gone() {
  if (state_ == State::kOver) return;
  state_ = State::kOver;
  gone_ = true;
  on_sent_ = on_silence_ = nullptr;
  if (const auto callback = std::exchange(on_gone_, nullptr)) callback();
}

}  // namespace jige::api
