// Drafts change no bit: whatever is guessed, a sequence's tokens, log-probabilities, text and end
// are those of one token a step.
#include "serve/speculator.h"

#include <atomic>
#include <bit>

#include "base/rng.h"
#include "serve/generator.h"
#include "serve/serve_test_support.h"

namespace jige::serve {
namespace {

using testing::Loaded;
using testing::value_of;

// Everything that a caller is told, pieces as they came.
struct Told {
  std::vector<int32_t> tokens;
  std::vector<std::string> pieces;
  std::vector<uint32_t> numbers;  // log-probabilities and alternatives, as bits
  std::string text;
  FinishReason finish = FinishReason::kLength;
  bool operator==(const Told&) const = default;
};

void PrintTo(const Told& told, std::ostream* out) {
  *out << told.tokens.size() << " tokens, \"" << told.text << "\", "
       << finish_reason_name(told.finish);
}

Told tell(Generator& generator, std::span<const int32_t> prompt, const GenerateOptions& options,
          GenerationStats* stats = nullptr) {
  Told told;
  const auto keep = [&](const GeneratedPiece& piece) {
    told.pieces.emplace_back(piece.text);
    told.numbers.push_back(std::bit_cast<uint32_t>(piece.logprob));
    for (const ops::TokenLogProb& other : piece.top) {
      told.numbers.push_back(static_cast<uint32_t>(other.token));
      told.numbers.push_back(std::bit_cast<uint32_t>(other.logprob));
    }
  };
  const Generation answer = value_of(generator.generate(prompt, options, keep));
  told.tokens = answer.tokens;
  told.text = answer.text;
  told.finish = answer.finish;
  if (stats) {
    stats->drafted_tokens += answer.stats.drafted_tokens;
    stats->accepted_tokens += answer.stats.accepted_tokens;
  }
  return told;
}

// Prompts that repeat themselves, in part wrongly, so that guesses are right and wrong.
std::vector<int32_t> repeating_prompt(Rng& rng) {
  const auto kinds = 1 + rng.below(20);
  const auto period = 1 + rng.below(9);
  std::vector<int32_t> prompt;
  const uint64_t count = 1 + rng.below(40);
  for (uint64_t i = 0; i < count; ++i) {
    const bool again = prompt.size() >= period && rng.below(8) > 0;
    prompt.push_back(again ? prompt[prompt.size() - period]
                           : static_cast<int32_t>(3 + rng.below(kinds) * 4));
  }
  return prompt;
}

GenerateOptions random_options(Rng& rng) {
  GenerateOptions options;
  options.sampling.temperature = std::vector<double>{0, 0.2, 0.7, 1.3}[rng.below(4)];
  if (rng.below(3) == 0) options.sampling.top_k = static_cast<int64_t>(1 + rng.below(6));
  if (rng.below(3) == 0) options.sampling.top_p = 0.8;
  if (rng.below(4) == 0) options.sampling.min_p = 0.1;
  if (rng.below(4) == 0) options.sampling.repetition_penalty = 1.3;
  if (rng.below(4) == 0) options.sampling.presence_penalty = 0.4;
  if (rng.below(4) == 0) options.sampling.frequency_penalty = -0.3;
  // Few tokens to choose from: answers repeat themselves, by chance.
  if (rng.below(2) == 0) options.sampling.logit_bias = {{7, 30}, {11, 30}, {15, 29.5}};
  options.seed = rng.next_u64();
  options.choice = static_cast<int32_t>(rng.below(3));
  options.tokens_max = static_cast<int64_t>(1 + rng.below(40));
  if (rng.below(2) == 0) options.stop_ids = {2, 7};
  if (rng.below(3) == 0) options.stop_strings = {"$(", "((", "zz"};
  options.chunk_tokens = static_cast<int64_t>(1 + rng.below(30));
  options.top_count = static_cast<int>(rng.below(3));
  options.continues_text = rng.below(2) == 0;
  return options;
}

constexpr DraftOptions kAllDrafts[] = {{.tokens_max = 1, .adaptive = false},
                                       {.tokens_max = 2, .adaptive = false},
                                       {.tokens_max = 5, .adaptive = false},
                                       {.tokens_max = 16, .adaptive = false},
                                       {.tokens_max = 8, .adaptive = true}};

void expect_same_answers(Loaded& loaded, uint64_t seed, int count, GenerationStats& stats) {
  Rng rng(derive_key(seed, "speculation"));
  Generator generator(*loaded.model, loaded.tokenizer);
  for (int i = 0; i < count; ++i) {
    const std::vector<int32_t> prompt = repeating_prompt(rng);
    GenerateOptions options = random_options(rng);
    options.drafts = {};
    generator.reset();
    const Told plain = tell(generator, prompt, options);
    for (const DraftOptions& drafts : kAllDrafts) {
      // What the run before has left in the cache, wrong guesses too, must not matter.
      if (rng.below(2) == 0) generator.reset();
      options.drafts = drafts;
      EXPECT_EQ(tell(generator, prompt, options, &stats), plain)
          << "case " << i << ", drafts of " << drafts.tokens_max;
    }
  }
}

TEST(Speculation, ChangesNoBitOfAnAnswer) {
  const model::InferenceOptions sizes{
      .context_max = 64, .batch_tokens_max = 64, .logit_rows_max = 17};
  GenerationStats stats;
  uint64_t seed = 0;
  for (const char* name : {"llama3", "mistral", "gpt2", "qwen2", "qwen3"}) {
    for (const auto& [compute, format] : {std::pair{DType::kF32, ops::WeightFormat::kCompute},
                                          {DType::kBF16, ops::WeightFormat::kCompute},
                                          {DType::kF32, ops::WeightFormat::kQ8},
                                          {DType::kBF16, ops::WeightFormat::kQ4}}) {
      model::InferenceOptions options = sizes;
      options.compute = compute;
      options.format = format;
      Loaded loaded(name, options);
      SCOPED_TRACE(std::string(name) + " in " + std::string(dtype_info(compute).name));
      expect_same_answers(loaded, seed++, 3, stats);
    }
  }
  EXPECT_GT(stats.accepted_tokens, 250);
  EXPECT_GT(stats.drafted_tokens - stats.accepted_tokens, 250);
}

TEST(Speculation, EndsAtEveryLimitInsideADraft) {
  // One token is so likely that every guess of it is right: all ends fall into a draft.
  Loaded loaded("llama2", {.context_max = 50, .batch_tokens_max = 64, .logit_rows_max = 17});
  Generator generator(*loaded.model, loaded.tokenizer);
  const std::vector<int32_t> prompt(20, 40);
  for (int64_t tokens_max = 1; tokens_max <= 40; ++tokens_max) {
    GenerateOptions options{.tokens_max = tokens_max};
    options.sampling.logit_bias = {{40, 100}};
    const Told plain = tell(generator, prompt, options);
    EXPECT_EQ(plain.finish, tokens_max < 30 ? FinishReason::kLength
                                            : (tokens_max == 30 ? FinishReason::kLength
                                                                : FinishReason::kContextFull));
    for (const int32_t count : {1, 3, 7, 16}) {
      options.drafts = {.tokens_max = count, .adaptive = false};
      EXPECT_EQ(tell(generator, prompt, options), plain) << tokens_max << ", " << count;
    }
  }
}

TEST(Speculation, AStopIdInTheMiddleOfADraftEndsTheAnswer) {
  Loaded loaded("llama2", {.context_max = 64, .batch_tokens_max = 64, .logit_rows_max = 17});
  Generator generator(*loaded.model, loaded.tokenizer);
  // The prompt has the stop id in what is repeated, so that it is guessed itself.
  std::vector<int32_t> prompt;
  for (int i = 0; i < 3; ++i) prompt.insert(prompt.end(), {10, 20, 30, 2});
  GenerateOptions options{.tokens_max = 30, .stop_ids = {2}};
  options.sampling.temperature = 0.5;
  options.sampling.logit_bias = {{10, 90}, {20, 90}, {30, 90}, {2, 93}};
  GenerationStats stats;
  int stopped = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    options.seed = seed;
    options.drafts = {};
    const Told plain = tell(generator, prompt, options);
    stopped += plain.finish == FinishReason::kStopId ? 1 : 0;
    options.drafts = {.tokens_max = 8, .adaptive = false};
    EXPECT_EQ(tell(generator, prompt, options, &stats), plain) << "seed " << seed;
  }
  EXPECT_GT(stopped, 10);
  EXPECT_GT(stats.accepted_tokens, 10);
}

TEST(Speculation, CancellingStopsBehindTheSameToken) {
  Loaded loaded("llama2");
  Generator generator(*loaded.model, loaded.tokenizer);
  const std::vector<int32_t> prompt(20, 40);
  for (const int32_t count : {0, 1, 5}) {
    std::atomic<bool> cancelled = false;
    int seen = 0;
    GenerateOptions options{.tokens_max = 50, .cancelled = &cancelled};
    options.sampling.logit_bias = {{40, 100}};
    options.drafts = {.tokens_max = count, .adaptive = false};
    const auto answer =
        value_of(generator.generate(prompt, options, [&](const GeneratedPiece& piece) {
          if (piece.token >= 0 && ++seen == 4) cancelled = true;
        }));
    EXPECT_EQ(answer.finish, FinishReason::kCancelled);
    EXPECT_EQ(answer.tokens.size(), 4u) << count;
  }
}

TEST(Speculation, DraftsAreNoLongerThanTheModelHasRowsOfLogits) {
  const std::vector<int32_t> prompt(20, 40);
  for (const int64_t rows : {1, 2, 4}) {
    Loaded loaded("llama2", {.batch_tokens_max = 16, .logit_rows_max = rows});
    Generator generator(*loaded.model, loaded.tokenizer);
    GenerateOptions options{.tokens_max = 33};
    options.sampling.logit_bias = {{40, 100}};
    options.drafts = {.tokens_max = 16, .adaptive = false};
    const auto answer = value_of(generator.generate(prompt, options));
    // The first token is the prompt's; each step behind it brings one a row.
    EXPECT_EQ(answer.stats.accepted_tokens, 32 - 32 / rows);
  }
}

TEST(Speculation, FewStepsBringARepeatedTextAndNoneAreWastedOnNoise) {
  Loaded loaded("llama2", {.batch_tokens_max = 64, .logit_rows_max = 9});
  Generator generator(*loaded.model, loaded.tokenizer);
  GenerateOptions options{.tokens_max = 60};
  options.drafts = {.tokens_max = 8, .adaptive = true};
  options.sampling.logit_bias = {{40, 100}};
  const std::vector<int32_t> prompt(20, 40);
  const auto easy = value_of(generator.generate(prompt, options));
  EXPECT_GT(easy.stats.accepted_tokens, 20);
  // Sixteen tokens by chance: every pair was seen before, and tells nothing.
  Rng rng(derive_key(7, "noise"));
  std::vector<int32_t> noise;
  for (int i = 0; i < 60; ++i) noise.push_back(static_cast<int32_t>(40 + rng.below(16)));
  options.sampling.logit_bias.clear();
  for (int32_t id = 40; id < 56; ++id) options.sampling.logit_bias.push_back({id, 100});
  options.sampling.temperature = 100;
  const auto hard = value_of(generator.generate(noise, options));
  EXPECT_LT(hard.stats.drafted_tokens, 20);
}

GuessRow row_of(std::span<const int32_t> tokens, plan::GuessSource source) {
  GuessRow row;
  for (const int32_t token : tokens) row.add(token, source);
  return row;
}

TEST(Speculator, JudgesGuessesThatNothingWasRunFor) {
  Speculator speculator(100);
  std::vector<int32_t> tokens = {1, 2, 3, 1, 2};
  speculator.follow({tokens, {}});
  const plan::GuessTrust before = speculator.trust();
  EXPECT_EQ(speculator.copy({tokens, {}}, 8).size(), 8u);
  // Pairs of which the same token always comes next.
  for (int i = 0; i < 12; ++i) {
    const auto source = speculator.copy_source();
    speculator.note(row_of(speculator.copy({tokens, {}}, 8), source));
    tokens.push_back(tokens[tokens.size() - 3]);
    speculator.follow({tokens, {}});
    EXPECT_GT(speculator.trust().chance(source), before.chance(source));
  }
  EXPECT_EQ(speculator.copy_source(), plan::GuessSource::kLongCopy);
  speculator.clear();
  tokens = {5, 6, 7};
  speculator.follow({tokens, {}});
  EXPECT_TRUE(speculator.copy({tokens, {}}, 8).empty());
}

TEST(Speculator, JudgesADraftModelByWhatCame) {
  Speculator speculator(100);
  speculator.clear(0.5);
  const auto chance = [&] { return speculator.trust().chance(plan::GuessSource::kModel); };
  EXPECT_DOUBLE_EQ(chance(), 0.5);
  std::vector<int32_t> tokens = {1, 2, 3};
  speculator.follow({tokens, {}});
  speculator.note(row_of(std::vector<int32_t>{4, 5, 6, 7}, plan::GuessSource::kModel));
  tokens.insert(tokens.end(), {4, 5, 9});
  speculator.follow({tokens, {}});
  EXPECT_EQ(speculator.of_model().hits, 2);
  EXPECT_TRUE(speculator.of_model().missed);
  EXPECT_NEAR(chance(), 4.0 / 7, 0.02);
  // All that came was right; of the rest nothing is known.
  speculator.note(row_of(std::vector<int32_t>{1, 2, 3}, plan::GuessSource::kModel));
  tokens.push_back(1);
  speculator.follow({tokens, {}});
  EXPECT_EQ(speculator.of_model().hits, 1);
  EXPECT_FALSE(speculator.of_model().missed);
  tokens.push_back(2);
  speculator.follow({tokens, {}});
  EXPECT_EQ(speculator.of_model().hits, 0) << "judged once";
}

// What was forced, what the model said behind it, and a copy that was not chosen.
TEST(Speculator, JudgesEachSourceUpToTheFirstWrongGuess) {
  using enum plan::GuessSource;
  for (int right = 0; right <= 5; ++right) {
    Speculator speculator(100);
    std::vector<int32_t> tokens = {1, 2, 3};
    speculator.follow({tokens, {}});
    GuessRow row = row_of(std::vector<int32_t>{10}, kOnly);
    row.add(11, kForced);
    GuessRow other = row;
    for (const int32_t token : {12, 13, 14}) row.add(token, kModel);
    for (const int32_t token : {12, 99}) other.add(token, kCopy);
    speculator.note(row, other);
    EXPECT_EQ(speculator.sources().size(), 5u);
    for (int32_t i = 0; i < right; ++i) tokens.push_back(10 + i);
    tokens.push_back(50);
    const plan::GuessTrust before = speculator.trust();
    speculator.follow({tokens, {}});
    const auto change = [&](plan::GuessSource source) {
      const double more = speculator.trust().chance(source) - before.chance(source);
      return more > 0 ? '+' : more < 0 ? '-' : '=';
    };
    EXPECT_EQ(change(kOnly), '=');
    EXPECT_EQ(change(kForced), right == 0 ? '=' : right == 1 ? '-' : '+') << right;
    EXPECT_EQ(change(kModel), right < 2 ? '=' : right < 4 ? '-' : '+') << right;
    EXPECT_EQ(change(kCopy), right < 2 ? '=' : '-') << right;
    EXPECT_EQ(speculator.of_model().hits, std::clamp(right - 2, 0, 3));
    EXPECT_EQ(speculator.of_model().missed, right >= 2 && right < 5);
    EXPECT_TRUE(speculator.sources().empty()) << "they were judged";
  }
}

}  // namespace
}  // namespace jige::serve
