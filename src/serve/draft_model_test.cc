// A draft model's guesses are its own next tokens, however sequences are read and mixed; and what
// it may take.
#include "serve/draft_model.h"

#include <algorithm>
#include <map>

#include "base/rng.h"
#include "serve/generator.h"
#include "serve/serve_test_support.h"

namespace jige::serve {
namespace {

using testing::fixture;
using testing::Loaded;
using testing::value_of;

struct DraftPair {
  explicit DraftPair(const std::string& name,
                     const DraftModelUse& use = {.ids_max = 96,
                                                 .sequences = 4,
                                                 .batch_tokens_max = 16},
                     int64_t blocks = 24)
      : large("llama3", {.kv_block_count = blocks}),
        draft(value_of(DraftModel::load(value_of(DraftModelPlan::create(fixture(name), use)),
                                        *large.model))) {}
  Loaded large;
  std::unique_ptr<DraftModel> draft;
};

std::vector<int32_t> drawn_text(Rng& rng, uint64_t count) {
  std::vector<int32_t> tokens;
  for (uint64_t i = 0; i < count; ++i) tokens.push_back(static_cast<int32_t>(3 + rng.below(90)));
  return tokens;
}

// What a model says behind a text, token by token.
std::vector<int32_t> said(Loaded& loaded, const std::vector<int32_t>& text, int64_t count) {
  Generator generator(*loaded.model, loaded.tokenizer);
  return value_of(generator.generate(text, {.tokens_max = count})).tokens;
}

// Reads what is missing in pieces, then guesses.
std::vector<int32_t> guessed(DraftModel& model, plan::RequestId id,
                             const std::vector<int32_t>& text, int32_t count) {
  for (;;) {
    const int64_t missing = model.missing(id, {text, {}});
    DraftModel::Work work{id, {text, {}}, std::min(missing, model.rows_max())};
    if (work.piece == missing) work.count = count;
    EXPECT_TRUE(model.run(std::span(&work, 1)));
    if (work.piece == missing) return work.guesses.tokens;
  }
}

TEST(DraftModel, GuessesWhatItWouldSayItself) {
  for (const char* name : {"llama3", "gpt2"}) {
    DraftPair pair(name);
    Loaded oracle(name);
    Rng rng(derive_key(3, name));
    std::vector<std::vector<int32_t>> texts;
    for (plan::RequestId id = 0; id < 3; ++id) {
      texts.push_back(drawn_text(rng, 1 + rng.below(40)));
      ASSERT_TRUE(pair.draft->take(id, 64));
      // Not together yet: each is read in pieces of its own.
      EXPECT_EQ(guessed(*pair.draft, id, texts.back(), 3), said(oracle, texts.back(), 3));
    }
    for (int step = 0; step < 6; ++step) {
      std::vector<DraftModel::Work> works;
      for (size_t i = 0; i < texts.size(); ++i) {
        // Some of what it guessed came, then something else.
        const auto more = said(oracle, texts[i], 3);
        texts[i].insert(texts[i].end(), more.begin(),
                        more.begin() + static_cast<int64_t>(rng.below(4)));
        texts[i].push_back(static_cast<int32_t>(3 + rng.below(90)));
        if (texts[i].size() > 60) texts[i].resize(60);
        const auto id = static_cast<plan::RequestId>(i);
        const int64_t missing = pair.draft->missing(id, {texts[i], {}});
        EXPECT_LE(missing, 4);
        works.push_back({id, {texts[i], {}}, missing, static_cast<int32_t>(i + 1)});
      }
      ASSERT_TRUE(pair.draft->run(works));
      for (size_t i = 0; i < texts.size(); ++i) {
        EXPECT_EQ(works[i].guesses.tokens, said(oracle, texts[i], works[i].count))
            << name << " " << i;
      }
    }
  }
}

TEST(DraftModel, KeepsWhatItReadAndWhatCameTrue) {
  DraftPair pair("llama3");
  std::vector<int32_t> text(10, 20);
  ASSERT_TRUE(pair.draft->take(0, 64));
  EXPECT_EQ(pair.draft->missing(0, {text, {}}), 10);
  const auto guesses = guessed(*pair.draft, 0, text, 4);
  ASSERT_EQ(guesses.size(), 4u);
  // All came true, and a token more: the last guess was not run.
  std::vector<int32_t> came = text;
  came.insert(came.end(), guesses.begin(), guesses.end());
  came.push_back(50);
  EXPECT_EQ(pair.draft->missing(0, {came, {}}), 2);
  EXPECT_EQ(guessed(*pair.draft, 0, came, 2).size(), 2u);
  // Of what it guessed behind them one token came true: the other one is forgotten.
  const auto more = guessed(*pair.draft, 0, came, 3);
  ASSERT_EQ(more.size(), 3u);
  std::vector<int32_t> other = came;
  other.insert(other.end(), {more[0], (more[1] + 1) % 96, 60});
  EXPECT_EQ(pair.draft->missing(0, {other, {}}), 2);
  // The last token is always read: its logits are what is guessed from.
  came.resize(12);
  EXPECT_EQ(pair.draft->missing(0, {came, {}}), 1);
  pair.draft->clear();
  ASSERT_TRUE(pair.draft->take(0, 64));
  EXPECT_EQ(pair.draft->missing(0, {came, {}}), 12);
}

// How much of a text is read by a new sequence.
int64_t read_of(DraftModel& model, plan::RequestId id, const std::vector<int32_t>& text,
                uint64_t salt = 0) {
  const int64_t before = model.counts().read_tokens;
  EXPECT_TRUE(model.take(id, 64, salt));
  guessed(model, id, text, 1);
  return model.counts().read_tokens - before;
}

TEST(DraftModel, DoesNotReadAgainWhatItKnows) {
  DraftPair pair("llama3");
  Loaded oracle("llama3");
  Rng rng(derive_key(8, "known"));
  const std::vector<int32_t> first = drawn_text(rng, 40);
  EXPECT_EQ(read_of(*pair.draft, 0, first), 40);
  pair.draft->forget(0);
  std::vector<int32_t> second = first;
  second.resize(35);
  for (const int32_t token : drawn_text(rng, 10)) second.push_back(token);
  EXPECT_EQ(read_of(*pair.draft, 1, second), 45 - 32);
  EXPECT_EQ(pair.draft->counts().known_tokens, 32);
  EXPECT_EQ(guessed(*pair.draft, 1, second, 3), said(oracle, second, 3));
  // While the other one is there, whose second block ends with the last token, which is read.
  std::vector<int32_t> third = first;
  third.resize(32);
  EXPECT_EQ(read_of(*pair.draft, 2, third), 16);
  EXPECT_EQ(guessed(*pair.draft, 2, third, 3), said(oracle, third, 3));
  EXPECT_EQ(guessed(*pair.draft, 1, second, 3), said(oracle, second, 3));
  EXPECT_EQ(read_of(*pair.draft, 3, first, /*salt=*/7), 40) << "of somebody else";
  for (plan::RequestId id = 0; id < 4; ++id) pair.draft->forget(id);
  EXPECT_EQ(pair.draft->pool().live_count(), 0);
  pair.draft->clear();
  EXPECT_EQ(read_of(*pair.draft, 0, first), 40);
}

TEST(DraftModel, KnowsNoBeginningsWithoutAPrefixCache) {
  DraftPair pair("llama3", {.ids_max = 96, .batch_tokens_max = 16, .prefix_cache = false});
  const std::vector<int32_t> text(40, 20);
  EXPECT_EQ(read_of(*pair.draft, 0, text), 40);
  EXPECT_EQ(read_of(*pair.draft, 1, text), 40);
}

TEST(DraftModel, FindsWhatAnotherReadsMeanwhile) {
  DraftPair pair("llama3");
  Loaded oracle("llama3");
  Rng rng(derive_key(9, "meanwhile"));
  const std::vector<int32_t> text = drawn_text(rng, 40);
  for (plan::RequestId id = 0; id < 2; ++id) {
    ASSERT_TRUE(pair.draft->take(id, 64));
    EXPECT_EQ(pair.draft->missing(id, {text, {}}), 40);
  }
  EXPECT_EQ(pair.draft->next_block(0, {text, {}}), pair.draft->next_block(1, {text, {}}));
  // The other one has a part of the block itself by then.
  for (const int64_t piece : {5, 11}) {
    DraftModel::Work work{piece == 5 ? 1 : 0, {text, {}}, piece};
    ASSERT_TRUE(pair.draft->run(std::span(&work, 1)));
  }
  DraftModel::Work rest{0, {text, {}}, 5};
  ASSERT_TRUE(pair.draft->run(std::span(&rest, 1)));
  EXPECT_EQ(pair.draft->missing(1, {text, {}}), 24);
  EXPECT_EQ(pair.draft->missing(0, {text, {}}), 24);
  EXPECT_EQ(pair.draft->pool().live_count(), 1);
  EXPECT_EQ(pair.draft->counts().known_tokens, 11);
  pair.draft->forget(0);
  EXPECT_EQ(guessed(*pair.draft, 1, text, 3), said(oracle, text, 3));
  EXPECT_FALSE(pair.draft->next_block(1, {text, {}})) << "none is missing";
}

// Few blocks for texts with few beginnings: they are shared, given up and taken over all the time.
struct DraftTrace {
  explicit DraftTrace(uint64_t seed) : rng(derive_key(seed, "trace")) {
    for (int i = 0; i < 4; ++i) beginnings.push_back(drawn_text(rng, 20 + rng.below(20)));
  }

  void begin(plan::RequestId id) {
    std::vector<int32_t> text = beginnings[rng.below(beginnings.size())];
    if (rng.below(3) == 0) text.resize(1 + rng.below(text.size()));
    // The same tokens as in another's second block, behind others.
    if (rng.below(4) == 0 && text.size() > 32) text.erase(text.begin(), text.begin() + 16);
    for (const int32_t token : drawn_text(rng, rng.below(12))) text.push_back(token);
    text.resize(std::min<size_t>(text.size(), 52));
    if (pair.draft->take(id, 60, rng.below(2))) texts[id] = std::move(text);
  }
  void end(plan::RequestId id) {
    // What went on may be how another begins.
    if (rng.below(3) == 0) beginnings[rng.below(beginnings.size())] = texts[id];
    texts.erase(id);
    pair.draft->forget(id);
  }
  // Some read a piece of what they lack, or all of it, and guess.
  void run() {
    std::vector<DraftModel::Work> works;
    int64_t rows = pair.draft->rows_max();
    for (auto& [id, text] : texts) {
      if (rng.below(4) == 0) continue;
      const TokenSequence tokens{text, {}};
      const int64_t missing = pair.draft->missing(id, tokens);
      const int64_t piece = std::min(missing, rows);
      rows -= piece;
      if (piece == 0) continue;
      works.push_back({id, tokens, piece, piece == missing ? 3 : 0});
    }
    ASSERT_TRUE(pair.draft->run(works));
    for (const DraftModel::Work& work : works) {
      if (work.count == 0) continue;
      std::vector<int32_t>& text = texts[work.sequence];
      ASSERT_EQ(work.guesses.tokens, said(oracle, text, 3)) << "of sequence " << work.sequence;
      ++guess_count;
      text.insert(text.end(), work.guesses.tokens.begin(),
                  work.guesses.tokens.begin() + static_cast<int64_t>(rng.below(4)));
      text.push_back(static_cast<int32_t>(3 + rng.below(90)));
    }
  }
  void step(plan::RequestId next) {
    if (texts.size() < 4) begin(next);
    run();
    std::vector<plan::RequestId> over;
    for (const auto& [id, text] : texts) {
      if (text.size() > 52 || rng.below(8) == 0) over.push_back(id);
    }
    for (const plan::RequestId id : over) end(id);
    pair.draft->pool().check_invariants();
    const int64_t promised = pair.draft->pool().capacity() - pair.draft->free_block_count();
    ASSERT_LE(pair.draft->pool().live_count(), promised);
  }

  Rng rng;
  DraftPair pair{"llama3", {.ids_max = 96, .sequences = 4, .batch_tokens_max = 16}, 12};
  Loaded oracle{"llama3"};
  std::vector<std::vector<int32_t>> beginnings;
  std::map<plan::RequestId, std::vector<int32_t>> texts;
  int guess_count = 0;
};

TEST(DraftModel, UsesNoBlockThatAnotherTookOver) {
  DraftTrace trace(1);
  for (plan::RequestId id = 0; id < 250; ++id) {
    trace.step(id);
    if (HasFatalFailure()) return;
  }
  DraftModel& draft = *trace.pair.draft;
  EXPECT_GT(trace.guess_count, 100);
  EXPECT_GT(draft.counts().known_tokens, 1000);
  EXPECT_GT(draft.pool().eviction_count(), 50);
  while (!trace.texts.empty()) trace.end(trace.texts.begin()->first);
  EXPECT_EQ(draft.pool().live_count(), 0);
  EXPECT_EQ(draft.free_block_count(), 12);
}

TEST(DraftModel, GivesPlacesWhileThereAreBlocks) {
  DraftPair pair("llama3", {.ids_max = 96, .sequences = 3, .batch_tokens_max = 16}, 9);
  EXPECT_EQ(pair.draft->free_block_count(), 9);
  EXPECT_TRUE(pair.draft->take(1, 64));
  EXPECT_TRUE(pair.draft->take(2, 49));
  EXPECT_FALSE(pair.draft->take(3, 17)) << "one block is left";
  EXPECT_TRUE(pair.draft->take(3, 16));
  EXPECT_TRUE(pair.draft->take(1, 1000)) << "it is there";
  EXPECT_EQ(pair.draft->free_block_count(), 0);
  EXPECT_EQ(pair.draft->guesses_max(1, 64), 1) << "the last guess needs no place";
  EXPECT_EQ(pair.draft->guesses_max(1, 60), 5);
  EXPECT_EQ(pair.draft->guesses_max(1, 65), 0);
  EXPECT_EQ(pair.draft->guesses_max(4, 1), 0);
  pair.draft->forget(2);
  pair.draft->forget(2);
  EXPECT_EQ(pair.draft->free_block_count(), 4);
}

TEST(DraftModel, GuessesUpToItsContextAndOnlyWhatBothKnow) {
  // A context of 64, where the large model's has 128.
  DraftPair pair("gpt2", {.ids_max = 30, .context_max = 128, .batch_tokens_max = 64});
  ASSERT_TRUE(pair.draft->take(0, 128));
  Rng rng(derive_key(5, "context"));
  std::vector<int32_t> text = drawn_text(rng, 63);
  EXPECT_EQ(pair.draft->guesses_max(0, 63), 2);
  const auto guesses = guessed(*pair.draft, 0, text, 2);
  ASSERT_EQ(guesses.size(), 2u);
  for (const int32_t guess : guesses) EXPECT_LT(guess, 30);
  EXPECT_EQ(pair.draft->guesses_max(0, 65), 0);
  // A token of the large model that this one does not have.
  pair.draft->forget(0);
  ASSERT_TRUE(pair.draft->take(0, 128));
  text[20] = 96;
  EXPECT_TRUE(guessed(*pair.draft, 0, text, 2).empty());
  EXPECT_EQ(pair.draft->guesses_max(0, 63), 0);
}

TEST(DraftModel, AFailedForwardSpoilsNothing) {
  DraftPair pair("llama3");
  const std::vector<int32_t> text(9, 33);
  ASSERT_TRUE(pair.draft->take(0, 64));
  const auto expected = guessed(*pair.draft, 0, text, 4);
  for (int failing = 1; failing <= 4; ++failing) {
    pair.draft->clear();
    ASSERT_TRUE(pair.draft->take(0, 64));
    int forwards = 0;
    pair.draft->set_fault([&]() -> Status {
      if (++forwards == failing) return fail(Code::kExhausted, "no memory");
      return {};
    });
    DraftModel::Work work{0, {text, {}}, pair.draft->missing(0, {text, {}}), 4};
    EXPECT_FALSE(pair.draft->run(std::span(&work, 1)));
    pair.draft->set_fault({});
    EXPECT_EQ(guessed(*pair.draft, 0, text, 4), expected);
  }
}

TEST(DraftModelPlan, IsWhatIsAllocated) {
  for (const char* name : {"llama2", "gpt2", "mistral", "qwen3_moe"}) {
    for (const int64_t blocks : {8, 40}) {
      const DraftModelUse use{.ids_max = 96, .sequences = 3, .batch_tokens_max = 64};
      const auto plan = value_of(DraftModelPlan::create(fixture(name), use));
      Loaded large("llama3", {.kv_block_count = blocks});
      const auto draft = value_of(DraftModel::load(plan, *large.model));
      EXPECT_EQ(draft->model().peak_bytes(), plan.bytes(blocks)) << name;
      EXPECT_EQ(draft->free_block_count(), blocks) << name;
    }
  }
}

TEST(DraftModelPlan, RefusesRecurrentModelsAndFoldersThatAreNone) {
  const auto recurrent = DraftModelPlan::create(fixture("lfm2"), {.ids_max = 96});
  ASSERT_FALSE(recurrent);
  EXPECT_EQ(recurrent.error().code, Code::kUnsupported);
  EXPECT_NE(recurrent.error().message.find("recurrent"), std::string::npos);
  EXPECT_FALSE(DraftModelPlan::create("/no/such/folder", {.ids_max = 96}));
}

TEST(CommonVocabulary, IsOfTheIdsThatBothHave) {
  const text::Tokenizer characters = testing::character_tokenizer();
  EXPECT_EQ(value_of(common_vocabulary(characters, characters)), 96);
  const auto other = common_vocabulary(characters, testing::character_tokenizer("}}"));
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, Code::kInvalidArgument);
  for (const char* part : {"token 95", "\"|\"", "\"}}\""}) {
    EXPECT_NE(other.error().message.find(part), std::string::npos) << other.error().message;
  }
  const auto vocabulary = [](const std::string& tokens) {
    return value_of(text::Tokenizer::from_json(
        R"({"version":"1.0","added_tokens":[],"normalizer":null,"pre_tokenizer":null,
        "post_processor":null,"decoder":null,"model":{"type":"BPE","merges":[],"vocab":{)" +
            tokens + "}}}",
        "a test"));
  };
  const text::Tokenizer large = vocabulary(R"("a":0,"b":1,"d":3,"e":4)");
  EXPECT_EQ(value_of(common_vocabulary(large, vocabulary(R"("a":0,"c":2,"d":3)"))), 4) << "holes";
  EXPECT_FALSE(common_vocabulary(large, vocabulary(R"("c":2)"))) << "nothing in common";
}

}  // namespace
}  // namespace jige::serve
