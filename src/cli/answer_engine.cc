#include "cli/answer_engine.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "model/inference.h"
#include "model/inference_sizes.h"
#include "serve/engine.h"
#include "text/tokenizer.h"

namespace jige::cli {
namespace {

constexpr double kGoOnSeconds = 0.05;  // between questions whether to go on
constexpr int64_t kForwardTokens = 512;
constexpr int64_t kDrawQueueMax = int64_t{1} << 24;

int64_t blocks_for(int64_t tokens) {
  return (tokens + ops::kKvBlockTokens - 1) / ops::kKvBlockTokens;
}

model::InferenceOptions inference_options(const train::DrawSizes& sizes) {
  return {.context_max = sizes.context,
          .kv_block_count = sizes.answers_max * blocks_for(sizes.context),
          .state_count = sizes.answers_max,
          .batch_tokens_max = std::max(kForwardTokens, sizes.answers_max),
          .logit_rows_max = sizes.answers_max};
}

// Keeps the answers of one request.
class GroupSink final : public serve::RequestSink {
 public:
  explicit GroupSink(int32_t count) : answers_(static_cast<size_t>(count)) {}

  void on_piece(int32_t choice, const serve::AnswerPiece& piece) override {
    train::DrawnAnswer& answer = answers_[static_cast<size_t>(choice)];
    answer.text += piece.text;
    if (piece.token < 0) return;
    answer.tokens.push_back(piece.token);
    answer.logprobs.push_back(piece.logprob);
  }
  void on_choice(const serve::ChoiceEnd& end) override {
    train::DrawnAnswer& answer = answers_[static_cast<size_t>(end.choice)];
    answer.cut = end.finish != serve::FinishReason::kStopId;
    if (answer.cut) return;
    answer.tokens.push_back(end.stop_id);
    answer.logprobs.push_back(end.stop_logprob);
  }
  void on_done(const serve::RequestReport& /*report*/) override { done_ = true; }
  void on_failed(const Error& error) override { error_ = error; }

  // Behind the engine's end.
  Result<train::AnswerGroup> take() {
    if (error_) return tl::unexpected(std::move(*error_));
    if (!done_) return fail(Code::kUnavailable, "answers were not drawn to their end");
    for (const train::DrawnAnswer& answer : answers_) {
      if (std::ranges::all_of(answer.logprobs, [](float x) { return std::isfinite(x); })) continue;
      return fail(Code::kCorrupt, "an answer was drawn whose probabilities are no numbers");
    }
    return std::move(answers_);
  }

 private:
  train::AnswerGroup answers_;
  bool done_ = false;
  std::optional<Error> error_;
};

class AnswerEngine final : public train::AnswerSource {
 public:
  Result<int64_t> memory_bytes(const model::Architecture& architecture,
                               const model::WeightsOptions& weights,
                               const train::DrawSizes& sizes) const override {
    JIGE_TRY(const model::InferenceSizes made,
             model::borrowed_sizes(inference_options(sizes), architecture, weights));
    const model::InferenceMemory memory = model::inference_memory(architecture, made);
    return memory.total_bytes() - memory.weights.total_bytes();
  }

  Status attach(const model::ModelWeights& weights, CpuDevice& device,
                const std::string& tokenizer_folder, const train::DrawSizes& sizes) override {
    sizes_ = sizes;
    team_ = &device.team();
    JIGE_TRY(tokenizer_, text::Tokenizer::load(tokenizer_folder));
    JIGE_TRY(model_, model::InferenceModel::borrow(weights, device, inference_options(sizes)));
    return {};
  }

  void detach() override {
    peak_bytes_ = peak_bytes();
    model_.reset();
    tokenizer_.reset();
  }

  int64_t peak_bytes() const override { return model_ ? model_->peak_bytes() : peak_bytes_; }

  Result<std::vector<train::AnswerGroup>> draw(std::span<const train::DrawRequest> requests,
                                               const GoOn& go_on) override {
    // Anew every time: what its cache knows of prompts is of the weights that were.
    JIGE_TRY(const auto engine, serve::Engine::create(*model_, *tokenizer_, engine_options()));
    std::vector<std::shared_ptr<GroupSink>> sinks;
    for (const train::DrawRequest& request : requests) {
      sinks.push_back(std::make_shared<GroupSink>(request.count));
      const auto taken = engine->submit(engine_request(request), sinks.back());
      if (!taken) return tl::unexpected(static_cast<const Error&>(taken.error()));
    }
    while (!engine->drain(kGoOnSeconds)) JIGE_DO(may_go_on(go_on));
    engine->stop();
    std::vector<train::AnswerGroup> groups;
    for (const auto& sink : sinks) {
      JIGE_TRY(train::AnswerGroup group, sink->take());
      groups.push_back(std::move(group));
    }
    return groups;
  }

 private:
  serve::EngineOptions engine_options() const {
    serve::EngineOptions options;
    options.batch_requests_max = static_cast<int32_t>(sizes_.answers_max);
    options.prefix_cache = false;
    options.choices_max = static_cast<int32_t>(sizes_.group);
    options.waiting_requests_max = kDrawQueueMax;
    options.waiting_prompt_tokens_max = INT64_MAX;
    options.sampling_team = team_;
    return options;
  }

  static serve::EngineRequest engine_request(const train::DrawRequest& request) {
    serve::EngineRequest made;
    made.prompt.assign(request.prompt.begin(), request.prompt.end());
    made.sampling.temperature = request.options.temperature;
    made.sampling.top_p = request.options.top_p;
    made.seed = request.seed;
    made.tokens_max = request.options.tokens_max;
    made.choice_count = request.count;
    made.continues_text = request.continues_text;
    made.logprobs_as_losses = true;
    return made;
  }

  train::DrawSizes sizes_;
  ThreadTeam* team_ = nullptr;
  std::optional<text::Tokenizer> tokenizer_;
  std::unique_ptr<model::InferenceModel> model_;
  int64_t peak_bytes_ = 0;  // once it is given back
};

}  // namespace

std::shared_ptr<train::AnswerSource> make_answer_engine() {
  return std::make_shared<AnswerEngine>();
}

}  // namespace jige::cli
