// Models with recurrent layers, whose states go forward alone: what keeps sequences of them gives
// the bits of running each alone from its first token.
#include <algorithm>

#include "serve/embedder.h"
#include "serve/engine_test_support.h"

namespace jige::serve {
namespace {

using testing::alone;
using testing::expect_clean;
using testing::ids_of;
using testing::KeepingSink;
using testing::Loaded;
using testing::Outcome;
using testing::random_request;
using testing::sink_for;
using testing::value_of;

constexpr const char* kRecurrent = "qwen3_5";
constexpr const char* kLazyDog = "the quick brown fox jumps over the lazy dog";

// Answers, each beside what a generator that knows nothing gives.
class Turns {
 public:
  explicit Turns(const model::InferenceOptions& options = {})
      : loaded_(kRecurrent, options), generator_(*loaded_.model, loaded_.tokenizer) {}

  // How many tokens of the prompt were there still.
  int64_t ask(const std::vector<int32_t>& prompt) {
    const auto answer = value_of(generator_.generate(prompt, {.tokens_max = 8}));
    last_ = answer.tokens;
    CpuDevice device({.thread_count = 1});
    const auto model =
        value_of(model::InferenceModel::load(testing::fixture(kRecurrent), device, {}));
    Generator fresh(*model, loaded_.tokenizer);
    const auto expected = value_of(fresh.generate(prompt, {.tokens_max = 8}));
    EXPECT_EQ(answer.tokens, expected.tokens);
    EXPECT_EQ(expected.stats.reused_tokens, 0);
    return answer.stats.reused_tokens;
  }
  std::vector<int32_t> ids(const std::string& text) { return ids_of(loaded_.tokenizer, text); }
  const std::vector<int32_t>& last() const { return last_; }
  Generator& generator() { return generator_; }

 private:
  Loaded loaded_;
  Generator generator_;
  std::vector<int32_t> last_;
};

std::vector<int32_t> joined(std::vector<int32_t> first, const std::vector<int32_t>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

TEST(States, TheNextTurnGoesOnWhereTheStateStandsOrWasMarked) {
  Turns turns;
  const std::vector<int32_t> prompt = turns.ids(kLazyDog);
  const auto count = static_cast<int64_t>(prompt.size());
  EXPECT_EQ(turns.ask(prompt), 0);
  // With the whole answer in front: all that was run.
  const std::vector<int32_t> longer = joined(joined(prompt, turns.last()), turns.ids(" and more"));
  EXPECT_EQ(turns.ask(longer), count + 7);
  // The same again, and with another answer in front: where it went on before, which is nearer to
  // its end than the usual place.
  EXPECT_EQ(turns.ask(longer), count + 7);
  const std::vector<int32_t> other = joined(longer, turns.ids("zzz another answer than that"));
  EXPECT_EQ(turns.ask(other), count + 7);
  // What was there before the answer was opened.
  const auto other_count = static_cast<int64_t>(other.size());
  EXPECT_EQ(turns.ask(other), other_count - 16);
  EXPECT_EQ(turns.ask(joined(other, turns.ids("zzz"))), other_count - 16);
  // Another beginning.
  EXPECT_EQ(turns.ask(turns.ids("a text that begins in another way")), 0);
  EXPECT_EQ(turns.ask(prompt), 0);
  turns.generator().reset();
  EXPECT_EQ(turns.ask(prompt), 0);
}

TEST(States, WithoutACopyEveryOtherPromptBeginsAnew) {
  Turns turns({.state_count = 1});
  const std::vector<int32_t> prompt = turns.ids(kLazyDog);
  EXPECT_EQ(turns.ask(prompt), 0);
  EXPECT_EQ(turns.ask(prompt), 0);
  const std::vector<int32_t> next = joined(prompt, turns.last());
  EXPECT_EQ(turns.ask(next), static_cast<int64_t>(prompt.size()) + 7);
}

TEST(States, AreOfTheSequenceThatTheyStandBehind) {
  Loaded loaded(kRecurrent, {.context_max = 64, .state_count = 2});
  const std::vector<int32_t> blocks = {0, 1, 2, 3};
  const std::vector<int32_t> tokens = ids_of(loaded.tokenizer, kLazyDog);
  const auto run = [&](int32_t first, int32_t count, int32_t state) {
    const ops::SequenceSpan span{
        .row_count = count, .context_count = first, .blocks = blocks.data(), .state = state};
    const auto part =
        std::span(tokens).subspan(static_cast<size_t>(first), static_cast<size_t>(count));
    return loaded.model->forward(
        {.tokens = part, .sequences = std::span(&span, 1), .logit_rows = {}});
  };
  ASSERT_TRUE(run(0, 10, 0));
  ASSERT_TRUE(run(10, 5, 0));
  for (const auto& [first, state] : {std::pair{14, 0}, {16, 0}, {15, 1}, {15, 2}, {15, -1}}) {
    const auto refused = run(first, 1, state);
    ASSERT_FALSE(refused) << first << " " << state;
    EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
  }
  EXPECT_TRUE(loaded.model->copy_state(0, 1));
  EXPECT_TRUE(run(15, 1, 1));
  EXPECT_TRUE(run(15, 1, 0));
  EXPECT_TRUE(run(0, 3, 1));

  const std::vector<ops::SequenceSpan> both = {
      {.row_begin = 0, .row_count = 1, .blocks = blocks.data(), .state = 1},
      {.row_begin = 1, .row_count = 1, .blocks = blocks.data() + 1, .state = 1}};
  EXPECT_FALSE(loaded.model->forward(
      {.tokens = std::span(tokens).first(2), .sequences = both, .logit_rows = {}}));

  const auto with_spare = [&](int32_t spare, int32_t rows) {
    const ops::SequenceSpan span{
        .row_count = 4, .blocks = blocks.data(), .spare = spare, .spare_rows = rows};
    return loaded.model->forward(
        {.tokens = std::span(tokens).first(4), .sequences = std::span(&span, 1), .logit_rows = {}});
  };
  for (const auto& [spare, rows] : {std::pair{0, 2}, {2, 2}, {-2, 2}, {1, 0}, {1, 5}, {1, -1}}) {
    const auto refused = with_spare(spare, rows);
    ASSERT_FALSE(refused) << spare << " " << rows;
    EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
  }
  EXPECT_TRUE(with_spare(1, 3));
  EXPECT_FALSE(run(4, 1, 1));
  EXPECT_TRUE(run(3, 1, 1));
  EXPECT_TRUE(run(4, 1, 0));
}

TEST(States, TheEngineGivesEveryRequestTheBitsOfBeingAlone) {
  Loaded loaded(kRecurrent, {.kv_block_count = 40, .state_count = 6, .batch_tokens_max = 64});
  Rng rng(derive_key(11, "states"));
  std::vector<EngineRequest> requests;
  std::vector<Outcome> expected;
  for (int i = 0; i < 14; ++i) {
    requests.push_back(random_request(rng));
    expected.push_back(alone(loaded, requests.back()));
  }
  const auto run = [&](const EngineOptions& options) {
    const auto engine = value_of(Engine::create(*loaded.model, loaded.tokenizer, options));
    std::vector<std::shared_ptr<KeepingSink>> sinks;
    for (const EngineRequest& request : requests) {
      sinks.push_back(sink_for(request));
      value_of(engine->submit(request, sinks.back()));
    }
    for (size_t i = 0; i < sinks.size(); ++i) {
      EXPECT_TRUE(sinks[i]->wait()) << "request " << i << " never ended";
      EXPECT_EQ(sinks[i]->outcome, expected[i]) << "request " << i;
    }
    EXPECT_TRUE(engine->drain(20));
    expect_clean(*engine);
    const EngineCounters counters = engine->status().counters;
    EXPECT_EQ(counters.prefix_query_tokens > 0, options.prefix_cache);
    EXPECT_EQ(counters.prefix_hit_tokens > 0, options.prefix_cache);
  };
  for (const plan::Admission admission :
       {plan::Admission::kReserve, plan::Admission::kOptimistic}) {
    for (const int32_t batch_tokens : {5, 64}) {
      EngineOptions options{
          .admission = admission, .batch_tokens_max = batch_tokens, .prefix_cache = false};
      options.drafts.tokens_max = 4;
      run(options);
      options.prefix_cache = true;
      options.kept_state_count = 3;
      run(options);
    }
  }
}

// The turns of several chats that begin with one of two system prompts, as they come: each turn's
// prompt is the one before, its answer without the last tokens, and what the user says next.
class Chats {
 public:
  Chats(Loaded& loaded, const EngineOptions& options)
      : engine_(value_of(Engine::create(*loaded.model, loaded.tokenizer, options))) {}

  Engine& engine() { return *engine_; }
  void run(int turn_count) {
    Rng rng(derive_key(5, "chats"));
    std::vector<EngineRequest> requests(5);
    for (size_t chat = 0; chat < requests.size(); ++chat) {
      requests[chat].prompt = std::vector<int32_t>(37, static_cast<int32_t>(10 + chat % 2));
      requests[chat].sampling.temperature = chat == 3 ? 0.8f : 0.0f;
      requests[chat].seed = chat;
      requests[chat].choice_count = chat == 4 ? 2 : 1;
      requests[chat].tokens_max = 9;
    }
    for (int turn = 0; turn < turn_count; ++turn) {
      std::vector<std::shared_ptr<KeepingSink>> sinks;
      for (EngineRequest& request : requests) {
        for (uint64_t left = 3 + rng.below(17); left > 0; --left) {
          request.prompt.push_back(static_cast<int32_t>(3 + rng.below(90)));
        }
        sinks.push_back(sink_for(request));
        value_of(engine_->submit(request, sinks.back()));
      }
      for (size_t chat = 0; chat < requests.size(); ++chat) {
        EXPECT_TRUE(sinks[chat]->wait()) << "chat " << chat << " never ended";
        outcomes_.push_back(sinks[chat]->outcome);
        requests_.push_back(requests[chat]);
        const std::vector<int32_t>& answer = outcomes_.back()[0].tokens;
        requests[chat].prompt.insert(requests[chat].prompt.end(), answer.begin(),
                                     answer.end() - std::min<int64_t>(2, std::ssize(answer)));
      }
    }
    EXPECT_TRUE(engine_->drain(20));
    expect_clean(*engine_);
  }
  // Each as if nothing else had ever run; `fresh` is not the engine's.
  void expect_alone(Loaded& fresh) const {
    for (size_t i = 0; i < requests_.size(); ++i) {
      EXPECT_EQ(outcomes_[i], alone(fresh, requests_[i])) << "request " << i;
    }
  }

 private:
  std::unique_ptr<Engine> engine_;
  std::vector<EngineRequest> requests_;
  std::vector<Outcome> outcomes_;
};

TEST(States, ChatsThatBeginWithKeptStatesHaveTheBitsOfBeingAlone) {
  Loaded loaded(
      kRecurrent,
      {.context_max = 128, .kv_block_count = 60, .state_count = 10, .batch_tokens_max = 64});
  Loaded other(kRecurrent, {.context_max = 128});
  for (const plan::Admission admission :
       {plan::Admission::kReserve, plan::Admission::kOptimistic}) {
    for (const int32_t kept : {1, 6}) {
      Chats chats(loaded, {.admission = admission,
                           .batch_tokens_max = kept == 1 ? 7 : 64,
                           .kept_state_count = kept});
      chats.run(3);
      chats.expect_alone(other);
      const EngineCounters counters = chats.engine().status().counters;
      EXPECT_GT(counters.prefix_hit_tokens, kept == 1 ? 0 : 200);
      EXPECT_GT(counters.prefix_query_tokens, counters.prefix_hit_tokens);
    }
  }
}

TEST(States, RequestsNeedStatesBesideThoseThatAreKept) {
  Loaded loaded(kRecurrent, {.state_count = 4});
  const auto create = [&](const EngineOptions& options) {
    return Engine::create(*loaded.model, loaded.tokenizer, options);
  };
  const auto refused = create({.kept_state_count = 4});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
  EXPECT_EQ(create({.kept_state_count = -1}).error().code, Code::kInvalidArgument);
  const auto engine = value_of(create({.kept_state_count = 3}));
  EXPECT_TRUE(engine->options().prefix_cache);
  EngineRequest request;
  request.prompt = {5, 6};
  request.choice_count = 2;
  const auto refusal = engine->submit(request, sink_for(request));
  ASSERT_FALSE(refusal);
  EXPECT_EQ(refusal.error().field, RequestField::kChoiceCount);
  const auto without = value_of(create({.prefix_cache = false, .kept_state_count = 3}));
  EXPECT_EQ(without->options().kept_state_count, 0);
  EXPECT_FALSE(value_of(create({}))->options().prefix_cache);
  Loaded attention("llama2");
  const auto plain =
      value_of(Engine::create(*attention.model, attention.tokenizer, {.kept_state_count = 3}));
  EXPECT_EQ(plain->options().kept_state_count, 0);
  EXPECT_TRUE(plain->options().prefix_cache);
}

TEST(States, VectorsHaveTheSameBitsInEveryBatch) {
  const model::InferenceOptions sizes{
      .context_max = 100, .state_count = 3, .batch_tokens_max = 40, .embeds = true};
  Loaded loaded(kRecurrent, sizes);
  std::vector<EmbedInput> inputs;
  for (size_t i = 0; i < 12; ++i) {
    inputs.push_back({.tokens = std::vector<int32_t>(1 + 7 * i, static_cast<int32_t>(5 + i))});
  }
  Embedder together(*loaded.model, {});
  const auto vectors = value_of(together.embed(inputs));
  for (size_t i = 0; i < inputs.size(); ++i) {
    EXPECT_EQ(value_of(together.embed(std::span(inputs).subspan(i, 1)))[0], vectors[i]) << i;
  }
}

}  // namespace
}  // namespace jige::serve
