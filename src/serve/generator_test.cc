#include "serve/generator.h"

#include <algorithm>
#include <numeric>

#include "serve/serve_test_support.h"

namespace jige::serve {
namespace {

using testing::ids_of;
using testing::Loaded;
using testing::value_of;

constexpr const char* kPrompt = "the quick brown fox jumps over the lazy dog";

// Greedy continuation, every token from a forward of the whole text.
std::vector<int32_t> greedy_by_recomputation(model::InferenceModel& model,
                                             std::vector<int32_t> tokens, size_t count) {
  std::vector<int32_t> blocks(static_cast<size_t>(model.sizes().kv_block_count));
  std::iota(blocks.begin(), blocks.end(), 0);
  std::vector<int32_t> out;
  for (size_t i = 0; i < count; ++i) {
    const ops::SequenceSpan sequence{.row_count = static_cast<int32_t>(tokens.size()),
                                     .blocks = blocks.data()};
    const int32_t last = sequence.row_count - 1;
    const auto logits = value_of(model.forward({.tokens = tokens,
                                                .sequences = std::span(&sequence, 1),
                                                .logit_rows = std::span(&last, 1)}));
    out.push_back(
        static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
    tokens.push_back(out.back());
  }
  return out;
}

TEST(Generator, GreedyTokensAreTheLikeliestOnes) {
  for (const char* name : {"llama2",
                           "mistral",
                           "gpt2",
                           "qwen3",
                           "gemma2",
                           "gemma3",
                           "phi3",
                           "gpt_neox",
                           "phi",
                           "cohere_qk_norm",
                           "qwen3_5",
                           "gemma4",
                           "gemma4_layer_inputs",
                           "falcon_h1",
                           "olmo_hybrid",
                           "gemma3n",
                           "llama4",
                           "mellum",
                           "granite_swa_turned",
                           "mistral4",
                           "lfm3",
                           "mamba",
                           "falcon_mamba",
                           "mamba2",
                           "jamba",
                           "kimi_linear"}) {
    const model::InferenceOptions options{.context_max = 64};
    Loaded loaded(name, options);
    const auto prompt = ids_of(loaded.tokenizer, kPrompt);
    const auto expected = greedy_by_recomputation(*loaded.model, prompt, 8);
    Generator generator(*loaded.model, loaded.tokenizer);
    for (const int64_t chunk : {1, 7, 512}) {
      generator.reset();
      const auto answer = value_of(generator.generate(
          prompt, {.tokens_max = 8, .chunk_tokens = chunk, .logprobs = chunk != 7}));
      EXPECT_EQ(answer.tokens, expected) << name << " in chunks of " << chunk;
      EXPECT_EQ(answer.finish, FinishReason::kLength);
      EXPECT_EQ(answer.stats.generated_tokens, 8);
      EXPECT_EQ(answer.stats.prompt_tokens, static_cast<int64_t>(prompt.size()));
      EXPECT_EQ(answer.stats.reused_tokens, 0);
      EXPECT_EQ(answer.text, value_of(loaded.tokenizer.decode(expected, {.skip_special = true})));
    }
  }
}

TEST(Generator, TheNextTurnReusesTheCacheAndChangesNothing) {
  Loaded loaded("llama3");
  Generator generator(*loaded.model, loaded.tokenizer);
  auto prompt = ids_of(loaded.tokenizer, kPrompt);
  const auto first = value_of(generator.generate(prompt, {.tokens_max = 10}));
  const size_t shared = prompt.size() + 9;  // the tenth token was never run
  prompt.insert(prompt.end(), first.tokens.begin(), first.tokens.end());
  const auto more = ids_of(loaded.tokenizer, "and then?");
  prompt.insert(prompt.end(), more.begin(), more.end());
  const auto second = value_of(generator.generate(prompt, {.tokens_max = 10}));
  EXPECT_EQ(second.stats.reused_tokens, static_cast<int64_t>(shared));
  generator.reset();
  const auto fresh = value_of(generator.generate(prompt, {.tokens_max = 10}));
  EXPECT_EQ(fresh.stats.reused_tokens, 0);
  EXPECT_EQ(second.tokens, fresh.tokens);
  // The same prompt again runs its last token only.
  const auto again = value_of(generator.generate(prompt, {.tokens_max = 10}));
  EXPECT_EQ(again.stats.reused_tokens, static_cast<int64_t>(prompt.size()) - 1);
  EXPECT_EQ(again.tokens, fresh.tokens);
}

TEST(Generator, SeedsDecideSampledAnswers) {
  Loaded loaded("llama2");
  Generator generator(*loaded.model, loaded.tokenizer);
  const auto prompt = ids_of(loaded.tokenizer, kPrompt);
  const auto answer = [&](uint64_t seed) {
    return value_of(generator.generate(
                        prompt, {.sampling = {.temperature = 1.0}, .seed = seed, .tokens_max = 20}))
        .tokens;
  };
  EXPECT_EQ(answer(1), answer(1));
  EXPECT_NE(answer(1), answer(2));
}

TEST(Generator, StopIdsEndTheAnswerAndAreNoPartOfIt) {
  Loaded loaded("llama2");
  Generator generator(*loaded.model, loaded.tokenizer);
  const auto prompt = ids_of(loaded.tokenizer, kPrompt);
  const auto free_run = value_of(generator.generate(prompt, {.tokens_max = 12}));
  const int32_t stop = free_run.tokens[5];
  const auto first = std::find(free_run.tokens.begin(), free_run.tokens.end(), stop);
  const auto stopped = value_of(generator.generate(prompt, {.tokens_max = 12, .stop_ids = {stop}}));
  EXPECT_EQ(stopped.tokens, std::vector<int32_t>(free_run.tokens.begin(), first));
  EXPECT_EQ(stopped.finish, FinishReason::kStopId);
  EXPECT_EQ(finish_reason_name(stopped.finish), "stop");
}

TEST(Generator, StopStringsCutTheTextBetweenTokens) {
  Loaded loaded("llama2");
  Generator generator(*loaded.model, loaded.tokenizer);
  const auto prompt = ids_of(loaded.tokenizer, kPrompt);
  const auto free_run = value_of(generator.generate(prompt, {.tokens_max = 12}));
  ASSERT_GE(free_run.text.size(), 8u);
  const std::string stop = free_run.text.substr(4, 3);
  std::string shown;
  const auto stopped =
      value_of(generator.generate(prompt, {.tokens_max = 12, .stop_strings = {stop}},
                                  [&](const GeneratedPiece& piece) { shown += piece.text; }));
  EXPECT_EQ(stopped.finish, FinishReason::kStopString);
  EXPECT_EQ(stopped.text, free_run.text.substr(0, free_run.text.find(stop)));
  EXPECT_EQ(shown, stopped.text);
}

TEST(Generator, PiecesJoinToTheText) {
  Loaded loaded("llama2");
  Generator generator(*loaded.model, loaded.tokenizer);
  const auto prompt = ids_of(loaded.tokenizer, kPrompt);
  std::string shown;
  std::vector<int32_t> tokens;
  const auto answer = value_of(generator.generate(
      prompt, {.tokens_max = 15, .stop_strings = {"never there"}, .top_count = 3},
      [&](const GeneratedPiece& piece) {
        shown += piece.text;
        if (piece.token < 0) return;
        tokens.push_back(piece.token);
        ASSERT_EQ(piece.top.size(), 3u);
        EXPECT_EQ(piece.top[0].token, piece.token);
        EXPECT_EQ(piece.top[0].logprob, piece.logprob);
        EXPECT_LE(piece.logprob, 0.0f);
      }));
  EXPECT_EQ(shown, answer.text);
  EXPECT_EQ(tokens, answer.tokens);
}

TEST(Generator, CancellingStopsBeforeTheNextForward) {
  Loaded loaded("llama2");
  Generator generator(*loaded.model, loaded.tokenizer);
  const auto prompt = ids_of(loaded.tokenizer, kPrompt);
  std::atomic<bool> cancelled = false;
  int count = 0;
  const GenerateOptions options{.tokens_max = 50, .cancelled = &cancelled};
  const auto answer =
      value_of(generator.generate(prompt, options, [&](const GeneratedPiece& piece) {
        if (piece.token >= 0 && ++count == 4) cancelled = true;
      }));
  EXPECT_EQ(answer.finish, FinishReason::kCancelled);
  EXPECT_EQ(answer.tokens.size(), 4u);
  const auto none = value_of(generator.generate(prompt, options));
  EXPECT_EQ(none.finish, FinishReason::kCancelled);
  EXPECT_TRUE(none.tokens.empty());
}

TEST(Generator, StopsWhereTheContextIsFull) {
  Loaded loaded("llama2", {.context_max = 50});
  Generator generator(*loaded.model, loaded.tokenizer);
  EXPECT_EQ(generator.context_max(), 50);
  const auto prompt = ids_of(loaded.tokenizer, kPrompt);
  const auto answer = value_of(generator.generate(prompt, {.tokens_max = 100}));
  EXPECT_EQ(answer.finish, FinishReason::kContextFull);
  EXPECT_EQ(answer.tokens.size() + prompt.size(), 50u);
}

TEST(Generator, RefusesPromptsThatDoNotFit) {
  Loaded loaded("llama2", {.context_max = 20});
  Generator generator(*loaded.model, loaded.tokenizer);
  const auto error = [&](const std::vector<int32_t>& prompt, const GenerateOptions& options) {
    const auto answer = generator.generate(prompt, options);
    EXPECT_FALSE(answer);
    return answer ? Error{Code::kInternal, ""} : answer.error();
  };
  const std::vector<int32_t> fine = {1, 5, 6};
  const Error too_long = error(std::vector<int32_t>(20, 5), {});
  EXPECT_EQ(too_long.code, Code::kInvalidArgument);
  EXPECT_NE(too_long.message.find("20 tokens"), std::string::npos) << too_long.message;
  EXPECT_NE(too_long.message.find("or load the model with a longer --context, 128 at most"),
            std::string::npos)
      << too_long.message;
  Loaded whole("llama2", {.context_max = 128});
  const auto beyond =
      Generator(*whole.model, whole.tokenizer).generate(std::vector<int32_t>(128, 5), {});
  ASSERT_FALSE(beyond);
  EXPECT_NE(beyond.error().message.find("128 tokens"), std::string::npos);
  EXPECT_EQ(beyond.error().message.find("--context"), std::string::npos) << "no remedy";
  EXPECT_EQ(error({}, {}).code, Code::kInvalidArgument);
  EXPECT_EQ(error({96}, {}).code, Code::kInvalidArgument);
  EXPECT_EQ(error(fine, {.tokens_max = 0}).code, Code::kInvalidArgument);
  EXPECT_EQ(error(fine, {.sampling = {.temperature = -1}}).code, Code::kInvalidArgument);
  EXPECT_TRUE(generator.generate(fine, {.tokens_max = 2}));
}

}  // namespace
}  // namespace jige::serve
