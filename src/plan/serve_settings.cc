#include "plan/serve_settings.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace jige::plan {

std::span<const SettingField> setting_fields() {
  static constexpr SettingField kFields[] = {
      {"max_batch", &ServeSettings::batch_requests_max, 1, 4096, std::nullopt},
      {"batch_tokens", &ServeSettings::batch_tokens_max, 16, 1 << 16, ServePolicy::kChunked},
      {"round_prompts", &ServeSettings::round_prompts, 1, 4096, ServePolicy::kRounds},
      {"round_steps", &ServeSettings::round_steps, 1, 1 << 20, ServePolicy::kRounds}};
  return kFields;
}

std::string settings_text(const ServeSettings& settings) {
  std::string text = fmt::format("{}, {} answers at once", policy_name(settings.policy),
                                 settings.batch_requests_max);
  if (settings.policy == ServePolicy::kChunked) {
    text += fmt::format(", {} tokens an iteration", settings.batch_tokens_max);
  }
  if (settings.policy == ServePolicy::kRounds) {
    text += fmt::format(", rounds of {} prompts and {} steps", settings.round_prompts,
                        settings.round_steps);
  }
  return text;
}

Json settings_json(const ServeSettings& settings) {
  Json json{{"policy", policy_name(settings.policy)}};
  for (const SettingField& field : setting_fields()) {
    if (field.belongs_to(settings.policy)) json[field.name] = settings.*field.member;
  }
  return json;
}

ServeSettings settings_of(const ServeSchedulerOptions& options) {
  return {.policy = options.policy,
          .batch_requests_max = options.batch_requests_max,
          .batch_tokens_max = options.batch_tokens_max,
          .round_prompts = options.round_prompts,
          .round_steps = options.round_steps};
}

}  // namespace jige::plan
