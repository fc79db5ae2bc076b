#include "api/http_connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/http/error.hpp>
#include <utility>

#include "api/http_exchange.h"
#include "base/ascii.h"
#include "base/log.h"

namespace jige::api {

namespace asio = boost::asio;
namespace http = boost::beast::http;

namespace {

// Bytes of later requests kept while an answer is being made; beyond it nothing is read.
constexpr size_t kAheadBytesMax = 65536;
// How long the rest of a refused request is read and thrown away, so that the client sees the
// answer instead of a reset.
constexpr int64_t kLingerMs = 1000;

// Posted work that runs before bytes come and go again: few enough that what it writes to one
// client stays far below what may wait for that client.
constexpr int kPostedAtOnce = 16;

int status_of(const HttpConnection::ErrorCode& error) {
  if (error == http::error::body_limit) return 413;
  if (error == http::error::header_limit) return 431;
  return 400;
}

std::string refusal_text(const HttpConnection::ErrorCode& error, const HttpServerOptions& options) {
  if (error == http::error::body_limit) {
    return fmt::format("the body has more than {} bytes", options.body_bytes_max);
  }
  if (error == http::error::header_limit) {
    return fmt::format("the header has more than {} bytes", options.header_bytes_max);
  }
  return fmt::format("the request cannot be read: {}", error.message());
}

std::string address_of(const HttpStream::Socket& socket) {
  HttpConnection::ErrorCode error;
  const auto end = socket.remote_endpoint(error);
  return error ? std::string() : end.address().to_string();
}

}  // namespace

void HttpCore::post(std::function<void()> work) {
  const std::lock_guard lock(post_mutex_);
  if (closed_) return;
  posted_.push_back(std::move(work));
  if (std::exchange(will_run_posted_, true)) return;
  asio::post(io, [this] { run_posted(); });
}

void HttpCore::run_posted() {
  for (int i = 0; i < kPostedAtOnce; ++i) {
    std::function<void()> work;
    {
      const std::lock_guard lock(post_mutex_);
      if (posted_.empty()) break;
      work = std::move(posted_.front());
      posted_.pop_front();
    }
    try {
      work();
    } catch (const std::exception& error) {
      log_error("HTTP server: {}", error.what());  // only memory runs out here; the others go on
    }
  }
  const std::lock_guard lock(post_mutex_);
  will_run_posted_ = !posted_.empty();
  if (will_run_posted_) asio::post(io, [this] { run_posted(); });
}

void HttpCore::close() {
  const std::lock_guard lock(post_mutex_);
  closed_ = true;
}

void HttpCore::count(int64_t HttpServerStats::*field, int64_t delta) {
  const std::lock_guard lock(stats_mutex);
  stats.*field += delta;
}

HttpConnection::HttpConnection(std::shared_ptr<HttpCore> core, HttpStream::Socket socket,
                               asio::ssl::context* tls)
    : core_(std::move(core)),
      client_(address_of(socket)),
      stream_(std::move(socket), tls),
      read_wake_(core_->io, Time::max()),
      write_wake_(core_->io, Time::max()) {}

void HttpConnection::start() {
  enter(Phase::kHandshake, core_->options.request_timeout_ms);
  const auto self = shared_from_this();
  // A loop that returns has closed, or has left the end to the other one.
  const auto ended = [self](const std::exception_ptr& error) {
    if (error) self->close();
  };
  asio::co_spawn(core_->io, read_loop(self), ended);
  asio::co_spawn(core_->io, write_loop(self), ended);
}

void HttpConnection::enter(Phase phase, int64_t timeout_ms) {
  phase_ = phase;
  phase_since_ = std::chrono::steady_clock::now();
  deadline_ = timeout_ms < 0 ? Time::max() : phase_since_ + std::chrono::milliseconds(timeout_ms);
}

void HttpConnection::check_deadline(Time now) {
  if (now >= write_deadline_) return close();
  break_silence(now);
  if (now < deadline_) return;
  if (phase_ == Phase::kReading) return refuse(408, "the request took too long to arrive");
  if (phase_ == Phase::kIdle) return linger();
  close();
}

void HttpConnection::break_silence(Time now) {
  const int64_t pause_ms = core_->options.event_pause_ms;
  if (pause_ms == 0 || silent_since_ == Time::max() || !all_sent()) return;
  if (now < silent_since_ + std::chrono::milliseconds(pause_ms)) return;
  const auto exchange = exchange_.lock();
  if (!exchange || !exchange->may_break_silence() || !core_->options.alive()) return;
  exchange->begin_in_silence();
  if (silent_since_ != Time::max()) send_piece(kEventComment);
}

// Ends the connection in good order: what is left is sent, then the end itself.
void HttpConnection::linger() {
  keep_alive_ = false;
  enter(Phase::kLingering, -1);  // until all is written, which has a deadline of its own
  write_wake_.cancel();
}

void HttpConnection::wind_down() {
  keep_alive_ = false;
  if (phase_ == Phase::kAnswering || phase_ == Phase::kLingering) return;
  if (all_sent()) return close();
  enter(Phase::kLingering, -1);
}

void HttpConnection::close() {
  if (phase_ == Phase::kClosed) return;
  phase_ = Phase::kClosed;
  tell_end(/*whole=*/false);
  release_body_bytes();
  stream_.close();
  read_wake_.cancel();
  write_wake_.cancel();
  if (const auto exchange = exchange_.lock()) exchange->client_gone();
  core_->count(&HttpServerStats::connections_open, -1);
  core_->connections.erase(shared_from_this());
}

asio::awaitable<void> HttpConnection::read_loop(
    [[maybe_unused]] std::shared_ptr<HttpConnection> self) {
  ErrorCode error;
  co_await stream_.handshake(error);
  if (error || phase_ == Phase::kClosed) {
    close();
    co_return;
  }
  enter(Phase::kIdle, core_->options.idle_timeout_ms);
  for (;;) {
    while ((phase_ == Phase::kAnswering || output_full()) && buffer_.size() >= kAheadBytesMax) {
      ErrorCode ignored;
      co_await read_wake_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    }
    if (phase_ == Phase::kClosed) co_return;
    const size_t count = co_await stream_.read_some(asio::buffer(received_), error);
    if (phase_ == Phase::kClosed) co_return;
    if (error) break;
    if (phase_ == Phase::kLingering) continue;  // nobody looks at it any more
    const asio::const_buffer received(received_.data(), count);
    buffer_.commit(asio::buffer_copy(buffer_.prepare(count), received));
    pump();
  }
  peer_ended();
}

void HttpConnection::peer_ended() {
  // An answer that is complete may still leave: the client may have closed its half only.
  const bool answered = phase_ == Phase::kIdle || phase_ == Phase::kLingering;
  if (!answered || end_sent_) return close();
  peer_ended_ = true;
  linger();
}

asio::awaitable<void> HttpConnection::write_loop(
    [[maybe_unused]] std::shared_ptr<HttpConnection> self) {
  while (phase_ != Phase::kClosed) {
    if (out_.empty()) {
      if (phase_ == Phase::kLingering && !std::exchange(end_sent_, true)) {
        enter(Phase::kLingering, kLingerMs);
        co_await stream_.shutdown_send();
        if (peer_ended_) close();
        continue;
      }
      ErrorCode ignored;
      co_await write_wake_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
      continue;
    }
    sending_.swap(out_);
    out_.clear();
    for (size_t sent = 0; sent < sending_.size();) {
      write_deadline_ = std::chrono::steady_clock::now() +
                        std::chrono::milliseconds(core_->options.write_timeout_ms);
      ErrorCode error;
      const asio::const_buffer rest(sending_.data() + sent, sending_.size() - sent);
      const size_t count = co_await stream_.write_some(rest, error);
      sent += count;
      if (error || phase_ == Phase::kClosed) {
        close();
        co_return;
      }
    }
    sending_.clear();
    write_deadline_ = Time::max();
    read_wake_.cancel();
    if (const auto exchange = exchange_.lock(); exchange && all_sent()) exchange->output_sent();
    pump();  // what waited for the output to be taken
  }
}

bool HttpConnection::output_full() const {
  return out_.size() + sending_.size() > core_->options.output_bytes_max;
}

bool HttpConnection::unused_since(Time time) const {
  return phase_ == Phase::kIdle && phase_since_ <= time && all_sent();
}

HttpConnection::Time HttpConnection::arriving_since() const {
  const bool arriving = phase_ == Phase::kReading || phase_ == Phase::kHandshake;
  return arriving ? phase_since_ : Time::max();
}

void HttpConnection::enqueue(std::string_view bytes) {
  at_hand_.bytes += bytes.size();
  out_ += bytes;
  if (sending_.empty()) write_wake_.cancel();
}

// Drops the empty lines that some clients send behind a body (RFC 9112, 2.2). False when nothing
// else has come yet, so that no request has begun.
bool HttpConnection::skip_empty_lines() {
  for (;;) {
    const asio::const_buffer bytes = buffer_.data();
    const std::string_view text(static_cast<const char*>(bytes.data()), bytes.size());
    if (text.empty() || text == "\r") return false;
    if (!text.starts_with("\r\n")) return true;
    buffer_.consume(2);
  }
}

void HttpConnection::pump() {
  while ((phase_ == Phase::kIdle || phase_ == Phase::kReading) && buffer_.size() > 0 &&
         !output_full()) {
    if (!parser_) {
      if (!skip_empty_lines()) return;
      parser_.emplace();
      parser_->header_limit(static_cast<uint32_t>(core_->options.header_bytes_max));
      parser_->body_limit(core_->options.body_bytes_max);
      parser_->eager(true);
      continue_sent_ = false;
      enter(Phase::kReading, core_->options.request_timeout_ms);
    }
    if (!parse_some()) return;
    if (parser_->is_done()) begin_exchange();
  }
}

// Feeds the parser. False when it needs more bytes or the request was refused.
bool HttpConnection::parse_some() {
  ErrorCode error;
  const size_t used = parser_->put(buffer_.data(), error);
  buffer_.consume(used);
  if (error && error != http::error::need_more) {
    refuse(status_of(error), refusal_text(error, core_->options));
    return false;
  }
  if (!account_body()) return false;
  if (parser_->is_done()) return true;
  // A line of a chunked body that does not end: the parser would wait for the rest for ever.
  const bool waits = used == 0 || error;
  if (waits && buffer_.size() > core_->options.header_bytes_max) {
    refuse(431, "a line of the chunked body is too long");
    return false;
  }
  if (parser_->is_header_done() && !continue_sent_ &&
      boost::beast::iequals(parser_->get()[http::field::expect], "100-continue")) {
    continue_sent_ = true;
    enqueue("HTTP/1.1 100 Continue\r\n\r\n");
  }
  return used > 0 && !error;
}

// Counts what the body has grown in the server's total. False when there is no room for it.
bool HttpConnection::account_body() {
  const size_t size = parser_->get().body().size();
  if (core_->bodies_bytes + size - body_bytes_ > core_->options.bodies_bytes_max) {
    refuse(503, "too many large requests are arriving at once; try again");
    return false;
  }
  core_->bodies_bytes += size - body_bytes_;
  body_bytes_ = size;
  return true;
}

void HttpConnection::release_body_bytes() {
  core_->bodies_bytes -= body_bytes_;
  body_bytes_ = 0;
}

void HttpConnection::begin_exchange() {
  auto message = parser_->release();
  keep_alive_ = message.keep_alive() && !core_->stopping;
  http_1_0_ = message.version() < 11;
  note_request(message);
  begin_telling(message);
  parser_.reset();
  release_body_bytes();

  if (const auto hosts = message.count(http::field::host);
      hosts > 1 || (hosts == 0 && !http_1_0_)) {
    return refuse(400, fmt::format("the request has {} Host fields; it must have one", hosts));
  }
  if (const auto origins = message.count(http::field::origin); origins > 1) {
    return refuse(400, fmt::format("the request has {} Origin fields; it may have one", origins));
  }
  // `gzip, chunked` and the like: where such a body ends is known, not what it says.
  if (const auto coding = message[http::field::transfer_encoding];
      !coding.empty() && !boost::beast::iequals(coding, "chunked")) {
    return refuse(501, "bodies with a Transfer-Encoding other than chunked are not supported");
  }
  HttpRequest request;
  request.method = std::string(message.method_string());
  for (const auto& field : message) {
    request.headers.push_back({std::string(field.name_string()), std::string(field.value())});
  }
  std::erase_if(request.headers, [](const HttpHeader& field) {
    return lower_ascii(field.name) == kRequestIdField;  // it is request.id, or none
  });
  request.id = request_id_;
  request.body = std::move(message.body());
  if (!split_target({message.target().data(), message.target().size()}, request)) {
    return refuse(400,
                  "the target has a percent escape that is not two hexadecimal digits, or "
                  "is an address without a host");
  }
  head_only_ = request.method == "HEAD";
  if (head_only_) request.method = "GET";

  enter(Phase::kAnswering, -1);
  if (answer_origin(request)) return;
  const auto exchange = std::make_shared<HttpExchange>(core_, weak_from_this());
  exchange_ = exchange;
  silent_since_ = phase_since_;
  core_->count(&HttpServerStats::requests_total, 1);
  core_->handler(std::move(request), exchange);
}

}  // namespace jige::api
