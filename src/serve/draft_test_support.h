// What the tests of drafts share: requests that repeat themselves, and whether an engine answers
// them as if there were no drafts.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

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
  ThreadTeam team(3);
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

}  // namespace jige::serve::testing
