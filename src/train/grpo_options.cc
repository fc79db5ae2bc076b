#include "train/grpo_options.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "train/option_flags.h"
#include "train/options.h"

namespace jige::train {
namespace {

Status require_grpo(bool holds, std::string_view option, double value, std::string_view range) {
  if (holds) return {};
  return fail(Code::kInvalidArgument, "{} is {}, but must be {}", flag_of(option), value, range);
}

Status require_count(std::string_view option, int64_t value, int64_t min, int64_t max) {
  if (value >= min && value <= max) return {};
  return fail(Code::kInvalidArgument, "{} is {}, but must be between {} and {}", flag_of(option),
              value, min, max);
}

Status validate_reward(const RewardOptions& reward) {
  JIGE_DO(require_grpo(reward.line_limit_s > 0 && reward.line_limit_s <= 86400,
                       "grpo.reward_timeout", reward.line_limit_s, "above 0 and at most 86400"));
  if (reward.rule.has_value() != !reward.command.empty()) return {};
  return fail(Code::kInvalidArgument, "{} needs one of {} and {}, which score the answers",
              flag_of("grpo"), flag_of("grpo.reward"), flag_of("grpo.reward_command"));
}

Status validate_overlong(const OverlongOptions& overlong, int64_t tokens_max) {
  JIGE_DO(require_grpo(overlong.penalty >= 0 && std::isfinite(overlong.penalty),
                       "grpo.overlong.penalty", overlong.penalty, "0 (off) or more"));
  if (overlong.penalty == 0) return {};
  return require_count("grpo.overlong.margin", overlong.margin, 1, tokens_max);
}

}  // namespace

Status validate(const GrpoOptions& options) {
  JIGE_DO(validate_reward(options.reward));
  JIGE_DO(require_count("grpo.prompts_per_step", options.prompts_per_step, 1, 1 << 16));
  JIGE_DO(require_count("grpo.group", options.group, 2, kGroupMax));
  JIGE_DO(require_count("grpo.tokens_max", options.draw.tokens_max, 1, 1 << 24));
  JIGE_DO(require_count("grpo.updates", options.updates, 1, 1024));
  JIGE_DO(require_count("draw_at_once", options.answers_max, 1, 4096));
  const DrawOptions& draw = options.draw;
  JIGE_DO(require_grpo(draw.temperature > 0 && draw.temperature <= 100, "grpo.temperature",
                       draw.temperature,
                       "above 0, since equal answers teach nothing, and at most 100"));
  JIGE_DO(require_grpo(draw.top_p > 0 && draw.top_p <= 1, "grpo.top_p", draw.top_p,
                       "above 0 and at most 1"));
  JIGE_DO(validate_overlong(options.overlong, draw.tokens_max));
  const PolicyLossOptions& loss = options.loss;
  JIGE_DO(require_grpo(loss.clip_low > 0 && loss.clip_low <= 1, "grpo.clip_low", loss.clip_low,
                       "above 0 and at most 1"));
  JIGE_DO(require_grpo(loss.clip_high > 0 && std::isfinite(loss.clip_high), "grpo.clip_high",
                       loss.clip_high, "above 0"));
  return require_grpo(loss.kl >= 0 && std::isfinite(loss.kl), "grpo.kl", loss.kl,
                      "0 (off) or more");
}

Json identity_json(const GrpoOptions& options) {
  Json json = {{"prompts_per_step", options.prompts_per_step},
               {"group", options.group},
               {"temperature", options.draw.temperature},
               {"top_p", options.draw.top_p},
               {"tokens_max", options.draw.tokens_max},
               {"advantage", advantage_name(options.loss.advantage)},
               {"clip_low", options.loss.clip_low},
               {"clip_high", options.loss.clip_high},
               {"kl", options.loss.kl},
               {"updates", options.updates}};
  // Runs without go on from checkpoints that were made before there was any.
  if (options.overlong != OverlongOptions()) {
    json["overlong"] = {{"masks", options.overlong.masks},
                        {"penalty", options.overlong.penalty},
                        {"margin", options.overlong.margin}};
  }
  if (options.reward.rule) json["reward"] = reward_rule_name(*options.reward.rule);
  if (!options.reward.rule) json["reward_command"] = options.reward.command;
  return json;
}

Status validate_grpo(const TrainOptions& options) {
  if (!options.grpo) return {};
  if (options.init_folder.empty()) {
    return fail(Code::kInvalidArgument, "{} teaches a trained model: name its folder with {}",
                flag_of("grpo"), flag_of("init_folder"));
  }
  if (options.dpo) {
    return fail(Code::kInvalidArgument, "{} and {} exclude each other; give one of them",
                flag_of("dpo"), flag_of("grpo"));
  }
  JIGE_DO(validate(*options.grpo));
  const auto unsupported = [](std::string_view what) -> Status {
    return fail(Code::kUnsupported, "{} with {} is not supported yet: leave one out",
                flag_of("grpo"), what);
  };
  if (options.pipeline) return unsupported("a pipeline of devices (--devices, --plan)");
  if (options.on_gpu()) return unsupported("--device cuda");
  const bool drops = options.dropout > 0;
  if (!drops && !(options.lora && options.lora->dropout > 0)) return {};
  return fail(Code::kInvalidArgument,
              "{} with {}: answers are drawn by the whole model, and parts of it would learn from "
              "them; leave it out",
              flag_of(drops ? "dropout" : "lora.dropout"), flag_of("grpo"));
}

DrawSizes draw_sizes(const TrainOptions& options) {
  const GrpoOptions& grpo = *options.grpo;
  const int64_t ranks = options.ranks ? options.ranks->size : 1;
  const int64_t own = (grpo.prompts_per_step + ranks - 1) / ranks * grpo.group;
  return {.context = options.context,
          .answers_max = std::max(grpo.group, std::min(grpo.answers_max, own)),
          .group = grpo.group};
}

}  // namespace jige::train
