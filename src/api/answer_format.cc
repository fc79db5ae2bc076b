#include "api/answer_format.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "api/shown_prompt.h"
#include "text/token_text.h"

namespace jige::api {
namespace {

bool is_chat(const AnswerHead& head) { return head.endpoint == Endpoint::kChat; }

Json bytes_of(const std::string& bytes) {
  Json list = Json::array();
  for (const char c : bytes) list.push_back(static_cast<unsigned char>(c));
  return list;
}

// A token as the completions endpoint names it: half a character by its bytes, "bytes:\xe2\x82".
std::string token_name(const text::Tokenizer& tokenizer, int32_t id) {
  const std::string text = text::token_text(tokenizer, id);
  const std::string bytes = text::token_bytes(tokenizer, id, text);
  if (bytes == text) return text;
  std::string name = "bytes:";
  for (const char c : bytes) name += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return name;
}

Json listed_token(const text::Tokenizer& tokenizer, int32_t token, float logprob) {
  const std::string text = text::token_text(tokenizer, token);
  return {{"token", text},
          {"logprob", shown_logprob(logprob)},
          {"bytes", bytes_of(text::token_bytes(tokenizer, token, text))}};
}

// The token and the likeliest ones by their names; of tokens with one name, others than the first
// by their ids.
Json top_by_name(const TokenEvent& event, const text::Tokenizer& tokenizer) {
  Json top = {{token_name(tokenizer, event.token), shown_logprob(event.logprob)}};
  for (const ops::TokenLogProb& other : event.top) {
    if (other.token == event.token) continue;
    std::string name = token_name(tokenizer, other.token);
    if (top.contains(name)) name = fmt::format("token_id:{}", other.token);
    top.emplace(std::move(name), shown_logprob(other.logprob));
  }
  return top;
}

Json completion_logprobs(std::span<const TokenEvent> tokens, int64_t text_offset,
                         const text::Tokenizer& tokenizer) {
  Json texts = Json::array(), logprobs = Json::array(), tops = Json::array(),
       offsets = Json::array();
  for (const TokenEvent& event : tokens) {
    if (event.token >= 0) {
      texts.push_back(token_name(tokenizer, event.token));
      logprobs.push_back(event.scored ? Json(shown_logprob(event.logprob)) : Json());
      tops.push_back(event.scored ? top_by_name(event, tokenizer) : Json());
      offsets.push_back(text_offset);
    }
    text_offset += character_count(event.text);
  }
  return {{"tokens", std::move(texts)},
          {"token_logprobs", std::move(logprobs)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", std::move(offsets)}};
}

Json logprobs_of(const AnswerHead& head, std::span<const TokenEvent> tokens, int64_t text_offset,
                 const text::Tokenizer& tokenizer) {
  if (!head.logprobs) return nullptr;
  if (!is_chat(head)) return completion_logprobs(tokens, text_offset, tokenizer);
  return {{"content", listed_logprobs(tokens, tokenizer)}, {"refusal", nullptr}};
}

// What ended the choice, for programs that gave several stops.
Json stop_reason(const ChoiceState& state) {
  if (!state.stop_string.empty()) return state.stop_string;
  return nullptr;
}

Json call_json(const NamedCall& call) {
  return {{"id", call.id},
          {"type", "function"},
          {"function", {{"name", call.call.name}, {"arguments", call.call.arguments}}}};
}

// Under both names that clients know.
void add_reasoning(Json& message, const Json& reasoning) {
  message["reasoning"] = message["reasoning_content"] = reasoning;
}

// A chat's answer as a message. What consists of calls or reasoning alone has no content.
Json message_of(const AnswerHead& head, const ChoiceState& state) {
  Json message = {{"role", "assistant"}, {"content", state.text}, {"refusal", nullptr}};
  const bool may_lack = head.reasoning || !state.calls.empty();
  if (may_lack && state.text.empty()) message["content"] = nullptr;
  if (state.reasoning) {
    add_reasoning(message, state.reasoning->empty() ? Json() : Json(*state.reasoning));
  }
  if (state.calls.empty()) return message;
  Json& calls = message["tool_calls"] = Json::array();
  for (const NamedCall& call : state.calls) calls.push_back(call_json(call));
  return message;
}

// Text and log-probabilities, those of the prompt in front where it is echoed.
void add_completion(Json& choice, const AnswerHead& head, const ChoiceState& state,
                    const text::Tokenizer& tokenizer) {
  EchoedPrompt whole;
  const PromptWishes wishes = state.prompt ? state.prompt->wishes : PromptWishes{};
  if (wishes.echo) whole = echo_prompt(*state.prompt, tokenizer);
  choice["text"] = whole.text + state.text;
  whole.tokens.insert(whole.tokens.end(), state.tokens.begin(), state.tokens.end());
  choice["logprobs"] = logprobs_of(head, whole.tokens, 0, tokenizer);
  if (wishes.prompt_logprobs) {
    choice["prompt_logprobs"] = prompt_logprobs_json(*state.prompt, tokenizer);
  }
}

Json object_of(const AnswerHead& head, std::string_view object, Json choices) {
  return {{"id", head.id},
          {"object", object},
          {"created", head.created_s},
          {"model", head.model},
          {"system_fingerprint", head.fingerprint},
          {"choices", std::move(choices)}};
}

std::string frame_of(const AnswerHead& head, Json choice) {
  Json frame = object_of(head, is_chat(head) ? "chat.completion.chunk" : "text_completion",
                         Json::array({std::move(choice)}));
  if (head.include_usage) frame["usage"] = nullptr;
  return sse_frame(frame);
}

double in_ms(double seconds) { return std::round(seconds * 1e6) / 1e3; }

}  // namespace

std::string_view wire_finish_reason(serve::FinishReason reason) {
  switch (reason) {
    case serve::FinishReason::kStopId:
    case serve::FinishReason::kStopString:
    case serve::FinishReason::kComplete:
      return "stop";
    case serve::FinishReason::kLength:
    case serve::FinishReason::kContextFull:
      return "length";
    case serve::FinishReason::kCancelled:
      return "abort";
  }
  return "abort";
}

double shown_logprob(float logprob) {
  return std::isfinite(logprob) ? static_cast<double>(logprob) : -9999.0;
}

int64_t character_count(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

Json timing_json(const serve::RequestReport& report) {
  return {
      {"queue_ms", in_ms(report.queue_seconds)},   {"prefill_ms", in_ms(report.prefill_seconds)},
      {"decode_ms", in_ms(report.decode_seconds)}, {"preemptions", report.preemptions},
      {"drafted_tokens", report.drafted_tokens},   {"accepted_tokens", report.accepted_tokens},
      {"cached_tokens", report.cached_tokens}};
}

Json usage_json(const AnswerHead& head, const serve::RequestReport& report) {
  Json usage = {{"prompt_tokens", report.prompt_tokens},
                {"completion_tokens", report.generated_tokens},
                {"total_tokens", report.prompt_tokens + report.generated_tokens},
                {"prompt_tokens_details", {{"cached_tokens", report.cached_tokens}}},
                {"timing", timing_json(report)}};
  if (head.reasoning) {
    usage["completion_tokens_details"] = {{"reasoning_tokens", report.reasoning_tokens}};
  }
  return usage;
}

std::string timing_header(const serve::RequestReport& report) {
  return fmt::format(
      "queue_ms={:.3f}, prefill_ms={:.3f}, decode_ms={:.3f}, preemptions={}, cached_tokens={}, "
      "drafted_tokens={}, accepted_tokens={}",
      report.queue_seconds * 1e3, report.prefill_seconds * 1e3, report.decode_seconds * 1e3,
      report.preemptions, report.cached_tokens, report.drafted_tokens, report.accepted_tokens);
}

serve::RequestReport merge_reports(const std::vector<serve::RequestReport>& reports) {
  serve::RequestReport merged;
  for (const serve::RequestReport& report : reports) {
    merged.prompt_tokens += report.prompt_tokens;
    merged.cached_tokens += report.cached_tokens;
    merged.generated_tokens += report.generated_tokens;
    merged.reasoning_tokens += report.reasoning_tokens;
    merged.preemptions += report.preemptions;
    merged.drafted_tokens += report.drafted_tokens;
    merged.accepted_tokens += report.accepted_tokens;
    merged.iterations = std::max(merged.iterations, report.iterations);
    merged.queue_seconds = std::max(merged.queue_seconds, report.queue_seconds);
    merged.prefill_seconds = std::max(merged.prefill_seconds, report.prefill_seconds);
    merged.decode_seconds = std::max(merged.decode_seconds, report.decode_seconds);
  }
  return merged;
}

Json whole_answer(const AnswerHead& head, const std::vector<ChoiceState>& choices,
                  const serve::RequestReport& report, const text::Tokenizer& tokenizer) {
  Json list = Json::array();
  for (size_t i = 0; i < choices.size(); ++i) {
    const ChoiceState& state = choices[i];
    Json choice = {{"index", i}};
    if (is_chat(head)) {
      choice["message"] = message_of(head, state);
      choice["logprobs"] = logprobs_of(head, state.tokens, 0, tokenizer);
    } else {
      add_completion(choice, head, state, tokenizer);
    }
    choice["finish_reason"] = state.finish;
    choice["stop_reason"] = stop_reason(state);
    list.push_back(std::move(choice));
  }
  Json answer =
      object_of(head, is_chat(head) ? "chat.completion" : "text_completion", std::move(list));
  answer["usage"] = usage_json(head, report);
  // A chat has one prompt.
  const auto& prompt = choices.front().prompt;
  if (is_chat(head) && prompt && prompt->wishes.prompt_logprobs) {
    answer["prompt_logprobs"] = prompt_logprobs_json(*prompt, tokenizer);
  }
  return answer;
}

Json listed_logprobs(std::span<const TokenEvent> tokens, const text::Tokenizer& tokenizer) {
  Json list = Json::array();
  for (const TokenEvent& event : tokens) {
    if (event.token < 0) continue;
    Json entry = listed_token(tokenizer, event.token, event.logprob);
    Json top = Json::array();
    for (const ops::TokenLogProb& other : event.top) {
      top.push_back(listed_token(tokenizer, other.token, other.logprob));
    }
    entry["top_logprobs"] = std::move(top);
    list.push_back(std::move(entry));
  }
  return list;
}

std::string sse_frame(const Json& json) { return "data: " + dump_json(json) + "\n\n"; }

std::string role_frame(const AnswerHead& head, int32_t choice) {
  return frame_of(head, {{"index", choice},
                         {"delta", {{"role", "assistant"}, {"content", ""}}},
                         {"logprobs", nullptr},
                         {"finish_reason", nullptr}});
}

std::string piece_frame(const AnswerHead& head, int32_t choice, const TokenEvent& piece,
                        int64_t text_offset, const text::Tokenizer& tokenizer) {
  Json json = {{"index", choice}};
  if (is_chat(head)) {
    json["delta"] = {{"content", piece.text}};
  } else {
    json["text"] = piece.text;
  }
  json["logprobs"] = piece.token < 0
                         ? Json(nullptr)
                         : logprobs_of(head, std::span(&piece, 1), text_offset, tokenizer);
  json["finish_reason"] = nullptr;
  return frame_of(head, std::move(json));
}

std::string echo_frame(const AnswerHead& head, int32_t choice, const std::string& text,
                       std::span<const TokenEvent> tokens, const text::Tokenizer& tokenizer) {
  return frame_of(head, {{"index", choice},
                         {"text", text},
                         {"logprobs", logprobs_of(head, tokens, 0, tokenizer)},
                         {"finish_reason", nullptr}});
}

std::string reasoning_frame(const AnswerHead& head, int32_t choice, const TokenEvent& piece,
                            const text::Tokenizer& tokenizer) {
  Json delta = Json::object();
  add_reasoning(delta, piece.text);
  return frame_of(
      head, {{"index", choice},
             {"delta", std::move(delta)},
             {"logprobs", piece.token < 0 ? Json(nullptr)
                                          : logprobs_of(head, std::span(&piece, 1), 0, tokenizer)},
             {"finish_reason", nullptr}});
}

std::string call_frame(const AnswerHead& head, int32_t choice, const NamedCall& call,
                       size_t index) {
  Json shown = {{"index", index}};
  shown.update(call_json(call));
  return frame_of(head, {{"index", choice},
                         {"delta", {{"tool_calls", Json::array({std::move(shown)})}}},
                         {"logprobs", nullptr},
                         {"finish_reason", nullptr}});
}

std::string finish_frame(const AnswerHead& head, int32_t choice, const ChoiceState& state) {
  Json json = {{"index", choice}};
  if (is_chat(head)) {
    json["delta"] = Json::object();
  } else {
    json["text"] = "";
  }
  json["logprobs"] = nullptr;
  json["finish_reason"] = state.finish;
  json["stop_reason"] = stop_reason(state);
  return frame_of(head, std::move(json));
}

std::string usage_frame(const AnswerHead& head, const serve::RequestReport& report) {
  Json frame =
      object_of(head, is_chat(head) ? "chat.completion.chunk" : "text_completion", Json::array());
  frame["usage"] = usage_json(head, report);
  return sse_frame(frame);
}

}  // namespace jige::api
