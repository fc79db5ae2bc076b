#include "serve/answer.h"

#include <cmath>
#include <functional>
#include <map>

#include "base/file.h"
#include "serve/serve_test_support.h"

namespace jige::serve {
namespace {

using testing::character_tokenizer;
using testing::ids_of;
using testing::value_of;

constexpr size_t kVocabulary = 96;

// Logits that make greedy sampling take `token`, and `second` when it is forbidden.
std::vector<float> logits_for(int32_t token, int32_t second = 5) {
  std::vector<float> logits(kVocabulary, 0.0f);
  logits[static_cast<size_t>(second)] = 2;
  logits[static_cast<size_t>(token)] = 4;
  return logits;
}

struct Outcome {
  std::string text;
  std::vector<int32_t> shown;
  FinishReason finish = FinishReason::kLength;
};

// Feeds the characters of `wanted` until the answer is complete.
Outcome answer_with(const AnswerOptions& options, const std::string& wanted) {
  const text::Tokenizer tokenizer = character_tokenizer();
  const std::vector<int32_t> prompt = {5, 6, 7};
  Answer answer(tokenizer, prompt, options);
  Outcome out;
  for (const int32_t token : ids_of(tokenizer, wanted)) {
    if (answer.done()) break;
    const AnswerPiece piece = value_of(answer.take(logits_for(token)));
    out.text += piece.text;
    if (piece.token >= 0) out.shown.push_back(piece.token);
  }
  EXPECT_TRUE(answer.done()) << out.text;
  EXPECT_EQ(out.shown, answer.tokens());
  out.text += answer.end();
  out.finish = answer.finish();
  return out;
}

TEST(Answer, EndsAtItsLimits) {
  Outcome out = answer_with({.tokens_max = 3}, "abcdef");
  EXPECT_EQ(out.text, "abc");
  EXPECT_EQ(out.finish, FinishReason::kLength);
  out = answer_with({.tokens_max = 30, .context_max = 5}, "abcdef");
  EXPECT_EQ(out.text, "ab");  // behind a prompt of three tokens
  EXPECT_EQ(out.finish, FinishReason::kContextFull);
}

TEST(Answer, SpecialTokensAreShownWhereTheyAreAskedFor) {
  EXPECT_EQ(answer_with({.tokens_max = 5}, "a<s>bc<s>").text, "abc");
  EXPECT_EQ(answer_with({.tokens_max = 5, .shown_ids = {1}}, "a<s>bc<s>").text, "a<s>bc<s>");
}

TEST(Answer, StopIdsAreDrawnButNotShown) {
  const text::Tokenizer tokenizer = character_tokenizer();
  const std::vector<int32_t> prompt = {5};
  Answer answer(tokenizer, prompt, {.stop_ids = {2, 9}});
  EXPECT_EQ(value_of(answer.take(logits_for(20))).token, 20);
  const AnswerPiece last = value_of(answer.take(logits_for(9)));
  EXPECT_EQ(last.token, -1);
  EXPECT_EQ(last.text, "");
  ASSERT_TRUE(answer.done());
  EXPECT_EQ(answer.finish(), FinishReason::kStopId);
  EXPECT_EQ(answer.stop_id(), 9);
  EXPECT_EQ(answer.last_drawn(), 9);
  EXPECT_EQ(answer.drawn_count(), 2);
  EXPECT_EQ(answer.tokens(), std::vector<int32_t>{20});
}

TEST(Answer, StopStringsCutTheTextOrAreIncluded) {
  AnswerOptions options{.stop_strings = {"never", "de"}};
  Outcome out = answer_with(options, "abcdefg");
  EXPECT_EQ(out.text, "abc");
  EXPECT_EQ(out.finish, FinishReason::kStopString);
  EXPECT_EQ(out.shown.size(), 5u);
  options.include_stop_string = true;
  EXPECT_EQ(answer_with(options, "abcdefg").text, "abcde");
}

TEST(Answer, HeldBackTextComesAtTheEnd) {
  const Outcome out = answer_with({.tokens_max = 4, .stop_strings = {"cdx"}}, "abcd");
  EXPECT_EQ(out.text, "abcd");
  EXPECT_EQ(out.finish, FinishReason::kLength);
}

TEST(Answer, ContinuedTextKeepsTheSpaceBetweenItAndThePrompt) {
  // A family that marks spaces in front of words and drops the one that begins a text.
  const std::string path =
      std::string(JIGE_SOURCE_DIR) + "/tests/fixtures/text/tokenizers/llama2_legacy/tokenizer.json";
  const text::Tokenizer tokenizer =
      value_of(text::Tokenizer::from_json(value_of(read_file(path)), path));
  const std::vector<int32_t> prompt = value_of(tokenizer.encode("red green", {}));
  const int32_t word = value_of(tokenizer.encode("green", {.add_special = false})).front();
  ASSERT_EQ(*tokenizer.id_to_token(word), "\xE2\x96\x81green");
  std::vector<float> logits(static_cast<size_t>(tokenizer.vocab_size()), 0.0f);
  logits[static_cast<size_t>(word)] = 9;
  const auto text_behind = [&](std::span<const int32_t> ids, bool continues_text) {
    AnswerOptions options{.tokens_max = 2, .continues_text = continues_text};
    options.sampling.temperature = 0;
    Answer answer(tokenizer, ids, options);
    std::string text;
    while (!answer.done()) text += value_of(answer.take(logits)).text;
    return text + answer.end();
  };
  EXPECT_EQ(text_behind(prompt, true), " green green");
  EXPECT_EQ(text_behind(prompt, false), "green green");
  // Behind nothing but the beginning-of-text token it is the beginning; half a character (the
  // first byte of three) is no part of the answer.
  EXPECT_EQ(text_behind(std::span(prompt).first(1), true), "green green");
  std::vector<int32_t> half = prompt;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (tokenizer.id_to_token(id) == "<0xE4>") half.push_back(id);
  }
  ASSERT_EQ(half.size(), prompt.size() + 1);
  EXPECT_EQ(text_behind(half, true), " green green");
}

TEST(Answer, NothingStopsItBeforeTheLeastNumberOfTokens) {
  const text::Tokenizer tokenizer = character_tokenizer();
  const std::vector<int32_t> prompt = {5};
  Answer answer(tokenizer, prompt, {.tokens_max = 9, .tokens_min = 3, .stop_ids = {2}});
  for (int i = 0; i < 3; ++i) {
    // The stop id is the likeliest, but forbidden.
    EXPECT_EQ(value_of(answer.take(logits_for(2, 40 + i))).token, 40 + i);
    EXPECT_FALSE(answer.done());
  }
  EXPECT_EQ(value_of(answer.take(logits_for(2))).token, -1);
  EXPECT_EQ(answer.finish(), FinishReason::kStopId);

  const Outcome out = answer_with({.tokens_min = 4, .stop_strings = {"b"}}, "abababab");
  EXPECT_EQ(out.text, "ababa");
  EXPECT_EQ(out.finish, FinishReason::kStopString);
}

TEST(Answer, ABiasOfTheCallersStaysWhenStopIdsAreAllowedAgain) {
  const text::Tokenizer tokenizer = character_tokenizer();
  const std::vector<int32_t> prompt = {5};
  AnswerOptions options{.tokens_max = 9, .tokens_min = 1, .stop_ids = {2}};
  options.sampling.logit_bias = {{30, -INFINITY}};
  Answer answer(tokenizer, prompt, options);
  EXPECT_EQ(value_of(answer.take(logits_for(30, 41))).token, 41);
  EXPECT_EQ(value_of(answer.take(logits_for(30, 42))).token, 42);
}

TEST(Answer, CancellingKeepsWhatIsThere) {
  const text::Tokenizer tokenizer = character_tokenizer();
  const std::vector<int32_t> prompt = {5};
  Answer answer(tokenizer, prompt, {.stop_strings = {"ax"}});
  EXPECT_EQ(value_of(answer.take(logits_for(ids_of(tokenizer, "a")[0]))).text, "");
  answer.cancel();
  EXPECT_EQ(answer.finish(), FinishReason::kCancelled);
  EXPECT_EQ(answer.end(), "a");
  answer.cancel();
  EXPECT_EQ(finish_reason_name(answer.finish()), "cancelled");
}

TEST(Answer, ChoicesDrawFromStreamsOfTheirOwn) {
  const text::Tokenizer tokenizer = character_tokenizer();
  const std::vector<int32_t> prompt = {5};
  const std::vector<float> flat(kVocabulary, 0.0f);
  const auto draw = [&](uint64_t seed, int32_t choice) {
    AnswerOptions options{.seed = seed, .choice = choice, .tokens_max = 20};
    options.sampling.temperature = 1;
    Answer answer(tokenizer, prompt, options);
    while (!answer.done()) value_of(answer.take(flat));
    return answer.tokens();
  };
  EXPECT_EQ(draw(1, 0), draw(1, 0));
  EXPECT_NE(draw(1, 0), draw(1, 1));
  EXPECT_NE(draw(1, 1), draw(2, 1));
}

TEST(Answer, IsDrawnOnTheDeviceWhereNothingElseIsAskedOfTheLogits) {
  const text::Tokenizer tokenizer = character_tokenizer();
  const std::vector<int32_t> prompt = {5, 6, 7};
  const auto kind = [&](const std::function<void(AnswerOptions&)>& change) {
    AnswerOptions options{.tokens_max = 4, .stop_ids = {3}, .logprobs = false};
    change(options);
    return Answer(tokenizer, prompt, options).row_draw().kind;
  };
  EXPECT_EQ(kind([](AnswerOptions&) {}), ops::RowDraw::kLikeliest);
  EXPECT_EQ(kind([](AnswerOptions& o) { o.sampling.top_p = 0.5; }),
            ops::RowDraw::kLikeliest);  // no matter at 0 degrees
  EXPECT_EQ(kind([](AnswerOptions& o) { o.logprobs = true; }), ops::RowDraw::kLikeliest);
  EXPECT_EQ(kind([](AnswerOptions& o) {
              o.logprobs = true;
              o.sampling.presence_penalty = 1;
            }),
            ops::RowDraw::kHost);
  EXPECT_EQ(kind([](AnswerOptions& o) { o.top_count = 1; }), ops::RowDraw::kHost);
  EXPECT_EQ(kind([](AnswerOptions& o) { o.tokens_max = 0; }), ops::RowDraw::kHost);
  EXPECT_EQ(kind([](AnswerOptions& o) { o.tokens_min = 2; }),
            ops::RowDraw::kHost);  // stop ids are forbidden
  EXPECT_EQ(kind([](AnswerOptions& o) { o.sampling.temperature = 1; }), ops::RowDraw::kSample);
  EXPECT_EQ(kind([](AnswerOptions& o) { o.sampling.repetition_penalty = 1.1; }),
            ops::RowDraw::kLikeliest);
  EXPECT_EQ(kind([](AnswerOptions& o) {
              o.sampling.logit_bias = {{5, 1.0f}};
            }),
            ops::RowDraw::kHost);
  EXPECT_EQ(kind([](AnswerOptions& o) { o.forbidden_rows = {{5, 6}}; }), ops::RowDraw::kHost);
  EXPECT_EQ(kind([](AnswerOptions& o) {
              o.allowed = std::make_shared<const grammar::TokenBits>(1, ~uint64_t{0});
            }),
            ops::RowDraw::kHost);
}

// Draws that are found elsewhere have the numbers and the tokens of those from logits here.
TEST(Answer, KnowsWhatDrawsElsewhereNeed) {
  const text::Tokenizer tokenizer = character_tokenizer();
  const std::vector<int32_t> prompt = {5, 6, 5};
  AnswerOptions options{
      .sampling = {.temperature = 0.01, .presence_penalty = 2}, .tokens_max = 9, .logprobs = false};
  Answer here(tokenizer, prompt, options), elsewhere(tokenizer, prompt, options);
  for (const int32_t token : {7, 5, 7}) {
    EXPECT_EQ(here.row_draw().uniform, elsewhere.row_draw().uniform);
    value_of(here.take(logits_for(token)));
    elsewhere.take_drawn(here.last_drawn(), -0.5f);
    EXPECT_EQ(value_of(elsewhere.accept()).logprob, -0.5f);
  }
  EXPECT_EQ(here.row_draw().uniform, elsewhere.row_draw().uniform);
  EXPECT_EQ(here.row_draw(1).kind, ops::RowDraw::kHost) << "the token before it is not known";
  const ops::RowDraw draw = elsewhere.row_draw();
  std::map<int32_t, int32_t> counts;
  for (const ops::SeenToken& seen : std::span(draw.seen, static_cast<size_t>(draw.seen_count))) {
    EXPECT_TRUE(counts.emplace(seen.token, seen.generated_count).second) << "each once";
  }
  EXPECT_EQ(counts, (std::map<int32_t, int32_t>{{5, 1}, {6, 0}, {7, 2}}));
  options.sampling.presence_penalty = 0;
  Answer plain(tokenizer, prompt, options);
  const double second = plain.row_draw(1).uniform;
  EXPECT_NE(plain.row_draw().uniform, second);
  plain.take_drawn(7, 0);
  value_of(plain.accept());
  EXPECT_EQ(plain.row_draw().uniform, second);
}

TEST(Answer, BadLogitsAreAnError) {
  const text::Tokenizer tokenizer = character_tokenizer();
  const std::vector<int32_t> prompt = {5};
  Answer answer(tokenizer, prompt, {});
  std::vector<float> logits = logits_for(7);
  logits[50] = NAN;
  const auto piece = answer.take(logits);
  ASSERT_FALSE(piece);
  EXPECT_EQ(piece.error().code, Code::kInternal);
}

TEST(Answer, RefusesLimitsThatContradictEachOther) {
  EXPECT_TRUE(validate(AnswerOptions{.tokens_max = 5, .tokens_min = 5}));
  for (const AnswerOptions& bad :
       {AnswerOptions{.tokens_max = 0}, AnswerOptions{.tokens_max = 5, .tokens_min = 6},
        AnswerOptions{.tokens_min = -1}, AnswerOptions{.sampling = {.top_p = 2}}}) {
    const Status status = validate(bad);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, Code::kInvalidArgument);
  }
}

}  // namespace
}  // namespace jige::serve
