#include "cli/train_reward_flags.h"

#include <algorithm>

#include "cli/answer_engine.h"
#include "cli/flags.h"

namespace jige::cli {
namespace {

// Of the tokens of an answer, in which it comes to lose reward: DAPO's.
constexpr int64_t kMarginParts = 5;

}  // namespace

void TrainRewardFlags::declare(Flags& flags) {
  train::DrawOptions& draw = options.draw;
  train::PolicyLossOptions& loss = options.loss;
  flags.section("Learning from rewards (with --from)");
  flags.toggle("--grpo", grpo,
               "draw answers to prompts, {\"prompt\", \"answer\"} or {\"messages\", \"answer\"} in "
               "JSONL, score them, and learn from how each compares with others to the same "
               "prompt; --lr is 1e-6 then, with --lora 1e-5, unless given");
  flags.choice("--reward RULE", reward, train::reward_rule_names(),
               "1 for an answer that is the known one (exact), holds it (contains), has its last "
               "number (number), or matches it as a pattern (regex); else 0");
  flags.text("--reward-command CMD", options.reward.command,
             "a program instead, run by sh: it gets each answer as a line of JSON, the data's line "
             "with \"completion\" and \"step\", and says a number a line");
  flags.number("--reward-timeout S", options.reward.line_limit_s,
               {.min = 0, .max = 86400, .above_min = true},
               "seconds that it may take for an answer");
  flags.integer("--prompts-per-step N", options.prompts_per_step, {.min = 1, .max = 1 << 16},
                "prompts of a step");
  flags.integer("--group N", options.group, {.min = 2, .max = train::kGroupMax},
                "answers to each of them");
  flags.integer("--max-new-tokens N", draw.tokens_max, {.min = 1, .max = 1 << 24},
                "tokens of an answer at most");
  flags.number("--temperature X", draw.temperature, {.max = 100, .above_min = true},
               "of the answers that are learned from");
  flags.number("--top-p X", draw.top_p, {.max = 1, .above_min = true},
               "draw from the likeliest tokens with this much probability; 1: from all");
  flags.choice("--advantage HOW", advantage, {"std", "mean", "batch"},
               "a reward beside those of its group: less their mean, divided by their deviation "
               "(std), by that of all rewards of the step (batch), or not (mean)");
  flags.choice("--overlong HOW", overlong, {"none", "mask", "penalty", "both"},
               "of long answers: do not learn from those cut by --max-new-tokens (mask), or let "
               "those near it lose reward (penalty)");
  flags.number("--overlong-penalty X", overlong_penalty, {.above_min = true},
               "what the longest lose");
  flags.integer(
      "--overlong-margin N", overlong_margin, {.min = 0, .max = 1 << 24},
      "the last tokens of an answer's length, in which it comes to lose that; 0: a fifth");
  flags.integer("--updates-per-step N", options.updates, {.min = 1, .max = 1024},
                "updates on the answers of a step");
  flags.number("--clip-low X", loss.clip_low, {.max = 1, .above_min = true},
               "how much less likely a token may become in them");
  flags.number("--clip-high X", loss.clip_high, {.above_min = true}, "how much likelier");
  flags.number("--kl X", loss.kl, {},
               "weight of the distance from the model it starts from, which is kept in memory "
               "then; 0: none");
  flags.integer("--draw-at-once N", options.answers_max, {.min = 1, .max = 4096},
                "answers that are drawn at once, on each rank: less takes less memory");
}

Result<std::optional<train::GrpoOptions>> TrainRewardFlags::to_options(const Flags& flags) const {
  if (!grpo) {
    JIGE_DO(
        flags.refuse({"--reward", "--reward-command", "--reward-timeout", "--prompts-per-step",
                      "--group", "--max-new-tokens", "--temperature", "--top-p", "--advantage",
                      "--overlong", "--overlong-penalty", "--overlong-margin", "--updates-per-step",
                      "--clip-low", "--clip-high", "--kl", "--draw-at-once"},
                     "is about learning from rewards: add --grpo, or leave it out"));
    return std::nullopt;
  }
  JIGE_DO(flags.refuse({"--split", "--separator", "--text-field", "--token-layout", "--packing",
                        "--no-eos", "--eval-share", "--eval-tokens", "--batch-tokens"},
                       "is not about prompts and their answers: leave it out with --grpo"));
  if (options.reward.command.empty()) {
    JIGE_DO(
        flags.refuse({"--reward-timeout"}, "is of --reward-command: give that, or leave it out"));
  }
  train::GrpoOptions made = options;
  if (!reward.empty()) made.reward.rule = train::read_reward_rule(reward);
  made.loss.advantage = advantage == "mean"    ? train::AdvantageKind::kMean
                        : advantage == "batch" ? train::AdvantageKind::kBatch
                                               : train::AdvantageKind::kStd;
  JIGE_TRY(made.overlong, read_overlong(flags));
  made.source = make_answer_engine();
  return made;
}

Result<train::OverlongOptions> TrainRewardFlags::read_overlong(const Flags& flags) const {
  train::OverlongOptions made{.masks = overlong == "mask" || overlong == "both"};
  if (overlong != "penalty" && overlong != "both") {
    JIGE_DO(flags.refuse({"--overlong-penalty", "--overlong-margin"},
                         "is about what long answers lose: give --overlong penalty or both, or "
                         "leave it out"));
    return made;
  }
  const int64_t tokens_max = options.draw.tokens_max;
  made.penalty = overlong_penalty;
  made.margin =
      overlong_margin > 0 ? overlong_margin : std::max<int64_t>(1, tokens_max / kMarginParts);
  return made;
}

}  // namespace jige::cli
