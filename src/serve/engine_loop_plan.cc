// The plan of an engine: whether requests are still those that it was made for, and another one in
// its place.
#include <memory>
#include <utility>

#include "base/log.h"
#include "serve/engine_loop.h"

namespace jige::serve {

void EngineLoop::change_plan(PlanChange change) {
  scheduler_.change(change.settings);
  if (!drift_) return;
  drift_->replan(std::move(change.planned));
  turn_.drift = drift_->state();
}

void EngineLoop::look_for_drift(const LiveRequest& live) {
  const RequestRow row = live.row();
  const int64_t begun = std::ssize(requests_) - not_begun_count_ - 1;  // beside this one
  const bool changed = drift_->add({.prompt_tokens = row.prompt_tokens,
                                    .answer_tokens = row.generated_tokens / row.choice_count},
                                   begun);
  const plan::DriftState& state = drift_->state();
  if (turn_.drift->looks != state.looks) {
    turn_.recent_load = std::make_shared<const plan::RecentLoad>(drift_->recent());
  }
  turn_.drift = state;
  if (!changed) return;
  if (!state.drifted) {
    log_info("requests are again like those that the plan was made for");
    return;
  }
  log_warn(
      "requests are no longer like those that the plan was made for: prompts have {:.0f} and "
      "answers {:.0f} tokens in the mean, {:.3g} come a second (distances of lengths {:.2f} and "
      "{:.2f}, {:.2f} times the planned rate){}",
      state.prompt_tokens_mean, state.answer_tokens_mean, state.rate_per_s, state.prompt_distance,
      state.answer_distance, state.rate_ratio,
      shared_.options.replan_requests_max > 0 ? "" : "; plan again for such requests");
}

}  // namespace jige::serve
