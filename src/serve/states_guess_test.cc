// Guesses of models with recurrent layers: every state goes on behind what came, whichever guess
// was wrong, and no bit of an answer depends on them.
#include <algorithm>
#include <memory>

#include "grammar/constraint_compiler.h"
#include "serve/cached_sequence.h"
#include "serve/draft_test_support.h"

namespace jige::serve {
namespace {

using grammar::ConstraintSource;
using plan::Admission;
using plan::ServePolicy;
using testing::alone;
using testing::cases_of;
using testing::draft_for;
using testing::DraftCase;
using testing::expect_same;
using testing::greedy_request;
using testing::ids_of;
using testing::Loaded;
using testing::value_of;

// One of each kind of layer, alone and beside attention, experts and others.
constexpr const char* kWithStates[] = {
    "qwen3_5",    "qwen3_5_moe", "qwen3_next",   "kimi_linear", "olmo_hybrid", "granite_hybrid",
    "nemotron_h", "falcon_h1",   "falcon_mamba", "jamba",       "mamba",       "mamba2",
    "lfm2",       "lfm2_moe",    "lfm3",         "bamba"};

// The tokens of a text and of guesses behind its beginning, of which the first `right` are its own.
class WrongGuesses {
 public:
  explicit WrongGuesses(const char* name)
      : loaded_(name, {.context_max = 64, .logit_rows_max = 8}),
        sequence_(*loaded_.model),
        columns_(loaded_.model->config().vocab_size) {
    for (int32_t i = 0; i < 24; ++i) tokens_.push_back(3 + i * 11 % 90);
    const std::vector<float> all = rows_of(std::span(tokens_), 8);
    expected_.assign(all.end() - columns_, all.end());
    sequence_.clear();
  }

  // The text comes in steps of one token and `guesses` guesses; the last logits of all.
  std::vector<float> run(size_t guesses, size_t right) {
    sequence_.clear();
    value_of(sequence_.extend(std::span(tokens_).first(4), 1));
    std::vector<float> last;
    for (size_t done = 4; done < tokens_.size();) {
      std::vector<int32_t> piece(tokens_.begin() + static_cast<int64_t>(done), tokens_.end());
      piece.resize(std::min(piece.size(), 1 + right));
      const size_t own = piece.size();
      while (piece.size() < 1 + guesses) piece.push_back(95);
      const std::vector<float> rows = rows_of(piece, piece.size());
      last.assign(rows.begin() + static_cast<int64_t>(own - 1) * columns_,
                  rows.begin() + static_cast<int64_t>(own) * columns_);
      sequence_.take_back(piece.size() - own);
      done += own;
    }
    return last;
  }
  const std::vector<float>& expected() const { return expected_; }

 private:
  std::vector<float> rows_of(std::span<const int32_t> tokens, size_t count) {
    const std::vector<ops::RowDraw> draws(count);
    const model::LogitRows rows = value_of(sequence_.extend_drawn(tokens, draws));
    return {rows.logits.begin(), rows.logits.end()};
  }

  Loaded loaded_;
  CachedSequence sequence_;
  const int64_t columns_;
  std::vector<int32_t> tokens_;
  std::vector<float> expected_;
};

TEST(StatesGuess, EveryGuessMayBeTheFirstThatIsWrong) {
  for (const char* const name : kWithStates) {
    WrongGuesses text(name);
    for (size_t guesses = 1; guesses < 5; ++guesses) {
      for (size_t right = 0; right <= guesses; ++right) {
        EXPECT_EQ(text.run(guesses, right), text.expected())
            << name << ": " << right << " of " << guesses;
      }
    }
  }
}

TEST(StatesGuess, ChangeNoBitOfOneSequence) {
  for (const char* const name : kWithStates) {
    Loaded loaded(name, {.logit_rows_max = 16});
    Generator generator(*loaded.model, loaded.tokenizer);
    int64_t accepted = 0, refused = 0;
    for (const DraftCase& one : cases_of(loaded, 3, 12)) {
      GenerateOptions options{.sampling = one.request.sampling,
                              .seed = one.request.seed,
                              .tokens_max = one.request.tokens_max,
                              .stop_ids = one.request.stop_ids,
                              .stop_strings = one.request.stop_strings};
      const auto& eos = loaded.model->config().eos_ids;
      options.stop_ids.insert(options.stop_ids.end(), eos.begin(), eos.end());
      const testing::ChoiceOutcome& plain = one.expected[0];
      for (const DraftOptions& drafts :
           {DraftOptions{.tokens_max = 1, .adaptive = false}, {15, false}, {7, true}}) {
        options.drafts = drafts;
        const Generation guessed = value_of(generator.generate(one.request.prompt, options));
        EXPECT_EQ(guessed.tokens, plain.tokens) << name;
        EXPECT_EQ(guessed.text, plain.text) << name;
        accepted += guessed.stats.accepted_tokens;
        refused += guessed.stats.drafted_tokens - guessed.stats.accepted_tokens;
      }
    }
    EXPECT_GT(accepted, 8) << name;
    EXPECT_GT(refused, 12) << name;
  }
}

// What a turn leaves is what it would leave without guesses, less what would run again.
TEST(StatesGuess, TheNextTurnGoesOnBehindGuesses) {
  Loaded loaded("qwen3_5", {.logit_rows_max = 9});
  Loaded other("qwen3_5");
  Generator generator(*loaded.model, loaded.tokenizer);
  Generator fresh(*other.model, other.tokenizer);
  const GenerateOptions plain{.tokens_max = 13};
  GenerateOptions guesses = plain;
  guesses.drafts = {.tokens_max = 8, .adaptive = false};
  std::vector<int32_t> prompt = ids_of(loaded.tokenizer, "abcabcabcabcabcabcabcabcabcabc");
  int64_t drafted = 0, reused = 0;
  for (int turn = 0; turn < 5; ++turn) {
    const Generation answer = value_of(generator.generate(prompt, guesses));
    fresh.reset();
    EXPECT_EQ(answer.tokens, value_of(fresh.generate(prompt, plain)).tokens) << turn;
    drafted += answer.stats.drafted_tokens;
    reused += answer.stats.reused_tokens;
    // Half of the turns go on behind the answer, the others do without it.
    if (turn % 2 == 0) prompt.insert(prompt.end(), answer.tokens.begin(), answer.tokens.end());
    for (const int32_t id : ids_of(loaded.tokenizer, "xyxyxy")) prompt.push_back(id);
  }
  EXPECT_GT(drafted, 10);
  EXPECT_GT(reused, 60);
}

TEST(StatesGuess, WithoutAThirdStateASequenceHasNone) {
  Loaded loaded("qwen3_5", {.context_max = 64, .state_count = 2, .logit_rows_max = 9});
  Generator generator(*loaded.model, loaded.tokenizer);
  const auto prompt = ids_of(loaded.tokenizer, "abcabcabcabcabcabcabcabc");
  const auto answer =
      value_of(generator.generate(prompt, {.tokens_max = 30, .drafts = {.tokens_max = 8}}));
  EXPECT_EQ(answer.stats.drafted_tokens, 0);
}

TEST(StatesGuess, ChangeNoBitUnderAnyPolicy) {
  uint64_t seed = 0;
  size_t turn = 0;
  for (const char* const name : {"qwen3_5", "lfm2", "granite_hybrid", "falcon_mamba"}) {
    int64_t accepted = 0, refused = 0;
    Loaded loaded(
        name,
        {.kv_block_count = 80, .state_count = 12, .batch_tokens_max = 64, .logit_rows_max = 24});
    const std::vector<DraftCase> cases = cases_of(loaded, ++seed, 14);
    for (const DraftOptions& drafts :
         {DraftOptions{.tokens_max = 4, .adaptive = false}, {20, false}, {8, true}}) {
      for (int i = 0; i < 2; ++i) {  // two policies each, in turn
        const ServePolicy policy = plan::kServePolicies[turn++ % std::size(plan::kServePolicies)];
        const auto status = expect_same(
            loaded, cases,
            {.policy = policy, .batch_requests_max = 7, .kept_state_count = 3, .drafts = drafts});
        accepted += status.counters.accepted_tokens;
        refused += status.counters.drafted_tokens - status.counters.accepted_tokens;
        EXPECT_GT(status.counters.prefix_hit_tokens, 0);
      }
    }
    EXPECT_GT(accepted, 12) << name;
    EXPECT_GT(refused, 25) << name;
  }
}

TEST(StatesGuess, ChangeNoBitBesidePreemptionAndFewStates) {
  int64_t preemptions = 0, accepted = 0;
  for (const char* const name : {"qwen3_5", "falcon_h1", "kimi_linear"}) {
    for (const int32_t states : {3, 6}) {
      Loaded loaded(name, {.kv_block_count = 9,
                           .state_count = states + 2,
                           .batch_tokens_max = 64,
                           .logit_rows_max = 24});
      std::vector<DraftCase> cases = cases_of(loaded, 11, 10);
      for (DraftCase& one : cases) {  // of which several are inside at once
        one.request.choice_count = 1;
        one.expected.resize(1);
      }
      const EngineStatus status = expect_same(loaded, cases,
                                              {.admission = Admission::kOptimistic,
                                               .batch_tokens_max = 17,
                                               .kept_state_count = 2,
                                               .drafts = {.tokens_max = 6, .adaptive = false}});
      preemptions += status.counters.preemptions;
      accepted += status.counters.accepted_tokens;
    }
  }
  EXPECT_GT(preemptions, 0) << "the pool is too large for this test";
  EXPECT_GT(accepted, 5);
}

TEST(StatesGuess, ADraftModelMayGuess) {
  Loaded loaded(
      "granite_hybrid",
      {.kv_block_count = 80, .state_count = 8, .batch_tokens_max = 64, .logit_rows_max = 24});
  const auto draft = draft_for(loaded, "llama3");
  const std::vector<DraftCase> cases = cases_of(loaded, 5, 12);
  for (const bool adaptive : {false, true}) {
    const EngineStatus status =
        expect_same(loaded, cases,
                    {.drafts = {.tokens_max = 4, .adaptive = adaptive, .copied = false},
                     .draft_model = draft.get()});
    // Where what steps take decides, none may be worth it.
    EXPECT_TRUE(adaptive || status.counters.drafted_tokens > 100);
  }
}

TEST(StatesGuess, OnlySoManySequencesAsStatesCanBeKept) {
  const std::vector<int32_t> tokens = {5, 6, 7, 8, 5, 6, 7, 8, 5, 6, 7, 8};
  for (const bool adaptive : {false, true}) {
    for (const int64_t spares : {0, 1, 2, 5}) {
      EngineDrafts drafts({.tokens_max = 4, .adaptive = adaptive}, 3, 64, 24, nullptr,
                          {.there = true, .spare_price = 0.02});
      for (int i = 0; i < 8; ++i) drafts.add_step(1 + i % 3, 0.01, i % 2);
      for (int32_t id = 0; id < 3; ++id) {
        drafts.follow(id, {tokens, {}}, 20, {.again_count = id});
      }
      int64_t told = 0;
      drafts.decide([&](plan::RequestId, std::span<const int32_t>, int32_t) { ++told; }, spares);
      EXPECT_EQ(told, std::min<int64_t>(spares, 3)) << adaptive;
    }
  }
}

// What has to come is guessed where no state can be kept, too.
TEST(StatesGuess, WhatIsCertainNeedsNoState) {
  for (const int32_t states : {1, 6}) {
    Loaded loaded("qwen3_5", {.kv_block_count = 80,
                              .state_count = states,
                              .batch_tokens_max = 64,
                              .logit_rows_max = 24});
    grammar::ConstraintCompiler compiler(loaded.tokenizer);
    std::vector<DraftCase> cases;
    for (int32_t i = 0; i < 6; ++i) {
      EngineRequest request = greedy_request(i * 7, 60);
      request.constraint = value_of(compiler.compile(
          {ConstraintSource::Kind::kRegex, std::string("([a-d]: yes indeed; ){4}[x-z]")}));
      if (i % 2 == 1) request.sampling.temperature = 1;
      cases.push_back({request, alone(loaded, request)});
    }
    const auto status = expect_same(
        loaded, cases, {.drafts = {.tokens_max = 9, .adaptive = false, .copied = states > 1}});
    EXPECT_GT(status.counters.guesses.right[0], 6 * 40);
    if (states == 1) {
      EXPECT_EQ(status.counters.drafted_tokens, status.counters.accepted_tokens);
    }
  }
}

}  // namespace
}  // namespace jige::serve
