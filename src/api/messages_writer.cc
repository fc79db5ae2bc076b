#include "api/messages_writer.h"

#include <nlohmann/json.hpp>

namespace jige::api {
namespace {

// Tokens of the prompt that were cached are counted apart.
Json message_usage(const serve::RequestReport& report) {
  return {{"input_tokens", report.prompt_tokens - report.cached_tokens},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", report.cached_tokens},
          {"output_tokens", report.generated_tokens},
          {"output_tokens_details", {{"thinking_tokens", report.reasoning_tokens}}},
          {"timing", timing_json(report)}};
}

std::string_view stop_reason_of(const ChoiceState& state) {
  if (state.finish == "length") return "max_tokens";
  if (state.finish == "abort") return "abort";
  if (!state.stop_string.empty()) return "stop_sequence";
  return state.calls.empty() ? "end_turn" : "tool_use";
}

// The arguments of a call as an object.
Json input_of(const ToolCall& call) {
  auto object = parse_json(call.arguments, "arguments");
  return object ? std::move(*object) : Json::object();
}

}  // namespace

void MessagesWriter::start(std::string& frames, Json block) {
  stop(frames);
  open_type_ = block["type"];
  if (streams_) {
    frames += event_frame({{"type", "content_block_start"},
                           {"index", started_},
                           {"content_block", std::move(block)}});
  } else {
    blocks_.push_back(std::move(block));
  }
  ++started_;
}

void MessagesWriter::tell_delta(std::string& frames, Json delta) {
  frames += event_frame(
      {{"type", "content_block_delta"}, {"index", started_ - 1}, {"delta", std::move(delta)}});
}

void MessagesWriter::stop(std::string& frames) {
  if (open_type_.empty()) return;
  open_type_.clear();
  if (streams_) {
    frames += event_frame({{"type", "content_block_stop"}, {"index", started_ - 1}});
  }
}

std::string MessagesWriter::add(std::string_view type, const std::string& piece) {
  std::string frames;
  if (piece.empty()) return frames;
  const std::string member(type);
  if (open_type_ != type) {
    Json block = {{"type", type}, {member, ""}};
    // Nothing is signed here; clients look for the member.
    if (type == "thinking") block["signature"] = "";
    start(frames, std::move(block));
  }
  if (streams_) {
    tell_delta(frames, {{"type", member + "_delta"}, {member, piece}});
  } else {
    blocks_.back()[member].get_ref<std::string&>() += piece;
  }
  return frames;
}

std::string MessagesWriter::reasoning(size_t, const TokenEvent& piece) {
  return add("thinking", piece.text);
}

std::string MessagesWriter::text(size_t, const TokenEvent& piece, int64_t) {
  return add("text", piece.text);
}

std::string MessagesWriter::call(size_t, const NamedCall& call, size_t) {
  std::string frames;
  start(frames, {{"type", "tool_use"},
                 {"id", call.id},
                 {"name", call.call.name},
                 {"input", streams_ ? Json::object() : input_of(call.call)}});
  if (streams_) {
    tell_delta(frames, {{"type", "input_json_delta"}, {"partial_json", call.call.arguments}});
  }
  stop(frames);
  return frames;
}

std::string MessagesWriter::finish(size_t, const ChoiceState& state) {
  stop_reason_ = stop_reason_of(state);
  if (stop_reason_ == "stop_sequence") stop_sequence_ = state.stop_string;
  std::string frames;
  stop(frames);
  return frames;
}

Json MessagesWriter::message(Json usage) const {
  return {{"id", head_.id},
          {"type", "message"},
          {"role", "assistant"},
          {"model", head_.model},
          {"content", blocks_},
          {"stop_reason", stop_reason_},
          {"stop_sequence", stop_sequence_},
          {"usage", std::move(usage)}};
}

std::string MessagesWriter::begin(size_t) {
  streams_ = true;
  serve::RequestReport so_far;
  so_far.prompt_tokens = head_.prompt_tokens;
  return event_frame({{"type", "message_start"}, {"message", message(message_usage(so_far))}}) +
         event_frame({{"type", "ping"}});
}

std::string MessagesWriter::end(const serve::RequestReport& report) {
  return event_frame({{"type", "message_delta"},
                      {"delta", {{"stop_reason", stop_reason_}, {"stop_sequence", stop_sequence_}}},
                      {"usage", message_usage(report)}}) +
         event_frame({{"type", "message_stop"}});
}

Json MessagesWriter::whole(const std::vector<ChoiceState>& choices,
                           const serve::RequestReport& report) {
  replay(choices.front(), *this);
  finish(0, choices.front());
  return message(message_usage(report));
}

std::string MessagesWriter::error(const ApiError& error) {
  return event_frame(error_json(error, ErrorForm::kAnthropic));
}

HttpResponse MessagesWriter::refusal(const ApiError& error) {
  return error_response(error, ErrorForm::kAnthropic);
}

}  // namespace jige::api
