// Settings that change while requests are inside.
#include <algorithm>

#include "base/check.h"
#include "plan/serve_scheduler.h"
#include "plan/serve_settings.h"

namespace jige::plan {

void ServeScheduler::change(const ServeSettings& settings) {
  changed_ = options_;
  apply_settings(settings, *changed_);
  JIGE_CHECK(changed_->batch_requests_max > 0 && changed_->batch_tokens_max > 0 &&
                 changed_->round_prompts > 0 && changed_->round_steps > 0,
             "settings must be positive: {}", settings_text(settings));
  if (in_flight_.empty()) change_at_border();
}

// Before each batch, and where nobody is inside any more: the places of those who were too many go
// with them.
void ServeScheduler::change_at_border() {
  const auto inside = static_cast<int32_t>(inside_.size());
  const bool in_round = options_.policy == ServePolicy::kRounds && round_steps_left_ > 0;
  const bool in_static_batch = options_.policy == ServePolicy::kStatic;
  if (changed_ && (inside_.empty() || !(in_round || in_static_batch))) {
    options_ = *changed_;
    changed_.reset();
    round_steps_left_ = 0;
  }
  places_ = std::max(options_.batch_requests_max, std::min(places_, inside));
}

// Those who have places that the settings do not foresee need tokens that these do not, either.
int32_t ServeScheduler::token_budget() const {
  const int32_t budget = std::max(options_.batch_tokens_max, options_.whole_prompt_tokens);
  return places_ == options_.batch_requests_max ? budget : std::max(budget, places_);
}

}  // namespace jige::plan
