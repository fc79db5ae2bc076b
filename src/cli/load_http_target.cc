#include "cli/load_http_target.h"

#include <poll.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/json.h"

namespace jige::cli {
namespace {

constexpr double kAskSeconds = 10;
constexpr size_t kErrorBytesMax = size_t{1} << 20;

// The message of an error in the API's form, or the beginning of what came instead.
std::string error_text(const std::string& body) {
  const Result<Json> json = parse_json(body, "the answer");
  const Json* error =
      json && json->is_object() && json->contains("error") ? &(*json)["error"] : nullptr;
  if (error && error->is_object()) {
    const auto message = get_string_or(*error, "message", "", "error");
    if (message && !message->empty()) return *message;
  }
  return error && error->is_string() ? error->get<std::string>() : body.substr(0, 200);
}

std::string request_body(const HttpTargetOptions& options, size_t index,
                         const sim::RequestShape& shape) {
  return dump_json({{"model", options.model},
                    {"prompt", sim::random_prompt(options.prompt_key, index, shape.prompt_tokens,
                                                  options.vocab_size)},
                    {"max_tokens", shape.output_tokens},
                    {"temperature", options.temperature},
                    {"top_p", options.top_p},
                    {"ignore_eos", true},
                    {"stream", true},
                    {"stream_options", {{"include_usage", true}}}});
}

}  // namespace

Result<ServedModelInfo> ask_for_model(const api::HttpPeer& peer, const std::string& name) {
  JIGE_TRY(const api::HttpAnswer answer, api::fetch(peer, {.path = "/v1/models"}, kAskSeconds));
  const std::string where = peer.host + "/v1/models";
  if (answer.status != 200) {
    return fail(Code::kUnavailable, "{}: HTTP {}: {}", where, answer.status,
                error_text(answer.body));
  }
  JIGE_TRY(const Json json, parse_json(answer.body, where));
  const auto list = json.is_object() ? json.find("data") : json.end();
  std::string others;
  if (list != json.end() && list->is_array()) {
    for (const Json& model : *list) {
      if (!model.is_object()) continue;
      JIGE_TRY(const std::string id, get_string(model, "id", where));
      if (name.empty() || name == id) {
        // Peers name the context differently or not at all.
        const auto context = get_int_or(model, "max_model_len", 0, where);
        return ServedModelInfo{.name = id, .context_max = context.value_or(0)};
      }
      others += (others.empty() ? "" : ", ") + id;
    }
  }
  if (others.empty()) {
    return fail(Code::kUnavailable, "{}: lists no model; the server may still be loading one",
                where);
  }
  return fail(Code::kNotFound, "{}: no model {}; there is {}", where, name, others);
}

// One request under way.
class HttpTarget::Stream {
 public:
  Stream(Result<api::HttpCall> call, const sim::RequestShape& shape, double now_s)
      : heard_s_(now_s) {
    outcome.prompt_tokens = shape.prompt_tokens;
    if (call) {
      call_.emplace(std::move(*call));
    } else {
      fail_as("connection", call.error().message);
    }
  }

  bool over() const { return over_; }
  pollfd entry() const {
    return {.fd = call_->fd(), .events = call_->wanted_events(), .revents = 0};
  }
  double heard_s() const { return heard_s_; }

  void advance(double now_s) {
    heard_s_ = now_s;
    const Status moved = call_->advance();
    api::ResponseReader& response = call_->response();
    Status read;
    if (response.status() == 200) {
      read = events_.feed(response.take_body(),
                          [&](std::string_view data) { return take(data, now_s); });
    } else if (response.status() != 0 && (response.complete() || !moved)) {
      return fail_as(fmt::format("HTTP {}", response.status()), error_text(response.take_body()));
    } else if (response.body_bytes() > kErrorBytesMax) {
      return fail_as(fmt::format("HTTP {}", response.status()), "an endless answer");
    }
    if (over_) return;
    if (!read) return fail_as("bad stream", read.error().message);
    if (response.complete()) return end();
    if (!moved) fail_as("connection", moved.error().message);
  }

  void fail_as(std::string kind, std::string message) {
    outcome.failure = std::move(kind);
    error = std::move(message);
    over_ = true;
  }

  sim::RequestOutcome outcome;
  std::string error;

 private:
  Status take(std::string_view data, double now_s) {
    if (over_) return {};
    if (data == "[DONE]") {
      finished_ = true;
      return {};
    }
    JIGE_TRY(const Json json, parse_json(data, "an event of the stream"));
    if (!json.is_object()) return fail(Code::kCorrupt, "an event of the stream is no object");
    if (json.contains("error")) {
      fail_as("error in the stream", error_text(std::string(data)));
      return {};
    }
    if (const auto usage = json.find("usage"); usage != json.end() && usage->is_object()) {
      JIGE_TRY(usage_tokens_, get_int_or(*usage, "completion_tokens", 0, "usage"));
    }
    const auto choices = json.find("choices");
    if (choices == json.end() || !choices->is_array() || choices->empty()) return {};
    const Json& choice = choices->front();
    if (!choice.is_object()) return fail(Code::kCorrupt, "a choice of the stream is no object");
    JIGE_TRY(const std::string text, get_string_or(choice, "text", "", "choice"));
    JIGE_TRY(const std::string reason, get_string_or(choice, "finish_reason", "", "choice"));
    if (!reason.empty()) finished_ = true;
    if (!text.empty()) outcome.token_came(now_s);  // a piece of one or several
    return {};
  }

  void end() {
    if (!finished_) return fail_as("cut off", "the stream ended before its answer was complete");
    if (outcome.output_tokens == 0) outcome.first_token_s = heard_s_;  // tokens without text
    if (usage_tokens_ > 0) outcome.output_tokens = usage_tokens_;
    over_ = true;
  }

  std::optional<api::HttpCall> call_;
  api::SseReader events_;
  double heard_s_ = 0;
  int64_t usage_tokens_ = 0;
  bool finished_ = false;
  bool over_ = false;
};

HttpTarget::HttpTarget(HttpTargetOptions options) : options_(std::move(options)) {}
HttpTarget::~HttpTarget() = default;

void HttpTarget::send(size_t index, const sim::RequestShape& shape) {
  Result<api::HttpCall> call = api::HttpCall::start(
      options_.peer,
      {.method = "POST", .path = "/v1/completions", .body = request_body(options_, index, shape)});
  auto stream = std::make_unique<Stream>(std::move(call), shape, now_s());
  if (stream->over()) {
    finish(index, *stream);
  } else {
    streams_.emplace(index, std::move(stream));
  }
}

void HttpTarget::finish(size_t index, Stream& stream) {
  stream.outcome.end_s = now_s();
  if (first_error_.empty()) first_error_ = stream.error;
  ended_.push_back({index, std::move(stream.outcome)});
}

void HttpTarget::wait(double seconds_max, std::vector<Finished>& finished) {
  std::vector<pollfd> entries;
  std::vector<size_t> indices;
  for (const auto& [index, stream] : streams_) {
    entries.push_back(stream->entry());
    indices.push_back(index);
  }
  // A millisecond more would be a millisecond of lateness for the next request.
  const double wait_ms = ended_.empty() ? std::floor(seconds_max * 1000) : 0;
  poll(entries.data(), entries.size(), static_cast<int>(wait_ms));
  for (size_t i = 0; i < entries.size(); ++i) {
    Stream& stream = *streams_.at(indices[i]);
    if (entries[i].revents != 0) {
      stream.advance(now_s());
    } else if (now_s() - stream.heard_s() > options_.silence_seconds_max) {
      stream.fail_as("timeout", fmt::format("nothing came for {} s", options_.silence_seconds_max));
    }
    if (!stream.over()) continue;
    finish(indices[i], stream);
    streams_.erase(indices[i]);
  }
  std::ranges::move(std::exchange(ended_, {}), std::back_inserter(finished));
}

void HttpTarget::cancel_all() {
  for (const auto& [index, stream] : streams_) {
    stream->fail_as("cancelled", "");
    finish(index, *stream);
  }
  streams_.clear();
}

}  // namespace jige::cli
