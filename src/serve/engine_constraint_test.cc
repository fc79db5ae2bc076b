// Answers that are constrained, through the whole engine.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "grammar/constraint_compiler.h"
#include "grammar/schema_test_support.h"
#include "serve/engine_test_support.h"

namespace jige::serve {
namespace {

using grammar::ConstraintCompiler;
using grammar::ConstraintSource;
using Kind = ConstraintSource::Kind;
using testing::alone;
using testing::expect_clean;
using testing::KeepingSink;
using testing::Loaded;
using testing::random_request;
using testing::sink_for;
using testing::value_of;

const model::InferenceOptions kSmallCache = {.kv_block_count = 30, .batch_tokens_max = 64};

class EngineConstraint : public ::testing::Test {
 protected:
  EngineConstraint() : loaded_("llama3", kSmallCache) {
    loaded_.tokenizer = testing::character_tokenizer("}");
    compiler_ = std::make_unique<ConstraintCompiler>(loaded_.tokenizer);
  }

  std::shared_ptr<grammar::Constraint> constraint(Kind kind, const Json& value) {
    return value_of(compiler_->compile({kind, value}));
  }
  std::unique_ptr<Engine> engine(const EngineOptions& options = {}) {
    return value_of(Engine::create(*loaded_.model, loaded_.tokenizer, options));
  }
  std::shared_ptr<KeepingSink> run(Engine& engine, const EngineRequest& request) {
    const auto sink = sink_for(request);
    value_of(engine.submit(request, sink));
    EXPECT_TRUE(sink->wait());
    return sink;
  }
  EngineRequest request(std::shared_ptr<grammar::Constraint> wanted, uint64_t seed) {
    EngineRequest request{.prompt = testing::ids_of(loaded_.tokenizer, "Once"), .seed = seed};
    request.sampling.temperature = 1;
    request.tokens_max = 60;
    request.constraint = std::move(wanted);
    return request;
  }

  Loaded loaded_;
  std::unique_ptr<ConstraintCompiler> compiler_;
};

TEST_F(EngineConstraint, WhatStopsFitsItsSchema) {
  const auto engine = this->engine();
  Rng rng(derive_key(11, "schemas"));
  int stopped = 0;
  for (int round = 0; round < 10; ++round) {
    std::vector<Json> schemas;
    std::vector<std::shared_ptr<KeepingSink>> sinks;
    while (schemas.size() < 8) {
      const Json schema = grammar::testing::random_root_schema(rng);
      auto compiled = compiler_->compile({Kind::kJsonSchema, schema});
      if (!compiled) continue;
      EngineRequest one = request(*compiled, rng.next_u64());
      if (rng.below(4) == 0) one.sampling.temperature = 0;
      if (rng.below(4) == 0) one.sampling.top_k = 3;
      // What ends strings, numbers and objects is likely, so that most answers come to an end.
      one.sampling.logit_bias = {{5, 3.0f}, {95, 4.0f}, {64, 3.0f}, {2, -100.0f}};
      schemas.push_back(schema);
      sinks.push_back(sink_for(one));
      value_of(engine->submit(one, sinks.back()));
    }
    for (size_t i = 0; i < sinks.size(); ++i) {
      SCOPED_TRACE(schemas[i].dump());
      ASSERT_TRUE(sinks[i]->wait());
      // Where only characters that this tokenizer lacks could follow, it fails alone.
      if (sinks[i]->error) {
        EXPECT_EQ(sinks[i]->error->code, Code::kInvalidArgument);
        continue;
      }
      const auto& answer = sinks[i]->outcome[0];
      if (answer.finish == FinishReason::kLength) continue;
      ++stopped;
      const auto value = parse_json(answer.text, "answer");
      ASSERT_TRUE(value) << answer.text;
      EXPECT_TRUE(grammar::testing::validates(*value, schemas[i], schemas[i])) << answer.text;
    }
  }
  EXPECT_GT(stopped, 33);
  EXPECT_TRUE(engine->drain(20));
}

TEST_F(EngineConstraint, EndsAsSoonAsNothingMayFollow) {
  const auto engine = this->engine();
  EngineRequest choice = request(constraint(Kind::kChoices, Json::array({"yes", "no"})), 1);
  choice.ignore_eos = true;
  const auto sink = run(*engine, choice);
  const auto& answer = sink->outcome[0];
  EXPECT_TRUE(answer.text == "yes" || answer.text == "no") << answer.text;
  EXPECT_EQ(answer.finish, FinishReason::kComplete);
  EXPECT_EQ(finish_reason_name(answer.finish), "stop");
  EXPECT_EQ(answer.tokens.size(), answer.text.size());
}

TEST_F(EngineConstraint, EndOfTextComesExactlyWhereTheTextMayEnd) {
  const auto engine = this->engine();
  EngineRequest eager = request(constraint(Kind::kRegex, "(ab)+"), 1);
  eager.stop_ids = {2};
  eager.sampling.logit_bias = {{2, 100.0f}};
  EXPECT_EQ(run(*engine, eager)->outcome[0].text, "ab");
  eager.sampling.logit_bias = {{2, -100.0f}};
  eager.tokens_max = 8;
  const auto full = run(*engine, eager);
  EXPECT_EQ(full->outcome[0].text, "abababab");
  EXPECT_EQ(full->outcome[0].finish, FinishReason::kLength);
}

TEST_F(EngineConstraint, WhatTheVocabularyCannotSpellFailsAlone) {
  const auto engine = this->engine();
  const auto good = sink_for({});
  value_of(engine->submit(request(constraint(Kind::kRegex, "a{20}"), 1), good));
  const auto bad = run(*engine, request(constraint(Kind::kRegex, "a|b\\u00e9"), 2));
  const auto worse = run(*engine, request(constraint(Kind::kRegex, "\\u00e9"), 3));
  ASSERT_TRUE(worse->error);
  EXPECT_EQ(worse->error->code, Code::kInvalidArgument);
  EXPECT_TRUE(bad->error || bad->outcome[0].text == "a");
  ASSERT_TRUE(good->wait());
  EXPECT_EQ(good->outcome[0].text, std::string(20, 'a'));
  EXPECT_TRUE(engine->drain(20));
  expect_clean(*engine);
}

// With drafts and without: what stands behind the reasoning fits, whatever stands in it.
TEST_F(EngineConstraint, BehindReasoningWhatStopsFits) {
  loaded_.tokenizer = testing::character_tokenizer(std::string(text::kReasoningClose));
  compiler_ = std::make_unique<ConstraintCompiler>(loaded_.tokenizer);
  const auto wanted = constraint(Kind::kRegex, "(yes|no)!");
  std::vector<testing::Outcome> outcomes;
  for (const int32_t drafts : {0, 6}) {
    const auto engine = this->engine({.drafts = {.tokens_max = drafts, .adaptive = false}});
    for (uint64_t seed = 0; seed < 20; ++seed) {
      EngineRequest one = request(wanted, seed);
      one.reasoning = text::ReasoningStart::kOpened;
      one.sampling.logit_bias = {{95, 6.0f}, {2, 5.0f}, {70, 6.0f}, {71, 6.0f}};
      const auto sink = run(*engine, one);
      const auto& answer = sink->outcome[0];
      const size_t end = answer.text.find(text::kReasoningClose);
      ASSERT_EQ(answer.finish, FinishReason::kComplete) << answer.text;
      const std::string content = answer.text.substr(end + text::kReasoningClose.size());
      EXPECT_TRUE(content == "yes!" || content == "no!") << answer.text;
      const auto tag = std::ranges::find(answer.tokens, 95);
      EXPECT_EQ(sink->report->reasoning_tokens, tag - answer.tokens.begin() + 1);
      outcomes.push_back(sink->outcome);
    }
  }
  for (size_t i = 0; i < 20; ++i) EXPECT_EQ(outcomes[i], outcomes[i + 20]) << i;
}

TEST_F(EngineConstraint, AGeneratorThatGuessesGivesTheSame) {
  const auto engine = this->engine();
  int64_t drafted = 0;
  for (const char* regex : {"(ab|cd){20}", "[a-c ]*x", "(\\{\"a\": [0-9]+\\},){2,}"}) {
    EngineRequest one = request(constraint(Kind::kRegex, regex), 5);
    one.ignore_eos = true;
    const auto sink = run(*engine, one);
    const auto& expected = sink->outcome[0];
    for (const DraftOptions& drafts :
         {DraftOptions{.tokens_max = 3, .adaptive = false}, DraftOptions{.tokens_max = 7}}) {
      Generator generator(*loaded_.model, loaded_.tokenizer);
      std::vector<float> logprobs;
      const auto answer = value_of(generator.generate(one.prompt,
                                                      {.sampling = one.sampling,
                                                       .seed = one.seed,
                                                       .tokens_max = one.tokens_max,
                                                       .constraint = one.constraint,
                                                       .drafts = drafts},
                                                      [&](const GeneratedPiece& piece) {
                                                        if (piece.token >= 0)
                                                          logprobs.push_back(piece.logprob);
                                                      }));
      EXPECT_EQ(answer.tokens, expected.tokens) << regex;
      EXPECT_EQ(answer.text, expected.text);
      EXPECT_EQ(logprobs, expected.logprobs);
      EXPECT_EQ(answer.finish, expected.finish);
      drafted += answer.stats.drafted_tokens;
    }
  }
  EXPECT_GT(drafted, 0);
}

// Some share a constraint, some have none; the cache is too small for all, so some are preempted.
TEST_F(EngineConstraint, NeighboursAndPreemptionChangeNothing) {
  const std::vector<std::shared_ptr<grammar::Constraint>> constraints = {
      nullptr,
      constraint(Kind::kRegex, "[a-z]{2,40}( [A-Z][a-z]*)*"),
      constraint(Kind::kJsonObject, Json()),
      constraint(Kind::kJsonSchema, Json{{"type", "array"}, {"items", {{"type", "integer"}}}}),
  };
  Rng rng(derive_key(12, "neighbours"));
  std::vector<EngineRequest> requests;
  for (size_t i = 0; i < 24; ++i) {
    requests.push_back(random_request(rng, 80));
    requests.back().tokens_max = 40;
    requests.back().constraint = constraints[i % constraints.size()];
  }
  std::vector<testing::Outcome> expected;
  for (const EngineRequest& one : requests) expected.push_back(alone(loaded_, one));
  ThreadTeam team(3);
  const auto engine = this->engine({.admission = plan::Admission::kOptimistic,
                                    .batch_requests_max = 24,
                                    .sampling_team = &team});
  std::vector<std::shared_ptr<KeepingSink>> sinks;
  for (const EngineRequest& one : requests) {
    sinks.push_back(sink_for(one));
    value_of(engine->submit(one, sinks.back()));
  }
  for (size_t i = 0; i < sinks.size(); ++i) {
    ASSERT_TRUE(sinks[i]->wait());
    EXPECT_FALSE(sinks[i]->error) << sinks[i]->error->message;
    EXPECT_EQ(sinks[i]->outcome, expected[i]) << i;
  }
  EXPECT_TRUE(engine->drain(20));
  EXPECT_GT(engine->status().counters.preemptions, 0);
  expect_clean(*engine);
}

}  // namespace
}  // namespace jige::serve
