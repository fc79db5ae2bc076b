// Tokens drawn on a GPU, beside what sample() draws on the host from the same logits.
#include "ops/draw.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "cuda/test_device.h"
#include "ops/sampling.h"
#include "serve/engine_test_support.h"
#include "serve/seen_tokens.h"

namespace jige {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class CudaDraw : public CudaTest {
 protected:
  // One row for each of `params`, whose logits `logit` gives.
  void expect_host_draws(int64_t columns, const std::vector<ops::SamplingParams>& params,
                         const std::function<float(size_t row, int64_t column)>& logit,
                         const std::string& what) {
    const auto rows = static_cast<int64_t>(params.size());
    const Pair logits = filled(DType::kF32, {rows, columns});
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t i = 0; i < columns; ++i) {
        set(logits.host, row * columns + i, logit(static_cast<size_t>(row), i));
      }
    }
    to_gpu(logits);
    serve::SeenTokens seen;
    seen.add_prompt(prompt_);
    for (const int32_t token : generated_) seen.add_generated(token);
    std::vector<ops::RowDraw> draws;
    std::vector<float> expected, expected_logprobs;
    for (size_t row = 0; row < params.size(); ++row) {
      Rng rng(++key_);
      draws.push_back(
          ops::row_draw(params[row], Rng(rng).uniform(), seen.all(), scores_ && row % 3 > 0));
      const auto* const begin = logits.host.as<float>() + static_cast<int64_t>(row) * columns;
      const auto drawn =
          ops::sample({begin, static_cast<size_t>(columns)}, params[row], prompt_, generated_, rng);
      expected.push_back(drawn ? static_cast<float>(drawn->token) : -1.0f);
      expected_logprobs.push_back(drawn ? drawn->logprob : 0);
    }
    const Pair tokens = filled(DType::kI32, {rows});
    const Pair scores = filled(DType::kF32, {rows, 4});
    ops::draw(*gpu_stream_, tokens.gpu, scores.gpu, logits.gpu, draws);
    const std::vector<float> got = gpu_values(tokens.gpu);
    const std::vector<float> score_words = gpu_values(scores.gpu);
    for (size_t row = 0; row < params.size(); ++row) {
      ASSERT_EQ(got[row], expected[row])
          << what << ", " << columns << " columns, row " << row << ": temperature "
          << params[row].temperature << ", top_k " << params[row].top_k << ", top_p "
          << params[row].top_p << ", min_p " << params[row].min_p;
      if (expected[row] < 0 || !draws[row].is_scored) continue;
      ops::DrawScore score;
      std::memcpy(&score, &score_words[row * 4], sizeof score);
      ASSERT_EQ(ops::log_probability(score), expected_logprobs[row]) << what << ", row " << row;
    }
  }

  // Parameters in all combinations, some of them at their limits.
  std::vector<ops::SamplingParams> any_params(int64_t columns, int count) {
    const auto one_of = [&](const auto& values) { return values[random_.below(values.size())]; };
    const std::vector<double> temperatures = {0, 0.3, 0.7, 1, 1, 1.7, 1e-5, 1e30, 5e-324};
    const std::vector<int64_t> top_ks = {0, 0, 0, 1, 2, 20, columns - 1, columns, columns + 5};
    const std::vector<double> top_ps = {1, 1, 0.3, 0.8, 0.95, 0.999, 1e-9, 1 - 1e-16};
    const std::vector<double> min_ps = {0, 0, 0, 1e-60, 1e-30, 0.05, 0.5, 1 - 1e-16};
    std::vector<ops::SamplingParams> params;
    for (int i = 0; i < count; ++i) {
      params.push_back({.temperature = one_of(temperatures),
                        .top_k = one_of(top_ks),
                        .top_p = one_of(top_ps),
                        .min_p = one_of(min_ps)});
    }
    return params;
  }

  // Rows of many shapes, drawn anew for each call.
  float any_logit(size_t row, int64_t column) {
    const double x = rough_normal(random_);
    switch (row % 7) {
      case 0:
        return static_cast<float>(2 * x);
      case 1:
        return static_cast<float>(0.01 * x);  // flat
      case 2:
        return column == 5 ? 30.0f : static_cast<float>(3 * x);  // one of almost all
      case 3:
        return std::round(static_cast<float>(x));  // many equals
      case 4:
        return random_.below(4) > 0 ? -kInfinity : static_cast<float>(x);
      case 5:
        return -0.5f * static_cast<float>(column % 1000);  // down to weights of zero
      default:
        return 1.25f;  // all equal
    }
  }
  std::function<float(size_t, int64_t)> any() {
    return [this](size_t row, int64_t column) { return any_logit(row, column); };
  }

  uint64_t key_ = 0;
  bool scores_ = true;
  std::vector<int32_t> prompt_, generated_;
};

TEST_F(CudaDraw, TakesTheHostsTokensFromRowsOfAllShapes) {
  const int scale = test_device_is_emulated() ? 1 : 20;
  for (const int64_t columns : {1, 2, 7, 64, 65, 1000, 4096, 4104, 9000}) {
    const int rows = static_cast<int>(scale * std::clamp<int64_t>(14000 / columns, 7, 42));
    expect_host_draws(columns, any_params(columns, rows), any(), "all shapes");
    if (HasFatalFailure()) return;
  }
}

TEST_F(CudaDraw, TakesTheHostsTokensFromLargeVocabularies) {
  const std::vector<ops::SamplingParams> params = {
      {.temperature = 1},
      {.temperature = 0.6, .top_p = 0.9},
      {.temperature = 1, .top_k = 20, .top_p = 0.95},
      {.temperature = 1.3, .top_k = 50},
      {.temperature = 1, .min_p = 0.1},
      {.temperature = 1, .top_p = 0.95},
      {.temperature = 1, .top_k = 30000, .top_p = 0.8}};
  const std::vector<int64_t> sizes = test_device_is_emulated()
                                         ? std::vector<int64_t>{40003}
                                         : std::vector<int64_t>{40003, 128256, 262144, 300000};
  for (const int64_t columns : sizes) expect_host_draws(columns, params, any(), "large");
}

// More weights than shared memory has room for, of many values and of one: passes over all of them.
TEST_F(CudaDraw, TakesTheHostsTokensFromFlatRows) {
  const std::vector<ops::SamplingParams> params = {{.temperature = 1, .top_p = 0.9},
                                                   {.temperature = 1, .top_p = 0.7},
                                                   {.temperature = 1, .top_k = 11111}};
  expect_host_draws(
      12000, params,
      [&](size_t row, int64_t) {
        return row == 1 ? 0.5f : static_cast<float>(0.05 * random_.normal());
      },
      "flat");
}

// The first of equals are kept, and a sum that is reached exactly ends the run.
TEST_F(CudaDraw, CutsAmongEqualsAsTheHostDoes) {
  std::vector<ops::SamplingParams> params;
  for (int i = 0; i < 16; ++i) {
    params.push_back({.temperature = 1, .top_k = 1 + i % 12});
    params.push_back({.temperature = 1, .top_p = (1 + i % 16) / 16.0});
    params.push_back({.temperature = 1, .top_k = 8, .top_p = (1 + i % 8) / 8.0});
  }
  expect_host_draws(
      16, params, [](size_t, int64_t column) { return column % 5 == 4 ? -1.0f : 2.0f; }, "equals");
  expect_host_draws(
      16, params, [](size_t, int64_t) { return 0.0f; }, "all equal");
}

// A number that a token's share ends at is the next token's, and the largest number the last one's.
TEST_F(CudaDraw, TakesTheNextTokenWhereAShareEnds) {
  for (const int32_t count : {16, 8192}) {
    const Pair logits = filled(DType::kF32, {4, count});
    for (int64_t i = 0; i < 4 * count; ++i) set(logits.host, i, 3.0f);
    to_gpu(logits);
    for (const int32_t token : {0, 1, count / 2 - 1, count / 2}) {
      const double uniform = static_cast<double>(token) / count;
      const ops::SamplingParams plain{.temperature = 1};
      const ops::SamplingParams half{.temperature = 1, .top_k = count / 2};
      const ops::RowDraw draws[] = {
          ops::row_draw(plain, uniform), ops::row_draw(plain, 1 - 0x1p-53),
          ops::row_draw(half, std::min(2 * uniform, 1 - 0x1p-53)), ops::row_draw(half, 0)};
      const Pair tokens = filled(DType::kI32, {4});
      const Pair scores = filled(DType::kF32, {4, 4});
      ops::draw(*gpu_stream_, tokens.gpu, scores.gpu, logits.gpu, draws);
      const auto last_of_half = static_cast<float>(std::min(token, count / 2 - 1));
      EXPECT_EQ(gpu_values(tokens.gpu),
                (std::vector<float>{static_cast<float>(token), static_cast<float>(count - 1),
                                    last_of_half, 0.0f}));
    }
  }
}

TEST_F(CudaDraw, PenalisesTokensAsTheHostDoes) {
  constexpr int64_t kColumns = 300;
  scores_ = false;  // the host scores what it penalises
  for (int i = 0; i < 200; ++i) prompt_.push_back(static_cast<int32_t>(random_.below(kColumns)));
  prompt_.insert(prompt_.end(), {-1, kColumns, INT32_MAX, INT32_MIN});
  for (int i = 0; i < 90; ++i) generated_.push_back(static_cast<int32_t>(random_.below(60)));
  std::vector<ops::SamplingParams> params = any_params(kColumns, 50);
  for (size_t row = 0; row < params.size(); ++row) {
    const size_t kind = row % 10;
    if (kind > 0) params[row].repetition_penalty = 1 + 0.1 * static_cast<double>(kind);
    if (kind % 3 == 1) params[row].presence_penalty = 0.7;
    if (kind % 4 == 2) params[row].frequency_penalty = -0.3;
    if (kind == 8) params[row].repetition_penalty = 1e-310;
    if (kind == 9) params[row].frequency_penalty = 1e308;
  }
  expect_host_draws(kColumns, params, any(), "penalties");
  generated_.clear();
  expect_host_draws(kColumns, params, any(), "penalties of the prompt's tokens");
}

TEST_F(CudaDraw, RefusesWhatTheHostRefusesAndGoesOn) {
  std::vector<ops::SamplingParams> params(7, {.temperature = 1, .top_p = 0.9});
  params[3].repetition_penalty = 2;
  scores_ = false;
  prompt_ = {1, 17, 4999};
  for (int round = 0; round < 2; ++round) {
    expect_host_draws(
        5000, params,
        [&](size_t row, int64_t column) {
          if (row == 0 && column == 4999) return std::numeric_limits<float>::quiet_NaN();
          if (row == 2 && column == 17) return kInfinity;
          if (row == 3) return -kInfinity;
          return any_logit(row, column);
        },
        "refused");
  }
}

TEST_F(CudaDraw, OnlyRowsThatTheHostDrawsBringTheirLogits) {
  const std::string folder = serve::testing::fixture("llama3");
  auto model =
      model::InferenceModel::load(folder, *gpu_, {.compute = DType::kF32, .context_max = 32});
  ASSERT_TRUE(model) << model.error().message;
  const std::vector<int32_t> tokens = {1, 5, 9, 2, 7, 3};
  const std::vector<int32_t> blocks = {1, 0};
  const ops::SequenceSpan span{.row_count = 6, .blocks = blocks.data()};
  const int32_t rows[] = {0, 1, 3, 5};
  const model::InferenceBatch batch{.tokens = tokens, .sequences = {&span, 1}, .logit_rows = rows};
  const auto first = (*model)->forward(batch);
  ASSERT_TRUE(first);
  const std::vector<float> logits(first->begin(), first->end());
  const size_t width = logits.size() / 4;
  const std::span<const float> last = std::span(logits).subspan(3 * width);
  for (uint64_t seed = 1; seed < 6; ++seed) {
    Rng rng(seed);
    const ops::SamplingParams params{.temperature = 2, .top_p = 0.9};
    std::vector<ops::RowDraw> draws(4);
    draws[1].kind = ops::RowDraw::kLikeliest;
    draws[3] = ops::row_draw(params, Rng(rng).uniform());
    const auto got = (*model)->forward_drawn(batch, draws);
    ASSERT_TRUE(got);
    EXPECT_EQ(got->token(0), -1);
    EXPECT_GE(got->token(1), 0);
    EXPECT_EQ(got->token(2), -1);
    EXPECT_EQ(got->token(3), ops::sample(last, params, {}, {}, rng)->token) << seed;
    for (const size_t i : {size_t{0}, size_t{2}}) {
      EXPECT_TRUE(std::ranges::equal(got->row(i), std::span(logits).subspan(i * width, width)));
    }
    draws[0] = draws[2] = draws[3];
    const auto all = (*model)->forward_drawn(batch, draws);
    ASSERT_TRUE(all);
    EXPECT_TRUE(all->logits.empty());
  }
}

// Answers with alternatives are drawn on the host: the others are the same.
TEST_F(CudaDraw, AnswersAreThoseThatTheHostDraws) {
  using serve::testing::KeepingSink;
  auto model = model::InferenceModel::load(
      serve::testing::fixture("llama2"), *gpu_,
      {.compute = DType::kF32, .context_max = 64, .kv_block_count = 64, .batch_tokens_max = 64});
  ASSERT_TRUE(model) << model.error().message;
  const text::Tokenizer tokenizer = serve::testing::character_tokenizer();
  const auto answers = [&](int top_count) {
    auto engine = serve::Engine::create(**model, tokenizer, {.drafts = {.tokens_max = 3}});
    EXPECT_TRUE(engine) << engine.error().message;
    std::vector<std::shared_ptr<KeepingSink>> sinks;
    for (int i = 0; i < 6; ++i) {
      serve::EngineRequest request;
      // What repeats has drafts.
      for (int at = 0; at < 18; ++at) request.prompt.push_back(10 + at % 3 + i);
      request.sampling.temperature = i == 5 ? 0 : 0.02 + 0.4 * i;
      if (i % 2 == 1) request.sampling.top_p = 0.9;
      if (i == 2) request.sampling.top_k = 5;
      if (i == 3) request.sampling.presence_penalty = 1;
      if (i == 1 || i == 5) request.sampling.repetition_penalty = 1.3;
      request.choice_count = i == 4 ? 2 : 1;
      request.seed = static_cast<uint64_t>(i);
      request.tokens_max = 8;
      request.ignore_eos = true;
      request.logprobs = i != 1;
      request.top_count = top_count;
      sinks.push_back(std::make_shared<KeepingSink>(request.choice_count));
      EXPECT_TRUE((*engine)->submit(std::move(request), sinks.back()));
    }
    serve::testing::Outcome all;
    for (size_t i = 0; i < sinks.size(); ++i) {
      EXPECT_TRUE(sinks[i]->wait(120));
      EXPECT_FALSE(sinks[i]->error);
      for (serve::testing::ChoiceOutcome choice : sinks[i]->outcome) {
        if (i == 1) choice.logprobs.clear();  // the host has them without being asked
        all.push_back(std::move(choice));
      }
    }
    (*engine)->stop();
    return all;
  };
  EXPECT_EQ(answers(0), answers(1));
}

}  // namespace
}  // namespace jige
