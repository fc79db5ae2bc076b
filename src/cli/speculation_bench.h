// Measuring guesses: the same answers without them and with those of several sources, in turns.
//
// Each turn runs a load once in every way, the order changing from turn to turn, on one model in
// this process. Answers are compared: a token that differs is an error. What costs and guesses are
// known to be is learned anew in each run.
// Threads: one thread; several answers at once are a serve::Engine's.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/bench_serve_model.h"
#include "grammar/constraint.h"
#include "ops/sampling.h"
#include "plan/guess_policy.h"
#include "serve/draft_options.h"

namespace jige::cli {

// What answers are like.
struct SpeculationCase {
  std::string name;
  std::vector<std::vector<int32_t>> prompts;  // answered one after the other, or at once
  ops::SamplingParams sampling = {};
  std::shared_ptr<grammar::Constraint> constraint = {};  // what they may be; null: anything
  std::vector<int32_t> stop_ids = {};                    // that end them
};

// An answer for each user at once, who take turns among cases and their prompts; one user has an
// answer to each prompt of the first case in turn, made without an engine.
struct SpeculationLoad {
  std::vector<SpeculationCase> cases;
  int64_t users = 1;
  int64_t new_tokens = 128;
};

// A way to guess.
struct SpeculationWay {
  std::string name;
  serve::DraftOptions drafts;
};
// "without" and "with".
std::vector<SpeculationWay> with_and_without(const serve::DraftOptions& drafts);
// "without", "forced", "copied", "model" where there is one, each alone, and "all".
std::vector<SpeculationWay> each_source(const serve::DraftOptions& drafts, bool has_model);

// What came of one of them.
struct SpeculationResult {
  std::string way;
  std::vector<double> tokens_per_s;  // by turn
  std::vector<double> ratios;        // of each turn, to the first way
  // Of one turn, the last.
  plan::GuessCounts guesses;
  int64_t tokens = 0;
  int64_t steps = 0;  // forwards that gave tokens; an engine's iterations
};
struct SpeculationTurns {
  std::string name;
  int64_t users = 1;
  std::vector<SpeculationResult> results;
};

// The cases that need no text: "repeats", where every guess is right; "by chance", where the tokens
// before one another were seen before and tell nothing; "nothing found".
std::vector<SpeculationCase> made_up_cases(int64_t prompt_tokens, int64_t vocab_size);

// Fails as generating does, and with kInternal where an answer depends on its guesses.
Result<SpeculationTurns> bench_speculation(BenchServeModel& served, const SpeculationLoad& load,
                                           const std::vector<SpeculationWay>& ways, int64_t turns);

// The time of a step over so many rows behind `context` tokens, in turns with the others: seconds
// by turn, for each count.
Result<std::vector<std::vector<double>>> bench_rows(model::InferenceModel& model,
                                                    const std::vector<int32_t>& counts,
                                                    int64_t context, int64_t turns);

}  // namespace jige::cli
