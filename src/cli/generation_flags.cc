#include "cli/generation_flags.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/counted.h"
#include "base/printable.h"
#include "base/rng.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "formats/generation_config.h"

namespace jige::cli {
namespace {

constexpr double kTemperature = 0.8;
constexpr double kTopP = 0.95;

uint64_t seed_from_clock() {
  const uint64_t key = derive_key(static_cast<uint64_t>(RealClock().now_ns()), "seed");
  return key % 1'000'000'000;  // short enough to be typed again
}

}  // namespace

void GenerationFlags::declare(Flags& flags) {
  flags.section("Sampling (without a flag, what the model folder says)");
  flags.integer("--max-new-tokens N", tokens_max, {.min = 1, .max = int64_t{1} << 31},
                "length of the answer at most");
  flags.number("--temperature T", temperature, {.min = 0, .max = 100},
               "0 always takes the likeliest token, 1 draws as the model says, more is wilder; 0.8 "
               "if the folder says nothing");
  flags.integer("--top-k N", top_k, {}, "draw from the N likeliest tokens only; 0: off");
  flags.number("--top-p P", top_p, {.max = 1, .above_min = true},
               "draw from the likeliest tokens that make up this share; 1: off; 0.95 if the folder "
               "says nothing");
  flags.number("--min-p P", min_p, {.max = 1, .below_max = true},
               "leave out tokens below this share of the likeliest one's probability; 0: off");
  flags.number("--repetition-penalty X", repetition_penalty, {.above_min = true},
               "above 1: seen tokens become less likely");
  flags.number("--presence-penalty X", presence_penalty, {.min = -100, .max = 100},
               "subtracted from the logits of tokens that were generated");
  flags.number("--frequency-penalty X", frequency_penalty, {.min = -100, .max = 100},
               "the same, for each time");
  flags.integer("--seed N", seed, {}, "the same seed gives the same text; without it the clock's");
  flags.texts("--stop TEXT", stops, "end the answer before this text; may be given several times");
  flags.toggle("--ignore-eos", ignore_eos, "go on after the end-of-text token");
  speculation.declare(flags);
}

Result<serve::GenerateOptions> GenerationFlags::to_options(const LoadedModel& loaded,
                                                           int64_t tokens_default) const {
  JIGE_TRY(const formats::GenerationConfig config, formats::load_generation_config(loaded.folder));
  serve::GenerateOptions options;
  const double fallback =
      config.do_sample.value_or(true) ? config.temperature.value_or(kTemperature) : 0;
  options.sampling = {
      .temperature = temperature.value_or(fallback),
      .top_k = top_k.value_or(config.top_k.value_or(0)),
      .top_p = top_p.value_or(config.top_p.value_or(kTopP)),
      .min_p = min_p.value_or(config.min_p.value_or(0)),
      .repetition_penalty = repetition_penalty.value_or(config.repetition_penalty.value_or(1)),
      .presence_penalty = presence_penalty,
      .frequency_penalty = frequency_penalty};
  JIGE_DO(ops::validate(options.sampling));
  options.logprobs = false;
  options.seed = seed ? static_cast<uint64_t>(*seed) : seed_from_clock();
  options.tokens_max = tokens_max.value_or(config.max_new_tokens.value_or(tokens_default));
  if (!ignore_eos) options.stop_ids = serve::end_ids(loaded.tokenizer, loaded.model->config());
  if (std::find(stops.begin(), stops.end(), "") != stops.end()) {
    return fail(Code::kInvalidArgument, "--stop is empty; give the text to end before");
  }
  options.stop_strings = stops;
  JIGE_TRY(options.drafts, speculation.read());
  options.cancelled = &interrupt_flag();
  return options;
}

std::string stats_text(const serve::GenerationStats& stats) {
  std::string text = counted(stats.generated_tokens, "token");
  if (stats.generated_tokens > 1) {
    text += fmt::format(" at {:.1f} tokens/s", stats.decode_tokens_per_s());
  }
  text += fmt::format(" (prompt of {}", stats.prompt_tokens);
  if (stats.reused_tokens > 0) text += fmt::format(", {} of them known", stats.reused_tokens);
  if (stats.prefill_seconds > 0) {
    text += fmt::format(", at {:.0f} tokens/s", stats.prefill_tokens_per_s());
  }
  text += fmt::format(", first token after {:.2f} s)", stats.first_token_seconds);
  if (stats.drafted_tokens > 0) {
    text +=
        fmt::format(", {} of {} guessed tokens right", stats.accepted_tokens, stats.drafted_tokens);
  }
  return text;
}

Json stats_json(const serve::GenerationStats& stats) {
  return {{"prompt_tokens", stats.prompt_tokens},
          {"reused_tokens", stats.reused_tokens},
          {"generated_tokens", stats.generated_tokens},
          {"drafted_tokens", stats.drafted_tokens},
          {"accepted_tokens", stats.accepted_tokens},
          {"first_token_seconds", stats.first_token_seconds},
          {"prefill_tokens_per_s", stats.prefill_tokens_per_s()},
          {"decode_tokens_per_s", stats.decode_tokens_per_s()}};
}

std::string shown_text(std::string_view text) {
  static const bool terminal = isatty(STDOUT_FILENO) == 1;
  return terminal ? without_controls(text) : std::string(text);
}

}  // namespace jige::cli
