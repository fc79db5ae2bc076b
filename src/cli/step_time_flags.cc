#include "cli/step_time_flags.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/counted.h"
#include "base/log.h"
#include "cli/flags.h"
#include "cli/step_profiler.h"

namespace jige::cli {

KnownStepTime known_step_time(const sim::StepProfile& profile, const ForwardRows& rows) {
  warn_of_error(profile);
  KnownStepTime known{.step = profile.step};
  known.step.limits = {.rows_max = rows.batch_tokens,
                       .sample_rows_max = std::min(rows.batch_requests, rows.batch_tokens)};
  if (known.step.limits.rows_max > profile.step.limits.rows_max) {
    log_warn("--batch-tokens {}: forwards of more than {} rows were not measured",
             known.step.limits.rows_max, profile.step.limits.rows_max);
  }
  sim::StepFeatures one, prompt;
  one.add(0, 1, 1);
  prompt.add(0, 128, 1);
  known.text = fmt::format("as {} on {}, {}: {:.3g} ms a next token, {:.3g} ms a prompt of 128",
                           profile.subject.model.name, profile.subject.machine.processor,
                           counted(profile.subject.machine.threads, "thread"),
                           known.step.seconds(one) * 1e3, known.step.seconds(prompt) * 1e3);
  return known;
}

void StepTimeFlags::declare(Flags& flags) {
  flags.section("Time of an iteration");
  flags.text("--profile FILE", profile_path, "as `jige profile serve -o` has measured it");
  flags.number("--base-ms X", base_ms, {.min = 0, .max = 1e6}, "of any iteration");
  flags.number("--token-us X", token_us, {.min = 0, .max = 1e9}, "more for each token in it");
  flags.number("--kv-token-ns X", kv_token_ns, {.min = 0, .max = 1e9},
               "more for each cached token that is read");
}

Status StepTimeFlags::check_use(const Flags& flags) const {
  if (profile_path.empty()) return {};
  return flags.refuse({"--base-ms", "--token-us", "--kv-token-ns"},
                      "is not of the profile; give one of them");
}

Result<KnownStepTime> StepTimeFlags::by_figures() const {
  if (base_ms + token_us + kv_token_ns <= 0) {
    return fail(Code::kInvalidArgument, "an iteration must take time; give --base-ms above 0");
  }
  return KnownStepTime{
      .step = {.base_s = base_ms / 1e3, .token_s = token_us / 1e6, .kv_token_s = kv_token_ns / 1e9},
      .text = fmt::format("{:.3g} ms an iteration, {:.3g} us a token, {:.3g} ns a cached token",
                          base_ms, token_us, kv_token_ns)};
}

}  // namespace jige::cli
