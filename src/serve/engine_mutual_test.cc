// Prompts with rows that see one another, as those of an image do in some models: whatever cuts
// prompts, finds their beginnings, takes their blocks or guesses ahead, answers are those of
// prompts that ran alone and whole.
#include <gmock/gmock.h>

#include <array>

#include "base/rough_normal.h"
#include "serve/engine_test_support.h"
#include "serve/given_rows.h"

namespace jige::serve {
namespace {

using testing::alone;
using ::testing::HasSubstr;
using testing::Loaded;
using testing::Outcome;
using testing::random_request;
using testing::sink_for;
using testing::value_of;

constexpr const char* kMutualModel = "gemma3";  // whose window is of 9 tokens
constexpr int32_t kMutualIds = 1000;            // from which on rows have theirs

model::InferenceOptions mutual_options() {
  return {.compute = DType::kF32,
          .kv_block_count = 20,  // of which several requests want more
          .batch_tokens_max = 64,
          .logit_rows_max = 16};
}

// Rows that no other content has.
GivenRowsRef mutual_rows(const Loaded& loaded, uint64_t content, int32_t count,
                         bool mutual = true) {
  const int64_t width = loaded.model->config().hidden_size;
  Rng rng(derive_key(content, "mutual rows"));
  std::vector<float> values(static_cast<size_t>(count * width));
  for (float& value : values) value = static_cast<float>(3 * rough_normal(rng));
  const auto first = static_cast<int32_t>(kMutualIds * (1 + content));
  return std::make_shared<GivenRows>(GivenRows{first, 7, count, std::move(values), mutual});
}

// In front of the prompt's token `at`, or of the rows that this one lies in.
void insert_rows(EngineRequest& request, size_t at, const GivenRowsRef& rows) {
  at = std::min(at, request.prompt.size());
  const auto is_row = [&](size_t i) { return request.prompt[i] >= kMutualIds; };
  while (at > 0 && at < request.prompt.size() && is_row(at - 1) && is_row(at)) --at;
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < rows->count; ++i) ids.push_back(rows->first_id + i);
  request.prompt.insert(request.prompt.begin() + static_cast<ptrdiff_t>(at), ids.begin(),
                        ids.end());
  const auto same = [&](const GivenRowsRef& one) { return one->first_id == rows->first_id; };
  if (std::ranges::none_of(request.given, same)) request.given.push_back(rows);
}

EngineRequest plain_prompt(size_t prompt) {
  EngineRequest request;
  request.prompt.assign(prompt, 5);
  request.tokens_max = 6;
  return request;
}

// Of three contents, behind beginnings that several share.
std::vector<EngineRequest> prompts_with_rows(const Loaded& loaded, uint64_t seed, int count) {
  Rng rng(derive_key(seed, "prompts with rows"));
  std::vector<EngineRequest> requests;
  for (int i = 0; i < count; ++i) {
    EngineRequest request = random_request(rng, 44);
    for (uint64_t images = i % 4 == 3 ? 0 : 1 + rng.below(2); images > 0; --images) {
      const uint64_t content = rng.below(3);
      insert_rows(request, rng.below(3) * 9, mutual_rows(loaded, content, 14 + 5 * int(content)));
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

TEST(EngineMutual, GivesTheBitsOfPromptsThatRunAloneAndWhole) {
  Loaded loaded(kMutualModel, mutual_options());
  const std::vector<EngineRequest> requests = prompts_with_rows(loaded, 1, 11);
  std::vector<Outcome> expected;
  for (const EngineRequest& request : requests) expected.push_back(alone(loaded, request));
  testing::expect_outcomes_anyhow(loaded, requests, expected, std::array{7, 16, 64});
}

TEST(EngineMutual, RowsSeeOneAnother) {
  Loaded loaded(kMutualModel, mutual_options());
  EngineRequest request = plain_prompt(20);
  EngineRequest apart = request;
  insert_rows(request, 4, mutual_rows(loaded, 0, 14));
  insert_rows(apart, 4, mutual_rows(loaded, 0, 14, /*mutual=*/false));
  EXPECT_NE(alone(loaded, request), alone(loaded, apart));
}

// A cached beginning ends inside of the rows: their keys there were made with all of them.
TEST(EngineMutual, BeginningsThatAreCachedMayEndInsideOfRows) {
  Loaded loaded(kMutualModel, mutual_options());
  EngineRequest first = plain_prompt(12);
  insert_rows(first, 8, mutual_rows(loaded, 1, 20));  // tokens 8 to 28: blocks end at 16 and 32
  EngineRequest second = first;
  second.prompt.back() = 9;  // behind the rows, in the second block
  const Outcome expected[] = {alone(loaded, first), alone(loaded, second)};
  for (const int32_t batch_tokens : {5, 64}) {
    const auto engine = value_of(
        Engine::create(*loaded.model, loaded.tokenizer, {.batch_tokens_max = batch_tokens}));
    const auto run = [&](const EngineRequest& request, int64_t cached, const Outcome& outcome) {
      const auto sink = sink_for(request);
      value_of(engine->submit(request, sink));
      EXPECT_TRUE(sink->wait());
      EXPECT_FALSE(sink->error);
      EXPECT_EQ(sink->report->cached_tokens, cached);
      EXPECT_EQ(sink->outcome, outcome);
    };
    run(first, 0, expected[0]);
    run(second, 16, expected[1]);
    run(first, 16, expected[0]);
  }
}

TEST(EngineMutual, RefusesPartsOfRowsAndMoreThanAForwardTakes) {
  Loaded loaded(kMutualModel, mutual_options());
  const auto engine = value_of(Engine::create(*loaded.model, loaded.tokenizer, {}));
  const auto refusal = [&](const EngineRequest& request) {
    const auto id = engine->submit(request, sink_for(request));
    return id ? "" : id.error().message;
  };
  EngineRequest right = plain_prompt(6);
  insert_rows(right, 3, mutual_rows(loaded, 0, 14));
  insert_rows(right, 18, mutual_rows(loaded, 0, 14));  // twice
  EXPECT_EQ(refusal(right), "");
  EngineRequest wrong = right;
  wrong.prompt.pop_back();
  EXPECT_EQ(refusal(wrong), "");
  wrong.prompt.erase(wrong.prompt.begin() + 3);
  EXPECT_THAT(refusal(wrong), HasSubstr("the prompt has 0 of 14 rows that see one another"));
  wrong = right;
  wrong.prompt[10] = 5;
  EXPECT_THAT(refusal(wrong), HasSubstr("the prompt has 7 of 14 rows"));
  wrong = plain_prompt(6);
  insert_rows(wrong, 6, mutual_rows(loaded, 0, 14));
  wrong.prompt.pop_back();
  EXPECT_THAT(refusal(wrong), HasSubstr("the prompt has 13 of 14 rows"));
  wrong = plain_prompt(6);
  insert_rows(wrong, 3, mutual_rows(loaded, 0, 65));
  EXPECT_THAT(refusal(wrong), HasSubstr("65 rows that see one another, and the model was loaded "
                                        "for 64 tokens"));

  Loaded states("mamba2", mutual_options());
  const auto reads_apart = value_of(Engine::create(*states.model, states.tokenizer, {}));
  const auto id = reads_apart->submit(right, sink_for(right));
  ASSERT_FALSE(id);
  EXPECT_THAT(id.error().message, HasSubstr("takes no rows that see one another"));
}

TEST(GeneratorMutual, RunsRowsWholeWhateverItsPiecesAre) {
  Loaded loaded(kMutualModel, mutual_options());
  Generator generator(*loaded.model, loaded.tokenizer);
  EngineRequest request = plain_prompt(30);
  insert_rows(request, 4, mutual_rows(loaded, 0, 14));
  insert_rows(request, 30, mutual_rows(loaded, 2, 24));
  GenerateOptions options{.tokens_max = 8, .given = request.given};
  // How likely the tokens of an answer are: nothing else hides what rows have seen.
  int64_t reused = 0;
  const auto logprobs_of = [&](const std::vector<int32_t>& prompt) {
    std::vector<float> logprobs;
    const auto answer =
        value_of(generator.generate(prompt, options, [&](const GeneratedPiece& piece) {
          if (piece.token >= 0) logprobs.push_back(piece.logprob);
        }));
    reused = answer.stats.reused_tokens;
    return logprobs;
  };
  const std::vector<float> expected = logprobs_of(request.prompt);
  EXPECT_EQ(expected.size(), 8u);
  options.chunk_tokens = 5;
  options.drafts.tokens_max = 3;
  generator.reset();
  EXPECT_EQ(logprobs_of(request.prompt), expected);
  // A prompt that ends with rows: the last one is run again.
  const std::vector<int32_t> begin(request.prompt.begin(), request.prompt.begin() + 18);
  const std::vector<float> again = logprobs_of(begin);
  EXPECT_EQ(reused, 17);
  generator.reset();
  EXPECT_EQ(logprobs_of(begin), again);
  const std::vector<int32_t> part(request.prompt.begin(), request.prompt.begin() + 17);
  EXPECT_THAT(generator.generate(part, options).error().message, HasSubstr("13 of 14 rows"));
}

}  // namespace
}  // namespace jige::serve
