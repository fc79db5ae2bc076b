#include "api/responses_writer.h"

#include <ctime>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>

#include "base/rng.h"
#include "text/token_text.h"

namespace jige::api {
namespace {

Json response_usage(const serve::RequestReport& report) {
  return {{"input_tokens", report.prompt_tokens},
          {"input_tokens_details",
           {{"cached_tokens", report.cached_tokens}, {"cache_write_tokens", 0}}},
          {"output_tokens", report.generated_tokens},
          {"output_tokens_details", {{"reasoning_tokens", report.reasoning_tokens}}},
          {"total_tokens", report.prompt_tokens + report.generated_tokens},
          {"timing", timing_json(report)}};
}

// The codes of this API that an error while an answer is made can have.
std::string_view failure_code(const ApiError& error) {
  return error.status == 429 ? "rate_limit_exceeded" : "server_error";
}

Json call_item(const NamedCall& call, const std::string& id, std::string_view status) {
  return {{"type", "function_call"},
          {"id", id},
          {"call_id", call.id},
          {"name", call.call.name},
          {"arguments", call.call.arguments},
          {"status", status}};
}

}  // namespace

void ResponsesWriter::tell(std::string& frames, std::string_view type, Json members) {
  if (!streams_) return;
  Json event = {{"type", type}, {"sequence_number", sequence_++}};
  for (auto& [name, value] : members.items()) event[name] = std::move(value);
  frames += event_frame(event);
}

void ResponsesWriter::tell_item(std::string& frames, std::string_view type, const Json& item) {
  tell(frames, type, {{"output_index", items_.size()}, {"item", item}});
}

std::string ResponsesWriter::item_id() const {
  return fmt::format("{:016x}", derive_key(derive_key(0, head_.id), "item", items_.size()));
}

Json ResponsesWriter::part() const {
  if (open_ == Open::kReasoning) return {{"type", "reasoning_text"}, {"text", open_text_}};
  return {{"type", "output_text"},
          {"text", open_text_},
          {"annotations", Json::array()},
          {"logprobs", listed_logprobs(open_tokens_, tokenizer_)}};
}

Json ResponsesWriter::open_item(std::string_view status) const {
  Json content = Json::array();
  if (status != "in_progress") content.push_back(part());
  if (open_ == Open::kReasoning) {
    return {{"type", "reasoning"},
            {"id", "rs_" + item_id()},
            {"summary", Json::array()},
            {"content", std::move(content)},
            {"status", status}};
  }
  return {{"type", "message"},
          {"id", "msg_" + item_id()},
          {"role", "assistant"},
          {"content", std::move(content)},
          {"status", status}};
}

Json ResponsesWriter::at_part() const {
  const std::string prefix = open_ == Open::kReasoning ? "rs_" : "msg_";
  return {{"item_id", prefix + item_id()}, {"output_index", items_.size()}, {"content_index", 0}};
}

void ResponsesWriter::open(std::string& frames, Open kind) {
  if (open_ == kind) return;
  close(frames, "completed");
  open_ = kind;
  open_text_.clear();
  open_tokens_.clear();
  tell_item(frames, "response.output_item.added", open_item("in_progress"));
  Json members = at_part();
  members["part"] = part();
  tell(frames, "response.content_part.added", std::move(members));
}

Json ResponsesWriter::take_logprobs(const std::string& text) {
  auto first = held_tokens_.begin();
  if (open_tokens_.empty()) {
    // What is held may begin with reasoning or the mark behind a call: the last tokens that are as
    // long as the text are the message's.
    size_t bytes = 0;
    for (first = held_tokens_.end(); first != held_tokens_.begin() && bytes < text.size();) {
      --first;
      const std::string shown = text::token_text(tokenizer_, first->token);
      bytes += text::token_bytes(tokenizer_, first->token, shown).size();
    }
  }
  const auto count = static_cast<size_t>(held_tokens_.end() - first);
  std::move(first, held_tokens_.end(), std::back_inserter(open_tokens_));
  held_tokens_.clear();
  return listed_logprobs(std::span(open_tokens_).last(count), tokenizer_);
}

std::string ResponsesWriter::add(Open kind, const TokenEvent& piece) {
  std::string frames;
  if (head_.logprobs && piece.token >= 0) held_tokens_.push_back(piece);
  if (piece.text.empty()) return frames;
  open(frames, kind);
  open_text_ += piece.text;
  Json members = at_part();
  members["delta"] = piece.text;
  if (kind == Open::kMessage) members["logprobs"] = take_logprobs(piece.text);
  tell(frames,
       kind == Open::kMessage ? "response.output_text.delta" : "response.reasoning_text.delta",
       std::move(members));
  return frames;
}

void ResponsesWriter::close(std::string& frames, std::string_view status) {
  if (open_ == Open::kNothing) return;
  const bool message = open_ == Open::kMessage;
  if (streams_) {
    Json whole = part();
    Json members = at_part();
    members["text"] = open_text_;
    if (message) members["logprobs"] = whole["logprobs"];
    tell(frames, message ? "response.output_text.done" : "response.reasoning_text.done",
         std::move(members));
    members = at_part();
    members["part"] = std::move(whole);
    tell(frames, "response.content_part.done", std::move(members));
  }
  Json item = open_item(status);
  tell_item(frames, "response.output_item.done", item);
  items_.push_back(std::move(item));
  open_ = Open::kNothing;
}

std::string ResponsesWriter::begin(size_t) {
  streams_ = true;
  // What may be long is repeated at the end alone.
  Json begun = answer("in_progress");
  begun.update({{"instructions", nullptr},
                {"metadata", Json::object()},
                {"text", {{"format", {{"type", "text"}}}}},
                {"tools", Json::array()},
                {"tool_choice", "auto"}});
  std::string frames;
  tell(frames, "response.created", {{"response", begun}});
  tell(frames, "response.in_progress", {{"response", std::move(begun)}});
  return frames;
}

std::string ResponsesWriter::reasoning(size_t, const TokenEvent& piece) {
  return add(Open::kReasoning, piece);
}

std::string ResponsesWriter::text(size_t, const TokenEvent& piece, int64_t) {
  return add(Open::kMessage, piece);
}

std::string ResponsesWriter::call(size_t, const NamedCall& call, size_t) {
  std::string frames;
  close(frames, "completed");
  held_tokens_.clear();
  const std::string id = "fc_" + item_id();
  NamedCall begun = call;
  begun.call.arguments.clear();
  tell_item(frames, "response.output_item.added", call_item(begun, id, "in_progress"));
  const Json place = {{"item_id", id}, {"output_index", items_.size()}};
  Json members = place;
  members["delta"] = call.call.arguments;
  tell(frames, "response.function_call_arguments.delta", std::move(members));
  members = place;
  members["name"] = call.call.name;
  members["arguments"] = call.call.arguments;
  tell(frames, "response.function_call_arguments.done", std::move(members));
  Json item = call_item(call, id, "completed");
  tell_item(frames, "response.output_item.done", item);
  items_.push_back(std::move(item));
  return frames;
}

std::string ResponsesWriter::finish(size_t, const ChoiceState& state) {
  // The frames that end the item are long and say the same in turns: they go together with the
  // last.
  finish_ = state.finish;
  return {};
}

Json ResponsesWriter::answer(std::string_view status) const {
  Json json = {{"id", head_.id},   {"object", "response"},          {"created_at", head_.created_s},
               {"status", status}, {"model", head_.model},          {"output", items_},
               {"error", nullptr}, {"incomplete_details", nullptr}, {"usage", nullptr}};
  if (!head_.echo.is_null()) json.update(head_.echo);
  return json;
}

Json ResponsesWriter::final_answer(std::string& frames, const serve::RequestReport& report) {
  const bool cut = finish_ == "length";
  const bool stopped = finish_ == "abort";
  close(frames, cut || stopped ? "incomplete" : "completed");
  Json json = answer(stopped ? "failed" : cut ? "incomplete" : "completed");
  if (cut) json["incomplete_details"] = {{"reason", "max_output_tokens"}};
  if (stopped) {
    json["error"] = {{"code", "server_error"}, {"message", "the server was stopped"}};
  } else {
    json["completed_at"] = static_cast<int64_t>(std::time(nullptr));
  }
  json["usage"] = response_usage(report);
  return json;
}

size_t ResponsesWriter::held_bytes() const {
  size_t bytes = 0;
  for (const TokenEvent& event : open_tokens_) {
    bytes += sizeof event + event.top.size() * sizeof event.top[0];
  }
  return bytes;
}

std::string ResponsesWriter::end(const serve::RequestReport& report) {
  std::string frames;
  Json response = final_answer(frames, report);
  const std::string type = "response." + response["status"].get<std::string>();
  tell(frames, type, {{"response", std::move(response)}});
  return frames;
}

Json ResponsesWriter::whole(const std::vector<ChoiceState>& choices,
                            const serve::RequestReport& report) {
  replay(choices.front(), *this);
  finish(0, choices.front());
  std::string no_frames;
  return final_answer(no_frames, report);
}

std::string ResponsesWriter::error(const ApiError& error) {
  Json response = answer("failed");
  response["error"] = {{"code", failure_code(error)}, {"message", error.message}};
  std::string frames;
  tell(frames, "response.failed", {{"response", std::move(response)}});
  return frames;
}

}  // namespace jige::api
