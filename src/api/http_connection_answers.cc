// What a connection answers, and what it tells of requests that have ended.
#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <chrono>
#include <utility>

#include "api/api_error.h"
#include "api/field_reader.h"
#include "api/http_connection.h"
#include "base/ascii.h"

namespace jige::api {

namespace asio = boost::asio;
namespace http = boost::beast::http;

namespace {

std::string_view view_of(boost::beast::string_view text) { return {text.data(), text.size()}; }

bool is_id_field(const HttpHeader& field) { return lower_ascii(field.name) == kRequestIdField; }

}  // namespace

bool HttpConnection::answer_origin(const HttpRequest& request) {
  const auto field =
      std::find_if(request.headers.begin(), request.headers.end(),
                   [](const HttpHeader& one) { return boost::beast::iequals(one.name, "Origin"); });
  if (field == request.headers.end()) return false;
  const AllowedOrigins& origins = core_->options.origins;
  if (!origins.admits(field->value) && !origins.is_own(field->value, request.header("Host"))) {
    core_->count(&HttpServerStats::requests_refused, 1);
    send_whole(error_response(
        {.status = 403,
         .message = fmt::format("pages of {} may not use this server; --allowed-origins names "
                                "those that may",
                                shown_value(Json(field->value))),
         .code = "origin_not_allowed"},
        error_form(request.path)));
    return true;
  }
  if (!is_preflight(request)) return false;
  core_->count(&HttpServerStats::requests_total, 1);
  send_whole(preflight_response(request));
  return true;
}

// Answers what is wrong with the form of a request and gives the connection up.
void HttpConnection::refuse(int status, std::string_view message) {
  release_body_bytes();
  core_->count(&HttpServerStats::requests_refused, 1);
  // Whose answer it is, where the request came so far as to say.
  const std::string target = parser_ ? std::string(parser_->get().target()) : std::string();
  const ErrorForm form = error_form(target.substr(0, target.find('?')));
  HttpResponse response = error_response({.status = status,
                                          .message = std::string(message),
                                          .retry_after_s = status == 503 ? 1.0 : -1.0},
                                         form);
  if (parser_) {
    note_request(parser_->get());
    begin_telling(parser_->get());
  }
  parser_.reset();
  buffer_.consume(buffer_.size());
  keep_alive_ = false;
  head_only_ = false;
  send_whole(std::move(response));
}

void HttpConnection::note_request(const http::request_header<>& head) {
  origin_fields_ = core_->options.origins.fields(view_of(head[http::field::origin]));
  const boost::beast::string_view name(kRequestIdField.data(), kRequestIdField.size());
  request_id_ = view_of(head[name]);
  client_named_ = head.count(name) == 1 && is_request_id(request_id_);
  if (!client_named_) request_id_ = core_->ids.next();
}

void HttpConnection::add_fields(HttpResponse& response) {
  std::vector<HttpHeader>& fields = response.headers;
  if (client_named_) std::erase_if(fields, is_id_field);
  const auto own = std::ranges::find_if(fields, is_id_field);
  if (own != fields.end()) {
    at_hand_.id = own->value;
  } else {
    fields.push_back({std::string(kRequestIdField), request_id_});
  }
  fields.insert(fields.end(), origin_fields_.begin(), origin_fields_.end());
}

void HttpConnection::begin_telling(const http::request_header<>& head) {
  if (!core_->options.on_ended) return;
  came_ = std::chrono::steady_clock::now();
  const std::string_view target = view_of(head.target());
  at_hand_ = {.id = request_id_,
              .client = client_,
              .method = std::string(view_of(head.method_string())),
              .path = std::string(target.substr(0, target.find('?')))};
}

void HttpConnection::tell_end(bool whole) {
  if (came_ == Time::max()) return;
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - came_;
  came_ = Time::max();
  at_hand_.seconds = taken.count();
  at_hand_.whole = whole;
  core_->options.on_ended(at_hand_);
}

void HttpConnection::send_whole(HttpResponse response) {
  if (phase_ == Phase::kClosed) return;
  at_hand_.status = response.status;
  add_fields(response);
  std::string bytes = response_head(response, {.keep_alive = keep_alive_});
  if (!head_only_) bytes += response.body;
  enqueue(bytes);
  finish_exchange();
}

void HttpConnection::send_head(HttpResponse head) {
  if (phase_ == Phase::kClosed) return;
  at_hand_.status = head.status;
  add_fields(head);
  body_end_ = http_1_0_ ? BodyEnd::kConnection : BodyEnd::kChunks;
  if (http_1_0_) keep_alive_ = false;
  enqueue(response_head(head, {.keep_alive = keep_alive_, .end = body_end_}));
  const bool events = head.content_type.starts_with("text/event-stream");
  silent_since_ = events ? std::chrono::steady_clock::now() : Time::max();
}

bool HttpConnection::send_piece(std::string_view piece) {
  if (phase_ == Phase::kClosed) return false;
  // What the piece itself adds the client had no time to read.
  if (output_full()) {
    core_->count(&HttpServerStats::slow_readers_dropped, 1);
    close();
    return false;
  }
  if (body_end_ == BodyEnd::kChunks) {
    enqueue(chunk_of(piece));
  } else {
    enqueue(piece);
  }
  if (silent_since_ != Time::max()) silent_since_ = std::chrono::steady_clock::now();
  return true;
}

void HttpConnection::send_end() {
  if (phase_ == Phase::kClosed) return;
  if (body_end_ == BodyEnd::kChunks) enqueue("0\r\n\r\n");
  finish_exchange();
}

void HttpConnection::finish_exchange() {
  tell_end(/*whole=*/true);
  exchange_.reset();
  silent_since_ = Time::max();
  if (!keep_alive_ || core_->stopping) {
    return linger();
  }
  enter(Phase::kIdle, core_->options.idle_timeout_ms);
  read_wake_.cancel();
  // Not pump() itself: the caller may be a handler that pump() has called.
  asio::post(core_->io, [self = shared_from_this()] { self->pump(); });
}

}  // namespace jige::api
