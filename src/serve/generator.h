// Generator: text from one sequence at a time: prompt in chunks, then token by token.
//
//   Generator generator(model, tokenizer);
//   const auto show = [](const GeneratedPiece& piece) { fmt::print("{}", piece.text); };
//   JIGE_TRY(const Generation answer, generator.generate(ids, {.tokens_max = 100}, show));
//
// The cache keeps the last sequence, so that a prompt that begins with it (the next turn of a chat)
// costs only its new tokens. With drafts (engine_drafts.h), a step may bring several tokens. The
// bits of the answer depend on neither, nor on the chunk size. Threads: one at a time; the
// cancellation flag may be set from anywhere.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/inference.h"
#include "ops/sampling.h"
#include "plan/guess_policy.h"
#include "serve/answer.h"
#include "serve/cached_sequence.h"
#include "serve/engine_drafts.h"
#include "serve/given_rows.h"
#include "text/tokenizer.h"

namespace jige::serve {

struct GenerateOptions {
  ops::SamplingParams sampling;
  uint64_t seed = 0;
  int32_t choice = 0;                               // which of the seed's streams
  int64_t tokens_max = 256;                         // new ones, at most
  std::vector<int32_t> stop_ids;                    // end the answer and are not part of it
  std::vector<std::string> stop_strings;            // likewise
  int64_t chunk_tokens = 512;                       // prompt tokens of one forward
  bool logprobs = true;                             // as of AnswerOptions
  int top_count = 0;                                // alternatives reported for each token
  std::vector<int32_t> shown_ids;                   // special tokens whose names are text
  bool continues_text = false;                      // as of AnswerOptions
  std::shared_ptr<grammar::Constraint> constraint;  // what it may be; null: anything
  text::ReasoningStart reasoning = text::ReasoningStart::kNone;  // see AnswerOptions
  std::vector<GivenRowsRef> given;                               // whose ids the prompt may have
  DraftOptions drafts;  // at most one less than the model has rows of logits
  const std::atomic<bool>* cancelled = nullptr;  // looked at before every forward
};

using GeneratedPiece = AnswerPiece;
using PieceCallback = std::function<void(const GeneratedPiece& piece)>;

struct GenerationStats {
  int64_t prompt_tokens = 0;
  int64_t reused_tokens = 0;  // of the prompt, found in the cache
  int64_t generated_tokens = 0;
  int64_t drafted_tokens = 0;   // guessed, and run through the model
  int64_t accepted_tokens = 0;  // of those, part of the answer
  plan::GuessCounts guesses;    // the same, by kind
  int64_t decode_steps = 0;     // forwards behind that of the prompt's end
  double prefill_seconds = 0;
  double first_token_seconds = 0;  // from the call to the first token
  double decode_seconds = 0;       // from the first token to the last
  double prefill_tokens_per_s() const;
  double decode_tokens_per_s() const;
};

struct Generation {
  std::vector<int32_t> tokens;
  std::string text;
  FinishReason finish = FinishReason::kLength;
  GenerationStats stats;
};

class Generator {
 public:
  // Model and tokenizer must outlive the generator, which uses all of the model's cache; it may
  // take turns with other users of the model. It runs with one of its adapters, or with none. A
  // draft model guesses where options.drafts ask for guesses; it must outlive the generator, too,
  // and is the generator's alone.
  Generator(model::InferenceModel& model, const text::Tokenizer& tokenizer,
            int32_t adapter = model::kNoAdapter, DraftModel* draft_model = nullptr);

  // Answers a prompt. Fails with kInvalidArgument on an empty prompt, one that leaves no room in
  // the context, token ids out of range and bad options, and as InferenceModel::forward() does.
  Result<Generation> generate(std::span<const int32_t> prompt, const GenerateOptions& options,
                              const PieceCallback& callback = {});

  // Tokens that fit, prompt and answer together.
  int64_t context_max() const { return cached_.context_max(); }
  // The longest context that the model could have been loaded with.
  int64_t model_context_max() const { return cached_.model_context_max(); }
  // Forgets the cached sequence.
  void reset() { cached_.clear(); }

 private:
  struct Run;
  AnswerOptions answer_options(const GenerateOptions& options) const;
  Status check(std::span<const int32_t> prompt, const GenerateOptions& options,
               const GivenTable& given) const;
  Result<std::span<const float>> prefill(Run& run);
  Status decode(Run& run, std::span<const float> logits);
  // Draws and shows the token of the row `row`.
  // Of a model with states, where it keeps them for the next turn; 0: nowhere.
  size_t marked_place(size_t prompt_count) const;
  // Whether guesses are run: not where they could not be taken back.
  bool drafts(const Run& run) const;
  void begin_drafts(const Run& run);
  // The tokens to run next: the last one drawn, and a draft behind it.
  std::span<const int32_t> next_piece(Run& run);
  Status take_token(Run& run, const model::LogitRows& rows, size_t row);
  void finish(Run& run);

  model::InferenceModel& model_;
  const text::Tokenizer& tokenizer_;
  CachedSequence cached_;
  DraftModel* const draft_model_;
  std::unique_ptr<EngineDrafts> drafts_;  // made when first asked for
  std::vector<int32_t> piece_;
  std::vector<ops::RowDraw> draws_;  // behind its tokens
};

}  // namespace jige::serve
