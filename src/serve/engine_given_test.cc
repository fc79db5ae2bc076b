// Prompts with rows in place of tokens: rows of the model's own table give the tokens' bits,
// whatever runs beside them, however prompts are cut, known from before or begun again.
#include <gmock/gmock.h>

#include <array>

#include "formats/tensor_folder.h"
#include "model/tensor_convert.h"
#include "serve/engine_test_support.h"
#include "serve/given_rows.h"

namespace jige::serve {
namespace {

using testing::alone;
using testing::fixture;
using testing::Gate;
using ::testing::HasSubstr;
using testing::Loaded;
using testing::Outcome;
using testing::random_request;
using testing::sink_for;
using testing::value_of;

constexpr const char* kGivenModel = "llama3";
constexpr int32_t kRowIds = 96;  // of the fixture
constexpr int32_t kRowsOfRun = 12;

model::InferenceOptions given_options() {
  return {.compute = DType::kF32,
          .kv_block_count = 18,  // of which several requests want more
          .batch_tokens_max = 64,
          .logit_rows_max = 16};
}

// `count` rows that are each the embedding of `token`, with ids of their own.
GivenRowsRef rows_of(const Loaded& loaded, int32_t token, int32_t count = kRowsOfRun) {
  const int64_t width = loaded.model->config().hidden_size;
  const auto files = value_of(formats::TensorFolder::open(fixture(kGivenModel)));
  const TensorView row =
      value_of(files.view("model.embed_tokens.weight")).row_range(token, token + 1);
  std::vector<float> one(static_cast<size_t>(width)), values;
  model::widen(one, row.data, row.dtype);
  for (int32_t i = 0; i < count; ++i) values.insert(values.end(), one.begin(), one.end());
  return std::make_shared<GivenRows>(
      GivenRows{kRowIds + token * 100, token, count, std::move(values)});
}

// A request in two forms: with a run of one token, and with rows in place of that.
struct TwoForms {
  EngineRequest tokens, rows;
};

TwoForms two_forms(const Loaded& loaded, const EngineRequest& request, int32_t token, size_t at) {
  TwoForms forms{request, request};
  const GivenRowsRef rows = rows_of(loaded, token);
  const auto place = static_cast<ptrdiff_t>(std::min(at, request.prompt.size()));
  forms.tokens.prompt.insert(forms.tokens.prompt.begin() + place, kRowsOfRun, token);
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < kRowsOfRun; ++i) ids.push_back(rows->first_id + i);
  forms.rows.prompt.insert(forms.rows.prompt.begin() + place, ids.begin(), ids.end());
  forms.rows.given = {rows};
  return forms;
}

std::vector<TwoForms> random_forms(const Loaded& loaded, uint64_t seed, int count) {
  Rng rng(derive_key(seed, "rows and tokens"));
  std::vector<TwoForms> forms;
  for (int i = 0; i < count; ++i) {
    EngineRequest request = random_request(rng);
    if (rng.below(2) == 0) request.sampling.repetition_penalty = 1.3;  // which reads the prompt
    const auto token = static_cast<int32_t>(10 + rng.below(3));
    forms.push_back(two_forms(loaded, request, token, rng.below(40)));
  }
  return forms;
}

TEST(EngineGiven, RowsOfTheTableGiveTheBitsOfTheirTokens) {
  Loaded loaded(kGivenModel, given_options());
  const std::vector<TwoForms> forms = random_forms(loaded, 1, 20);
  // Those with rows, and every third with tokens beside them.
  std::vector<EngineRequest> requests;
  std::vector<Outcome> expected;
  for (size_t i = 0; i < forms.size(); ++i) {
    requests.push_back(i % 3 == 2 ? forms[i].tokens : forms[i].rows);
    expected.push_back(alone(loaded, forms[i].tokens));
  }
  testing::expect_outcomes_anyhow(loaded, requests, expected, std::array{7, 64});
}

Outcome outcome_of(Engine& engine, const EngineRequest& request, int64_t* cached) {
  const auto sink = sink_for(request);
  value_of(engine.submit(request, sink));
  EXPECT_TRUE(sink->wait());
  EXPECT_FALSE(sink->error);
  if (cached) *cached = sink->report->cached_tokens;
  return sink->outcome;
}

TEST(EngineGiven, BeginningsAreKnownByTheIdsOfTheirRows) {
  Loaded loaded(kGivenModel, given_options());
  const auto engine = value_of(Engine::create(*loaded.model, loaded.tokenizer, {}));
  EngineRequest request;
  request.prompt.assign(30, 5);
  request.tokens_max = 4;
  const EngineRequest one = two_forms(loaded, request, 20, 3).rows;
  const EngineRequest other = two_forms(loaded, request, 21, 3).rows;
  int64_t cached = -1;
  const Outcome first = outcome_of(*engine, one, &cached);
  EXPECT_EQ(cached, 0);
  EXPECT_EQ(outcome_of(*engine, one, &cached), first);
  EXPECT_EQ(cached, 32);
  outcome_of(*engine, other, &cached);
  EXPECT_EQ(cached, 0) << "other rows in the first block";
}

TEST(EngineGiven, RowsLiveAsLongAsTheirRequest) {
  Loaded loaded(kGivenModel, given_options());
  Gate gate;
  const auto engine = value_of(
      Engine::create(*loaded.model, loaded.tokenizer, {.faults = {.before_forward = gate.hook()}}));
  EngineRequest request;
  request.prompt.assign(30, 5);
  EngineRequest given = two_forms(loaded, request, 20, 3).rows;
  const std::weak_ptr<const GivenRows> rows = given.given.front();
  const auto sink = sink_for(given);
  const RequestId id = value_of(engine->submit(std::move(given), sink));
  given = {};
  gate.wait_until_held();
  EXPECT_FALSE(rows.expired());
  engine->cancel(id);
  gate.open();
  EXPECT_TRUE(sink->wait());
  EXPECT_TRUE(engine->drain(20));
  EXPECT_TRUE(rows.expired());
}

TEST(EngineGiven, ThatCannotBeIsRefusedBeforeItRuns) {
  Loaded loaded(kGivenModel, given_options());
  const auto engine = value_of(Engine::create(*loaded.model, loaded.tokenizer, {}));
  const auto refusal = [&](const EngineRequest& request) {
    const auto id = engine->submit(request, sink_for(request));
    return id ? "" : id.error().message;
  };
  EngineRequest plain;
  plain.prompt.assign(30, 5);
  const EngineRequest right = two_forms(loaded, plain, 20, 3).rows;
  EngineRequest wrong = right;
  wrong.given.clear();
  EXPECT_THAT(refusal(wrong), HasSubstr("a token id of the prompt is 2096"));
  wrong = right;
  wrong.prompt.push_back(right.given[0]->first_id + kRowsOfRun);
  EXPECT_THAT(refusal(wrong), HasSubstr("a token id of the prompt is 2108"));
  wrong = right;
  wrong.prompt_top_count = 0;
  EXPECT_THAT(refusal(wrong), HasSubstr("has no scores"));
  const auto with_rows = [&](GivenRows rows) {
    EngineRequest request = right;
    request.given = {right.given[0], std::make_shared<GivenRows>(std::move(rows))};
    return refusal(request);
  };
  const auto width = static_cast<size_t>(loaded.model->config().hidden_size);
  const std::vector<float> row(width);
  EXPECT_THAT(with_rows({95, 1, 1, row}), HasSubstr("the first id of given rows is 95"));
  EXPECT_THAT(with_rows({2100, 1, 1, row}), HasSubstr("the first id of given rows is 2100"));
  EXPECT_THAT(with_rows({5000, 96, 1, row}), HasSubstr("the token of given rows is 96"));
  EXPECT_THAT(with_rows({5000, 1, 2, row}), HasSubstr("2 given rows of"));
  EXPECT_THAT(with_rows({5000, 1, 0, {}}), HasSubstr("0 given rows of"));
  EXPECT_EQ(with_rows({5000, 1, 1, row}), "");

  Loaded other("gemma3n", given_options());
  const auto reads_tokens = value_of(Engine::create(*other.model, other.tokenizer, {}));
  const auto id = reads_tokens->submit(right, sink_for(right));
  ASSERT_FALSE(id);
  EXPECT_THAT(id.error().message, HasSubstr("takes tokens alone"));
  EXPECT_EQ(id.error().field, RequestField::kPrompt);
}

TEST(GeneratorGiven, RowsOfTheTableGiveTheBitsOfTheirTokens) {
  Loaded loaded(kGivenModel, given_options());
  Generator generator(*loaded.model, loaded.tokenizer);
  EngineRequest request;
  request.prompt.assign(30, 5);
  const auto [tokens, rows] = two_forms(loaded, request, 20, 9);
  GenerateOptions options{.tokens_max = 12, .chunk_tokens = 5, .drafts = {.tokens_max = 3}};
  options.sampling.repetition_penalty = 1.3;
  const auto expected = value_of(generator.generate(tokens.prompt, options));
  options.given = rows.given;
  const auto answer = value_of(generator.generate(rows.prompt, options));
  EXPECT_EQ(answer.tokens, expected.tokens);
  EXPECT_EQ(answer.stats.reused_tokens, 9) << "tokens before the rows";
  std::vector<int32_t> turn = rows.prompt;
  turn.insert(turn.end(), answer.tokens.begin(), answer.tokens.end());
  turn.push_back(7);
  EXPECT_GE(value_of(generator.generate(turn, options)).stats.reused_tokens,
            std::ssize(rows.prompt));
  options.given.clear();
  generator.reset();
  EXPECT_THAT(generator.generate(rows.prompt, options).error().message, HasSubstr("a token id"));
}

}  // namespace
}  // namespace jige::serve
