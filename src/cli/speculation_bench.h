// Measuring drafts: the same answers with and without them, in turns.
//
// Each turn runs a load once without and once with drafts, the order changing from turn to turn, on
// one model in this process. Answers are compared: a token that differs is an error.
// Threads: one thread; several answers at once are a serve::Engine's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "cli/bench_serve_model.h"
#include "ops/sampling.h"
#include "serve/draft_options.h"

namespace jige::cli {

// What answers are like.
struct SpeculationCase {
  std::string name;
  std::vector<int32_t> prompt;
  ops::SamplingParams sampling;
};

// An answer of one of these cases for each user at once; one user's is made without an engine.
struct SpeculationLoad {
  std::vector<SpeculationCase> cases;  // users take turns among them
  int64_t users = 1;
  int64_t new_tokens = 128;
};

// Tokens a second of one load, as often as it was run.
struct SpeculationTurns {
  std::string name;
  int64_t users = 1;
  std::vector<double> without, with;  // tokens a second, by turn
  std::vector<double> ratios;         // of each turn
  int64_t drafted_tokens = 0;         // of one turn, the last
  int64_t accepted_tokens = 0;
};

// The cases that need no text: "repeats", where every guess is right; "by chance", where the tokens
// before one another were seen before and tell nothing; "nothing found".
std::vector<SpeculationCase> made_up_cases(int64_t prompt_tokens, int64_t vocab_size);

// Fails as generating does, and with kInternal where an answer depends on its drafts.
Result<SpeculationTurns> bench_speculation(BenchServeModel& served, const SpeculationLoad& load,
                                           const serve::DraftOptions& drafts, int64_t turns);

// The time of a step over so many rows behind `context` tokens, in turns with the others: seconds
// by turn, for each count.
Result<std::vector<std::vector<double>>> bench_rows(model::InferenceModel& model,
                                                    const std::vector<int32_t>& counts,
                                                    int64_t context, int64_t turns);

}  // namespace jige::cli
