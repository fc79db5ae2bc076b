#include "plan/serve_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace jige::plan {
namespace {

Status check_range(const SettingField& field, int64_t value, std::string_view where) {
  if (value >= field.min && value <= field.max) return {};
  return fail(Code::kInvalidArgument, "{}: {} is {}; it must be in {}..{}", where, field.name,
              value, field.min, field.max);
}

}  // namespace

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

Result<ServeSettings> settings_from_json(const Json& json, std::string_view where) {
  ServeSettings settings;
  JIGE_TRY(const std::string policy, get_string(json, "policy", where));
  const auto known = find_policy(policy);
  if (!known) {
    return fail(Code::kInvalidArgument,
                "{}: policy \"{}\" is not one of chunked, orca, static, rounds", where, policy);
  }
  settings.policy = *known;
  const std::span<const SettingField> fields = setting_fields();
  for (const auto& [name, value] : json.items()) {
    if (name == "policy") continue;
    const auto field =
        std::ranges::find_if(fields, [&](const SettingField& of) { return name == of.name; });
    if (field == fields.end() || !field->belongs_to(settings.policy)) {
      return fail(Code::kInvalidArgument, "{}: \"{}\" is no setting of the policy {}; leave it out",
                  where, name, policy);
    }
  }
  for (const SettingField& field : fields) {
    if (!field.belongs_to(settings.policy)) continue;
    JIGE_TRY(const int64_t value, get_int(json, field.name, where));
    JIGE_DO(check_range(field, value, where));
    settings.*field.member = static_cast<int32_t>(value);
  }
  return settings;
}

Status check_settings(const ServeSettings& settings, std::string_view where) {
  for (const SettingField& field : setting_fields()) {
    if (field.belongs_to(settings.policy)) {
      JIGE_DO(check_range(field, settings.*field.member, where));
    }
  }
  return {};
}

ServeSettings settings_of(const ServeSchedulerOptions& options) {
  return {.policy = options.policy,
          .batch_requests_max = options.batch_requests_max,
          .batch_tokens_max = options.batch_tokens_max,
          .round_prompts = options.round_prompts,
          .round_steps = options.round_steps};
}

}  // namespace jige::plan
