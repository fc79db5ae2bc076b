// For tests of learning from rewards: a source of answers that draws one token after the other,
// each by a forward over all before it, without any of the serving engine.
//
// Threads: the test's.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "model/inference.h"
#include "model/inference_sizes.h"
#include "ops/token_score.h"
#include "text/tokenizer.h"
#include "train/preference_run_test_support.h"
#include "train/rollout.h"

namespace jige::train {

class PlainSource : public AnswerSource {
 public:
  Result<int64_t> memory_bytes(const model::Architecture& architecture,
                               const model::WeightsOptions& weights,
                               const DrawSizes& sizes) const override {
    JIGE_TRY(const auto made, model::borrowed_sizes(options(sizes), architecture, weights));
    const model::InferenceMemory memory = model::inference_memory(architecture, made);
    return memory.total_bytes() - memory.weights.total_bytes();
  }
  Status attach(const model::ModelWeights& weights, CpuDevice& device,
                const std::string& tokenizer_folder, const DrawSizes& sizes) override {
    if (!tokenizer_folder.empty()) {
      JIGE_TRY(tokenizer_, text::Tokenizer::load(tokenizer_folder));
    }
    JIGE_TRY(model_, model::InferenceModel::borrow(weights, device, options(sizes)));
    blocks_.resize(static_cast<size_t>(model_->sizes().kv_block_count));
    std::iota(blocks_.begin(), blocks_.end(), 0);
    return {};
  }
  void detach() override {
    peak_bytes_ = peak_bytes();
    model_.reset();
  }
  int64_t peak_bytes() const override { return model_ ? model_->peak_bytes() : peak_bytes_; }
  Result<std::vector<AnswerGroup>> draw(std::span<const DrawRequest> requests,
                                        const GoOn& go_on) override {
    std::vector<AnswerGroup> groups;
    for (const DrawRequest& request : requests) {
      AnswerGroup group;
      for (int32_t i = 0; i < request.count; ++i) {
        JIGE_DO(may_go_on(go_on));
        group.push_back(answer(request, i));
      }
      groups.push_back(std::move(group));
    }
    return groups;
  }

 private:
  static model::InferenceOptions options(const DrawSizes& sizes) {
    return {.context_max = sizes.context, .batch_tokens_max = sizes.context, .logit_rows_max = 1};
  }
  DrawnAnswer answer(const DrawRequest& request, int32_t place) {
    Rng rng(derive_key(request.seed, "plain", static_cast<uint64_t>(place)));
    DrawnAnswer made;
    std::vector<int32_t> text(request.prompt.begin(), request.prompt.end());
    while (std::ssize(made.tokens) < request.options.tokens_max) {
      const ops::SequenceSpan span{.row_count = static_cast<int32_t>(text.size()),
                                   .blocks = blocks_.data()};
      const auto last = static_cast<int32_t>(text.size()) - 1;
      const auto logits = *model_->forward(
          {.tokens = text, .sequences = std::span(&span, 1), .logit_rows = std::span(&last, 1)});
      const auto drawn = *ops::sample(logits, {.temperature = request.options.temperature},
                                      request.prompt, made.tokens, rng);
      made.tokens.push_back(drawn.token);
      made.logprobs.push_back(ops::score_token(logits, drawn.token, 0).logprob);
      if (drawn.token == kTestEos) return made;
      if (tokenizer_) made.text += *tokenizer_->decode(std::span(&drawn.token, 1), {});
      text.push_back(drawn.token);
    }
    made.cut = true;
    return made;
  }

  std::optional<text::Tokenizer> tokenizer_;
  std::unique_ptr<model::InferenceModel> model_;
  std::vector<int32_t> blocks_;
  int64_t peak_bytes_ = 0;
};

// Prompts whose answer shall hold a "y", one JSON line each.
inline std::string reward_prompts(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    text +=
        dump_json(Json{{"prompt", std::to_string(i) + " is "}, {"answer", "y"}, {"n", i}}) + "\n";
  }
  return text;
}

// Learns from them, from a model that says "yy" or "nn" (first_model).
inline TrainOptions reward_options(const TestFolder& folder, const std::string& out) {
  TrainOptions options =
      tuning_options(tiny_options(folder, {folder.write("prompts.jsonl", reward_prompts(12))}),
                     folder.file("first/model"), folder.file(out));
  options.grpo.emplace();
  options.grpo->prompts_per_step = 2;
  options.grpo->group = 4;
  options.grpo->draw.tokens_max = 4;
  options.grpo->reward.rule = RewardRule::kContains;
  options.grpo->source = std::make_shared<PlainSource>();
  options.schedule.peak = 2e-3;
  options.steps = 6;
  return options;
}

}  // namespace jige::train
