// Guesses of all sources at once: what is forced, copied and said by a draft model changes no bit
// of any answer, and each comes where it is said to.
#include <algorithm>

#include "grammar/constraint_compiler.h"
#include "serve/adapter_folders.h"
#include "serve/draft_test_support.h"

namespace jige::serve {
namespace {

using grammar::ConstraintCompiler;
using grammar::ConstraintSource;
using plan::GuessKind;
using plan::GuessSource;
using testing::alone;
using testing::draft_for;
using testing::DraftCase;
using testing::expect_same;
using testing::ids_of;
using testing::Loaded;
using testing::MadeUpSteps;
using testing::no_repeats;
using testing::value_of;

struct Constrained {
  explicit Constrained(const std::string& name, const model::InferenceOptions& options = kSizes)
      : loaded(name, options) {
    loaded.tokenizer = testing::character_tokenizer("}");
    compiler = std::make_unique<ConstraintCompiler>(loaded.tokenizer);
  }
  std::shared_ptr<grammar::Constraint> regex(const std::string& source) {
    return value_of(compiler->compile({ConstraintSource::Kind::kRegex, source}));
  }
  std::vector<int32_t> ids(const std::string& text) { return ids_of(loaded.tokenizer, text); }

  static constexpr model::InferenceOptions kSizes = {
      .kv_block_count = 100, .batch_tokens_max = 64, .logit_rows_max = 24};
  Loaded loaded;
  std::unique_ptr<ConstraintCompiler> compiler;
};

// Answers with rules and without, greedy and drawn, whose texts repeat themselves more or less.
std::vector<DraftCase> joined_cases(Constrained& model, uint64_t seed, int count,
                                    int32_t adapter_count = 0) {
  const std::vector<std::shared_ptr<grammar::Constraint>> constraints = {
      nullptr,
      model.regex("(the quick|some lazy) [ab]{2} dogs? jumps!"),
      model.regex("(\\{\"name\":\"[a-c]{1,3}\",\"size\":[0-9]\\},)+"),
      model.regex("([xyz]-){3,}[a-k ]*"),
  };
  Rng rng(derive_key(seed, "joined"));
  std::vector<DraftCase> cases;
  for (int i = 0; i < count; ++i) {
    EngineRequest request = testing::repeating_request(rng);
    request.constraint = constraints[rng.below(constraints.size())];
    request.tokens_max = static_cast<int64_t>(10 + rng.below(30));
    if (rng.below(2) == 0) request.sampling.temperature = 0;
    if (request.constraint) request.sampling.logit_bias.clear();
    if (adapter_count > 0) {
      request.adapter =
          static_cast<int32_t>(rng.below(static_cast<uint64_t>(adapter_count) + 1)) - 1;
    }
    testing::Outcome expected = alone(model.loaded, request);
    cases.push_back({std::move(request), std::move(expected)});
  }
  return cases;
}

int64_t of_kind(const std::array<int64_t, plan::kGuessKindCount>& counts, GuessKind kind) {
  return counts[static_cast<size_t>(kind)];
}

void expect_counts(const EngineCounters& counters) {
  int64_t guessed = 0;
  int64_t right = 0;
  for (const auto kind : {GuessKind::kForced, GuessKind::kCopied, GuessKind::kModel}) {
    EXPECT_LE(of_kind(counters.guesses.right, kind), of_kind(counters.guesses.guessed, kind));
    guessed += of_kind(counters.guesses.guessed, kind);
    right += of_kind(counters.guesses.right, kind);
  }
  EXPECT_EQ(guessed, counters.drafted_tokens);
  EXPECT_EQ(right, counters.accepted_tokens);
}

TEST(EngineJoined, ChangesNoBit) {
  plan::GuessCounts all;
  uint64_t seed = 0;
  for (const DType kv : {DType::kF32, DType::kI8}) {
    Constrained model(
        "llama3",
        {.kv_dtype = kv, .kv_block_count = 100, .batch_tokens_max = 64, .logit_rows_max = 24});
    const std::vector<DraftCase> cases = joined_cases(model, ++seed, 9);
    int turn = kv == DType::kI8 ? 1 : 0;  // a cache of 8 bits is guessed for in every other way
    for (const char* name : {"llama3", "gpt2"}) {
      const auto draft = draft_for(model.loaded, name, name[0] == 'g' ? 9 : 64);
      for (const DraftOptions& drafts :
           {DraftOptions{.tokens_max = 3, .adaptive = false},
            DraftOptions{.tokens_max = 12, .adaptive = false}, DraftOptions{.tokens_max = 7},
            DraftOptions{.tokens_max = 7, .adaptive = false, .copied = false},
            DraftOptions{.tokens_max = 7, .adaptive = false, .forced = false}}) {
        if (kv == DType::kI8 && turn++ % 2 == 0) continue;
        const auto status =
            expect_same(model.loaded, cases,
                        {.batch_requests_max = 8, .drafts = drafts, .draft_model = draft.get()});
        expect_counts(status.counters);
        all.add(status.counters.guesses);
        EXPECT_EQ(draft->free_block_count(), draft->model().sizes().kv_block_count);
      }
    }
  }
  for (const auto kind : {GuessKind::kForced, GuessKind::kCopied, GuessKind::kModel}) {
    EXPECT_GT(of_kind(all.right, kind), 37) << plan::guess_kind_name(kind);
  }
}

TEST(EngineJoined, ChangesNoBitOfAdaptersAndBesidePreemption) {
  const testing::AdapterFolders folders("llama3");
  Constrained model("llama3", {.kv_block_count = 24,
                               .batch_tokens_max = 64,
                               .logit_rows_max = 24,
                               .adapters = folders.sources});
  const std::vector<DraftCase> cases = joined_cases(model, 7, 16, 3);
  const auto draft = draft_for(model.loaded, "llama3");
  for (const bool adaptive : {false, true}) {
    const auto status = expect_same(model.loaded, cases,
                                    {.admission = plan::Admission::kOptimistic,
                                     .drafts = {.tokens_max = 6, .adaptive = adaptive},
                                     .draft_model = draft.get()});
    expect_counts(status.counters);
    EXPECT_GT(status.counters.preemptions, 0);
  }
}

// Steps of one sequence by all sources, whose draft is as long as it may be.
struct JoinedSteps {
  explicit JoinedSteps(Constrained& model, DraftOptions options, int64_t batch_tokens = 64)
      : draft(draft_for(model.loaded, "llama3", batch_tokens)),
        steps(
            draft.get(),
            [&] {
              options.adaptive = false;
              return options;
            }(),
            1) {}
  std::string sources(int64_t count) const {
    std::string text;
    for (const GuessSource source : steps.drafts.sources(1, count)) {
      text += "!flcsm"[static_cast<size_t>(source)];
    }
    return text;
  }
  std::unique_ptr<DraftModel> draft;
  MadeUpSteps steps;
};

TEST(EngineJoined, TheDraftModelGoesOnBehindWhatIsForced) {
  Constrained model("llama3");
  const std::vector<int32_t> prompt = no_repeats(20);
  const Answer answer(model.loaded.tokenizer, prompt, {.constraint = model.regex("abc[de]{20}")});
  for (const int64_t batch_tokens : {64, 20}) {
    JoinedSteps joined(model, {.tokens_max = 6}, batch_tokens);
    const auto guesses = joined.steps.step(1, prompt, 30, &answer);
    ASSERT_EQ(guesses.size(), 6u);
    EXPECT_EQ(joined.sources(6), "!!!mmm");
    const std::vector<int32_t> forced = model.ids("abc");
    EXPECT_TRUE(std::equal(forced.begin(), forced.end(), guesses.begin()));
    // One that reads the prompt and what is forced where there is room for both, and two more.
    EXPECT_EQ(joined.draft->model().forward_count(), batch_tokens == 64 ? 3u : 4u);
    // As it would say itself.
    std::vector<int32_t> text = prompt;
    text.insert(text.end(), guesses.begin(), guesses.begin() + 3);
    Answer behind(model.loaded.tokenizer, text, {.constraint = model.regex("[de]{20}")});
    Generator generator(*model.loaded.model, model.loaded.tokenizer);
    const auto said = value_of(
        generator.generate(text, {.tokens_max = 3, .constraint = model.regex("[de]{20}")}));
    EXPECT_TRUE(std::equal(said.tokens.begin(), said.tokens.end(), guesses.begin() + 3));
  }
}

TEST(EngineJoined, WhatIsForcedBehindItsGuessesTakesNoForward) {
  Constrained model("llama3");
  const std::vector<int32_t> prompt = no_repeats(20);
  const Answer answer(model.loaded.tokenizer, prompt, {.constraint = model.regex("([de]xyz){9}")});
  JoinedSteps joined(model, {.tokens_max = 7});
  const auto guesses = joined.steps.step(1, prompt, 30, &answer);
  EXPECT_EQ(joined.sources(7), "m!!!m!!");
  EXPECT_EQ(joined.draft->model().forward_count(), 2u);
  // What came true need not be read again but for the last.
  std::vector<int32_t> tokens = prompt;
  tokens.insert(tokens.end(), guesses.begin(), guesses.begin() + 5);
  const DraftModel::Counts before = joined.draft->counts();
  EXPECT_EQ(joined.draft->missing(1, {tokens, {}}), 1);
  EXPECT_EQ(joined.draft->counts().read_tokens, before.read_tokens);
  // Without it: a guess of the model each.
  JoinedSteps apart(model, {.tokens_max = 7, .forced = false});
  EXPECT_EQ(apart.steps.step(1, prompt, 30, &answer), guesses);
  EXPECT_EQ(apart.sources(7), "mmmmmmm");
  EXPECT_EQ(apart.draft->model().forward_count(), 7u);
}

TEST(EngineJoined, ACopyGoesOnOverWhatIsForced) {
  Constrained model("llama3");
  const std::vector<int32_t> prompt = model.ids("a-b-c-d-a-b-");
  JoinedSteps joined(model, {.tokens_max = 5});
  const auto step = [&](const std::string& regex, int64_t left = 30) {
    const Answer answer(model.loaded.tokenizer, prompt, {.constraint = model.regex(regex)});
    const auto guesses = joined.steps.step(1, prompt, left, &answer);
    const std::string sources = joined.sources(std::ssize(guesses));
    joined.steps.drafts.forget(1);
    return std::pair(value_of(model.loaded.tokenizer.decode(guesses, {})), sources);
  };
  EXPECT_EQ(step("([a-k]-){9}"), (std::pair<std::string, std::string>("c-d-a", "c!c!c")));
  EXPECT_EQ(joined.draft->counts().read_tokens, 0) << "a copy of four and more is free";
  // What is forced is another token than the copy has: the draft model goes on behind it.
  EXPECT_EQ(step("(x[ab]){9}").second.substr(0, 4), "!m!m");
  EXPECT_GT(joined.draft->counts().read_tokens, 0);
  // Behind what is forced the copy goes on, as far as it may.
  EXPECT_EQ(step("c-[dx][x-][xy]z+"), (std::pair<std::string, std::string>("c-d-", "!!cc")));
}

TEST(EngineJoined, CopiesThatWereWrongGoBehindTheDraftModel) {
  Constrained model("llama3");
  JoinedSteps joined(model, {.tokens_max = 4});
  std::vector<int32_t> tokens = model.ids("abcdXabcd");
  EXPECT_EQ(joined.steps.step(1, tokens).size(), 4u);
  EXPECT_EQ(joined.sources(4), "cccc");
  for (const char* more : {"Yabcd", "Zabcd", "Wabcd"}) {
    for (const int32_t id : model.ids(more)) tokens.push_back(id);
    joined.steps.step(1, tokens);
  }
  EXPECT_EQ(joined.sources(4), "mmmm");
  // Where copies are right again they are taken again: they are judged, run or not.
  for (int i = 0; i < 10; ++i) {
    for (const int32_t id : model.ids("Wabcd")) tokens.push_back(id);
    joined.steps.step(1, tokens);
  }
  EXPECT_EQ(joined.sources(4), "llll");
}

TEST(EngineJoined, EachSourceCanBeLeftOut) {
  Constrained model("llama3");
  const std::vector<int32_t> prompt = model.ids("a-b-c-d-a-b-");
  const Answer answer(model.loaded.tokenizer, prompt, {.constraint = model.regex("([a-k]-){9}")});
  for (const auto& [options, sources] :
       {std::pair<DraftOptions, std::string>{{.tokens_max = 4}, "c!c!"},
        {{.tokens_max = 4, .forced = false}, "cccc"},
        {{.tokens_max = 4, .copied = false}, "m!m!"},
        {{.tokens_max = 4, .copied = false, .model = false}, ""},
        {{.tokens_max = 4, .forced = false, .copied = false}, "mmmm"}}) {
    JoinedSteps joined(model, options);
    const auto guesses = joined.steps.step(1, prompt, 30, &answer);
    EXPECT_EQ(joined.sources(std::ssize(guesses)), sources);
  }
}

// What is forced may be a token that only the large model has.
TEST(DraftModel, GuessesNothingBehindATokenThatItDoesNotKnow) {
  Loaded large("llama3");
  const auto draft = draft_for(large, "llama3");
  ASSERT_TRUE(draft->take(1, 60));
  const std::vector<int32_t> text = no_repeats(10);
  const auto vocab = static_cast<int32_t>(draft->model().config().vocab_size);
  for (const int32_t forced : {vocab, 50}) {
    DraftModel::Work work{1, {text, {}}, draft->missing(1, {text, {}}), 4};
    work.guesses.add(forced, GuessSource::kOnly);
    ASSERT_TRUE(draft->run(std::span(&work, 1)));
    EXPECT_EQ(work.guesses.size(), forced == vocab ? 1u : 4u);
    EXPECT_EQ(work.guesses.tokens[0], forced);
  }
}

}  // namespace
}  // namespace jige::serve
