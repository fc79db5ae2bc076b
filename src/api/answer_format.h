// What answers look like on the wire: whole ones, frames of streams, usage.
//
// A stream is a row of frames "data: {…}\n\n": for chat one with the role of every choice, one for
// every piece of reasoning, of text and every call of a tool, one with the finish_reason of every
// choice, one with the usage if it was asked for, and "data: [DONE]\n\n". JSON has no raw line
// feeds, so a frame is one line. Threads: pure functions.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/api_error.h"
#include "api/refused_fields.h"
#include "api/tool_call_parser.h"
#include "serve/engine_request.h"
#include "text/tokenizer.h"

namespace jige::api {

// What every object of one answer repeats.
struct AnswerHead {
  Endpoint endpoint = Endpoint::kCompletions;
  std::string id;
  int64_t created_s = 0;
  std::string model;
  std::string fingerprint;
  bool logprobs = false;
  bool include_usage = false;
  bool reasoning = false;  // it is looked for, and counted
  int64_t prompt_tokens = 0;
  Json echo;  // members of the request that the answer repeats; null: none
};

struct TokenEvent {
  int32_t token = -1;  // -1: text only
  std::string text;
  float logprob = 0;
  bool scored = true;  // false: the prompt's first token, which has no log-probability
  std::vector<ops::TokenLogProb> top;
};

// A call of a tool as clients see it.
struct NamedCall {
  std::string id;
  ToolCall call;
  // Of its choice, where that is kept.
  size_t text_before = 0;    // bytes of text
  size_t tokens_before = 0;  // entries of tokens
};

struct ScoredPrompt;  // shown_prompt.h

// One choice as it has come so far.
struct ChoiceState {
  std::string text;
  std::optional<std::string> reasoning;  // where it is to be shown
  std::vector<NamedCall> calls;
  std::vector<TokenEvent> tokens;              // where logprobs are wanted
  std::string finish;                          // empty: not finished
  std::string stop_string;                     // that ended it
  std::shared_ptr<const ScoredPrompt> prompt;  // where something of it is shown
};

// "stop", "length" or, for answers cut off by a shutdown, "abort".
std::string_view wire_finish_reason(serve::FinishReason reason);

Json usage_json(const AnswerHead& head, const serve::RequestReport& report);
// How long it took, and what was drafted and cached.
Json timing_json(const serve::RequestReport& report);
// "queue_ms=0.2, prefill_ms=3.1, decode_ms=40.5, preemptions=0, cached_tokens=16,
// drafted_tokens=8, accepted_tokens=5".
std::string timing_header(const serve::RequestReport& report);
// The usage of several prompts of one request: tokens add up, times are those of the slowest.
serve::RequestReport merge_reports(const std::vector<serve::RequestReport>& reports);

Json whole_answer(const AnswerHead& head, const std::vector<ChoiceState>& choices,
                  const serve::RequestReport& report, const text::Tokenizer& tokenizer);

std::string sse_frame(const Json& json);
inline constexpr std::string_view kDoneFrame = "data: [DONE]\n\n";

// Frames. `text_offset` is the length of the choice's text before this piece, in characters.
std::string role_frame(const AnswerHead& head, int32_t choice);
std::string piece_frame(const AnswerHead& head, int32_t choice, const TokenEvent& piece,
                        int64_t text_offset, const text::Tokenizer& tokenizer);
// The prompt in front of an answer: its text, and the tokens that make it up.
std::string echo_frame(const AnswerHead& head, int32_t choice, const std::string& text,
                       std::span<const TokenEvent> tokens, const text::Tokenizer& tokenizer);
// A piece whose text is reasoning.
std::string reasoning_frame(const AnswerHead& head, int32_t choice, const TokenEvent& piece,
                            const text::Tokenizer& tokenizer);
// `index`: of the call within its choice. Its arguments come in one piece.
std::string call_frame(const AnswerHead& head, int32_t choice, const NamedCall& call, size_t index);
std::string finish_frame(const AnswerHead& head, int32_t choice, const ChoiceState& state);
std::string usage_frame(const AnswerHead& head, const serve::RequestReport& report);

// The tokens among the events with their log-probabilities, as chats and responses list them.
Json listed_logprobs(std::span<const TokenEvent> tokens, const text::Tokenizer& tokenizer);

// A log-probability in JSON, where -infinity has no form: -9999.
double shown_logprob(float logprob);
// Characters of UTF-8 text.
int64_t character_count(std::string_view text);

}  // namespace jige::api
