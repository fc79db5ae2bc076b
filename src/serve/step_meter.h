// StepMeter: the time of an engine's turns over batches that are asked for.
//
//   StepMeter meter(model, tokenizer, &devices.team());
//   JIGE_DO(meter.run({.decode_rows = 8, .decode_context = 256}, 3, on_turn));
//
// It drives the engine's own loop (engine_loop.h) turn by turn on the caller's thread: arrivals,
// the scheduler, the forward, drawing, sinks and what is published are all in the time. Requests
// get their contexts for nothing: their first turn, which is not timed, runs the last token alone,
// and what the cache holds in front of it is what somebody has written there before. Threads: one;
// the model is the meter's alone while it runs.
#pragma once

#include <cstdint>
#include <functional>

#include "base/result.h"
#include "base/rng.h"
#include "base/threads.h"
#include "model/inference.h"
#include "plan/serve_scheduler.h"
#include "text/tokenizer.h"

namespace jige::serve {

// A batch: next tokens of some requests, and prompts beside them; or a piece of one prompt.
struct StepShape {
  int32_t decode_rows = 0;
  int32_t decode_context = 1;  // tokens in front of each, a few more in later turns
  int32_t prompt_count = 0;
  int32_t prompt_rows = 0;     // of each
  int32_t prompt_context = 0;  // tokens in front of them; of a piece, a multiple of its rows
  bool piece = false;          // the prompt goes on behind its rows: nothing is drawn from it

  int64_t rows() const { return decode_rows + int64_t{prompt_count} * prompt_rows; }
  int64_t sampled_rows() const { return decode_rows + (piece ? 0 : prompt_count); }
};

// Whether one forward of a model of these sizes holds the batch, and its context and cache so many
// turns.
bool holds_steps(const model::InferenceSizes& sizes, const StepShape& shape, int32_t turns);

class StepMeter {
 public:
  struct Turn {
    const plan::Batch& batch;
    double seconds = 0;
    bool disturbed = false;  // another program took a processor from it
  };
  using OnTurn = std::function<void(const Turn& turn)>;

  // Model, tokenizer and team must outlive it. REQUIRES: a model that answers, without states.
  StepMeter(model::InferenceModel& model, const text::Tokenizer& tokenizer, ThreadTeam* team);

  // Runs turns of this shape. Fails as the model does. REQUIRES: holds_steps(); a piece is alone in
  // its batch.
  Status run(const StepShape& shape, int32_t turns, const OnTurn& on_turn);

 private:
  model::InferenceModel& model_;
  const text::Tokenizer& tokenizer_;
  ThreadTeam* team_;
  Rng rng_;  // of prompts, none of which begins as another
};

}  // namespace jige::serve
