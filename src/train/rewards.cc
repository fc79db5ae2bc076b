#include "train/rewards.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/printable.h"
#include "train/option_flags.h"

namespace jige::train {
namespace {

constexpr size_t kShownColumnsMax = 80;

}  // namespace

std::optional<double> read_reward(std::string_view line) {
  const auto json = parse_json(line, "reward");
  if (!json) return std::nullopt;
  const Json* number = json->is_object() ? find_field(*json, "reward") : &*json;
  if (number == nullptr || !number->is_number()) return std::nullopt;
  const auto reward = number->get<double>();
  return std::isfinite(reward) ? std::optional(reward) : std::nullopt;
}

Result<std::vector<double>> Rewards::score(std::span<const AnswerToScore> answers, int64_t step,
                                           const GoOn& go_on) {
  if (!options_.rule) return ask_program(answers, step, go_on);
  std::vector<double> rewards;
  for (const AnswerToScore& answer : answers) {
    JIGE_DO(may_go_on(go_on));
    rewards.push_back(rule_reward(*options_.rule, answer.text, answer.prompt->answer));
  }
  return rewards;
}

Result<std::vector<double>> Rewards::ask_program(std::span<const AnswerToScore> answers,
                                                 int64_t step, const GoOn& go_on) {
  if (answers.empty()) return std::vector<double>();  // of a rank without a prompt
  if (!program_) {
    JIGE_TRY(program_, LineProcess::start(options_.command));
  }
  std::vector<std::string> lines;
  for (const AnswerToScore& answer : answers) {
    JIGE_TRY(Json line, parse_json(answer.prompt->record, "prompt"));
    line["completion"] = answer.text;
    line["step"] = step;
    lines.push_back(dump_json(line));
  }
  auto replies = program_->exchange(lines, options_.line_limit_s, go_on);
  if (!replies) {
    JIGE_DO(may_go_on(go_on));  // not the program's fault
    return with_context(std::move(replies.error()), "{}", flag_of("grpo.reward_command"));
  }
  std::vector<double> rewards;
  for (const std::string& reply : *replies) {
    const std::optional<double> reward = read_reward(reply);
    if (!reward) {
      return fail(Code::kCorrupt,
                  "{}: '{}': \"{}\", line {} of {}, is no reward: say a number, or "
                  "{{\"reward\": number}}, for each answer",
                  flag_of("grpo.reward_command"), options_.command,
                  cut_to_columns(printable(reply), kShownColumnsMax), rewards.size() + 1,
                  lines.size());
    }
    rewards.push_back(*reward);
  }
  return rewards;
}

}  // namespace jige::train
