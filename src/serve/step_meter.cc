#include "serve/step_meter.h"

#include <sys/resource.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "serve/engine_loop.h"

namespace jige::serve {
namespace {

constexpr int64_t kSpareTokens = 2;  // so that no answer ends meanwhile

// Notes when a token comes, as clients do, and keeps the first failure of all.
class MeterSink final : public RequestSink {
 public:
  struct Seen {
    int64_t last_ns = 0;  // of a token
    std::optional<Error> error;
  };

  explicit MeterSink(Seen& seen) : seen_(seen) {}

  void on_piece(int32_t, const AnswerPiece& piece) override {
    if (piece.token >= 0) seen_.last_ns = RealClock().now_ns();
  }
  void on_choice(const ChoiceEnd&) override {}
  void on_done(const RequestReport&) override {}
  void on_failed(const Error& error) override {
    if (!seen_.error) seen_.error = error;
  }

 private:
  Seen& seen_;
};

// An engine without a thread.
class Rig {
 public:
  Rig(model::InferenceModel& model, const text::Tokenizer& tokenizer, EngineOptions options,
      Rng& rng)
      : options_(std::move(options)),
        vocab_size_(static_cast<uint64_t>(model.config().vocab_size)),
        rng_(rng),
        inbox_({options_.waiting_requests_max, options_.waiting_prompt_tokens_max}),
        board_(model.sizes().kv_block_count, options_.stall_seconds_max,
               plan::settings_of(scheduler_options(options_, model.sizes()))),
        loop_(model, tokenizer, end_ids(tokenizer, model.config()),
              RecordedScheduler(scheduler_options(options_, model.sizes()), nullptr),
              {options_, inbox_, board_, histograms_, [this](plan::Batch& b) { prepare(b); }}) {}

  Status submit(int64_t prompt_tokens, int64_t tokens_max) {
    EngineRequest request;
    request.prompt.resize(static_cast<size_t>(prompt_tokens));
    for (int32_t& token : request.prompt) token = static_cast<int32_t>(rng_.below(vocab_size_));
    request.logprobs = false;
    request.tokens_max = tokens_max;
    request.ignore_eos = true;
    const int64_t now_ns = RealClock().now_ns();
    const RequestId id = next_id_++;
    board_.arrived(
        {.id = id, .prompt_tokens = prompt_tokens, .tokens_max = tokens_max, .choice_count = 1},
        now_ns);
    return inbox_.push({id, std::move(request), std::make_shared<MeterSink>(seen_), now_ns}, 1);
  }

  // Rows that an item runs from now on, its last ones; those in front are taken as known.
  void cut_items_to(int32_t rows) { rows_max_ = rows; }

  Status turn() {
    loop_.turn();
    if (seen_.error) return tl::unexpected(*seen_.error);
    return {};
  }

  const plan::Batch& batch() const { return batch_; }

 private:
  void prepare(plan::Batch& batch) {
    for (plan::WorkItem& item : batch.items) {
      const auto cut = static_cast<int32_t>(item.tokens.size()) - rows_max_;
      if (cut <= 0) continue;
      item.tokens.erase(item.tokens.begin(), item.tokens.begin() + cut);
      item.context_count += cut;
    }
    batch_ = batch;
  }

  const EngineOptions options_;
  const uint64_t vocab_size_;
  Rng& rng_;
  Inbox inbox_;
  StatusBoard board_;
  EngineHistograms histograms_;
  MeterSink::Seen seen_;
  int32_t rows_max_ = 1;
  plan::Batch batch_;
  RequestId next_id_ = 1;
  EngineLoop loop_;  // uses all of these
};

// How often the kernel has given a processor of this process to somebody else.
int64_t involuntary_switches() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_nivcsw;
}

EngineOptions metered_options(const StepShape& shape, ThreadTeam* team) {
  EngineOptions options;
  options.batch_requests_max = shape.decode_rows + shape.prompt_count;
  // What lies in front of a piece comes in pieces, too; all else comes whole.
  options.batch_tokens_max = shape.piece ? shape.prompt_rows : INT32_MAX;
  options.sampling_team = team;
  options.waiting_requests_max = INT64_MAX;
  options.waiting_prompt_tokens_max = INT64_MAX;
  return options;
}

// The tokens of a prompt that is timed in so many turns.
int64_t prompt_tokens(const StepShape& shape, int32_t turns) {
  const int64_t timed = shape.piece ? int64_t{turns} * shape.prompt_rows + 1 : shape.prompt_rows;
  return shape.prompt_context + timed;
}

int64_t kv_blocks(int64_t tokens) {
  return (tokens + ops::kKvBlockTokens - 1) / ops::kKvBlockTokens;
}

// Until all requests with next tokens have begun, or a prompt in pieces is at its context.
Status bring_inside(Rig& rig, const StepShape& shape, int32_t turns) {
  rig.cut_items_to(1);
  for (int32_t i = 0; i < shape.decode_rows; ++i) {
    JIGE_DO(rig.submit(shape.decode_context, turns + kSpareTokens));
  }
  if (shape.decode_rows > 0) return rig.turn();
  if (!shape.piece) return {};
  JIGE_DO(rig.submit(prompt_tokens(shape, turns), 1));
  for (int32_t i = 0; i < shape.prompt_context / shape.prompt_rows; ++i) JIGE_DO(rig.turn());
  return {};
}

}  // namespace

bool holds_steps(const model::InferenceSizes& sizes, const StepShape& shape, int32_t turns) {
  const int64_t context_max =
      std::min(sizes.context_max, sizes.kv_block_count * ops::kKvBlockTokens);
  const int64_t decode_context = shape.decode_context + turns + kSpareTokens;
  const int64_t prompt_context = shape.prompt_count > 0 ? prompt_tokens(shape, turns) + 1 : 0;
  return shape.rows() > 0 && shape.rows() <= sizes.batch_tokens_max &&
         shape.sampled_rows() <= sizes.logit_rows_max && decode_context <= context_max &&
         prompt_context <= context_max &&
         shape.decode_rows * kv_blocks(decode_context) +
                 shape.prompt_count * kv_blocks(prompt_context) <=
             sizes.kv_block_count;
}

StepMeter::StepMeter(model::InferenceModel& model, const text::Tokenizer& tokenizer,
                     ThreadTeam* team)
    : model_(model), tokenizer_(tokenizer), team_(team), rng_(derive_key(1, "step meter")) {}

Status StepMeter::run(const StepShape& shape, int32_t turns, const OnTurn& on_turn) {
  JIGE_CHECK(holds_steps(model_.sizes(), shape, turns),
             "a batch of {} rows is more than the model holds", shape.rows());
  JIGE_CHECK(!shape.piece || (shape.prompt_count == 1 && shape.decode_rows == 0 &&
                              shape.prompt_context % shape.prompt_rows == 0),
             "a piece of {} rows behind {}", shape.prompt_rows, shape.prompt_context);
  Rig rig(model_, tokenizer_, metered_options(shape, team_), rng_);
  JIGE_DO(bring_inside(rig, shape, turns));
  rig.cut_items_to(std::max(shape.prompt_rows, 1));
  for (int32_t turn = 0; turn < turns; ++turn) {
    for (int32_t i = 0; i < shape.prompt_count && !shape.piece; ++i) {
      JIGE_DO(rig.submit(prompt_tokens(shape, turns), 1));
    }
    const int64_t switches = involuntary_switches();
    const StopWatch watch;
    JIGE_DO(rig.turn());
    const double seconds = watch.seconds();
    const bool disturbed = involuntary_switches() > switches;
    JIGE_CHECK(rig.batch().token_count() == shape.rows(), "a turn ran {} rows of {}",
               rig.batch().token_count(), shape.rows());
    on_turn({.batch = rig.batch(), .seconds = seconds, .disturbed = disturbed});
  }
  return {};
}

}  // namespace jige::serve
