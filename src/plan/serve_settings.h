// ServeSettings: what of a serving scheduler is chosen for a load: the policy and its numbers.
//
// One list of fields (setting_fields()) gives their names in files and answers, their ranges, and
// which policy has them: what belongs to another policy has no effect and is not told.
// Threads: values.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "plan/serve_scheduler.h"

namespace jige::plan {

struct ServeSettings {
  ServePolicy policy = ServePolicy::kChunked;
  int32_t batch_requests_max = 64;
  int32_t batch_tokens_max = 512;  // chunked
  int32_t round_prompts = 8;       // rounds
  int32_t round_steps = 16;        // rounds
  bool operator==(const ServeSettings&) const = default;
};

// Of the numbers, in the order in which they are told.
struct SettingField {
  const char* name;
  int32_t ServeSettings::*member;
  int64_t min, max;
  std::optional<ServePolicy> policy;  // the only one that has it
  bool belongs_to(ServePolicy wanted) const { return !policy || *policy == wanted; }
};
std::span<const SettingField> setting_fields();

// "chunked, 16 answers at once, 256 tokens an iteration"
std::string settings_text(const ServeSettings& settings);
// {"policy": "chunked", "max_batch": 16, "batch_tokens": 256}
Json settings_json(const ServeSettings& settings);
// Fails with kInvalidArgument or kNotFound on fields that are wrong, missing or of another policy,
// naming them.
Result<ServeSettings> settings_from_json(const Json& json, std::string_view where);
// Fails with kInvalidArgument where a number of the policy is out of its range.
Status check_settings(const ServeSettings& settings, std::string_view where);

ServeSettings settings_of(const ServeSchedulerOptions& options);
// Sets them in options of a scheduler, or of an engine, which call them alike.
template <typename Options>
void apply_settings(const ServeSettings& settings, Options& options) {
  options.policy = settings.policy;
  options.batch_requests_max = settings.batch_requests_max;
  options.batch_tokens_max = settings.batch_tokens_max;
  options.round_prompts = settings.round_prompts;
  options.round_steps = settings.round_steps;
}

}  // namespace jige::plan
