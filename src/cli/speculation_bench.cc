#include "cli/speculation_bench.h"

#include <algorithm>
#include <future>
#include <memory>
#include <numeric>

#include "base/clock.h"
#include "base/rng.h"
#include "cli/filled_cache.h"
#include "serve/engine.h"
#include "serve/generator.h"

namespace jige::cli {
namespace {

constexpr int32_t kKinds = 16;  // of tokens that come by chance
constexpr float kBiasMost = 100;

// What one run of a load gave.
struct Answered {
  double seconds = 0;
  plan::GuessCounts guesses;
  int64_t steps = 0;
  std::vector<std::vector<int32_t>> answers;
  int64_t token_count() const {
    int64_t count = 0;
    for (const auto& answer : answers) count += std::ssize(answer);
    return count;
  }
};

Result<Answered> run_alone(BenchServeModel& served, const SpeculationLoad& load,
                           const serve::DraftOptions& drafts) {
  serve::Generator generator(*served.model, *served.tokenizer, model::kNoAdapter,
                             served.draft_model.get());
  const SpeculationCase& one = load.cases[0];
  Answered run;
  for (const std::vector<int32_t>& prompt : one.prompts) {
    JIGE_TRY(serve::Generation answer, generator.generate(prompt, {.sampling = one.sampling,
                                                                   .tokens_max = load.new_tokens,
                                                                   .stop_ids = one.stop_ids,
                                                                   .constraint = one.constraint,
                                                                   .drafts = drafts}));
    run.seconds += answer.stats.decode_seconds;
    run.guesses.add(answer.stats.guesses);
    run.steps += answer.stats.decode_steps + 1;
    run.answers.push_back(std::move(answer.tokens));
  }
  return run;
}

// Keeps the tokens of an answer; the rest waits for its end.
class KeepTokens final : public serve::RequestSink {
 public:
  void on_piece(int32_t, const serve::AnswerPiece& piece) override {
    if (piece.token >= 0) tokens.push_back(piece.token);
  }
  void on_choice(const serve::ChoiceEnd&) override {}
  void on_done(const serve::RequestReport& done) override { over.set_value(done); }
  void on_failed(const Error& error) override { over.set_value(tl::unexpected(error)); }

  std::vector<int32_t> tokens;
  std::promise<Result<serve::RequestReport>> over;
};

Result<Answered> run_together(BenchServeModel& served, const SpeculationLoad& load,
                              const serve::DraftOptions& drafts) {
  JIGE_TRY(const auto engine,
           serve::Engine::create(*served.model, *served.tokenizer,
                                 {.batch_requests_max = static_cast<int32_t>(load.users),
                                  .drafts = drafts,
                                  .draft_model = served.draft_model.get(),
                                  .sampling_team = &served.devices.team()}));
  std::vector<std::shared_ptr<KeepTokens>> sinks;
  const StopWatch watch;
  for (int64_t user = 0; user < load.users; ++user) {
    const auto turn = static_cast<size_t>(user);
    const SpeculationCase& one = load.cases[turn % load.cases.size()];
    serve::EngineRequest request;
    request.prompt = one.prompts[turn / load.cases.size() % one.prompts.size()];
    request.constraint = one.constraint;
    request.stop_ids = one.stop_ids;
    request.sampling = one.sampling;
    request.logprobs = false;
    request.seed = static_cast<uint64_t>(user);
    request.tokens_max = load.new_tokens;
    request.ignore_eos = true;
    sinks.push_back(std::make_shared<KeepTokens>());
    const auto id = engine->submit(std::move(request), sinks.back());
    if (!id) return tl::unexpected<Error>(id.error());
  }
  Answered run;
  for (const auto& sink : sinks) {
    JIGE_DO(sink->over.get_future().get().map([](const auto&) {}));
    run.answers.push_back(std::move(sink->tokens));
  }
  run.seconds = watch.seconds();
  engine->stop();  // its last iteration is counted
  const serve::EngineCounters counters = engine->status().counters;
  run.guesses = counters.guesses;
  run.steps = counters.iterations;
  return run;
}

Result<Answered> run_once(BenchServeModel& served, const SpeculationLoad& load,
                          const serve::DraftOptions& drafts) {
  return load.users == 1 ? run_alone(served, load, drafts) : run_together(served, load, drafts);
}

std::vector<int32_t> drawn_tokens(Rng& rng, int64_t count, int64_t kinds) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<int32_t>(rng.below(static_cast<uint64_t>(kinds))));
  }
  return tokens;
}

}  // namespace

std::vector<SpeculationCase> made_up_cases(int64_t prompt_tokens, int64_t vocab_size) {
  Rng rng(derive_key(1, "bench speculation"));
  const int64_t kinds = std::min<int64_t>(kKinds, vocab_size);
  SpeculationCase repeats{.name = "repeats",
                          .prompts = {std::vector<int32_t>(static_cast<size_t>(prompt_tokens), 1)}};
  repeats.sampling.logit_bias = {{1, kBiasMost}};
  SpeculationCase chance{.name = "by chance", .prompts = {drawn_tokens(rng, prompt_tokens, kinds)}};
  chance.sampling.temperature = 1;
  for (int32_t id = 0; id < kinds; ++id) chance.sampling.logit_bias.push_back({id, kBiasMost});
  SpeculationCase nothing{.name = "nothing found",
                          .prompts = {drawn_tokens(rng, prompt_tokens, vocab_size)}};
  nothing.sampling.temperature = 1;
  return {std::move(repeats), std::move(chance), std::move(nothing)};
}

std::vector<SpeculationWay> with_and_without(const serve::DraftOptions& drafts) {
  return {{"without", {}}, {"with", drafts}};
}

std::vector<SpeculationWay> each_source(const serve::DraftOptions& drafts, bool has_model) {
  std::vector<SpeculationWay> ways = {{"without", {}}};
  for (const plan::GuessKind kind :
       {plan::GuessKind::kForced, plan::GuessKind::kCopied, plan::GuessKind::kModel}) {
    if (kind == plan::GuessKind::kModel && !has_model) continue;
    serve::DraftOptions alone = drafts;
    alone.forced = kind == plan::GuessKind::kForced;
    alone.copied = kind == plan::GuessKind::kCopied;
    alone.model = kind == plan::GuessKind::kModel;
    ways.push_back({std::string(plan::guess_kind_name(kind)), alone});
  }
  ways.push_back({"all", drafts});
  return ways;
}

Result<SpeculationTurns> bench_speculation(BenchServeModel& served, const SpeculationLoad& load,
                                           const std::vector<SpeculationWay>& ways, int64_t turns) {
  SpeculationTurns found{.name = load.cases[0].name, .users = load.users};
  for (size_t i = 1; i < load.cases.size(); ++i) found.name += " and " + load.cases[i].name;
  for (const SpeculationWay& way : ways) found.results.push_back({.way = way.name});
  for (int64_t turn = 0; turn <= turns; ++turn) {
    std::vector<Answered> runs(ways.size());
    for (size_t i = 0; i < ways.size(); ++i) {
      const size_t place = (i + static_cast<size_t>(turn)) % ways.size();
      JIGE_TRY(runs[place], run_once(served, load, ways[place].drafts));
    }
    for (size_t i = 0; i < ways.size(); ++i) {
      if (runs[i].answers != runs[0].answers) {
        return fail(Code::kInternal, "{}: an answer with guesses ({}) differs from the one without",
                    found.name, ways[i].name);
      }
      if (turn == 0) continue;  // caches and pages
      SpeculationResult& result = found.results[i];
      result.tokens = runs[i].token_count();
      result.tokens_per_s.push_back(static_cast<double>(result.tokens) / runs[i].seconds);
      result.ratios.push_back(runs[0].seconds / runs[i].seconds);
      result.guesses = runs[i].guesses;
      result.steps = runs[i].steps;
    }
  }
  return found;
}

Result<std::vector<std::vector<double>>> bench_rows(model::InferenceModel& model,
                                                    const std::vector<int32_t>& counts,
                                                    int64_t context, int64_t turns) {
  std::vector<int32_t> blocks(static_cast<size_t>(model.sizes().kv_block_count));
  std::iota(blocks.begin(), blocks.end(), 0);
  std::vector<std::vector<double>> seconds(counts.size());
  JIGE_DO(fill_cache(model, context));
  const bool has_states = model.sizes().state_count > 1;
  if (has_states) JIGE_DO(model.copy_state(0, 1));
  for (int64_t turn = 0; turn <= turns; ++turn) {
    for (size_t i = 0; i < counts.size(); ++i) {
      const std::vector<int32_t> tokens(static_cast<size_t>(counts[i]), 1);
      std::vector<int32_t> rows(tokens.size());
      std::iota(rows.begin(), rows.end(), 0);
      const ops::SequenceSpan span{.row_count = counts[i],
                                   .context_count = static_cast<int32_t>(context),
                                   .blocks = blocks.data()};
      if (has_states) JIGE_DO(model.copy_state(1, 0));
      const StopWatch watch;
      JIGE_DO(
          model.forward({.tokens = tokens, .sequences = std::span(&span, 1), .logit_rows = rows})
              .map([](const auto&) {}));
      if (turn > 0) seconds[i].push_back(watch.seconds());
    }
  }
  return seconds;
}

}  // namespace jige::cli
