// What is asked of an Engine and what it tells about it: requests and their sinks.
//
// Events of one request, in order, all on the engine's thread:
//   on_prompt(scores)          where they are asked for: before the first piece
//   on_vector(vector)          where it is asked for: instead of all pieces
//   on_piece(choice, piece)*   tokens of all choices, interleaved; then, for each choice, at most
//                              one piece without a token (the text held back) and
//   on_choice(end)             once a choice
//   on_done(report)            after the last choice; or instead of all that is still to come:
//   on_failed(error)           the request has failed, the others are not touched
// Nothing follows on_done or on_failed; the engine then lets go of the sink. A cancelled request
// gets on_choice(kCancelled) for every choice that is not complete, and on_done.
// Threads: requests are values. Sinks run on the engine's thread and must not block: they hold up
// every request. They may call submit(), cancel() and status() of the engine.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "grammar/constraint.h"
#include "model/adapter_rooms.h"
#include "ops/attention.h"
#include "ops/sampling.h"
#include "ops/token_score.h"
#include "plan/serve_scheduler.h"
#include "serve/answer.h"
#include "serve/given_rows.h"
#include "serve/row_pooler.h"

namespace jige::serve {

using RequestId = plan::RequestId;

// A vector of the prompt, as Embedder makes it, bit for bit.
struct WantedVector {
  EmbeddingForm form;
  int64_t prompt_count = 0;  // as in EmbedInput
  int32_t second_begin = ops::kFirstTypeAlone;
};

struct EngineRequest {
  std::vector<int32_t> prompt;  // at least one token, fewer than the context holds; all of it for
                                // a vector. Ids of given rows stand for these
  std::vector<GivenRowsRef> given;  // not with prompt_top_count or vector
  ops::SamplingParams sampling;     // logit_bias among them
  uint64_t seed = 0;
  // New ones a choice; cut to what the context leaves. 0: the prompt alone is run, where
  // prompt_top_count or vector is there.
  int64_t tokens_max = 256;
  int64_t tokens_min = 0;
  std::vector<int32_t> stop_ids;  // besides the tokenizer's end-of-text ids
  bool ignore_eos = false;        // do not stop at the end-of-text ids
  std::vector<std::string> stop_strings;
  bool include_stop_string = false;
  int32_t choice_count = 1;             // answers to the one prompt, which is run once
  bool logprobs = true;                 // log-probabilities of tokens are wanted
  bool logprobs_as_losses = false;      // as of AnswerOptions
  int top_count = 0;                    // most likely alternatives reported with every token
  int32_t priority = 0;                 // larger goes first
  uint64_t tenant = 0;                  // for fair share
  uint64_t cache_salt = 0;              // prompts match cached beginnings of the same salt only
  int32_t adapter = model::kNoAdapter;  // which of the model's; cached beginnings are of one, too
  model::AdapterLease lease;            // must be there for one that was loaded later
  // The prompt's tokens are scored, with so many of the most likely ones for each. All of the
  // prompt is run then: nothing of it comes from the prefix cache.
  std::optional<int32_t> prompt_top_count;
  // Of a model for embeddings, for every request: in place of answers, so that tokens_max is 0 and
  // choice_count 1. Tokens in front of the first whose row counts may come from the prefix cache.
  std::optional<WantedVector> vector;
  std::vector<int32_t> shown_ids;  // special tokens whose names are part of the text
  // The answer goes on with the prompt's text (AnswerOptions).
  bool continues_text = false;
  std::shared_ptr<grammar::Constraint> constraint;    // what answers may be; null: anything
  std::shared_ptr<const grammar::TokenBits> allowed;  // tokens that may be drawn; null: all
  // Rows of tokens that do not come in an answer: behind all but the last, the last is not drawn.
  std::vector<std::vector<int32_t>> forbidden_rows;
  text::ReasoningStart reasoning = text::ReasoningStart::kNone;  // as of AnswerOptions
};

// The member of EngineRequest that a refusal is about; kSampling: the message names which of them.
enum class RequestField {
  kNone,
  kPrompt,
  kChoiceCount,
  kTopCount,
  kPromptTopCount,
  kTokensMax,
  kTokensMin,
  kSampling,
  kLogitBias,
  kAdapter,
  kVector,
};

// Why a request is not taken.
struct Refusal : Error {
  RequestField field = RequestField::kNone;
};

// A complete choice.
struct ChoiceEnd {
  int32_t choice = 0;
  FinishReason finish = FinishReason::kLength;
  int64_t generated_tokens = 0;  // those of the answer, without a stop id
  int32_t stop_id = -1;          // what ended it, for kStopId, with its log-probability and others'
  float stop_logprob = 0;
  std::vector<ops::TokenLogProb> stop_top;
  std::string stop_string;  // for kStopString
};

struct RequestReport {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // of the prompt, found in the prefix cache
  int64_t generated_tokens = 0;
  int64_t reasoning_tokens = 0;  // of those, up to the end of the reasoning
  int64_t drafted_tokens = 0;    // guessed, and run through the model
  int64_t accepted_tokens = 0;   // of those, part of the answers
  int32_t preemptions = 0;
  int64_t iterations = 0;      // of the first choice: batches it had a part in
  double queue_seconds = 0;    // from submit() to its first iteration
  double prefill_seconds = 0;  // from there to its first token
  double decode_seconds = 0;   // from the first token to the end
  double total_seconds() const { return queue_seconds + prefill_seconds + decode_seconds; }
};

class RequestSink {
 public:
  virtual ~RequestSink() = default;
  // scores[i] is that of token i + 1 of the prompt, given those before it: bit for bit what Scorer
  // gives. Valid during the call only.
  virtual void on_prompt(std::span<const ops::TokenScore> scores) { (void)scores; }
  // Valid during the call only.
  virtual void on_vector(std::span<const float> vector) { (void)vector; }
  // The piece's text and alternatives are valid during the call only.
  virtual void on_piece(int32_t choice, const AnswerPiece& piece) = 0;
  virtual void on_choice(const ChoiceEnd& end) = 0;
  virtual void on_done(const RequestReport& report) = 0;
  virtual void on_failed(const Error& error) = 0;
};

}  // namespace jige::serve
