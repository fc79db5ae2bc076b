#include "api/route_relay.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/request_id.h"
#include "api/route_events.h"
#include "base/ascii.h"

namespace jige::api {
namespace {

constexpr std::string_view kEvents = "text/event-stream";
constexpr size_t kUsageBytes = 4096;  // at the end of an answer, where its usage stands

// Fields that are of one connection, that this side writes itself (of answers, the HTTP server), or
// that are secrets between the client and the router.
bool is_own_field(std::string_view name) {
  static constexpr std::string_view kOwn[] = {"accept",
                                              "accept-encoding",
                                              "authorization",
                                              "connection",
                                              "content-length",
                                              "content-type",
                                              "cookie",
                                              "date",
                                              "expect",
                                              "host",
                                              "keep-alive",
                                              "origin",
                                              "referer",
                                              "proxy-authorization",
                                              "proxy-connection",
                                              "server",
                                              "te",
                                              "trailer",
                                              "transfer-encoding",
                                              "upgrade",
                                              "user-agent",
                                              "vary",
                                              "x-api-key",
                                              kRequestIdField};
  const std::string lower = lower_ascii(name);
  return std::ranges::find(kOwn, lower) != std::end(kOwn) || lower.starts_with("access-control-");
}

// "/v1/messages?beta=true": paths here are fixed ones, without anything to be escaped.
std::string target_of(const HttpRequest& request) {
  return request.query.empty() ? request.path : request.path + "?" + request.query;
}

// The number behind the last "completion_tokens" or "output_tokens" of an answer; 0 where there is
// none.
int64_t used_tokens(std::string_view body) {
  body.remove_prefix(body.size() - std::min(body.size(), kUsageBytes));
  for (const std::string_view name : {"\"completion_tokens\":", "\"output_tokens\":"}) {
    const size_t at = body.rfind(name);
    if (at == std::string_view::npos) continue;
    body.remove_prefix(at + name.size());
    body.remove_prefix(std::min(body.find_first_not_of(' '), body.size()));
    int64_t count = 0;
    std::from_chars(body.data(), body.data() + body.size(), count);
    return std::max<int64_t>(count, 0);
  }
  return 0;
}

double seconds_of(std::string_view text) {
  int seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  return error == std::errc() && end == text.data() + text.size() && seconds >= 0 ? seconds : -1;
}

}  // namespace

RouteRelay::RouteRelay(plan::RouteId id, HttpRequest request, std::shared_ptr<Responder> responder)
    : id_(id), path_(request.path), name_(std::move(request.id)), responder_(std::move(responder)) {
  query_.keep_connection = true;
  query_.method = std::move(request.method);
  query_.path = target_of(request);
  query_.body = std::move(request.body);
  for (HttpHeader& field : request.headers) {
    if (!is_own_field(field.name)) query_.fields.push_back(std::move(field));
  }
  query_.fields.push_back({std::string(kRequestIdField), name_});
}

Status RouteRelay::ask(const HttpPeer& peer, std::optional<HttpWire> wire, double now_s) {
  drop_call();
  asked_s_ = moved_s_ = now_s;
  if (wire) {
    call_.emplace(HttpCall::start_on(std::move(*wire), peer, query_));
  } else {
    JIGE_TRY(HttpCall call, HttpCall::start(peer, query_));
    call_.emplace(std::move(call));
  }
  call_->hold_body_at(kWindowBytes);
  return {};
}

void RouteRelay::drop_call() {
  call_.reset();
  form_ = Form::kUnknown;
  held_.clear();
  whole_events_ = true;
  answer_tokens_ = 0;
  first_s_ = -1;
}

Result<RouteRelay::State> RouteRelay::move(double now_s, std::function<void()> on_taken) {
  const size_t before = call_->received_bytes();
  const Status moved = call_->advance();
  if (!moved && call_->ended_unused()) return tl::unexpected(moved.error());
  if (call_->received_bytes() != before) moved_s_ = now_s;
  if (call_->response().head_complete() && form_ == Form::kUnknown) look_at_head(now_s);
  if (form_ != Form::kUnknown) {
    JIGE_TRY(const State state, pass_on(std::move(on_taken)));
    if (state != State::kOpen) return state;
  }
  if (!moved) return tl::unexpected(moved.error());
  return State::kOpen;
}

void RouteRelay::look_at_head(double now_s) {
  const ResponseReader& response = call_->response();
  if (response.status() == 429 || response.status() == 503) {
    form_ = Form::kRefusal;
    retry_after_s_ = seconds_of(response.field("retry-after"));
  } else if (lower_ascii(response.field("content-type")).starts_with(kEvents)) {
    form_ = Form::kEvents;
    return;  // servers say their heads before they have anything to say
  } else {
    form_ = Form::kWhole;
  }
  first_s_ = now_s;
}

Result<RouteRelay::State> RouteRelay::pass_on(std::function<void()> on_taken) {
  ResponseReader& response = call_->response();
  held_ += response.take_body();
  if (form_ == Form::kWhole || form_ == Form::kRefusal) {
    if (response.complete()) return finish_whole();
    if (held_.size() <= kWholeBytes) return State::kOpen;
    if (form_ == Form::kRefusal || opened_) {
      return fail(Code::kCorrupt, "{} of more than {} bytes",
                  form_ == Form::kRefusal ? "a refusal" : "an answer that is no stream",
                  kWholeBytes);
    }
    form_ = Form::kBytes;
  }
  size_t ready = held_.size();
  if (form_ == Form::kEvents) {
    if (!begun_) held_.erase(0, comments_end(held_));
    const size_t end = events_end(held_);
    if (end < held_.size() - std::min(held_.size(), kEventBytes)) whole_events_ = false;
    ready = whole_events_ && !response.complete() ? end : held_.size();
    answer_tokens_ += count_events(std::string_view(held_).substr(0, ready));
  }
  if (ready > 0 || response.complete()) {
    send(std::string_view(held_).substr(0, ready), std::move(on_taken));
    held_.erase(0, ready);
  }
  if (!response.complete()) return State::kOpen;
  responder_->post([responder = responder_] { responder->end(); });
  return State::kDone;
}

RouteRelay::State RouteRelay::finish_whole() {
  HttpResponse answer = take_head();
  answer.body = std::move(held_);
  if (form_ == Form::kRefusal) {
    const bool says_sooner =
        retry_after_s_ >= 0 && (refusal_retry_s_ < 0 || retry_after_s_ < refusal_retry_s_);
    if (!refusal_ || says_sooner) {
      refusal_ = std::move(answer);
      refusal_retry_s_ = retry_after_s_;
    }
    return State::kRefused;
  }
  if (opened_) {
    say_last(error_event(path_, error_of(answer), 0));
    return State::kDone;
  }
  answer_tokens_ = used_tokens(answer.body);
  begun_ = true;
  responder_->post([responder = responder_, answer = std::move(answer)]() mutable {
    responder->respond(std::move(answer));
  });
  return State::kDone;
}

HttpResponse RouteRelay::take_head() const {
  const ResponseReader& response = call_->response();
  HttpResponse head{.status = response.status(),
                    .content_type = std::string(response.field("content-type"))};
  for (const auto& [name, value] : response.fields()) {
    if (!is_own_field(name)) head.headers.push_back({name, value});
  }
  return head;
}

void RouteRelay::send(std::string_view piece, std::function<void()> on_taken) {
  std::optional<HttpResponse> head;
  if (!std::exchange(opened_, true)) head = take_head();
  if (!std::exchange(begun_, true)) query_.body = {};  // it is never asked again
  if (first_s_ < 0) first_s_ = moved_s_;
  on_the_way_ += piece.size();
  if (on_the_way_ < kWindowBytes) {
    on_taken = nullptr;
  } else {
    on_the_way_ = 0;
    paused_ = ever_paused_ = true;
  }
  responder_->post([responder = responder_, head = std::move(head), piece = std::string(piece),
                    on_taken = std::move(on_taken)]() mutable {
    if (head) responder->begin(std::move(*head));
    if (!piece.empty()) responder->write(piece);
    if (on_taken) responder->when_sent(std::move(on_taken));
  });
}

bool RouteRelay::silent_for(double seconds, double now_s) const {
  return stream && !begun_ && now_s - std::max(came_s, said_s_) >= seconds;
}

void RouteRelay::say_it_goes_on(double now_s) {
  said_s_ = now_s;
  std::optional<HttpResponse> head;
  if (!std::exchange(opened_, true)) {
    head = form_ == Form::kEvents ? take_head() : event_stream_head();
  }
  responder_->post([responder = responder_, head = std::move(head)]() mutable {
    if (head) responder->begin(std::move(*head));
    responder->write(kEventComment);
  });
}

void RouteRelay::say_last(std::string event) {
  responder_->post([responder = responder_, event = std::move(event)] {
    responder->write(event);
    responder->end();
  });
}

void RouteRelay::refuse(const ApiError& error) {
  if (opened_) return say_last(error_event(path_, refusal_ ? error_of(*refusal_) : error, 0));
  HttpResponse answer = refusal_ ? std::move(*refusal_) : error_response(error, error_form(path_));
  responder_->post([responder = responder_, answer = std::move(answer)]() mutable {
    responder->respond(std::move(answer));
  });
}

void RouteRelay::cut(const ApiError& error) {
  if (form_ != Form::kEvents || !whole_events_) {
    // Dropped without an end, so that it does not look complete.
    responder_ = nullptr;
    return;
  }
  say_last(error_event(path_, error, answer_tokens_));
}

}  // namespace jige::api
