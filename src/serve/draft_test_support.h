// What the tests of drafts share: requests that repeat themselves, and whether an engine answers
// them as if there were no drafts.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "serve/draft_model.h"
#include "serve/engine_drafts.h"
#include "serve/engine_test_support.h"

namespace jige::serve::testing {

// Most of what can be asked for; prompts and answers that repeat themselves more or less.
inline EngineRequest repeating_request(Rng& rng) {
  EngineRequest request = random_request(rng);
  const auto period = 1 + rng.below(6);
  // Half of them keep the beginning that they may share with others.
  for (size_t i = rng.below(2) == 0 ? period : 34; i < request.prompt.size(); ++i) {
    if (rng.below(6) > 0) request.prompt[i] = request.prompt[i - period];
  }
  if (rng.below(2) == 0) {
    request.sampling.logit_bias = {{20, 30}, {24, 30}, {28, 30}};
    if (rng.below(2) == 0) request.sampling.logit_bias.pop_back();
  }
  if (rng.below(3) == 0) request.stop_ids = {24};
  return request;
}

struct DraftCase {
  EngineRequest request;
  Outcome expected;
};

inline std::vector<DraftCase> cases_of(Loaded& loaded, uint64_t seed, int count) {
  Rng rng(derive_key(seed, "drafts"));
  std::vector<DraftCase> cases;
  for (int i = 0; i < count; ++i) {
    EngineRequest request = repeating_request(rng);
    Outcome expected = alone(loaded, request);
    cases.push_back({std::move(request), std::move(expected)});
  }
  return cases;
}

// Runs all at once and compares each with what it gives alone, without drafts.
inline EngineStatus expect_same(Loaded& loaded, std::span<const DraftCase> cases,
                                EngineOptions options) {
  Gate gate;
  ThreadTeam team(2);
  options.sampling_team = &team;
  options.faults.before_forward = gate.hook();
  const auto engine = value_of(Engine::create(*loaded.model, loaded.tokenizer, options));
  std::vector<std::shared_ptr<KeepingSink>> sinks;
  for (const DraftCase& one : cases) {
    sinks.push_back(sink_for(one.request));
    value_of(engine->submit(one.request, sinks.back()));
    if (sinks.size() == 1) gate.wait_until_held();
  }
  gate.open();
  int64_t drafted = 0;
  int64_t accepted = 0;
  for (size_t i = 0; i < sinks.size(); ++i) {
    EXPECT_TRUE(sinks[i]->wait()) << "request " << i << " never ended";
    EXPECT_FALSE(sinks[i]->error);
    EXPECT_EQ(sinks[i]->outcome, cases[i].expected) << "request " << i;
    drafted += sinks[i]->report->drafted_tokens;
    accepted += sinks[i]->report->accepted_tokens;
  }
  EXPECT_TRUE(engine->drain(20));
  expect_clean(*engine);
  const EngineStatus status = engine->status();
  EXPECT_EQ(status.counters.drafted_tokens, drafted);
  EXPECT_EQ(status.counters.accepted_tokens, accepted);
  return status;
}

inline std::unique_ptr<DraftModel> draft_for(Loaded& large, const std::string& name,
                                             int64_t batch_tokens = 64, int64_t sequences = 8) {
  const auto plan = value_of(DraftModelPlan::create(
      fixture(name), {.ids_max = 96, .sequences = sequences, .batch_tokens_max = batch_tokens}));
  return value_of(DraftModel::load(plan, *large.model));
}

inline const model::InferenceOptions kSizes = {
    .kv_block_count = 80, .batch_tokens_max = 64, .logit_rows_max = 24};

// A prompt that repeats nothing, and a greedy answer to it.
inline EngineRequest greedy_request(int32_t first, int64_t tokens_max) {
  EngineRequest request{.tokens_max = tokens_max, .ignore_eos = true};
  for (int32_t i = 0; i < 20; ++i) request.prompt.push_back(3 + (first + i * 7) % 90);
  return request;
}

// Steps of sequences that are made up, without an engine: what comes next is `next`.
struct MadeUpSteps {
  MadeUpSteps(DraftModel* model, const DraftOptions& options, double step_seconds,
              int64_t sequences = 1)
      : drafts(options, sequences, 128, 24, model) {
    for (int i = 0; i < 8; ++i) drafts.add_step(1 + i % 3, step_seconds);
  }
  // One step of a sequence alone; its draft.
  std::vector<int32_t> step(plan::RequestId id, const std::vector<int32_t>& tokens,
                            int64_t left = 30, const Answer* answer = nullptr) {
    std::vector<int32_t> draft;
    drafts.follow(id, {tokens, {}}, left, {.answer = answer});
    drafts.decide([&](plan::RequestId told, std::span<const int32_t> guesses, int32_t) {
      EXPECT_EQ(told, id);
      draft.assign(guesses.begin(), guesses.end());
    });
    return draft;
  }
  EngineDrafts drafts;
};

// Sixty tokens that repeat no pair.
inline std::vector<int32_t> no_repeats(int32_t count) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < count; ++i) tokens.push_back(3 + i);
  return tokens;
}

}  // namespace jige::serve::testing
