// jige bench speculation: what guesses gain and cost, and from what they are.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/cpu.h"
#include "base/log.h"
#include "cli/build_info.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/speculation_bench.h"
#include "cli/speculation_flags.h"
#include "cli/speculation_texts.h"

namespace jige::cli {
namespace {

const std::vector<int32_t> kRowCounts = {1, 2, 3, 4, 5, 7, 9, 13, 17, 33};
constexpr int64_t kLogitRows = 65;     // of the longest draft
constexpr int64_t kTextTokens = 4096;  // of a text and what follows it

struct Spread {
  double median = 0, low = 0, high = 0;
};

Spread spread_of(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t half = values.size() / 2;
  const double median =
      values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
  return {median, values.front(), values.back()};
}

std::string text_of(const Spread& spread, int digits) {
  return fmt::format("{:.{}f} ({:.{}f} to {:.{}f})", spread.median, digits, spread.low, digits,
                     spread.high, digits);
}

Json json_of(const Spread& spread) {
  return {{"median", spread.median}, {"low", spread.low}, {"high", spread.high}};
}

class BenchSpeculationCommand final : public Command {
 public:
  void declare(Flags& flags) override {
    flags_ = &flags;
    flags.about(
        "Measures --speculate: the same answers with and without guesses, in turns, for one user "
        "and for several at once. In \"repeats\" every guess is right, in \"by chance\" tokens "
        "were "
        "seen before in another order and guesses are wrong, in \"nothing found\" there is nothing "
        "to guess from. Tells also what a step over several rows takes. With --texts: answers to "
        "built-in prompts, by what rules force, by copies of the text and by the draft model, each "
        "alone, and by all of them. An answer that depends on its guesses would be an error. Other "
        "load on the machine shows.");
    flags.section("What is measured");
    model_.declare(flags);
    flags.text(
        "-f,--file FILE", file_,
        "--model: a text, - for standard input, whose likeliest continuation is one more case");
    flags.toggle("--texts", texts_,
                 "--model: answers that quote their prompt, fit a JSON schema, call a tool or are "
                 "free, by each source of guesses, in place of all else");
    flags.integer("--prompt-tokens N", prompt_tokens_, {.min = 1, .max = 1 << 16},
                  "length of made-up prompts; half of the context where it is too short");
    flags.integer("--new-tokens N", new_tokens_, {.min = 2, .max = 1 << 16},
                  "length of the answers; less where the context is too short");
    flags.integer("--users N", users_, {.min = 1, .max = 64},
                  "answers made at once, in an engine; 1: only those of one user");
    flags.integer("--rounds N", rounds_, {.min = 1, .max = 1000}, "turns of each, behind one more");
    speculation_.declare(flags);
    model_.device.declare(flags);
    output_.declare(flags,
                    "one JSON line for what is measured, then one a count of rows and a case");
    flags.example("jige bench speculation --random 110m");
    flags.example(
        "jige bench speculation --model runs/quickstart/model --file draft.txt --users 8");
    flags.example(
        "jige bench speculation --model models/large --draft-model models/small --texts --users 1");
  }

  Status run() override {
    output_.apply();
    const InterruptScope interrupts;
    JIGE_TRY(const serve::DraftOptions drafts, speculation_.read());
    if (drafts.tokens_max == 0) {
      return fail(Code::kInvalidArgument, "--speculate off: there is nothing to measure");
    }
    if (texts_ && model_.folder.empty()) {
      return fail(Code::kInvalidArgument, "--texts is for --model: a random one knows no texts");
    }
    JIGE_TRY(const std::string text, file_text());
    const bool has_text = texts_ || !text.empty();
    const int64_t tokens_max = std::max<int64_t>(tokens_taken(), has_text ? kTextTokens : 0);
    JIGE_TRY(BenchServeModel served,
             model_.load(tokens_max, (tokens_max / ops::kKvBlockTokens + 2) * users_, 512,
                         std::max(kLogitRows, users_)));
    JIGE_DO(load_draft_model(served));
    if (!texts_) JIGE_DO(fit(served.model->context_max()));
    JIGE_TRY(const std::vector<SpeculationLoad> loads,
             texts_ ? text_loads(served) : make_loads(served, text));
    print_head(served);
    if (!texts_) JIGE_DO(measure_rows(*served.model));
    const std::vector<SpeculationWay> ways =
        texts_ ? each_source(drafts, served.draft_model != nullptr) : with_and_without(drafts);
    for (const SpeculationLoad& load : loads) {
      if (interrupted()) return fail(Code::kCancelled, "by a signal");
      JIGE_TRY(const SpeculationTurns found, bench_speculation(served, load, ways, rounds_));
      print(found);
    }
    return {};
  }

 private:
  // Of a made-up prompt and what is run behind it.
  int64_t tokens_taken() const {
    return prompt_tokens_ + std::max<int64_t>(kRowCounts.back(), new_tokens_ + 1);
  }

  Status load_draft_model(BenchServeModel& served) const {
    if (speculation_.draft_model.empty()) return {};
    if (model_.folder.empty()) {
      return fail(Code::kInvalidArgument,
                  "--draft-model is for --model: a random one has no vocabulary in common with it");
    }
    JIGE_TRY(const auto plan, speculation_.plan_draft_model(
                                  *served.tokenizer, {.context_max = served.model->context_max(),
                                                      .sequences = users_}));
    JIGE_TRY(served.draft_model, serve::DraftModel::load(*plan, *served.model));
    return {};
  }

  // Shortens what nobody asked for to a model's context.
  Status fit(int64_t context) {
    if (tokens_taken() <= context) return {};
    const bool given = flags_->given("--prompt-tokens") || flags_->given("--new-tokens");
    const int64_t half = context / 2;
    if (given || half <= kRowCounts.back()) {
      return fail(
          Code::kInvalidArgument,
          "--prompt-tokens {} and --new-tokens {} take {} tokens, {} for what is run behind "
          "the prompt; the model's context holds {}",
          prompt_tokens_, new_tokens_, tokens_taken(), tokens_taken() - prompt_tokens_, context);
    }
    prompt_tokens_ = context - half;
    new_tokens_ = std::min(new_tokens_, half - 1);
    log_info("the context holds {} tokens: prompts have {}, answers {}", context, prompt_tokens_,
             new_tokens_);
    return {};
  }

  Result<std::string> file_text() const {
    if (file_.empty()) return std::string();
    if (model_.folder.empty()) {
      return fail(Code::kInvalidArgument, "--file is for --model: a random one knows no texts");
    }
    return read_text({.file = file_}, "--file");
  }

  Result<std::vector<SpeculationLoad>> make_loads(const BenchServeModel& served,
                                                  const std::string& text) const {
    std::vector<SpeculationCase> cases =
        made_up_cases(prompt_tokens_, served.model->config().vocab_size);
    const size_t made_up = cases.size();
    if (!text.empty()) {
      JIGE_TRY(std::vector<int32_t> prompt, served.tokenizer->encode(text, {}));
      if (std::ssize(prompt) + 2 > served.model->context_max()) {
        return fail(Code::kInvalidArgument,
                    "--file {}: has {} tokens, and the context of {} is for the answer, too; give "
                    "a shorter text",
                    file_, prompt.size(), served.model->context_max());
      }
      cases.push_back({.name = "text", .prompts = {std::move(prompt)}});
      SpeculationCase drawn = cases.back();
      drawn.name = "text, temperature 1";
      drawn.sampling.temperature = 1;
      cases.push_back(std::move(drawn));
    }
    std::vector<SpeculationLoad> loads;
    for (const int64_t users : {int64_t{1}, users_}) {
      for (const SpeculationCase& one : cases) {
        loads.push_back({.cases = {one}, .users = users, .new_tokens = new_tokens_});
      }
      if (users_ == 1) break;
    }
    if (users_ > 1) {
      loads.push_back(
          {.cases = {cases[0], cases[made_up - 1]}, .users = users_, .new_tokens = new_tokens_});
    }
    return loads;
  }

  Result<std::vector<SpeculationLoad>> text_loads(const BenchServeModel& served) const {
    JIGE_TRY(const std::vector<SpeculationCase> cases,
             text_cases(*served.tokenizer, served.model->config()));
    std::vector<SpeculationLoad> loads;
    for (const int64_t users : {int64_t{1}, users_}) {
      for (const SpeculationCase& one : cases) {
        loads.push_back({.cases = {one}, .users = users, .new_tokens = new_tokens_});
      }
      if (users_ == 1) break;
    }
    return loads;
  }

  Status measure_rows(model::InferenceModel& model) {
    JIGE_TRY(const auto seconds, bench_rows(model, kRowCounts, prompt_tokens_ - 1, rounds_));
    const double one_s = spread_of(seconds[0]).median;
    for (size_t i = 0; i < kRowCounts.size(); ++i) {
      Spread spread = spread_of(seconds[i]);
      if (output_.json) {
        print_json(Json{{"rows", kRowCounts[i]}, {"seconds", json_of(spread)}});
        continue;
      }
      const Spread shown{spread.median * 1e3, spread.low * 1e3, spread.high * 1e3};
      print_text(fmt::format("  a step over {:>2} row{} {:>30} ms, {:.2f} times one\n",
                             kRowCounts[i], kRowCounts[i] == 1 ? ": " : "s:", text_of(shown, 2),
                             spread.median / one_s));
    }
    return {};
  }

  void print_head(const BenchServeModel& served) const {
    if (output_.json) {
      print_json(Json{{"subject", served.text},
                      {"speculate", speculation_.speculate},
                      {"draft_model", speculation_.draft_model},
                      {"machine", cpu_features().model_name},
                      {"threads", served.devices.team().size()},
                      {"isa", isa_name(active_isa())},
                      {"version", kVersion},
                      {"build", kBuildType}});
      return;
    }
    const std::string draft_model =
        speculation_.draft_model.empty() ? "" : " --draft-model " + speculation_.draft_model;
    print_text(fmt::format("{}, --speculate {}{}, on {}, {} threads\n", served.text,
                           speculation_.speculate, draft_model, cpu_features().model_name,
                           served.devices.team().size()));
  }

  void print(const SpeculationTurns& found) const {
    for (const SpeculationResult& result : found.results) {
      output_.json ? print_line(found, result) : print_row(found, result);
    }
  }

  void print_line(const SpeculationTurns& found, const SpeculationResult& result) const {
    Json guesses;
    for (const plan::GuessKindCounts& kind : result.guesses.by_kind()) {
      guesses[std::string(kind.name)] = {{"guessed", kind.guessed}, {"right", kind.right}};
    }
    print_json(Json{{"case", found.name},
                    {"users", found.users},
                    {"way", result.way},
                    {"tokens_per_s", json_of(spread_of(result.tokens_per_s))},
                    {"ratio", json_of(spread_of(result.ratios))},
                    {"tokens", result.tokens},
                    {"steps", result.steps},
                    {"guesses", guesses}});
  }

  void print_row(const SpeculationTurns& found, const SpeculationResult& result) const {
    std::string guesses;
    for (const plan::GuessKindCounts& kind : result.guesses.by_kind()) {
      if (kind.guessed == 0) continue;
      guesses += fmt::format(", {} of {} {}", kind.right, kind.guessed, kind.name);
    }
    print_text(fmt::format(
        "  {:<26} {:>2} user{}  {:<8} {:>24} tokens/s, {} times, {:.2f} tokens a step{}\n",
        found.name, found.users, found.users == 1 ? ": " : "s:", result.way,
        text_of(spread_of(result.tokens_per_s), 1), text_of(spread_of(result.ratios), 2),
        static_cast<double>(result.tokens) /
            static_cast<double>(std::max<int64_t>(1, result.steps)),
        guesses.empty() ? "" : guesses + " right"));
  }

  const Flags* flags_ = nullptr;
  BenchServeModelFlags model_;
  std::string file_;
  bool texts_ = false;
  int64_t prompt_tokens_ = 256;
  int64_t new_tokens_ = 128;
  int64_t users_ = 8;
  int64_t rounds_ = 5;
  SpeculationFlags speculation_;
  OutputFlags output_;
};

}  // namespace

std::unique_ptr<Command> make_bench_speculation_command() {
  return std::make_unique<BenchSpeculationCommand>();
}

}  // namespace jige::cli
