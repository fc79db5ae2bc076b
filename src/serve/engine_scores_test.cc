// Scores of prompts: what an engine says of a prompt's tokens is what a Scorer says, to the bit,
// whatever runs beside it.
#include <unistd.h>

#include <filesystem>

#include "base/file.h"
#include "base/test_path.h"
#include "serve/engine_test_support.h"
#include "serve/scorer.h"

namespace jige::serve {
namespace {

using plan::Admission;
using plan::ServePolicy;
using testing::alone;
using testing::expect_clean;
using testing::Gate;
using testing::KeepingSink;
using testing::Loaded;
using testing::Outcome;
using testing::random_request;
using testing::sink_for;
using testing::value_of;

// Fewer rows of logits than a prompt has tokens.
const model::InferenceOptions kScoresModel = {
    .kv_block_count = 80, .batch_tokens_max = 64, .logit_rows_max = 5, .scores = true};

struct ScoreCase {
  EngineRequest request;
  Outcome answers;
  std::vector<float> logprobs;  // of a Scorer
};

// Every third asks for an answer alone; the others for the prompt too, some for nothing else.
std::vector<ScoreCase> random_cases(Loaded& loaded, uint64_t seed, int count) {
  Rng rng(derive_key(seed, "scores"));
  std::vector<ScoreCase> cases;
  for (int i = 0; i < count; ++i) {
    ScoreCase one{.request = random_request(rng)};
    one.answers = alone(loaded, one.request);
    if (i % 3 > 0) one.request.prompt_top_count = static_cast<int32_t>(rng.below(3));
    if (one.request.prompt_top_count && one.request.prompt.size() > 1) {
      Scorer scorer(*loaded.model);
      one.logprobs = value_of(scorer.score(one.request.prompt)).logprobs;
    }
    if (i % 6 == 4) {
      one.request.tokens_max = 0;
      one.answers.assign(one.answers.size(), {.finish = FinishReason::kLength});
    }
    cases.push_back(std::move(one));
  }
  return cases;
}

void expect_scores(const ScoreCase& expected, const KeepingSink& sink) {
  ASSERT_EQ(sink.scores.has_value(), expected.request.prompt_top_count.has_value());
  if (!sink.scores) return;
  ASSERT_EQ(sink.scores->size(), expected.logprobs.size());
  const auto top_count = static_cast<size_t>(*expected.request.prompt_top_count);
  for (size_t i = 0; i < expected.logprobs.size(); ++i) {
    const ops::TokenScore& score = (*sink.scores)[i];
    EXPECT_EQ(score.logprob, expected.logprobs[i]) << "token " << i + 1;
    EXPECT_EQ(score.top.size(), top_count);
    if (top_count == 0) continue;
    EXPECT_EQ(score.rank == 1, score.top[0].logprob == score.logprob);
    EXPECT_GE(score.top[0].logprob, score.logprob);
  }
}

EngineStatus run_and_score(Loaded& loaded, const std::vector<ScoreCase>& cases,
                           EngineOptions options) {
  Gate gate;
  ThreadTeam team(3);
  options.sampling_team = &team;
  options.faults.before_forward = gate.hook();
  const auto engine = value_of(Engine::create(*loaded.model, loaded.tokenizer, options));
  std::vector<std::shared_ptr<KeepingSink>> sinks;
  for (const ScoreCase& one : cases) {
    sinks.push_back(std::make_shared<KeepingSink>(one.request.choice_count));
    value_of(engine->submit(one.request, sinks.back()));
    if (sinks.size() == 1) gate.wait_until_held();
  }
  gate.open();
  for (size_t i = 0; i < sinks.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_TRUE(sinks[i]->wait()) << "never ended";
    EXPECT_FALSE(sinks[i]->error) << sinks[i]->error->message;
    EXPECT_EQ(sinks[i]->outcome, cases[i].answers);
    expect_scores(cases[i], *sinks[i]);
  }
  EXPECT_TRUE(engine->drain(20));
  expect_clean(*engine);
  return engine->status();
}

TEST(EngineScores, AreThoseOfAScorerWhateverRunsBesideThem) {
  Loaded loaded("llama3", kScoresModel);
  const std::vector<ScoreCase> cases = random_cases(loaded, 1, 12);
  for (const int32_t batch_tokens : {7, 64, 512}) {
    for (const bool prefix_cache : {false, true}) {
      run_and_score(loaded, cases,
                    {.batch_tokens_max = batch_tokens, .prefix_cache = prefix_cache});
    }
  }
  for (const ScoreCase& one : cases) run_and_score(loaded, {one}, {});
}

TEST(EngineScores, PoliciesDoNotMatter) {
  Loaded loaded("mistral", kScoresModel);
  const std::vector<ScoreCase> cases = random_cases(loaded, 2, 9);
  for (const ServePolicy policy :
       {ServePolicy::kOrca, ServePolicy::kStatic, ServePolicy::kRounds}) {
    run_and_score(loaded, cases, {.policy = policy});
  }
}

TEST(EngineScores, SurvivePreemption) {
  model::InferenceOptions few = kScoresModel;
  few.kv_block_count = 18;
  Loaded loaded("qwen2", few);
  const std::vector<ScoreCase> cases = random_cases(loaded, 5, 16);
  int64_t preemptions = 0;
  for (const ServePolicy policy : {ServePolicy::kOrca, ServePolicy::kChunked}) {
    for (const int32_t batch_tokens : {20, 64}) {
      const EngineStatus status = run_and_score(loaded, cases,
                                                {.policy = policy,
                                                 .admission = Admission::kOptimistic,
                                                 .batch_tokens_max = batch_tokens});
      preemptions += status.counters.preemptions;
    }
  }
  EXPECT_GT(preemptions, 0) << "the pool is too large for this test";
}

TEST(EngineScores, APromptThatIsKnownIsRunAgainAndServesOthers) {
  Loaded loaded("llama3", kScoresModel);
  const auto engine = value_of(Engine::create(*loaded.model, loaded.tokenizer, {}));
  EngineRequest request{.tokens_max = 1};
  for (int32_t i = 0; i < 48; ++i) request.prompt.push_back(3 + i);
  const auto cached = [&](std::optional<int32_t> prompt_top_count) {
    request.prompt_top_count = prompt_top_count;
    const auto sink = std::make_shared<KeepingSink>(1);
    value_of(engine->submit(request, sink));
    EXPECT_TRUE(sink->wait());
    return sink->report->cached_tokens;
  };
  EXPECT_EQ(cached(0), 0);
  EXPECT_EQ(cached(std::nullopt), 32) << "what was scored is known";
  EXPECT_EQ(cached(0), 0);
}

TEST(EngineScores, APromptThatCannotBeScoredFailsInItsMiddle) {
  const std::string folder = test_root() + "jige_scores." + std::to_string(getpid());
  std::filesystem::copy(testing::fixture("llama2"), folder,
                        std::filesystem::copy_options::recursive);
  const std::string path = folder + "/model.safetensors";
  std::string bytes = value_of(read_file(path));
  std::fill(bytes.end() - 1024, bytes.end(), '\xff');
  ASSERT_TRUE(write_file_atomic(path, bytes));
  CpuDevice device({.thread_count = 1});
  const auto model = value_of(model::InferenceModel::load(folder, device, {.kv_block_count = 8}));
  const text::Tokenizer tokenizer = testing::character_tokenizer();
  const auto engine = value_of(Engine::create(*model, tokenizer, {.batch_tokens_max = 4}));
  for (int i = 0; i < 2; ++i) {
    const auto sink = std::make_shared<KeepingSink>(1);
    value_of(engine->submit({.prompt = std::vector<int32_t>(30, 5), .prompt_top_count = 2}, sink));
    ASSERT_TRUE(sink->wait());
    ASSERT_TRUE(sink->error);
    EXPECT_EQ(sink->error->code, Code::kCorrupt);
    EXPECT_FALSE(sink->scores);
  }
  EXPECT_TRUE(engine->drain(20));
  expect_clean(*engine);
  EXPECT_EQ(engine->status().kv_blocks_cached, 0) << "nothing of it is known";
  EXPECT_EQ(engine->status().counters.iterations, 2) << "they end with their first piece";
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace jige::serve
